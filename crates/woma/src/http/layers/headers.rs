//! Headers of every reply: nothing is stored by caches, guessed at by browsers, or embedded by pages
//! of other origins, unless its route says otherwise.

use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

pub(crate) const RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// Adds the headers that the route has not set. Must be outside the layer that catches panics.
pub(crate) async fn protect(request: Request, next: Next) -> Response {
    // Any page may read a file whose address it has.
    let embedding = match request.uri().path().starts_with("/dl/") {
        true => "cross-origin",
        false => "same-origin",
    };
    let mut response = next.run(request).await;
    let defaults = [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (RESOURCE_POLICY, embedding),
    ];
    for (name, value) in defaults {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
