//! The rules that decide whether a request is allowed, and what its target is. They need only the
//! head of the request, so they are applied before the body is read.

use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, IF_NONE_MATCH,
    ORIGIN,
};
use hyper::http::request::Parts;
use hyper::{Method, Uri};

use super::API_PATH;
use super::answer::{AcceptedBody, ApiHandler, ApiRefusal, ApiRequest};
use super::token::AccessToken;

/// Maximum length of a parameter's name and value in bytes. Real patterns are shorter.
const MAX_PARAMETER_LENGTH: usize = 8 << 10;
/// Maximum number of parameters of a request.
const MAX_PARAMETERS: usize = 64;

/// The target of an allowed request.
#[derive(Debug)]
pub(super) enum RequestTarget {
    /// The page.
    Page,
    /// A request to the API.
    Answer(ApiRequest),
    /// A request to the API with a body.
    Upload(ApiRequest, AcceptedBody),
}

/// Checks the requests to a server.
pub(super) struct RequestGuard {
    /// The host names under which clients on this machine may reach the server.
    hosts: [String; 2],
    token: AccessToken,
}

impl RequestGuard {
    pub(super) fn new(port: u16, token: AccessToken) -> Self {
        let named = |name: &str| match port {
            80 => name.to_string(),
            port => format!("{name}:{port}"),
        };
        Self {
            hosts: ["127.0.0.1", "localhost"].map(named),
            token,
        }
    }

    /// Returns the target of a request, or the reason for refusing it. A client without the token
    /// gets no other information.
    pub(super) fn check_request(
        &self,
        head: &Parts,
        answers: &dyn ApiHandler,
    ) -> Result<RequestTarget, ApiRefusal> {
        self.check_host(head)?;
        let mut parameters = parameters(&head.uri)?;
        let tokens: Vec<String> = {
            let given = parameters.extract_if(.., |(name, _)| name == "token");
            given.map(|(_, token)| token).collect()
        };
        if !matches!(&tokens[..], [token] if self.token.matches(token)) {
            return Err(ApiRefusal::new(
                403,
                "The token is missing or wrong",
                "Open the address that heapprof web printed",
            ));
        }
        // Without parameters, or if there is nothing else at /, it is the page.
        let whole = head.uri.path();
        let is_other = answers.has_path(whole) && (whole != "/" || !parameters.is_empty());
        if whole == "/" && !is_other {
            return match head.method {
                Method::GET | Method::HEAD => Ok(RequestTarget::Page),
                _ => Err(method_refusal("GET", "GET, HEAD")),
            };
        }
        self.check_origin(&head.headers)?;
        check_once(&parameters)?;
        let below = whole
            .strip_prefix(API_PATH)
            .and_then(|rest| rest.strip_prefix('/'));
        let is_plain = |path: &&str| path.bytes().all(|b| b.is_ascii_lowercase());
        let other = is_other.then_some(whole);
        let Some(path) = other.or_else(|| below.filter(is_plain)) else {
            return Err(ApiRefusal::new(
                404,
                "There is nothing at this path",
                "See /api/v1/commands",
            ));
        };
        let mut asked = ApiRequest {
            path: path.to_string(),
            token: self.token.text().to_string(),
            parameters,
            ..ApiRequest::default()
        };
        let Some(takes) = answers.accepted_body(path)? else {
            if !matches!(head.method, Method::GET | Method::HEAD) {
                return Err(method_refusal("GET", "GET, HEAD"));
            }
            asked.known_tag = single_header(&head.headers, &IF_NONE_MATCH)?.map(str::to_string);
            return Ok(RequestTarget::Answer(asked));
        };
        if head.method != Method::POST {
            return Err(method_refusal("POST", "POST"));
        }
        check_body(&head.headers, takes)?;
        Ok(RequestTarget::Upload(asked, takes))
    }

    /// Refuses a request to any host name but the server's. A foreign page can make a browser send
    /// requests to this server under the foreign page's host name, but not under the server's.
    fn check_host(&self, head: &Parts) -> Result<(), ApiRefusal> {
        let ours = |host: &str| self.hosts.iter().any(|our| our.eq_ignore_ascii_case(host));
        let named = single_header(&head.headers, &HOST)?.is_some_and(ours);
        let elsewhere = head
            .uri
            .authority()
            .is_some_and(|host| !ours(host.as_str()));
        match named && !elsewhere {
            true => Ok(()),
            false => Err(ApiRefusal::new(
                421,
                "This server has a different name",
                format!("Use http://{}", self.hosts[0]),
            )),
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), ApiRefusal> {
        let origin = single_header(headers, &ORIGIN)?;
        let ours = |origin: &str| {
            let host = origin.strip_prefix("http://");
            host.is_some_and(|host| self.hosts.iter().any(|our| our == host))
        };
        let site = single_header(headers, &HeaderName::from_static("sec-fetch-site"))?;
        let from_here = matches!(site, None | Some("same-origin" | "none"));
        match origin.is_none_or(ours) && from_here {
            true => Ok(()),
            false => Err(ApiRefusal::new(
                403,
                "The request comes from a page of another site",
                "Only this server's own page may send requests",
            )),
        }
    }
}

fn method_refusal(helps: &str, allowed: &'static str) -> ApiRefusal {
    let what = "This path does not accept that method";
    ApiRefusal {
        allowed: Some(allowed),
        ..ApiRefusal::new(405, what, format!("Use {helps}"))
    }
}

/// Returns the value of a header that may occur only once.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, ApiRefusal> {
    let mut all = headers.get_all(name).iter();
    let value = all.next().map(|value| value.to_str());
    match (value, all.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(ApiRefusal::new(
            400,
            format!("The header {name} cannot be read"),
            "It must occur once, in ASCII",
        )),
    }
}

fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, ApiRefusal> {
    let query = uri.query().unwrap_or_default();
    let decoded = form_urlencoded::parse(query.as_bytes());
    let parameters: Vec<(String, String)> = decoded.into_owned().take(MAX_PARAMETERS + 1).collect();
    let is_long =
        |(name, value): &(String, String)| name.len() + value.len() > MAX_PARAMETER_LENGTH;
    match parameters.len() > MAX_PARAMETERS || parameters.iter().any(is_long) {
        true => Err(ApiRefusal::new(
            414,
            "The request is too long",
            format!(
                "At most {MAX_PARAMETERS} parameters, each of at most {MAX_PARAMETER_LENGTH} bytes"
            ),
        )),
        false => Ok(parameters),
    }
}

/// Refuses parameters that occur twice, because the request would be ambiguous.
fn check_once(parameters: &[(String, String)]) -> Result<(), ApiRefusal> {
    let mut names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([name, _]) => {
            let what = format!("The parameter {name:?} is given twice");
            Err(ApiRefusal::new(400, what, "Give it once"))
        }
        None => Ok(()),
    }
}

fn check_body(headers: &HeaderMap, takes: AcceptedBody) -> Result<(), ApiRefusal> {
    let media = single_header(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case(takes.media) {
        return Err(ApiRefusal::new(
            415,
            "This path does not accept that type",
            format!("Send Content-Type: {}", takes.media),
        ));
    }
    if headers.contains_key(CONTENT_ENCODING) {
        let help = "Send it without Content-Encoding";
        return Err(ApiRefusal::new(415, "The body is encoded", help));
    }
    let length = single_header(headers, &CONTENT_LENGTH)?.map(str::parse::<u64>);
    match length {
        Some(Err(_)) => Err(ApiRefusal::new(
            400,
            "Content-Length is not a number",
            "Send the number of bytes",
        )),
        Some(Ok(length)) if length > takes.max_bytes as u64 => Err(too_large_refusal(takes)),
        _ => Ok(()),
    }
}

/// Returns the refusal of a body that is too large.
pub(super) fn too_large_refusal(takes: AcceptedBody) -> ApiRefusal {
    let help = format!("At most {} bytes are accepted", takes.max_bytes);
    ApiRefusal::new(413, "The body is too large", help)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;
    use crate::server::ApiAnswer;
    use crate::{PageServerInfo, ServedPage, served_page};

    const LIMIT: AcceptedBody = AcceptedBody {
        media: "application/x-profile",
        max_bytes: 100,
    };

    /// An API that accepts a body at the path `load` only.
    struct UploadHandler;

    impl ApiHandler for UploadHandler {
        fn page(&self) -> ServedPage {
            served_page("page", &PageServerInfo::default())
        }

        fn has_path(&self, path: &str) -> bool {
            matches!(path, "/" | "/top" | "/save")
        }

        fn accepted_body(&self, path: &str) -> Result<Option<AcceptedBody>, ApiRefusal> {
            match path {
                "load" | "/save" => Ok(Some(LIMIT)),
                "closed" => Err(ApiRefusal::new(409, "It is closed", "Open it")),
                _ => Ok(None),
            }
        }

        fn answer(&self, _: &ApiRequest) -> Result<ApiAnswer, ApiRefusal> {
            Ok(ApiAnswer::default())
        }
    }

    /// Checks a request to port 9000. `TOKEN` in the address is replaced by the token.
    fn check(
        method: &str,
        address: &str,
        headers: &[(&str, &str)],
    ) -> Result<RequestTarget, ApiRefusal> {
        let token = AccessToken::new().unwrap();
        let address = address.replace("TOKEN", token.text());
        let guard = RequestGuard::new(9000, token);
        let mut request = Request::builder().method(method).uri(address);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        guard.check_request(&head, &UploadHandler)
    }

    /// Returns the HTTP status of a request; 200 if it is allowed.
    fn status(method: &str, address: &str, headers: &[(&str, &str)]) -> u16 {
        check(method, address, headers).map_or_else(|refusal| refusal.status, |_| 200)
    }

    const HERE: (&str, &str) = ("host", "127.0.0.1:9000");
    const TOP: &str = "/api/v1/top?token=TOKEN";

    #[test]
    fn only_our_names_are_answered() {
        for (host, expected) in [
            ("127.0.0.1:9000", 200),
            ("localhost:9000", 200),
            ("LocalHost:9000", 200),
            ("localhost", 421),
            ("localhost:9001", 421),
            ("127.0.0.2:9000", 421),
            ("[::1]:9000", 421),
            ("evil.example:9000", 421),
            ("localhost:9000.evil.example", 421),
            ("", 421),
        ] {
            assert_eq!(status("GET", TOP, &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status("GET", TOP, &[]), 421);
        assert_eq!(status("GET", TOP, &[HERE, HERE]), 400);
        // The address itself may name a host, too.
        let whole = |host: &str| format!("http://{host}{TOP}");
        assert_eq!(status("GET", &whole("localhost:9000"), &[HERE]), 200);
        assert_eq!(status("GET", &whole("evil.example"), &[HERE]), 421);
    }

    #[test]
    fn the_port_of_http_is_not_named() {
        let guard = RequestGuard::new(80, AccessToken::new().unwrap());
        assert_eq!(guard.hosts, ["127.0.0.1", "localhost"]);
    }

    #[test]
    fn without_the_token_a_client_learns_nothing_else() {
        for address in [
            "/",
            "/?token=",
            "/?token=0123456789abcdef0123456789abcdef",
            "/?token=TOKEN&token=TOKEN",
            "/?token=TOKEN0",
            "/?Token=TOKEN",
            "/api/v1/top",
            "/api/v1/closed",
            "/nothing",
        ] {
            for method in ["GET", "POST", "DELETE"] {
                let refused = check(method, address, &[HERE]).unwrap_err();
                assert_eq!(refused.status, 403, "{method} {address}");
                assert_eq!(refused.what, "The token is missing or wrong");
            }
        }
        assert_eq!(status("GET", "/?token=TOKEN", &[HERE]), 200);
    }

    #[test]
    fn only_our_page_may_ask() {
        for (name, value, expected) in [
            ("origin", "http://127.0.0.1:9000", 200),
            ("origin", "http://localhost:9000", 200),
            ("origin", "https://localhost:9000", 403),
            ("origin", "http://localhost:9001", 403),
            ("origin", "http://evil.example", 403),
            ("origin", "null", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            assert_eq!(
                status("GET", TOP, &[HERE, (name, value)]),
                expected,
                "{value}"
            );
        }
        // A link elsewhere may lead to the page, which shows nothing to that page.
        let elsewhere = ("sec-fetch-site", "cross-site");
        assert_eq!(status("GET", "/?token=TOKEN", &[HERE, elsewhere]), 200);
    }

    #[test]
    fn a_path_has_its_methods() {
        let allowed = |method: &str, address: &str| match check(method, address, &[HERE]) {
            Ok(_) => "",
            Err(refused) => {
                assert_eq!(refused.status, 405, "{method} {address}");
                refused.allowed.unwrap()
            }
        };
        let load = "/api/v1/load?token=TOKEN";
        for (method, page, answer, upload) in [
            ("GET", "", "", "POST"),
            ("HEAD", "", "", "POST"),
            ("PUT", "GET, HEAD", "GET, HEAD", "POST"),
            ("DELETE", "GET, HEAD", "GET, HEAD", "POST"),
            ("OPTIONS", "GET, HEAD", "GET, HEAD", "POST"),
        ] {
            assert_eq!(allowed(method, "/?token=TOKEN"), page, "{method}");
            assert_eq!(allowed(method, TOP), answer, "{method}");
            assert_eq!(allowed(method, load), upload, "{method}");
        }
        assert_eq!(allowed("POST", TOP), "GET, HEAD");
    }

    #[test]
    fn what_is_below_the_api_is_a_plain_word() {
        for path in [
            "/api/v1",
            "/api/v1/Top",
            "/api/v1/top/",
            "/api/v1/../top",
            "/api/v1/t%6fp",
            "/api/v2/top",
            "/api/v1top",
            "//api/v1/top",
            "/favicon.ico",
        ] {
            let address = format!("{path}?token=TOKEN");
            assert_eq!(status("GET", &address, &[HERE]), 404, "{path}");
        }
        assert_eq!(status("GET", "/api/v1/closed?token=TOKEN", &[HERE]), 409);
    }

    #[test]
    fn a_question_has_its_parameters_without_the_token() {
        let address = "/api/v1/top?focus=a%20b%26c&token=TOKEN&n=&x=%E2%82%AC";
        let tag = ("if-none-match", "\"7\"");
        let Ok(RequestTarget::Answer(asked)) = check("GET", address, &[HERE, tag]) else {
            panic!("it is allowed");
        };
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(asked.path, "top");
        assert_eq!(
            asked.parameters,
            [pair("focus", "a b&c"), pair("n", ""), pair("x", "€")]
        );
        assert_eq!(asked.known_tag.as_deref(), Some("\"7\""));
        assert_eq!(
            (asked.parameter("focus"), asked.parameter("n")),
            (Some("a b&c"), None)
        );
        let twice = "/api/v1/top?n=1&token=TOKEN&n=2";
        assert_eq!(status("GET", twice, &[HERE]), 400);
    }

    #[test]
    fn paths_outside_of_the_api_have_the_same_rules() {
        let foreign = [HERE, ("sec-fetch-site", "cross-site")];
        for (method, address, headers, expected) in [
            ("GET", "/top?token=TOKEN&f=a", &[HERE][..], 200),
            ("GET", "/top?f=a", &[HERE], 403),
            ("GET", "/top?token=TOKEN&f=a&f=b", &[HERE], 400),
            ("GET", "/top?token=TOKEN", &foreign, 403),
            ("POST", "/top?token=TOKEN", &[HERE], 405),
            ("GET", "/save?token=TOKEN", &[HERE], 405),
            ("POST", "/save?token=TOKEN", &[HERE], 415),
            ("GET", "/topp?token=TOKEN", &[HERE], 404),
            ("GET", "/api/v1//top?token=TOKEN", &[HERE], 404),
        ] {
            assert_eq!(
                status(method, address, headers),
                expected,
                "{method} {address}"
            );
        }
        let page = check("GET", "/?token=TOKEN", &[HERE]);
        assert!(matches!(page, Ok(RequestTarget::Page)));
        let Ok(RequestTarget::Answer(asked)) = check("GET", "/?token=TOKEN&f=a", &[HERE]) else {
            panic!("it is allowed");
        };
        assert_eq!((asked.path.as_str(), asked.token.len()), ("/", 32));
    }

    #[test]
    fn a_question_has_a_size() {
        let long = |length: usize| format!("/api/v1/top?token=TOKEN&f={}", "x".repeat(length));
        assert_eq!(status("GET", &long(MAX_PARAMETER_LENGTH - 1), &[HERE]), 200);
        assert_eq!(status("GET", &long(MAX_PARAMETER_LENGTH), &[HERE]), 414);
        let many = |count: usize| {
            let all: String = (0..count).map(|i| format!("&p{i}=1")).collect();
            format!("/api/v1/top?token=TOKEN{all}")
        };
        assert_eq!(status("GET", &many(MAX_PARAMETERS - 1), &[HERE]), 200);
        assert_eq!(status("GET", &many(MAX_PARAMETERS), &[HERE]), 414);
    }

    #[test]
    fn a_body_is_of_the_type_and_size_that_its_path_takes() {
        let media = ("content-type", "application/x-profile");
        for (headers, expected) in [
            (&[media][..], 200),
            (&[("content-type", "Application/X-Profile; a=b")], 200),
            (&[media, ("content-length", "100")], 200),
            (&[media, ("content-length", "101")], 413),
            (&[media, ("content-length", "-1")], 400),
            (&[media, ("content-length", "99999999999999999999")], 400),
            (&[media, media], 400),
            (&[("content-type", "text/plain")], 415),
            (&[("content-type", "application/x-profiles")], 415),
            (&[], 415),
            (&[media, ("content-encoding", "gzip")], 415),
        ] {
            let all = [&[HERE], headers].concat();
            let found = status("POST", "/api/v1/load?token=TOKEN", &all);
            assert_eq!(found, expected, "{headers:?}");
        }
        let answer = check("POST", "/api/v1/load?token=TOKEN&a=b", &[HERE, media]);
        let Ok(RequestTarget::Upload(asked, takes)) = answer else {
            panic!("it is allowed");
        };
        assert_eq!((asked.path.as_str(), takes), ("load", LIMIT));
    }
}
