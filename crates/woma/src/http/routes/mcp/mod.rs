//! The routes of MCP: streamable HTTP, HTTP+SSE, and direct JSON-RPC.

mod message;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tokio_util::sync::CancellationToken;
use woma_core::Caller;

use self::message::Shape;
use crate::api::pools::Pools;
use crate::api::state::{AppState, BaseUrl};
use crate::http::body;
use crate::mcp::Mcp;
use crate::mcp::transports::direct;
use crate::mcp::transports::sse::SseTransport;
use crate::mcp::transports::streamable::{self, Streamable};

/// Idle time of a protocol session beyond the longest run.
const SILENCE_EXTRA: Duration = Duration::from_mins(10);

#[derive(Debug, Clone)]
struct McpState {
    mcp: Mcp,
    streamable: Streamable,
    sse: SseTransport,
    body_bytes_max: usize,
    pools: Arc<Pools>,
}

pub(in crate::http) fn routes(state: &AppState, stop: &CancellationToken) -> Router {
    let mcp = Mcp::new(state);
    let body_bytes_max = state.presentation.body_bytes_max;
    let silence_max = state.service.settings().timeout_max + SILENCE_EXTRA;
    let streamable = Streamable::new(&mcp, body_bytes_max, silence_max, stop.child_token());
    let sse = SseTransport::new(mcp.clone(), stop.child_token());
    let pools = Arc::clone(&state.pools);
    let mcp_state = Arc::new(McpState { mcp, streamable, sse, body_bytes_max, pools });
    Router::new()
        .route("/mcp", any(streamable_http))
        .route("/mcp/", any(streamable_http))
        .route("/ai/sandbox/v1/mcp", any(streamable_http))
        .route("/ai/sandbox/v1/mcp/", any(streamable_http))
        .route("/sse", get(open_stream))
        .route("/mcp/sse", get(open_stream).post(direct_call))
        .route("/messages", post(post_message))
        .route("/messages/", post(post_message))
        .route("/", post(direct_call))
        .with_state(mcp_state)
}

async fn streamable_http(
    State(state): State<Arc<McpState>>,
    Extension(caller): Extension<Caller>,
    Extension(base): Extension<BaseUrl>,
    request: Request<Body>,
) -> Response {
    let is_post = request.method() == Method::POST;
    let (mut parts, bytes) = match body::whole(request, state.body_bytes_max).await {
        Ok(whole) => whole,
        Err(refused) => return refused.into_response(),
    };
    if is_post {
        match message::examine(&state.pools, &caller.id, &bytes).await {
            Ok((Shape::Single, _)) => {}
            // Batches of 2025-03-26 need no session.
            Ok((Shape::Batch, _)) => {
                let mcp = state.mcp.with_base_url(Some(base));
                return direct::post(&mcp, &caller, &bytes).await;
            }
            Ok((Shape::Malformed, why)) => return direct::malformed(&why),
            Err(refused) => return refused.into_response(),
        }
        streamable::fill_default_headers(&mut parts.headers);
        if let Some(call) = state.mcp.parse_stateless(&parts.headers, &bytes) {
            return state.mcp.with_base_url(Some(base)).answer_stateless(&caller, call).await;
        }
        if streamable::is_without_session(&parts.headers) && !message::needs_handshake(&bytes) {
            let mcp = state.mcp.with_base_url(Some(base));
            return accepted(direct::post(&mcp, &caller, &bytes).await);
        }
    }
    state.streamable.handle(Request::from_parts(parts, Body::from(bytes))).await
}

/// Streamable HTTP accepts a notification with 202.
fn accepted(mut response: Response) -> Response {
    if response.status() == StatusCode::NO_CONTENT {
        *response.status_mut() = StatusCode::ACCEPTED;
    }
    response
}

async fn open_stream(
    State(state): State<Arc<McpState>>,
    Extension(caller): Extension<Caller>,
    Extension(base): Extension<BaseUrl>,
) -> Response {
    state.sse.open(&caller, base).unwrap_or_else(IntoResponse::into_response)
}

async fn post_message(
    State(state): State<Arc<McpState>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Response {
    let bytes = match checked(&state, &caller, request).await {
        Ok(bytes) => bytes,
        Err(refused) => return *refused,
    };
    // Older clients spell it `sessionId`.
    let query = query.unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter(|(name, _)| matches!(*name, "session_id" | "sessionId"));
    let id = named.next().map(|(_, id)| id).unwrap_or_default();
    let posted = state.sse.post(&caller, id, &bytes).await;
    posted.unwrap_or_else(IntoResponse::into_response)
}

async fn direct_call(
    State(state): State<Arc<McpState>>,
    Extension(caller): Extension<Caller>,
    Extension(base): Extension<BaseUrl>,
    request: Request<Body>,
) -> Response {
    match checked(&state, &caller, request).await {
        Ok(bytes) => {
            let mcp = state.mcp.with_base_url(Some(base));
            direct::post(&mcp, &caller, &bytes).await
        }
        Err(refused) => *refused,
    }
}

/// Reads a body and checks that it is JSON within the limits.
async fn checked(
    state: &McpState,
    caller: &Caller,
    request: Request<Body>,
) -> Result<Bytes, Box<Response>> {
    let whole = body::whole(request, state.body_bytes_max).await;
    let (_, bytes) = whole.map_err(|refused| Box::new(refused.into_response()))?;
    match message::examine(&state.pools, &caller.id, &bytes).await {
        Ok((Shape::Malformed, why)) => Err(Box::new(direct::malformed(&why))),
        Ok(_) => Ok(bytes),
        Err(refused) => Err(Box::new(refused.into_response())),
    }
}
