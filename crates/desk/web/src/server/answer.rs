//! Requests to the server, and their answers, without the details of HTTP.

use crate::ServedPage;

/// Media type of JSON.
pub const JSON_MEDIA_TYPE: &str = "application/json";
/// Media type of a page.
pub(super) const HTML_MEDIA_TYPE: &str = "text/html; charset=utf-8";

/// Answers the requests of a page.
pub trait ApiHandler: Send + Sync + 'static {
    /// Returns the page itself.
    fn page(&self) -> ServedPage;

    /// Whether there is something at a path outside of the API, such as `/top`. Requests to such a
    /// path are checked like requests to the API.
    fn has_path(&self, _path: &str) -> bool {
        false
    }

    /// Returns the kind of body that a path of the API accepts; `None` if the path accepts no body.
    ///
    /// # Errors
    /// The path can't accept a body now.
    fn accepted_body(&self, path: &str) -> Result<Option<AcceptedBody>, ApiRefusal>;

    /// Answers a request. This may take long. Several threads may call it at the same time.
    ///
    /// # Errors
    /// The request is wrong, or there is no answer.
    fn answer(&self, asked: &ApiRequest) -> Result<ApiAnswer, ApiRefusal>;
}

/// The kind of body that a path accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedBody {
    /// The media type of the body.
    pub media: &'static str,
    /// Maximum size of the body in bytes.
    pub max_bytes: usize,
}

/// A request to the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRequest {
    /// The path below `API_PATH`, such as `top`, or a whole path outside of the API, such as
    /// `/top`.
    pub path: String,
    /// The token, for the links of a page.
    pub token: String,
    /// The parameters in the order of the URL, without the token.
    pub parameters: Vec<(String, String)>,
    /// The body; empty if the path accepts none.
    pub body: Vec<u8>,
    /// The tag of the answer that the client has already.
    pub known_tag: Option<String>,
}

impl ApiRequest {
    /// Returns the value of a parameter. An empty value counts as missing.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

/// An answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiAnswer {
    /// The media type of the body.
    pub media: &'static str,
    /// The body; `None` if the answer that the client has already is still valid.
    pub body: Option<Vec<u8>>,
    /// A text that changes whenever the answer changes.
    pub tag: Option<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The content security policy of a page; empty for an answer that is no page.
    pub policy: String,
    /// The name of the file in which the browser saves the body.
    pub file_name: Option<&'static str>,
    /// The address to which the client is sent instead.
    pub location: Option<String>,
}

impl ApiAnswer {
    /// Makes an answer with a page.
    #[must_use]
    pub fn page(page: ServedPage) -> Self {
        Self {
            media: HTML_MEDIA_TYPE,
            body: Some(page.html.into_bytes()),
            policy: page.policy,
            ..Self::default()
        }
    }

    /// Makes an answer that sends the client to another address of this server.
    #[must_use]
    pub fn redirect(location: String) -> Self {
        Self {
            location: Some(location),
            ..Self::default()
        }
    }

    /// Makes an answer with a JSON body.
    #[must_use]
    pub fn json(body: &serde_json::Value) -> Self {
        Self {
            media: JSON_MEDIA_TYPE,
            body: Some(format!("{body}\n").into_bytes()),
            ..Self::default()
        }
    }
}

/// A refusal of a request, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRefusal {
    /// The HTTP status code.
    pub status: u16,
    /// The problem.
    pub what: String,
    /// The cause of the problem.
    pub cause: String,
    /// Advice on how to solve the problem.
    pub help: String,
    /// The methods that the path accepts, if the request used any other method.
    pub allowed: Option<&'static str>,
    /// The page that says so to a person; `None` for a path that programs ask.
    pub page: Option<Box<ServedPage>>,
}

impl ApiRefusal {
    /// Makes a refusal from the HTTP status, the problem and the advice.
    #[must_use]
    pub fn new(status: u16, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            status,
            what: what.into(),
            help: help.into(),
            ..Self::default()
        }
    }
}
