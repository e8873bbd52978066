//! The rules for requests: which are allowed, and for what. The head of a request decides, before
//! anything else is read.

use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, IF_NONE_MATCH,
    ORIGIN,
};
use hyper::http::request::Parts;
use hyper::{Method, Uri};

use super::API_PATH;
use super::answer::{AcceptedBody, ApiHandler, ApiRefusal, ApiRequest};
use super::token::AccessToken;

/// Maximum length of a parameter's name and value in bytes. Patterns are shorter.
const MAX_PARAMETER_LENGTH: usize = 8 << 10;
/// Maximum number of parameters.
const MAX_PARAMETERS: usize = 64;

/// The target of an allowed request.
#[derive(Debug)]
pub(super) enum RequestTarget {
    /// The page.
    Page,
    /// An answer of the API.
    Answer(ApiRequest),
    /// An answer of the API to a body that the client sends.
    Upload(ApiRequest, AcceptedBody),
}

/// Checks the requests to a server.
pub(super) struct RequestGuard {
    /// The host names by which clients on this machine may address the server.
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

    /// Returns the target of a request, or why it is refused. Without the token, a client learns
    /// nothing else.
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
        if head.uri.path() == "/" {
            return match head.method {
                Method::GET | Method::HEAD => Ok(RequestTarget::Page),
                _ => Err(method_refusal("GET", "GET, HEAD")),
            };
        }
        self.check_origin(&head.headers)?;
        check_once(&parameters)?;
        let path = head
            .uri
            .path()
            .strip_prefix(API_PATH)
            .and_then(|rest| rest.strip_prefix('/'));
        let is_plain = |path: &&str| path.bytes().all(|b| b.is_ascii_lowercase());
        let Some(path) = path.filter(is_plain) else {
            return Err(ApiRefusal::new(
                404,
                "There is nothing at this path",
                "Ask /api/v1/commands",
            ));
        };
        let mut asked = ApiRequest {
            path: path.to_string(),
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

    /// Refuses a request to another host name. A foreign page can make a browser send requests here
    /// under a name of its own, but it can't use our names.
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
                "This server has another name",
                format!("Ask http://{}", self.hosts[0]),
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
                "The question comes from a page elsewhere",
                "Only the page of this server may ask",
            )),
        }
    }
}

fn method_refusal(helps: &str, allowed: &'static str) -> ApiRefusal {
    let what = "This path does not take that method";
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
            "It stands once, in plain letters",
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
            "The question is too long",
            format!(
                "At most {MAX_PARAMETERS} parameters, each of at most {MAX_PARAMETER_LENGTH} bytes"
            ),
        )),
        false => Ok(parameters),
    }
}

/// Refuses parameters that occur twice, because they would make two questions.
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
            "This path does not take that type",
            format!("Send Content-Type: {}", takes.media),
        ));
    }
    if headers.contains_key(CONTENT_ENCODING) {
        let help = "Send it without Content-Encoding";
        return Err(ApiRefusal::new(415, "What is sent is encoded", help));
    }
    let length = single_header(headers, &CONTENT_LENGTH)?.map(str::parse::<u64>);
    match length {
        Some(Err(_)) => Err(ApiRefusal::new(
            400,
            "The length is no number",
            "Send its bytes",
        )),
        Some(Ok(length)) if length > takes.max_bytes as u64 => Err(too_large_refusal(takes)),
        _ => Ok(()),
    }
}

/// Returns the refusal of a body that is too large.
pub(super) fn too_large_refusal(takes: AcceptedBody) -> ApiRefusal {
    let help = format!("At most {} bytes are taken", takes.max_bytes);
    ApiRefusal::new(413, "What is sent is too large", help)
}
