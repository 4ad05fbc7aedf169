//! A request that goes no further, in the one shape that every error has.

use axum::Json;
use axum::http::header::{HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The word that programs look at.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let headers = Vec::new();
        Self { status, code, message: message.into(), hint: hint.into(), headers }
    }

    /// Text that no header can carry is left out.
    pub(crate) fn with_header(mut self, name: HeaderName, text: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(text) {
            self.headers.push((name, value));
        }
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        let headers: HeaderMap = self.headers.into_iter().collect();
        (self.status, headers, Json(body)).into_response()
    }
}
