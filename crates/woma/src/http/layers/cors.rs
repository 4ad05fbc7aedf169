//! CORS: the origins that the guard accepts may read replies; which headers they may send and read.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE, RETRY_AFTER,
};
use axum::http::{HeaderName, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::guard::Guard;
use super::trace::REQUEST_ID;
use crate::http::idempotency::{IDEMPOTENCY_KEY, IDEMPOTENCY_REPLAYED};
use crate::http::routes::execute::{EXECUTION_ID, SESSION_ID};
use crate::http::routes::files::UPLOAD_OFFSET;

/// Lifetime of a preflight reply in the browser's cache.
const MAX_AGE: Duration = Duration::from_mins(10);

/// Layer for the origins that the guard accepts: what a preflight allows is not refused afterwards,
/// and the other way round.
pub(crate) fn layer(guard: Arc<Guard>) -> CorsLayer {
    let origin = match guard.allows_any_origin() {
        true => AllowOrigin::any(),
        false => AllowOrigin::predicate(move |origin, request| {
            guard.allows_origin(origin.as_bytes(), request)
        }),
    };
    let ours = [
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "traceparent",
        "x-api-key",
    ];
    let asked = ours.into_iter().map(HeaderName::from_static);
    let asked = asked.chain([ACCEPT, AUTHORIZATION, CONTENT_TYPE, REQUEST_ID]);
    let asked = asked.chain([IF_NONE_MATCH, IF_RANGE, RANGE, IDEMPOTENCY_KEY, UPLOAD_OFFSET]);
    let shown = [
        CONTENT_DISPOSITION,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        ETAG,
        LOCATION,
        RETRY_AFTER,
        SESSION_ID,
        EXECUTION_ID,
        REQUEST_ID,
        IDEMPOTENCY_REPLAYED,
        UPLOAD_OFFSET,
        HeaderName::from_static("mcp-session-id"),
    ];
    let methods =
        [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods(methods)
        .allow_headers(asked.collect::<Vec<_>>())
        .expose_headers(shown)
        .max_age(MAX_AGE)
}
