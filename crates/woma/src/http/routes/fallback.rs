//! Replies for paths and methods that no route answers.

use axum::http::{Method, StatusCode, Uri};
use woma_core::Code;

use crate::api::error::Envelope;

/// Reply for an unknown path.
pub(crate) async fn not_found(uri: Uri) -> Envelope {
    let path: String = uri.path().chars().take(200).collect();
    Envelope::new(Code::NotFound, format!("no route matches {path}"))
        .with_hint("/docs lists the routes; the MCP endpoint is /mcp")
}

/// Reply for a wrong method; the header `Allow` lists the right ones.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Envelope {
    let path: String = uri.path().chars().take(200).collect();
    let method: String = method.as_str().chars().take(40).collect();
    let message = format!("{path} does not allow {method}");
    let envelope =
        Envelope::new(Code::InvalidArgument, message).with_status(StatusCode::METHOD_NOT_ALLOWED);
    let hint = "the header `Allow` lists the allowed methods";
    Envelope { code: "method_not_allowed", ..envelope.with_hint(hint) }
}
