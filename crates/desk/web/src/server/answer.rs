//! What is asked of a server and what it answers, without HTTP.

use crate::ServedPage;

/// The type of JSON.
pub const JSON_MEDIA_TYPE: &str = "application/json";

/// Whoever knows the answers.
pub trait ApiHandler: Send + Sync + 'static {
    /// Returns the page.
    fn page(&self) -> ServedPage;

    /// Returns what may be sent to a path of the interface. `None` means that it is only asked.
    ///
    /// # Errors
    /// Nothing may be sent to it now.
    fn accepted_body(&self, path: &str) -> Result<Option<AcceptedBody>, ApiRefusal>;

    /// Answers a question. This may take long, and others are asked at the same time.
    ///
    /// # Errors
    /// The question may be wrong, or there is no answer.
    fn answer(&self, asked: &ApiRequest) -> Result<ApiAnswer, ApiRefusal>;
}

/// What may be sent to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedBody {
    /// The type of what is sent.
    pub media: &'static str,
    /// The most bytes.
    pub max_bytes: usize,
}

/// A question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRequest {
    /// The path below that of the interface, such as `top`.
    pub path: String,
    /// The parameters in their order, without the token.
    pub parameters: Vec<(String, String)>,
    /// What was sent, if something may be sent to the path.
    pub body: Vec<u8>,
    /// The tag of the answer that the asker has.
    pub known_tag: Option<String>,
}

impl ApiRequest {
    /// Returns the value of a parameter. An empty one counts as not given.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiAnswer {
    /// The type of the body.
    pub media: &'static str,
    /// The body. `None` says that the answer which the asker has is still right.
    pub body: Option<Vec<u8>>,
    /// A text that changes whenever the answer does.
    pub tag: Option<String>,
    /// What else is to be said.
    pub notes: Vec<String>,
}

impl ApiAnswer {
    /// Makes an answer in JSON.
    #[must_use]
    pub fn json(body: &serde_json::Value) -> Self {
        Self {
            media: JSON_MEDIA_TYPE,
            body: Some(format!("{body}\n").into_bytes()),
            ..Self::default()
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRefusal {
    /// The status of HTTP.
    pub status: u16,
    /// What is wrong.
    pub what: String,
    /// Why.
    pub cause: String,
    /// What helps.
    pub help: String,
    /// The methods that the path takes, if it does not take the one that was used.
    pub allowed: Option<&'static str>,
}

impl ApiRefusal {
    /// Makes one that says what is wrong and what helps.
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
