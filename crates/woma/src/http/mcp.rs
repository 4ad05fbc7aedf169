//! The routes of MCP: streamable HTTP, HTTP+SSE, and direct JSON-RPC.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tokio_util::sync::CancellationToken;
use woma_core::Caller;

use super::body;
use super::message::{self, Shape};
use crate::doors::{BaseUrl, Doors};
use crate::mcp::sse::SseDoor;
use crate::mcp::streamable::{self, Streamable};
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

async fn streamable_http(
    State(mouths): State<Arc<Mouths>>,
    Extension(caller): Extension<Caller>,
    Extension(base): Extension<BaseUrl>,
    request: Request<Body>,
) -> Response {
    let is_post = request.method() == Method::POST;
    let (mut parts, bytes) = match body::whole(request, mouths.body_bytes_max).await {
        Ok(whole) => whole,
        Err(refused) => return refused.into_response(),
    };
    if is_post {
        match message::examine(&bytes).await {
            Ok((Shape::Single, _)) => {}
            // 2025-03-26 has batches; they need no session, for they ask for nothing in return.
            Ok((Shape::Batch, _)) => {
                let mcp = mouths.mcp.reached_by(Some(base));
                return direct::post(&mcp, &caller, &bytes).await;
            }
            Ok((Shape::Malformed, why)) => return direct::malformed(&why),
            Err(refused) => return refused.into_response(),
        }
        streamable::forgive(&mut parts.headers);
        if let Some(call) = mouths.mcp.plain(&parts.headers, &bytes) {
            return mouths.mcp.reached_by(Some(base)).answer_plain(&caller, call).await;
        }
    }
    mouths.streamable.handle(Request::from_parts(parts, Body::from(bytes))).await
}

async fn open_stream(
    State(mouths): State<Arc<Mouths>>,
    Extension(caller): Extension<Caller>,
    Extension(base): Extension<BaseUrl>,
) -> Response {
    mouths.sse.open(&caller, base).unwrap_or_else(IntoResponse::into_response)
}

async fn post_message(
    State(mouths): State<Arc<Mouths>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Response {
    let bytes = match checked(request, mouths.body_bytes_max).await {
        Ok(bytes) => bytes,
        Err(refused) => return *refused,
    };
    // Older clients spell it `sessionId`.
    let query = query.unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter(|(name, _)| matches!(*name, "session_id" | "sessionId"));
    let id = named.next().map(|(_, id)| id).unwrap_or_default();
    let posted = mouths.sse.post(&caller, id, &bytes).await;
    posted.unwrap_or_else(IntoResponse::into_response)
}

async fn direct_call(
    State(mouths): State<Arc<Mouths>>,
    Extension(caller): Extension<Caller>,
    Extension(base): Extension<BaseUrl>,
    request: Request<Body>,
) -> Response {
    match checked(request, mouths.body_bytes_max).await {
        Ok(bytes) => {
            let mcp = mouths.mcp.reached_by(Some(base));
            direct::post(&mcp, &caller, &bytes).await
        }
        Err(refused) => *refused,
    }
}

/// A body that is JSON, and not too much of it.
async fn checked(request: Request<Body>, bytes_max: usize) -> Result<Bytes, Box<Response>> {
    let whole = body::whole(request, bytes_max).await;
    let (_, bytes) = whole.map_err(|refused| Box::new(refused.into_response()))?;
    match message::examine(&bytes).await {
        Ok((Shape::Malformed, why)) => Err(Box::new(direct::malformed(&why))),
        Ok(_) => Ok(bytes),
        Err(refused) => Err(Box::new(refused.into_response())),
    }
}
