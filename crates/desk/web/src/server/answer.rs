//! Requests to the server, and their answers, without the details of HTTP.

use crate::ServedPage;

/// Media type of JSON.
pub const JSON_MEDIA_TYPE: &str = "application/json";

/// Answers the requests of a page.
pub trait ApiHandler: Send + Sync + 'static {
    /// Returns the page itself.
    fn page(&self) -> ServedPage;

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
    /// The path below `API_PATH`, such as `top`.
    pub path: String,
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
}

impl ApiAnswer {
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
