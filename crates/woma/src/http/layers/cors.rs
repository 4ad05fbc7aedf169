//! CORS: origins that may call the server, and headers that they may read.

use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER,
};
use axum::http::{HeaderName, HeaderValue, Method};
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::trace::REQUEST_ID;
use crate::http::routes::execute::{EXECUTION_ID, SESSION_ID};

/// Lifetime of a preflight reply in the browser's cache.
const MAX_AGE: Duration = Duration::from_mins(10);

/// Layer for these origins (scheme, host and port); `*` allows every origin, an empty list none.
pub(crate) fn layer(origins: &[String]) -> CorsLayer {
    let named = origins.iter().filter_map(|origin| HeaderValue::from_str(origin.trim()).ok());
    let is_any = origins.iter().any(|origin| origin.trim() == "*");
    let origin = if is_any { AllowOrigin::any() } else { AllowOrigin::list(named) };
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
    let shown = [
        CONTENT_DISPOSITION,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        RETRY_AFTER,
        SESSION_ID,
        EXECUTION_ID,
        REQUEST_ID,
        HeaderName::from_static("mcp-session-id"),
    ];
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(asked.collect::<Vec<_>>())
        .expose_headers(shown)
        .max_age(MAX_AGE)
}
