//! Documentation pages at `/docs` and `/redoc`, and the OpenAPI document. Everything is embedded,
//! so they work without other network access.

use std::sync::OnceLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse, Response};

use crate::http::openapi;

/// Placeholder of the content policy's nonce in the pages.
const NONCE: &str = "{{nonce}}";

pub(crate) async fn interactive() -> Response {
    page(include_str!("interactive.html"))
}

pub(crate) async fn reading() -> Response {
    page(include_str!("reading.html"))
}

pub(crate) async fn document() -> Response {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = DOCUMENT.get_or_init(openapi::text).as_str();
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], document).into_response()
}

/// Page whose content policy allows only its own scripts and requests to this server.
pub(super) fn page(html: &str) -> Response {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy.as_str()),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, html.replace(NONCE, &nonce)).into_response()
}
