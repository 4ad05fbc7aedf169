//! Direct JSON-RPC: request and reply in the HTTP bodies, without handshake or session, single or
//! as a batch.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ErrorCode, Implementation, InitializeRequestParams,
    JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage,
};
use rmcp::service::serve_directly_with_ct;
use rmcp::transport::OneshotTransport;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use woma_core::Caller;

use crate::mcp::Mcp;

/// Limit of requests in one batch.
pub(crate) const BATCH_MAX: usize = 100;

/// Handles `POST /` and `POST /mcp/sse`. Dropping the future interrupts the code.
pub(crate) async fn post(mcp: &Mcp, caller: &Caller, body: &Bytes) -> Response {
    let parsed: Value = match serde_json::from_slice(body) {
        Ok(parsed) => parsed,
        Err(error) => return malformed(&format!("not JSON: {error}")),
    };
    match parsed {
        Value::Array(batch) if batch.is_empty() || batch.len() > BATCH_MAX => {
            let text = format!("a batch has 1 to {BATCH_MAX} requests");
            reply(StatusCode::BAD_REQUEST, &failure(&Value::Null, -32600, &text))
        }
        Value::Array(batch) => {
            let mut answers = Vec::new();
            for message in batch {
                answers.extend(answer(mcp, caller, message).await);
            }
            if answers.is_empty() {
                return StatusCode::NO_CONTENT.into_response();
            }
            reply(StatusCode::OK, &Value::Array(answers))
        }
        single => match answer(mcp, caller, single).await {
            Some(answer) => reply(StatusCode::OK, &answer),
            None => StatusCode::NO_CONTENT.into_response(),
        },
    }
}

/// Reply to a body that is not a message.
pub(crate) fn malformed(why: &str) -> Response {
    reply(StatusCode::BAD_REQUEST, &failure(&Value::Null, -32700, why))
}

fn reply(status: StatusCode, body: &Value) -> Response {
    let headers = [("content-type", "application/json")];
    (status, headers, body.to_string()).into_response()
}

fn failure(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

/// Reply to one message; `None` for a notification.
async fn answer(mcp: &Mcp, caller: &Caller, message: Value) -> Option<Value> {
    let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
    let has_method = message.get("method").is_some_and(Value::is_string);
    if !has_method {
        let text = "a request has `jsonrpc`, `id`, `method` and `params`";
        return Some(failure(&id.unwrap_or(Value::Null), -32600, text));
    }
    let id = id?;
    // Clients of this transport expect METHOD_NOT_FOUND for an unknown tool.
    let is_unknown_tool = message["method"] == "tools/call"
        && message["params"]["name"]
            .as_str()
            .is_some_and(|name| mcp.catalogue.kind(name).is_none());
    let request = match serde_json::from_value::<ClientJsonRpcMessage>(message) {
        Ok(message @ JsonRpcMessage::Request(_)) => message,
        Ok(_) => return Some(failure(&id, -32600, "this is not a request")),
        Err(error) => {
            return Some(failure(&id, -32602, &format!("cannot parse the request: {error}")));
        }
    };
    let (transport, mut answers) = OneshotTransport::new(request);
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let client = InitializeRequestParams::new(
        ClientCapabilities::default(),
        Implementation::new("direct", "0"),
    )
    .with_protocol_version(ProtocolVersion::V_2025_06_18);
    let handler = mcp.of(caller.clone(), stop.clone());
    let service = serve_directly_with_ct(handler, transport, Some(client), stop);
    let serving = tokio::spawn(async move { service.waiting().await.map(|_| ()) });
    let mut found = None;
    while let Some(message) = answers.recv().await {
        match message {
            ServerJsonRpcMessage::Response(_) => found = serde_json::to_value(&message).ok(),
            ServerJsonRpcMessage::Error(mut error) => {
                if is_unknown_tool {
                    error.error.code = ErrorCode::METHOD_NOT_FOUND;
                }
                found = serde_json::to_value(ServerJsonRpcMessage::Error(error)).ok();
            }
            // This transport cannot carry notifications.
            ServerJsonRpcMessage::Notification(_) | ServerJsonRpcMessage::Request(_) => continue,
        }
        break;
    }
    drop(guard);
    serving.abort();
    Some(found.unwrap_or_else(|| failure(&id, -32603, "the server sent no reply")))
}
