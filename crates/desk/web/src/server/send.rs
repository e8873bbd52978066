//! Answers HTTP requests. The guard checks a request, and a worker makes the answer. The headers of
//! every answer forbid pages of other origins to use it.

use std::convert::Infallible;
use std::io::Write;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, HeaderValue, LOCATION, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use hyper::{Request, Response, StatusCode};
use tokio::sync::Semaphore;

use super::answer::{
    AcceptedBody, ApiAnswer, ApiHandler, ApiRefusal, ApiRequest, HTML_MEDIA_TYPE, JSON_MEDIA_TYPE,
};
use super::guard::{RequestGuard, RequestTarget, too_large_refusal};

/// Maximum number of requests that are being answered or wait for an answer. Further requests are
/// refused with status 503.
const MAX_WAITING_REQUESTS: usize = 32;

/// Limit in bytes above which a body counts as large. Only one large body is received at a time.
const LARGE_BODY_LIMIT: usize = 1 << 20;

/// The header for the notes of an answer: a JSON list of texts in ASCII.
const NOTES_HEADER: HeaderName = HeaderName::from_static("heapprof-notes");

type HttpReply = Response<Full<Bytes>>;

/// Checks requests with a [`RequestGuard`], and answers them with an [`ApiHandler`].
pub(super) struct RequestDesk {
    guard: RequestGuard,
    answers: Arc<dyn ApiHandler>,
    places: Arc<Semaphore>,
    /// The permit to receive a large body. There is only one.
    large: Semaphore,
}

impl RequestDesk {
    pub(super) fn new(guard: RequestGuard, answers: Arc<dyn ApiHandler>) -> Self {
        Self {
            guard,
            answers,
            places: Arc::new(Semaphore::new(MAX_WAITING_REQUESTS)),
            large: Semaphore::new(1),
        }
    }

    /// Answers a request.
    pub(super) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<HttpReply, Infallible> {
        Ok(self
            .reply(request)
            .await
            .unwrap_or_else(|refusal| refusal_reply(&refusal)))
    }

    async fn reply(&self, request: Request<Incoming>) -> Result<HttpReply, ApiRefusal> {
        let (head, body) = request.into_parts();
        let asked = match self.guard.check_request(&head, &*self.answers)? {
            RequestTarget::Page => {
                let page = self.answers.page();
                return Ok(build_reply(
                    StatusCode::OK,
                    HTML_MEDIA_TYPE,
                    &page.policy,
                    page.html.into(),
                ));
            }
            RequestTarget::Answer(asked) => asked,
            RequestTarget::Upload(asked, takes) => {
                let is_large = takes.max_bytes > LARGE_BODY_LIMIT;
                let place = match is_large.then(|| self.large.try_acquire()) {
                    Some(Err(_)) => return Err(busy_refusal("Another upload is in progress")),
                    Some(Ok(place)) => Some(place),
                    None => None,
                };
                let body = receive_body(body, takes).await?;
                drop(place);
                ApiRequest { body, ..asked }
            }
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(busy_refusal("Too many requests at once"));
        };
        let answers = self.answers.clone();
        // When the connection ends, this future is dropped, and `waiting` with it.
        let waiting = Arc::new(());
        let waits = Arc::downgrade(&waiting);
        let work = move || {
            // The place stays taken as long as the work goes on, even if no client waits for it any
            // more.
            let _place = place;
            if waits.strong_count() == 0 {
                return Ok(Ok(ApiAnswer::default()));
            }
            catch_unwind(AssertUnwindSafe(|| answers.answer(&asked)))
        };
        let answer = tokio::task::spawn_blocking(work).await;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => Ok(answer_reply(answer?)),
            // The panic has already printed the reason.
            _ => Err(ApiRefusal::new(
                500,
                "heapprof web failed to answer this request",
                "Report it",
            )),
        }
    }
}

/// Returns the refusal of a request that the client may repeat later.
fn busy_refusal(what: &str) -> ApiRefusal {
    ApiRefusal::new(503, what, "Try again in a moment")
}

/// Receives the body of a request.
async fn receive_body(body: Incoming, takes: AcceptedBody) -> Result<Vec<u8>, ApiRefusal> {
    let body = Limited::new(body, takes.max_bytes)
        .collect()
        .await
        .map_err(
            |error| match error.is::<http_body_util::LengthLimitError>() {
                true => too_large_refusal(takes),
                false => ApiRefusal::new(400, "The body is incomplete", "Send all of it"),
            },
        )?;
    Ok(body.to_bytes().to_vec())
}

fn answer_reply(answer: ApiAnswer) -> HttpReply {
    let (status, body) = match (answer.body, &answer.location) {
        (_, Some(_)) => (StatusCode::TEMPORARY_REDIRECT, Vec::new()),
        (Some(body), None) => (StatusCode::OK, body),
        (None, None) => (StatusCode::NOT_MODIFIED, Vec::new()),
    };
    let policy = match answer.policy.as_str() {
        "" => NON_PAGE_POLICY,
        policy => policy,
    };
    let mut reply = build_reply(status, answer.media, policy, body.into());
    let file = answer
        .file_name
        .map(|name| format!("attachment; filename={name}"));
    for (name, value) in [(CONTENT_DISPOSITION, file), (LOCATION, answer.location)] {
        let value = value.and_then(|value| HeaderValue::from_str(&value).ok());
        if let Some(value) = value {
            reply.headers_mut().insert(name, value);
        }
    }
    let tag = answer.tag.and_then(|tag| HeaderValue::from_str(&tag).ok());
    if let Some(tag) = tag {
        reply.headers_mut().insert(ETAG, tag);
    }
    if !answer.notes.is_empty()
        && let Ok(notes) = HeaderValue::from_str(&to_ascii_json(&serde_json::json!(answer.notes)))
    {
        reply.headers_mut().insert(NOTES_HEADER, notes);
    }
    reply
}

/// Content security policy of answers that are not pages.
const NON_PAGE_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

fn refusal_reply(refusal: &ApiRefusal) -> HttpReply {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut reply = match &refusal.page {
        Some(page) => {
            let body = page.html.clone().into_bytes().into();
            build_reply(status, HTML_MEDIA_TYPE, &page.policy, body)
        }
        None => {
            let body = refusal_text(refusal).into();
            build_reply(status, JSON_MEDIA_TYPE, NON_PAGE_POLICY, body)
        }
    };
    if let Some(allowed) = refusal.allowed {
        let headers = reply.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    if refusal.status == 503 {
        // The value is in seconds.
        reply
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}

/// Reports to a client that its request took too long. The report may be lost, because no task
/// waits until it is written.
pub(super) fn send_too_slow(mut stream: TcpStream) {
    let refusal = ApiRefusal::new(408, "The request took too long", "Try again");
    let body = refusal_text(&refusal);
    let head = "HTTP/1.1 408 Request Timeout\r\nconnection: close";
    let length = body.len();
    let whole = format!(
        "{head}\r\ncontent-type: {JSON_MEDIA_TYPE}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let _ = stream.write_all(whole.as_bytes());
}

/// Returns a refusal as JSON, for the body of a reply.
fn refusal_text(refusal: &ApiRefusal) -> String {
    let error = serde_json::json!({
        "error": { "what": refusal.what, "cause": refusal.cause, "help": refusal.help }
    });
    format!("{error}\n")
}

fn build_reply(status: StatusCode, media: &str, policy: &str, body: Bytes) -> HttpReply {
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

/// Converts JSON to text with only ASCII characters.
fn to_ascii_json(json: &serde_json::Value) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a header; empty if there is none.
    fn header(reply: &HttpReply, name: &str) -> String {
        let value = reply.headers().get(name);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_string())
    }

    /// Returns the body of a reply.
    fn body(reply: HttpReply) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let body = runtime.unwrap().block_on(reply.into_body().collect());
        String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn every_reply_is_for_this_page_alone() {
        let refusal = ApiRefusal::new(404, "There is nothing", "Ask");
        for reply in [
            answer_reply(ApiAnswer::json(&serde_json::json!([1]))),
            answer_reply(ApiAnswer::default()),
            refusal_reply(&refusal),
            build_reply(StatusCode::OK, "text/html", NON_PAGE_POLICY, Bytes::new()),
        ] {
            for (name, expected) in [
                ("content-security-policy", NON_PAGE_POLICY),
                ("cache-control", "no-store"),
                ("referrer-policy", "no-referrer"),
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("cross-origin-resource-policy", "same-origin"),
                ("cross-origin-opener-policy", "same-origin"),
            ] {
                assert_eq!(header(&reply, name), expected, "{name}");
            }
            assert_eq!(header(&reply, "access-control-allow-origin"), "");
        }
    }

    #[test]
    fn an_answer_has_a_tag_and_notes() {
        let answer = ApiAnswer {
            tag: Some("\"7\"".to_string()),
            notes: vec!["a \"note\"".to_string(), "größer 𝄞\n".to_string()],
            ..ApiAnswer::json(&serde_json::json!({ "a": 1 }))
        };
        let reply = answer_reply(answer);
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(header(&reply, "etag"), "\"7\"");
        let notes = header(&reply, "heapprof-notes");
        assert_eq!(notes, r#"["a \"note\"","gr\u00f6\u00dfer \ud834\udd1e\n"]"#);
        let read: Vec<String> = serde_json::from_str(&notes).unwrap();
        assert_eq!(read[1], "größer 𝄞\n");
        assert_eq!(header(&reply, "content-type"), JSON_MEDIA_TYPE);
        assert_eq!(body(reply), "{\"a\":1}\n");
    }

    #[test]
    fn an_answer_that_the_client_has_is_not_sent_again() {
        let reply = answer_reply(ApiAnswer {
            tag: Some("\"7\"".to_string()),
            ..ApiAnswer::default()
        });
        assert_eq!(reply.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(header(&reply, "etag"), "\"7\"");
        assert_eq!(header(&reply, "content-type"), "");
        assert_eq!(body(reply), "");
    }

    #[test]
    fn a_page_has_its_policy_and_a_file_its_name() {
        let page = crate::ServedPage {
            html: "<p>".to_string(),
            policy: "default-src 'none'; form-action 'self'".to_string(),
        };
        let reply = answer_reply(ApiAnswer::page(page.clone()));
        assert_eq!(header(&reply, "content-security-policy"), page.policy);
        assert_eq!(header(&reply, "content-type"), HTML_MEDIA_TYPE);
        let reply = answer_reply(ApiAnswer::redirect("/top?f=a".to_string()));
        assert_eq!(
            (reply.status().as_u16(), header(&reply, "location").as_str()),
            (307, "/top?f=a")
        );
        assert_eq!(header(&reply, "content-security-policy"), NON_PAGE_POLICY);
        // A line break can't add a header.
        let reply = answer_reply(ApiAnswer::redirect("/\r\nset-cookie: a=b".to_string()));
        assert_eq!(
            (header(&reply, "location"), header(&reply, "set-cookie")),
            Default::default()
        );
        let reply = answer_reply(ApiAnswer {
            file_name: Some("profile.pb.gz"),
            ..ApiAnswer::json(&serde_json::json!(1))
        });
        let wanted = "attachment; filename=profile.pb.gz";
        assert_eq!(header(&reply, "content-disposition"), wanted);
    }

    /// Tests that a tag is left out of the reply if it is no valid header.
    #[test]
    fn a_tag_adds_no_line() {
        let reply = answer_reply(ApiAnswer {
            tag: Some("7\r\nset-cookie: a=b".to_string()),
            ..ApiAnswer::json(&serde_json::json!(null))
        });
        assert_eq!(
            (header(&reply, "etag"), header(&reply, "set-cookie")),
            Default::default()
        );
    }

    #[test]
    fn a_refusal_says_why_and_what_helps() {
        let refusal = ApiRefusal {
            cause: "a <cause>".to_string(),
            allowed: Some("POST"),
            ..ApiRefusal::new(405, "What", "Help")
        };
        let reply = refusal_reply(&refusal);
        assert_eq!(reply.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(header(&reply, "allow"), "POST");
        assert_eq!(header(&reply, "retry-after"), "");
        let expected = r#"{"error":{"what":"What","cause":"a <cause>","help":"Help"}}"#;
        assert_eq!(body(reply), format!("{expected}\n"));
        let busy = refusal_reply(&busy_refusal("Too much"));
        assert_eq!(
            (
                busy.status().as_u16(),
                header(&busy, "retry-after").as_str()
            ),
            (503, "1")
        );
        // No status of HTTP.
        let wrong = refusal_reply(&ApiRefusal::new(7, "What", "Help"));
        assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    }
}
