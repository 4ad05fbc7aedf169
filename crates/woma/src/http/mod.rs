//! The HTTP door: one listener, every route, the order in which a request is looked at.

mod auth;
mod body;
mod entrance;
mod guard;
mod jwt;
mod listen;
mod mcp;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio_util::sync::CancellationToken;

use crate::doors::Doors;

pub(crate) use entrance::Entrance;
pub(crate) use listen::Listener;

/// Every route there is. A request meets the layers from the last to the first: whether its host and
/// origin are ours, who asks, and then what is asked.
pub(crate) fn router(
    doors: &Doors,
    entrance: &Entrance,
    bound: SocketAddr,
    cut: &CancellationToken,
) -> Result<Router, Box<dyn Error>> {
    let guard = entrance.guard(bound)?;
    let gate = Arc::clone(&entrance.gate);
    let routes = mcp::routes(doors, cut).merge(auth::metadata_routes(&gate));
    Ok(routes
        .layer(from_fn_with_state(gate, auth::authenticate))
        .layer(from_fn_with_state(guard, guard::guard)))
}
