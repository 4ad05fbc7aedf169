//! The REST routes: those of the one table in [`crate::openapi`], and what answers where there is none.

use std::any::Any;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use woma_core::Code;

use crate::doors::Doors;
use crate::error::Envelope;
use crate::openapi;

/// Every REST route there is.
pub(crate) fn routes(doors: &Doors) -> Router {
    let add = |router: Router<Doors>, operation: &openapi::Operation| {
        router.route(operation.path, (operation.handler)())
    };
    openapi::OPERATIONS.iter().fold(Router::new(), add).with_state(doors.clone())
}

/// For paths that nobody answers.
pub(crate) async fn not_found(uri: Uri) -> Envelope {
    let path: String = uri.path().chars().take(200).collect();
    Envelope::new(Code::NotFound, format!("there is nothing at {path}"))
        .with_hint("/docs lists what there is; the MCP endpoint is /mcp")
}

/// For paths that answer to other methods, which the header `Allow` lists.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Envelope {
    let path: String = uri.path().chars().take(200).collect();
    let method: String = method.as_str().chars().take(40).collect();
    let message = format!("{path} does not answer to {method}");
    let envelope =
        Envelope::new(Code::InvalidArgument, message).with_status(StatusCode::METHOD_NOT_ALLOWED);
    let hint = "the header `Allow` lists what it answers to";
    Envelope { code: "method_not_allowed", ..envelope.with_hint(hint) }
}

/// For handlers that panicked: the log has what it said, the client has a status.
#[expect(clippy::needless_pass_by_value, reason = "the layer gives it away")]
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
    tracing::error!(panic = text, "A request failed by a panic");
    Envelope::new(Code::Internal, "the server failed; its log says why").into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::panicked;

    #[test]
    fn a_panic_is_a_refusal_like_any_other() {
        for panic in [Box::new("words") as Box<dyn std::any::Any + Send>, Box::new(1)] {
            assert_eq!(panicked(panic).status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}
