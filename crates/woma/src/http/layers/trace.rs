//! Request ids: in the response, and in every log line of the request.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::client::ClientInfo;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_PARENT: &str = "traceparent";
/// Longest id accepted from a client, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Assigns the id and opens the log span. Only the layer of the client's address is outside of it.
pub(crate) async fn trace(mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let span = tracing::info_span!(
        "request",
        id = id.to_str().unwrap_or_default(),
        method = %request.method(),
        // The route's template: a path may hold names that must not be logged.
        path = path.as_deref().unwrap_or("unknown"),
        client = %ClientInfo::of(&request).address,
        trace_id = trace_id(request.headers()),
        status = tracing::field::Empty,
    );
    // For work on other tasks.
    request.extensions_mut().insert(span.clone());
    let started = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    span.record("status", status);
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    span.in_scope(|| {
        tracing::debug!(status, milliseconds, "Answered {status} after {milliseconds:.1} ms");
    });
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The client's id if it is short and printable, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_fit = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    if let Some(id) = headers.get(&REQUEST_ID).filter(is_fit) {
        return id.clone();
    }
    let minted = uuid::Uuid::new_v4().to_string();
    HeaderValue::from_str(&minted).unwrap_or(HeaderValue::from_static("unknown"))
}

/// The second field of a W3C `traceparent`, so that this log can be found from the client's.
fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(TRACE_PARENT)?.to_str().ok()?.split('-');
    let is_hex = |text: &&str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let version = parts.next().filter(|version| is_hex(version, 2) && *version != "ff")?;
    let trace = parts.next().filter(|trace| is_hex(trace, 32))?;
    let parent = parts.next().filter(|parent| is_hex(parent, 16))?;
    parts.next().filter(|flags| is_hex(flags, 2))?;
    let is_plain = version != "00" || parts.next().is_none();
    let has_value = |text: &str| text.bytes().any(|byte| byte != b'0');
    (is_plain && has_value(trace) && has_value(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::{REQUEST_ID, TRACE_PARENT, request_id, trace_id};

    #[test]
    fn accepts_only_valid_trace_ids() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (header, found) in [
            (format!("00-{trace}-00f067aa0ba902b7-01"), Some(trace)),
            (format!("cc-{trace}-00f067aa0ba902b7-01-more"), Some(trace)),
            (format!("00-{trace}-00f067aa0ba902b7-01-more"), None),
            (format!("ff-{trace}-00f067aa0ba902b7-01"), None),
            (format!("00-{trace}-0000000000000000-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            (format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()), None),
            ("nonsense".to_owned(), None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(TRACE_PARENT, HeaderValue::from_str(&header).unwrap());
            assert_eq!(trace_id(&headers), found, "{header}");
        }
    }

    #[test]
    fn an_id_is_taken_over_if_it_is_short_and_visible() {
        let long = "x".repeat(129);
        for (sent, taken) in [("abc-1", true), ("", false), ("a b", false), (&*long, false)] {
            let mut headers = HeaderMap::new();
            headers.insert(&REQUEST_ID, HeaderValue::from_str(sent).unwrap());
            let id = request_id(&headers);
            assert_eq!(id.to_str().unwrap() == sent, taken, "{sent:?}");
            assert!(!id.is_empty());
        }
    }
}
