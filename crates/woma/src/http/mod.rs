//! The HTTP door: one listener, every route, the order in which a request is looked at.

mod auth;
mod body;
mod guard;
mod jwt;
mod listen;
mod mcp;

use axum::{Extension, Router};
use tokio_util::sync::CancellationToken;
use woma_core::Caller;

use crate::doors::Doors;

pub(crate) use listen::Listener;

/// Every route there is.
pub(crate) fn router(doors: &Doors, stop: &CancellationToken) -> Router {
    mcp::routes(doors, stop).layer(Extension(Caller::local()))
}
