//! The routes of MCP: streamable HTTP, HTTP+SSE, and direct JSON-RPC.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use woma_core::Caller;

use super::body;
use crate::doors::Doors;
use crate::mcp::sse::SseDoor;
use crate::mcp::streamable::Streamable;
use crate::mcp::{Mcp, direct};

/// A quiet session of the older kind is kept this much longer than the longest run.
const SILENCE_EXTRA: Duration = Duration::from_mins(10);

#[derive(Debug, Clone)]
struct Mouths {
    mcp: Mcp,
    streamable: Streamable,
    sse: SseDoor,
    body_bytes_max: usize,
}

pub(super) fn routes(doors: &Doors, stop: &CancellationToken) -> Router {
    let mcp = Mcp::new(doors.clone());
    let body_bytes_max = doors.manner.body_bytes_max;
    let silence_max = doors.service.settings().timeout_max + SILENCE_EXTRA;
    let streamable = Streamable::new(&mcp, body_bytes_max, silence_max, stop.child_token());
    let sse = SseDoor::new(mcp.clone(), stop.child_token());
    let mouths = Arc::new(Mouths { mcp, streamable, sse, body_bytes_max });
    Router::new()
        .route("/mcp", any(streamable_http))
        .route("/mcp/", any(streamable_http))
        .route("/sse", get(open_stream))
        .route("/mcp/sse", get(open_stream).post(direct_call))
        .route("/messages", post(post_message))
        .route("/messages/", post(post_message))
        .route("/", post(direct_call))
        .with_state(mouths)
}

async fn streamable_http(State(mouths): State<Arc<Mouths>>, request: Request<Body>) -> Response {
    let request = match body::whole(request, mouths.body_bytes_max).await {
        Ok((parts, bytes)) => Request::from_parts(parts, Body::from(bytes)),
        Err(refused) => return refused.into_response(),
    };
    mouths.streamable.handle(request).await
}

async fn open_stream(
    State(mouths): State<Arc<Mouths>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    mouths.sse.open(&caller).unwrap_or_else(IntoResponse::into_response)
}

#[derive(Debug, Deserialize)]
struct StreamName {
    #[serde(alias = "sessionId", default)]
    session_id: String,
}

async fn post_message(
    State(mouths): State<Arc<Mouths>>,
    Extension(caller): Extension<Caller>,
    Query(name): Query<StreamName>,
    request: Request<Body>,
) -> Response {
    let (_, bytes) = match body::whole(request, mouths.body_bytes_max).await {
        Ok(whole) => whole,
        Err(refused) => return refused.into_response(),
    };
    let posted = mouths.sse.post(&caller, &name.session_id, &bytes).await;
    posted.unwrap_or_else(IntoResponse::into_response)
}

async fn direct_call(
    State(mouths): State<Arc<Mouths>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Response {
    match body::whole(request, mouths.body_bytes_max).await {
        Ok((_, bytes)) => direct::post(&mouths.mcp, &caller, &bytes).await,
        Err(refused) => refused.into_response(),
    }
}
