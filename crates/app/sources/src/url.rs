//! Hides the secrets in addresses of profiles. An address may contain a password or a token, and a
//! command's arguments appear in titles, heads, comments of pull requests, errors and stored
//! profiles.
//!
//! So the secrets are removed from the command line before anything else reads it. The rest of
//! heapprof gets the address with `…` in place of each secret, and may show it to anybody. Only
//! [`SecretUrl`] puts the secrets back, for a request, and it cannot be printed.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use heapprof_formats::PartSelector;
use percent_encoding::percent_decode_str;
use ureq::http::Response;
use ureq::{Agent, Body};

/// The mark that replaces a secret. The secret's number follows, unless it is 1.
const HIDDEN_MARK: char = '…';

/// Parameters of Go's profile handlers whose numeric values are no secrets.
const PLAIN_PARAMETERS: [&str; 3] = ["debug", "gc", "seconds"];

/// The secrets that were removed from the command line, in the order of their numbers.
static SECRETS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn secrets() -> MutexGuard<'static, Vec<String>> {
    SECRETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores a secret, and returns the mark that replaces it. Equal secrets get the same number.
fn hide(secret: &str) -> String {
    let mut secrets = secrets();
    let at = secrets.iter().position(|known| known == secret);
    let at = at.unwrap_or_else(|| {
        secrets.push(secret.to_string());
        secrets.len() - 1
    });
    match at {
        0 => HIDDEN_MARK.to_string(),
        at => format!("{HIDDEN_MARK}{}", at + 1),
    }
}

/// Returns the secret that a mark stands for, or the text itself if it is no mark.
fn reveal(text: &str) -> Cow<'_, str> {
    let number = text
        .strip_prefix(HIDDEN_MARK)
        .and_then(|number| match number {
            "" => Some(1),
            number => number.parse::<usize>().ok(),
        });
    let secret = number.and_then(|number| secrets().get(number.checked_sub(1)?).cloned());
    secret.map_or(text.into(), Cow::Owned)
}

/// The parts of an address.
struct UrlParts<'a> {
    /// The scheme with its colon and slashes, and blanks before it; empty if the address has none.
    scheme: &'a str,
    /// The user and the password.
    user: Option<&'a str>,
    /// Host, port and path.
    place: &'a str,
    query: Option<&'a str>,
    /// The fragment with its `#`, or empty.
    fragment: &'a str,
}

impl<'a> UrlParts<'a> {
    fn parse(text: &'a str, needs_scheme: bool) -> Option<Self> {
        let is_scheme = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
        };
        // One slash is a typing error, and no reason to show a password.
        let is_slip = |&at: &usize| ["http", "https"].contains(&text[..at].trim_start());
        let whole = text.find("://").map(|at| (at, 3));
        let behind = whole.or_else(|| Some((text.find(":/").filter(is_slip)?, 2)));
        let behind = behind.filter(|&(at, _)| is_scheme(text[..at].trim_start()));
        let (scheme, rest) = match behind {
            Some((at, len)) => text.split_at(at + len),
            None if needs_scheme => return None,
            None => ("", text),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = &rest[..end];
        // A password that should be encoded, and is not: `me:a/b@host`.
        let is_cut = |port: &str| !port.chars().all(|c| c.is_ascii_digit());
        let at = match authority.rsplit_once(':') {
            Some((_, port)) if !authority.contains('@') && is_cut(port) => rest.rfind('@'),
            _ => authority.rfind('@'),
        };
        let (user, rest) = match at {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let (rest, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
        let (place, query) = match rest.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (rest, None),
        };
        Some(Self {
            scheme,
            user,
            place,
            query,
            fragment,
        })
    }

    /// Returns the query with new values. `value` returns the new value for a key and its old
    /// value.
    fn query(&self, value: impl Fn(&str, &str) -> String) -> String {
        let Some(query) = self.query else {
            return String::new();
        };
        let parameters = query.split('&').map(|parameter| {
            let (key, equals, text) = match parameter.split_once('=') {
                Some((key, text)) => (key, "=", text),
                None => ("", "", parameter),
            };
            format!("{key}{equals}{}", value(key, text))
        });
        format!("?{}", parameters.collect::<Vec<_>>().join("&"))
    }
}

/// Returns the host of an address, with its port; empty if the text is no address.
pub(crate) fn host_of(url: &str) -> &str {
    let place = UrlParts::parse(url, true).map_or("", |parts| parts.place);
    place.split('/').next().unwrap_or_default()
}

/// Returns an address without its secrets; `None` if the text is no address or has no secrets. If
/// `needs_scheme` is false, `user:password@host` is an address, too, unless a file has that name.
pub fn without_secrets(text: &str, needs_scheme: bool) -> Option<String> {
    let parts = UrlParts::parse(text, needs_scheme)?;
    if parts.scheme.is_empty() && (parts.user.is_none() || Path::new(text).exists()) {
        return None;
    }
    let user = match parts.user {
        Some("") => "@".to_string(),
        Some(user) if !parts.scheme.is_empty() || user.contains(':') => hide(user) + "@",
        Some(_) => return None,
        None => String::new(),
    };
    let is_plain = |key: &str, value: &str| {
        let is_number = value.bytes().all(|b| b.is_ascii_digit());
        let is_word = value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_');
        value.is_empty()
            || is_number && PLAIN_PARAMETERS.contains(&key)
            // The name of a cluster is a part of its address.
            || is_word && key == "cluster" && parts.scheme.starts_with("clickhouse")
    };
    let query = parts.query(|key, value| match is_plain(key, value) {
        true => value.to_string(),
        false => hide(value),
    });
    let UrlParts { scheme, place, .. } = parts;
    let place = match place.split_once(';') {
        Some((path, parameters)) if !scheme.is_empty() => format!("{path};{}", hide(parameters)),
        _ => place.to_string(),
    };
    // A fragment that names no part of a file is never sent, but some users put a token there.
    let fragment = match parts.fragment.strip_prefix('#') {
        Some(part) if !part.is_empty() && PartSelector::parse(part).is_none() => {
            format!("#{}", hide(part))
        }
        _ => parts.fragment.to_string(),
    };
    let shown = format!("{scheme}{user}{place}{query}{fragment}");
    (shown != text).then_some(shown)
}

/// An address with its secrets. It is made for one request, and has neither `Display` nor `Debug`.
pub(crate) struct SecretUrl {
    url: String,
    authorization: Option<String>,
}

impl SecretUrl {
    /// Makes the address with its secrets from the shown form of the address, which has marks in
    /// place of the secrets.
    pub(crate) fn from_shown(shown: &str) -> Self {
        let Some(parts) = UrlParts::parse(shown, true) else {
            return Self {
                url: shown.to_string(),
                authorization: None,
            };
        };
        let query = parts.query(|_, value| reveal(value).into_owned());
        // Servers get the decoded characters.
        let authorization = parts.user.filter(|user| !user.is_empty()).map(|user| {
            let user: Vec<u8> = match &*reveal(user) {
                user if user.contains(':') => percent_decode_str(user).collect(),
                user => percent_decode_str(user).chain(*b":").collect(),
            };
            format!("Basic {}", STANDARD.encode(user))
        });
        let place = match parts.place.split_once(';') {
            Some((path, parameters)) => format!("{path};{}", reveal(parameters)),
            None => parts.place.to_string(),
        };
        Self {
            url: format!("{}{place}{query}", parts.scheme),
            authorization,
        }
    }

    /// Sends a request to the address. Errors do not contain the address.
    pub(crate) fn get(&self, agent: &Agent) -> Result<Response<Body>, ureq::Error> {
        let request = agent.get(&self.url);
        let request = match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        };
        request.call().map_err(without_address)
    }

    /// Sends a text to the address. Errors do not contain the address.
    pub(crate) fn post(&self, agent: &Agent, text: String) -> Result<Response<Body>, ureq::Error> {
        let request = agent
            .post(&self.url)
            .content_type("application/octet-stream");
        let request = match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        };
        request.send(text).map_err(without_address)
    }
}

/// Returns an error without the address in it.
fn without_address(error: ureq::Error) -> ureq::Error {
    match error {
        ureq::Error::BadUri(_) => ureq::Error::BadUri("this is not a valid address".to_string()),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        for argument in [
            "http://me:PASSWORD@host/heap",
            "http://PASSWORD@host",
            "HTTPS://me:PASSWORD@host:80/heap",
            "https+insecure://me:a@PASSWORD@host/",
            "http://me:PASS/PASSWORD@host/heap",
            "http://host/heap?X-Amz-Signature=PASSWORD",
            "http://host/heap?a=1&PASSWORD&gc=1",
            "http://me:PASSWORD@host/heap?gc=PASSWORD#12",
            "clickhouse://me:PASSWORD@host/db",
            "clickhouse://host/db?cluster=all&password=PASSWORD",
            "https://host/batches?cluster=PASSWORD",
            "http://host/heap#access=PASSWORD",
            "http:/me:PASSWORD@host/p?token=PASSWORD",
            " http://me:PASSWORD@host/heap",
            "http://host/p.pb.gz;jsessionid=PASSWORD?gc=1",
        ] {
            let shown = without_secrets(argument, true).unwrap();
            assert!(!shown.contains("PASS"), "{shown}");
            assert!(shown.contains("host"), "{shown}");
            // Secrets that were taken out are not taken out again.
            assert!(!without_secrets(&shown, true).is_some_and(|again| again.contains("PASS")));
        }
        assert!(without_secrets("me:PASSWORD@host:80/heap", false).is_some());
    }

    #[test]
    fn what_has_no_secret_stays() {
        for argument in [
            "http://host:6060/debug/pprof/heap",
            "http://host/a@b/heap?gc=1&seconds=30&debug=0#peak",
            "s3://bucket/folder",
            "clickhouse://host,other/heap?cluster=shards_2",
            "a.pb.gz",
            "me:x@host.pb.gz",
            "-",
            "url=http://host/?q=1",
        ] {
            assert_eq!(without_secrets(argument, true), None, "{argument}");
        }
        for argument in ["a@b.pb.gz", "what?.pb.gz"] {
            assert_eq!(without_secrets(argument, false), None, "{argument}");
        }
    }

    #[test]
    fn a_request_has_what_was_typed() {
        let basic = |text: &str| Some(format!("Basic {}", STANDARD.encode(text)));
        for (argument, url, authorization) in [
            ("http://me:p%40ss@h:1/x", "http://h:1/x", basic("me:p@ss")),
            ("http://me:p@ss@h/x", "http://h/x", basic("me:p@ss")),
            ("http://me:a/b@h/x", "http://h/x", basic("me:a/b")),
            ("http://me@h/x", "http://h/x", basic("me:")),
            ("http://h/x;id=1;y?gc=1", "http://h/x;id=1;y?gc=1", None),
            (
                "http://h/x?sig=a%2Fb=&gc=1&word",
                "http://h/x?sig=a%2Fb=&gc=1&word",
                None,
            ),
        ] {
            let shown = without_secrets(argument, true).unwrap();
            let request = SecretUrl::from_shown(&shown);
            assert_eq!(request.url, url);
            assert_eq!(request.authorization, authorization, "{argument}");
        }
    }
}
