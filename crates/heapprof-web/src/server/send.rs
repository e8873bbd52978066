//! Answers a request of HTTP: the guard decides, a worker answers, and every answer says that it is
//! for this page only.

use std::convert::Infallible;
use std::io::Write;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Request, Response, StatusCode};
use tokio::sync::Semaphore;

use super::answer::{Answer, Answers, Asked, JSON, Refusal, Takes};
use super::guard::{Guard, Wish, too_large};

/// So many questions wait for a worker. Others are told to come back.
const WAITING: usize = 32;

/// A body that may have more bytes is large. One of them is taken in at a time.
const LARGE: usize = 1 << 20;

/// The header of what else is to be said: a JSON list of texts, in ASCII.
const NOTES: HeaderName = HeaderName::from_static("heapprof-notes");

type Reply = Response<Full<Bytes>>;

/// Where requests are answered.
pub(super) struct Desk {
    guard: Guard,
    answers: Arc<dyn Answers>,
    places: Arc<Semaphore>,
    /// The place of the one large body that is taken in at a time.
    large: Semaphore,
}

impl Desk {
    pub(super) fn new(guard: Guard, answers: Arc<dyn Answers>) -> Self {
        Self {
            guard,
            answers,
            places: Arc::new(Semaphore::new(WAITING)),
            large: Semaphore::new(1),
        }
    }

    /// Answers one request.
    pub(super) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Reply, Infallible> {
        Ok(self
            .reply(request)
            .await
            .unwrap_or_else(|refusal| refused(&refusal)))
    }

    async fn reply(&self, request: Request<Incoming>) -> Result<Reply, Refusal> {
        let (head, body) = request.into_parts();
        let asked = match self.guard.wish(&head, &*self.answers)? {
            Wish::Page => {
                let page = self.answers.page();
                let html = "text/html; charset=utf-8";
                return Ok(sent(StatusCode::OK, html, &page.policy, page.html.into()));
            }
            Wish::Answer(asked) => asked,
            Wish::Sent(asked, takes) => {
                let is_large = takes.most > LARGE;
                let place = match is_large.then(|| self.large.try_acquire()) {
                    Some(Err(_)) => return Err(busy("Another one is being sent")),
                    Some(Ok(place)) => Some(place),
                    None => None,
                };
                let body = received(body, takes).await?;
                drop(place);
                Asked { body, ..asked }
            }
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(busy("Too much is asked at once"));
        };
        let answers = self.answers.clone();
        // This future is dropped when the connection ends.
        let waiting = Arc::new(());
        let waits = Arc::downgrade(&waiting);
        let work = move || {
            // The place is taken as long as the work goes on, also if nobody waits for it any more.
            let _place = place;
            if waits.strong_count() == 0 {
                return Ok(Ok(Answer::default()));
            }
            catch_unwind(AssertUnwindSafe(|| answers.answer(&asked)))
        };
        let answer = tokio::task::spawn_blocking(work).await;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => Ok(answered(answer?)),
            // The worker has said why on its way.
            _ => Err(Refusal::new(
                500,
                "heapprof web failed at this question",
                "Report it",
            )),
        }
    }
}

/// The refusal of what may be asked again.
fn busy(what: &str) -> Refusal {
    Refusal::new(503, what, "Ask again in a moment")
}

/// Reads what is sent.
async fn received(body: Incoming, takes: Takes) -> Result<Vec<u8>, Refusal> {
    let body = Limited::new(body, takes.most)
        .collect()
        .await
        .map_err(
            |error| match error.is::<http_body_util::LengthLimitError>() {
                true => too_large(takes),
                false => Refusal::new(400, "What is sent breaks off", "Send all of it"),
            },
        )?;
    Ok(body.to_bytes().to_vec())
}

fn answered(answer: Answer) -> Reply {
    let (status, body) = match answer.body {
        Some(body) => (StatusCode::OK, body),
        None => (StatusCode::NOT_MODIFIED, Vec::new()),
    };
    let mut reply = sent(status, answer.media, NOTHING, body.into());
    let tag = answer.tag.and_then(|tag| HeaderValue::from_str(&tag).ok());
    if let Some(tag) = tag {
        reply.headers_mut().insert(ETAG, tag);
    }
    if !answer.notes.is_empty()
        && let Ok(notes) = HeaderValue::from_str(&ascii(&serde_json::json!(answer.notes)))
    {
        reply.headers_mut().insert(NOTES, notes);
    }
    reply
}

/// The policy of what is no page.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

fn refused(refusal: &Refusal) -> Reply {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut reply = sent(status, JSON, NOTHING, text(refusal).into());
    if let Some(allowed) = refusal.allowed {
        let headers = reply.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    if refusal.status == 503 {
        // Seconds.
        reply
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}

/// Tells a client that its head took too long. It may not get it, because nobody waits for it.
pub(super) fn too_slow(mut stream: TcpStream) {
    let refusal = Refusal::new(408, "The request took too long", "Ask again");
    let body = text(&refusal);
    let head = "HTTP/1.1 408 Request Timeout\r\nconnection: close";
    let length = body.len();
    let whole = format!("{head}\r\ncontent-type: {JSON}\r\ncontent-length: {length}\r\n\r\n{body}");
    let _ = stream.write_all(whole.as_bytes());
}

/// The body of a refusal.
fn text(refusal: &Refusal) -> String {
    let error = serde_json::json!({
        "error": { "what": refusal.what, "cause": refusal.cause, "help": refusal.help }
    });
    format!("{error}\n")
}

fn sent(status: StatusCode, media: &str, policy: &str, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, media),
        (CONTENT_SECURITY_POLICY, policy),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        if let Ok(value) = HeaderValue::from_str(value)
            && !value.is_empty()
        {
            headers.insert(name, value);
        }
    }
    reply
}

/// A JSON text whose characters are all of ASCII.
fn ascii(json: &serde_json::Value) -> String {
    let mut out = String::new();
    let mut units = [0; 2];
    for c in json.to_string().chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => {
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out
}
