//! Cross-origin access to downloads: any page may read a file whose address it has.

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Allows any origin to read below `/dl/`. Removes `Origin` before the guard sees it; the guard
/// still checks the host.
pub(crate) async fn allow_any_origin(mut request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !is_read || !request.uri().path().starts_with("/dl/") {
        return next.run(request).await;
    }
    let mut response = if request.method() == Method::OPTIONS {
        let headers = [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
            (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, x-api-key, range, if-none-match"),
            (ACCESS_CONTROL_MAX_AGE, "600"),
        ];
        (StatusCode::NO_CONTENT, headers).into_response()
    } else {
        request.headers_mut().remove(ORIGIN);
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    let shown = "content-disposition, content-length, content-type, content-range, accept-ranges, \
                 etag, x-session-id, x-request-id";
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(shown));
    response
}
