//! The HTTP door: one listener, every route, the order in which a request is looked at.

mod auth;
mod body;
mod cors;
pub(crate) mod docs;
pub(crate) mod downloads;
mod entrance;
pub(crate) mod execute;
pub(crate) mod files;
mod fit;
mod given;
mod guard;
pub(crate) mod health;
pub(crate) mod history;
mod jwt;
mod listen;
mod mcp;
mod message;
pub(crate) mod metrics;
pub(crate) mod outputs;
mod rest;
pub(crate) mod sessions;
mod stream;
mod trace;
pub(crate) mod validate;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::doors::Doors;
use crate::error::Refused;

pub(crate) use entrance::Entrance;
pub(crate) use listen::Listener;

/// Every route there is. A request meets the layers from the last to the first: its id, whether it
/// is a download, which any page may read, whether its host and origin are ours, what pages may see,
/// who asks, and then what is asked.
pub(crate) fn router(
    doors: &Doors,
    entrance: &Entrance,
    bound: SocketAddr,
    cut: &CancellationToken,
) -> Result<Router, Box<dyn Error>> {
    let guard = entrance.guard(bound)?;
    let gate = Arc::clone(&entrance.gate);
    let routes = mcp::routes(doors, cut).merge(rest::routes(doors));
    Ok(routes
        .merge(auth::metadata_routes(&gate))
        .fallback(rest::not_found)
        .method_not_allowed_fallback(rest::method_not_allowed)
        .layer(from_fn_with_state(gate, auth::authenticate))
        .layer(cors::layer(entrance.allowed_origins()))
        .layer(from_fn_with_state(guard, guard::guard))
        .layer(from_fn(downloads::open_to_pages))
        .layer(CatchPanicLayer::custom(rest::panicked))
        .layer(from_fn_with_state(doors.clone(), count_refusals))
        .layer(from_fn(trace::trace)))
}

/// What never reached the service is counted here.
async fn count_refusals(State(doors): State<Doors>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if let Some(Refused(code)) = response.extensions().get() {
        doors.service.metrics().reject(code);
    }
    response
}
