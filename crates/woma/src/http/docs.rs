//! The pages at `/docs` and `/redoc`, and the document that both of them show. Everything is embedded:
//! they work where there is no other network.

use std::sync::OnceLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse, Response};

use crate::openapi;

/// Where the pages have the word that the policy lets scripts and styles run by.
const NONCE: &str = "{{nonce}}";

pub(crate) async fn interactive() -> Response {
    page(include_str!("docs/interactive.html"))
}

pub(crate) async fn reading() -> Response {
    page(include_str!("docs/reading.html"))
}

pub(crate) async fn document() -> Response {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = DOCUMENT.get_or_init(openapi::text).as_str();
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], document).into_response()
}

/// Only what came with the page runs, and it may talk to this server only.
fn page(html: &str) -> Response {
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
