//! Panics of handlers: the client gets a 500, the log gets the message.

use std::any::Any;

use axum::response::{IntoResponse, Response};
use woma_core::Code;

use crate::api::error::Envelope;

/// Reply to a panic; its message is logged only.
#[expect(clippy::needless_pass_by_value, reason = "the layer gives it away")]
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(panic = text, "Request handler panicked");
    Envelope::new(Code::Internal, "the server failed; its log says why").into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::panicked;

    #[test]
    fn a_panic_is_a_500() {
        for panic in [Box::new("words") as Box<dyn std::any::Any + Send>, Box::new(1)] {
            assert_eq!(panicked(panic).status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}
