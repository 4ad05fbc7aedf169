//! Errors as clients see them: code, message and hint, and the HTTP status of each code.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::Code;

use super::arguments::Problem;

/// Body of every error.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Envelope {
    /// Stable name, for programs.
    pub(crate) code: &'static str,
    /// Description, for people.
    pub(crate) message: String,
    /// Remedy, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) hint: Option<String>,
    #[serde(skip)]
    pub(crate) status: StatusCode,
    #[serde(skip)]
    pub(crate) retry_after: Option<Duration>,
    #[serde(skip)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the service has counted this error in its metrics.
    #[serde(skip)]
    pub(crate) is_counted: bool,
}

/// Response extension: the request was rejected before it reached the service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused(pub(crate) &'static str);

impl Envelope {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let (code, status) = (code.name(), status(code));
        let (message, hint) = (message.into(), None);
        let is_passing = status == StatusCode::SERVICE_UNAVAILABLE;
        let retry_after = is_passing.then_some(Duration::from_secs(1));
        Self { code, message, hint, status, retry_after, headers: Vec::new(), is_counted: false }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Overrides the status of the code.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Adds a header; text that is not valid in a header is dropped.
    pub(crate) fn with_header(mut self, name: HeaderName, text: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(text) {
            self.headers.push((name, value));
        }
        self
    }
}

impl From<&woma_core::Error> for Envelope {
    fn from(error: &woma_core::Error) -> Self {
        let code = error.code();
        let envelope = Self::new(code, public_message(error, code));
        let retry_after = error.retry_after().or(envelope.retry_after);
        Self { hint: error.hint(), retry_after, is_counted: true, ..envelope }
    }
}

impl From<woma_core::Error> for Envelope {
    fn from(error: woma_core::Error) -> Self {
        Self::from(&error)
    }
}

impl From<woma_core::BadSessionId> for Envelope {
    fn from(error: woma_core::BadSessionId) -> Self {
        Self::from(woma_core::Error::from(error))
    }
}

impl From<Problem> for Envelope {
    fn from(problem: Problem) -> Self {
        let envelope = Self::new(Code::InvalidArgument, problem.to_string());
        match problem {
            Problem::Missing { name, .. } => {
                envelope.with_hint(format!("send it as {{\"{name}\": \"…\"}}"))
            }
            Problem::Wrong { .. } | Problem::Differ { .. } | Problem::Twice { .. } => envelope,
        }
    }
}

/// Message for clients. Internal errors go to the log only: their text may name host paths.
fn public_message(error: &woma_core::Error, code: Code) -> String {
    use woma_core::Error::{Environment, Key, Sandbox, Store};
    use woma_core::keys;
    use woma_core::store::StoreError::{Corrupt, Internal};
    let is_inner = matches!(
        error,
        Sandbox(_)
            | Environment(_)
            | Store(Corrupt(_) | Internal(_))
            | Key(keys::Error::Damaged { .. } | keys::Error::Store(_))
    );
    // What it says is meant for callers: it names a runtime and no more of the server.
    let is_told = matches!(error, Sandbox(inner) if inner.is_for_callers());
    if is_told || code != Code::Internal && !is_inner {
        return error.to_string();
    }
    tracing::error!(error = %chain(error), "Request failed with an internal error");
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

/// The code of a refusal that the audit trail records, by its status; `None` for other replies.
pub(crate) fn refusal_code(status: StatusCode) -> Option<&'static str> {
    let code = match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::Forbidden,
        StatusCode::TOO_MANY_REQUESTS => Code::RateLimited,
        _ => return None,
    };
    Some(code.name())
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::Gone => StatusCode::GONE,
        Code::Conflict => StatusCode::CONFLICT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::RateLimited | Code::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        Code::FetchFailed => StatusCode::BAD_GATEWAY,
        Code::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
        Code::Busy | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for Envelope {
    fn into_response(mut self) -> Response {
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            self.headers.push((header::RETRY_AFTER, seconds.max(1).into()));
        }
        let headers: HeaderMap = std::mem::take(&mut self.headers).into_iter().collect();
        let mut response = (self.status, headers, Json(&self)).into_response();
        if !self.is_counted {
            response.extensions_mut().insert(Refused(self.code));
        }
        response
    }
}
