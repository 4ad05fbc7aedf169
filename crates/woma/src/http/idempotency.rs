//! `Idempotency-Key` of routes that run code or write files: a repeated request gets the first reply
//! again, also if the first client did not wait for it.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use tracing::Instrument as _;
use woma_core::replays::{Begun, Claim, Fingerprint, Replays, Weight};
use woma_core::{Caller, Code};

use super::body;
use super::layers::panic;
use crate::api::error::Envelope;
use crate::api::state::AppState;

/// Longest key, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 128;
/// Largest reply that is remembered, in bytes; one of these routes has at most 1 MB and links.
const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Header of a reply that is a repetition.
pub(super) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Whether an operation takes the header: executes, and uploads that are not idempotent already as
/// `PUT` is.
pub(super) fn applies(id: &str) -> bool {
    matches!(
        id,
        "run"
            | "execute"
            | "execute_sync"
            | "execute_plain"
            | "execute_api"
            | "execute_quick"
            | "upload_file"
            | "upload_file_api"
            | "fetch_file"
            | "fetch_file_api"
            | "begin_upload"
    )
}

/// Request extension: the reply must be one piece, because it is remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remembered;

/// A reply that was sent before.
#[derive(Debug, Clone)]
struct Sent {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Weight for Sent {
    fn bytes(&self) -> usize {
        self.body.len() + self.headers.len() * 64
    }
}

/// The store and the state that a layer of these routes needs.
#[derive(Clone)]
pub(super) struct Idempotency {
    replays: Replays<Sent>,
    body_bytes_max: usize,
}

impl Idempotency {
    pub(super) fn new(state: &AppState) -> Self {
        let body_bytes_max = state.presentation.body_bytes_max;
        Self { replays: Replays::default(), body_bytes_max }
    }
}

/// Layer of the routes that take the header.
pub(super) async fn once(
    State(idempotency): State<Idempotency>,
    request: Request,
    next: Next,
) -> Response {
    let Some(key) = request.headers().get(IDEMPOTENCY_KEY).cloned() else {
        return next.run(request).await;
    };
    match idempotency.answer(&key, request, next).await {
        Ok(response) => response,
        Err(envelope) => envelope.into_response(),
    }
}

impl Idempotency {
    async fn answer(
        &self,
        key: &HeaderValue,
        request: Request,
        next: Next,
    ) -> Result<Response, Envelope> {
        let key = checked(key)?;
        let (mut parts, bytes) = body::whole(request, self.body_bytes_max).await?;
        let Some(caller) = parts.extensions.get::<Caller>().map(|caller| caller.id.clone()) else {
            tracing::error!("A route that needs a caller was reached unauthenticated");
            return Err(Envelope::new(Code::Internal, "the server failed; its log says why"));
        };
        let fingerprint = fingerprint(&parts, &bytes);
        let claim = match self.replays.begin(&caller, &key, fingerprint, Instant::now()) {
            Begun::First(claim) => claim,
            Begun::Again(sent) => return Ok(again(sent)),
            refused => return Err(refusal(&refused)),
        };
        parts.extensions.insert(Remembered);
        let request = Request::from_parts(parts, Body::from(bytes));
        // On a task of its own: a client that hangs up and repeats itself gets this reply.
        let work = async move {
            let done = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            remembered(done.unwrap_or_else(panic::panicked), claim).await
        };
        let done = tokio::spawn(work.in_current_span());
        done.await.map_err(|_| woma_core::Error::Lost.into())
    }
}

fn checked(key: &HeaderValue) -> Result<String, Envelope> {
    let is_fit = |text: &&str| {
        (1..=KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
    };
    key.to_str().ok().filter(is_fit).map(str::to_owned).ok_or_else(|| {
        let message =
            format!("`Idempotency-Key` must have 1 to {KEY_BYTES_MAX} visible characters");
        Envelope::new(Code::InvalidArgument, message).with_hint("a random UUID is a good key")
    })
}

/// Digest of method, address and body. The boundary of a form is left out: programs draw a new one
/// for each attempt.
fn fingerprint(parts: &Parts, body: &[u8]) -> Fingerprint {
    let head = [parts.method.as_str().as_bytes(), parts.uri.path().as_bytes()];
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let head = head.into_iter().chain([query]);
    match boundary(&parts.headers) {
        Some(boundary) => Fingerprint::of(head.chain(pieces(body, boundary))),
        None => Fingerprint::of(head.chain([body])),
    }
}

fn boundary(headers: &HeaderMap) -> Option<&[u8]> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (_, rest) = kind.split_once("boundary=")?;
    let boundary = rest.split(';').next()?.trim().trim_matches('"');
    (!boundary.is_empty()).then_some(boundary.as_bytes())
}

/// The body without its boundaries, which stand at the beginning of lines, after two dashes.
fn pieces<'a>(body: &'a [u8], boundary: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    body.split(|byte| *byte == b'\n').filter(move |line| {
        !line.strip_prefix(b"--").is_some_and(|line| line.starts_with(boundary))
    })
}

/// The reply, which is remembered if it is a success or a fault of the server, after which nobody
/// knows how much of the work was done: it must not be done again. After any other error nothing was
/// done, and the same key may be used again.
async fn remembered(response: Response, claim: Claim<Sent>) -> Response {
    let is_fault = response.status() == StatusCode::INTERNAL_SERVER_ERROR;
    if !response.status().is_success() && !is_fault {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = match axum::body::to_bytes(body, REPLY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(%error, "A reply is too large to be remembered");
            return Envelope::new(Code::Internal, "the server failed; its log says why")
                .into_response();
        }
    };
    let headers = parts.headers.clone();
    claim.finish(Sent { status: parts.status, headers, body: body.clone() });
    Response::from_parts(parts, Body::from(body))
}

fn again(sent: Sent) -> Response {
    let mut response = (sent.status, sent.headers, sent.body).into_response();
    response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    response
}

fn refusal(begun: &Begun<Sent>) -> Envelope {
    match begun {
        Begun::Differs => {
            let message = "the `Idempotency-Key` was used with another request";
            let envelope = Envelope::new(Code::InvalidArgument, message);
            let envelope = envelope.with_status(StatusCode::UNPROCESSABLE_ENTITY);
            let envelope = envelope.with_hint("use a new key for each new request");
            Envelope { code: "idempotency_mismatch", ..envelope }
        }
        Begun::Full => {
            let message = "too many requests with an `Idempotency-Key` are in progress";
            Envelope::new(Code::QuotaExceeded, message).with_hint("wait until some have ended")
        }
        _ => {
            let message = "a request with this `Idempotency-Key` is in progress";
            let envelope = Envelope::new(Code::Conflict, message);
            let retry_after = Some(std::time::Duration::from_secs(1));
            Envelope { retry_after, ..envelope.with_hint("repeat it in a moment") }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use axum::middleware::{from_fn, from_fn_with_state};
    use axum::routing::post;
    use tower::ServiceExt as _;
    use woma_core::Caller;

    use super::{
        CONTENT_TYPE, IDEMPOTENCY_KEY, IDEMPOTENCY_REPLAYED, Idempotency, Replays, checked,
        fingerprint, once,
    };
    use crate::api::pools::Pools;
    use crate::http::layers::shares;

    /// How often the same request is carried out if it is sent twice, and whether the second reply
    /// is the first one.
    async fn sent_twice(status: Option<StatusCode>) -> (usize, bool) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let work = move || async move {
            counted.fetch_add(1, Ordering::Relaxed);
            status.unwrap_or_else(|| panic!("a fault"))
        };
        let state = Idempotency { replays: Replays::default(), body_bytes_max: 1024 };
        let router = Router::new()
            .route("/", post(work))
            .layer(from_fn_with_state(state, once))
            .layer(from_fn_with_state(Arc::new(Pools::new(16, 1024)), shares::share_out))
            .layer(from_fn(async |mut request: super::Request, next: super::Next| {
                request.extensions_mut().insert(Caller::local());
                next.run(request).await
            }));
        let mut is_replayed = false;
        for _ in 0..2 {
            let request = Request::post("/").header(IDEMPOTENCY_KEY, "k");
            let request = request.body(Body::from("{}")).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let expected = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(response.status(), expected);
            is_replayed = response.headers().contains_key(IDEMPOTENCY_REPLAYED);
        }
        (count.load(Ordering::Relaxed), is_replayed)
    }

    #[tokio::test]
    async fn a_fault_is_not_repeated_and_a_refusal_is() {
        for status in [200, 201, 204, 500] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(sent_twice(Some(status)).await, (1, true), "{status}");
        }
        assert_eq!(sent_twice(None).await, (1, true), "a handler that panics");
        for status in [400, 409, 413, 429, 502, 503, 507] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(sent_twice(Some(status)).await, (2, false), "{status}");
        }
    }

    fn parts(kind: &str) -> axum::http::request::Parts {
        let request = Request::post("/x?a=1").header(CONTENT_TYPE, kind);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_form_is_the_same_with_another_boundary() {
        let form = |boundary: &str, content: &str| {
            let body = format!("--{boundary}\r\nHead: 1\r\n\r\n{content}\r\n--{boundary}--\r\n");
            let kind = format!("multipart/form-data; boundary={boundary}");
            fingerprint(&parts(&kind), body.as_bytes())
        };
        assert_eq!(form("one", "a"), form("two", "a"));
        assert_ne!(form("one", "a"), form("one", "b"));
        let json = |body: &str| fingerprint(&parts("application/json"), body.as_bytes());
        assert_ne!(json("--one"), json("--two"));
    }

    #[test]
    fn a_key_has_visible_characters() {
        let long = "k".repeat(128);
        for (text, is_fit) in [("k", true), (&*long, true), ("", false), ("a b", false)] {
            let value = axum::http::HeaderValue::from_str(text).unwrap();
            assert_eq!(checked(&value).is_ok(), is_fit, "{text:?}");
        }
        let value = axum::http::HeaderValue::from_str(&format!("{long}k")).unwrap();
        assert_eq!(checked(&value).unwrap_err().status, 400);
    }
}
