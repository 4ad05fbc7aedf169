//! One table: what a caller can do about an error → HTTP status. Every door shows the same three
//! fields.

use std::time::Duration;

use axum::Json;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::Code;

/// The body of every refusal.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Envelope {
    /// Stable, for programs.
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) message: String,
    /// The way out, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) hint: Option<String>,
    #[serde(skip)]
    pub(crate) status: u16,
    #[serde(skip)]
    pub(crate) retry_after: Option<Duration>,
}

impl Envelope {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let (code, status) = (code.name(), status(code));
        Self { code, message: message.into(), hint: None, status, retry_after: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// With another status than its code has.
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

impl From<&woma_core::Error> for Envelope {
    fn from(error: &woma_core::Error) -> Self {
        let code = error.code();
        let (hint, retry_after) = (error.hint(), error.retry_after());
        Self { hint, retry_after, ..Self::new(code, told(error, code)) }
    }
}

impl From<woma_core::Error> for Envelope {
    fn from(error: woma_core::Error) -> Self {
        Self::from(&error)
    }
}

/// A fault of ours is for the log: its text may name paths of the host.
fn told(error: &woma_core::Error, code: Code) -> String {
    if code != Code::Internal {
        return error.to_string();
    }
    tracing::error!(error = %chain(error), "A request failed by a fault of the server");
    "the server failed; its log says why".to_owned()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn status(code: Code) -> u16 {
    match code {
        Code::InvalidArgument => 400,
        Code::Unauthenticated => 401,
        Code::Forbidden => 403,
        Code::NotFound => 404,
        Code::Conflict => 409,
        Code::TooLarge => 413,
        Code::RateLimited | Code::QuotaExceeded => 429,
        Code::Cancelled => 499,
        Code::Internal => 500,
        Code::Busy | Code::Unavailable => 503,
    }
}

/// Every refusal in its one shape, through the doors that speak HTTP.
impl IntoResponse for Envelope {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self)).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            // Whole seconds are all that the header has; who comes too early is told again.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if matches!(self.status, 408 | 413) {
            // The rest of the body is not waited for.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
