//! The rules of who may ask for what. The head of a request decides, before anything else is read.

use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, IF_NONE_MATCH,
    ORIGIN,
};
use hyper::http::request::Parts;
use hyper::{Method, Uri};

use super::API;
use super::answer::{Answers, Asked, Refusal, Takes};
use super::token::Token;

/// Longer parameters are refused. Patterns are shorter.
const LONGEST: usize = 8 << 10;
/// More parameters are refused.
const MOST: usize = 64;

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Wish {
    /// The page.
    Page,
    /// An answer.
    Answer(Asked),
    /// An answer to what is sent.
    Sent(Asked, Takes),
}

/// The rules of a server.
pub(super) struct Guard {
    /// The names by which this machine calls the server.
    hosts: [String; 2],
    token: Token,
}

impl Guard {
    pub(super) fn new(port: u16, token: Token) -> Self {
        let named = |name: &str| match port {
            80 => name.to_string(),
            port => format!("{name}:{port}"),
        };
        Self {
            hosts: ["127.0.0.1", "localhost"].map(named),
            token,
        }
    }

    /// Says what a request asks for, or why it is refused. Whoever has no token learns nothing
    /// else.
    pub(super) fn wish(&self, head: &Parts, answers: &dyn Answers) -> Result<Wish, Refusal> {
        self.check_host(head)?;
        let mut parameters = parameters(&head.uri)?;
        let tokens: Vec<String> = {
            let given = parameters.extract_if(.., |(name, _)| name == "token");
            given.map(|(_, token)| token).collect()
        };
        if !matches!(&tokens[..], [token] if self.token.is(token)) {
            return Err(Refusal::new(
                403,
                "The token is missing or wrong",
                "Open the address that heapprof web printed",
            ));
        }
        if head.uri.path() == "/" {
            return match head.method {
                Method::GET | Method::HEAD => Ok(Wish::Page),
                _ => Err(method("GET", "GET, HEAD")),
            };
        }
        self.check_origin(&head.headers)?;
        check_once(&parameters)?;
        let path = head
            .uri
            .path()
            .strip_prefix(API)
            .and_then(|rest| rest.strip_prefix('/'));
        let is_plain = |path: &&str| path.bytes().all(|b| b.is_ascii_lowercase());
        let Some(path) = path.filter(is_plain) else {
            return Err(Refusal::new(
                404,
                "There is nothing at this path",
                "Ask /api/v1/commands",
            ));
        };
        let mut asked = Asked {
            path: path.to_string(),
            parameters,
            ..Asked::default()
        };
        let Some(takes) = answers.takes(path)? else {
            if !matches!(head.method, Method::GET | Method::HEAD) {
                return Err(method("GET", "GET, HEAD"));
            }
            asked.known = one(&head.headers, &IF_NONE_MATCH)?.map(str::to_string);
            return Ok(Wish::Answer(asked));
        };
        if head.method != Method::POST {
            return Err(method("POST", "POST"));
        }
        check_body(&head.headers, takes)?;
        Ok(Wish::Sent(asked, takes))
    }

    /// A page elsewhere can make a browser ask by a name that leads here. It does not know ours.
    fn check_host(&self, head: &Parts) -> Result<(), Refusal> {
        let ours = |host: &str| self.hosts.iter().any(|our| our.eq_ignore_ascii_case(host));
        let named = one(&head.headers, &HOST)?.is_some_and(ours);
        let elsewhere = head
            .uri
            .authority()
            .is_some_and(|host| !ours(host.as_str()));
        match named && !elsewhere {
            true => Ok(()),
            false => Err(Refusal::new(
                421,
                "This server has another name",
                format!("Ask http://{}", self.hosts[0]),
            )),
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let origin = one(headers, &ORIGIN)?;
        let ours = |origin: &str| {
            let host = origin.strip_prefix("http://");
            host.is_some_and(|host| self.hosts.iter().any(|our| our == host))
        };
        let site = one(headers, &HeaderName::from_static("sec-fetch-site"))?;
        let from_here = matches!(site, None | Some("same-origin" | "none"));
        match origin.is_none_or(ours) && from_here {
            true => Ok(()),
            false => Err(Refusal::new(
                403,
                "The question comes from a page elsewhere",
                "Only the page of this server may ask",
            )),
        }
    }
}

fn method(helps: &str, allowed: &'static str) -> Refusal {
    let what = "This path does not take that method";
    Refusal {
        allowed: Some(allowed),
        ..Refusal::new(405, what, format!("Use {helps}"))
    }
}

/// The value of a header that may stand once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut all = headers.get_all(name).iter();
    let value = all.next().map(|value| value.to_str());
    match (value, all.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(Refusal::new(
            400,
            format!("The header {name} cannot be read"),
            "It stands once, in plain letters",
        )),
    }
}

fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, Refusal> {
    let query = uri.query().unwrap_or_default();
    let decoded = form_urlencoded::parse(query.as_bytes());
    let parameters: Vec<(String, String)> = decoded.into_owned().take(MOST + 1).collect();
    let is_long = |(name, value): &(String, String)| name.len() + value.len() > LONGEST;
    match parameters.len() > MOST || parameters.iter().any(is_long) {
        true => Err(Refusal::new(
            414,
            "The question is too long",
            format!("At most {MOST} parameters, each of at most {LONGEST} bytes"),
        )),
        false => Ok(parameters),
    }
}

/// Two values of one parameter would be two questions.
fn check_once(parameters: &[(String, String)]) -> Result<(), Refusal> {
    let mut names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([name, _]) => {
            let what = format!("The parameter {name:?} is given twice");
            Err(Refusal::new(400, what, "Give it once"))
        }
        None => Ok(()),
    }
}

fn check_body(headers: &HeaderMap, takes: Takes) -> Result<(), Refusal> {
    let media = one(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case(takes.media) {
        return Err(Refusal::new(
            415,
            "This path does not take that type",
            format!("Send Content-Type: {}", takes.media),
        ));
    }
    if headers.contains_key(CONTENT_ENCODING) {
        let help = "Send it without Content-Encoding";
        return Err(Refusal::new(415, "What is sent is encoded", help));
    }
    let length = one(headers, &CONTENT_LENGTH)?.map(str::parse::<u64>);
    match length {
        Some(Err(_)) => Err(Refusal::new(
            400,
            "The length is no number",
            "Send its bytes",
        )),
        Some(Ok(length)) if length > takes.most as u64 => Err(too_large(takes)),
        _ => Ok(()),
    }
}

/// The refusal of a body that is too large.
pub(super) fn too_large(takes: Takes) -> Refusal {
    let help = format!("At most {} bytes are taken", takes.most);
    Refusal::new(413, "What is sent is too large", help)
}
