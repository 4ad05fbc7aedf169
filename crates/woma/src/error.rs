//! One table: what a caller can do about an error → HTTP status. Every door shows the same three
//! fields.

use std::time::Duration;

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

impl axum::response::IntoResponse for Envelope {
    fn into_response(self) -> axum::response::Response {
        use axum::http::{HeaderValue, StatusCode, header};
        let status =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(&self)).into_response();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let value = HeaderValue::from(seconds.max(1));
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}
