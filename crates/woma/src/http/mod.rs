//! The HTTP door: one listener, every route, the order in which a request is looked at.

mod listen;

use axum::Router;

use crate::doors::Doors;

pub(crate) use listen::{Listener, Listening};

/// Every route there is.
pub(crate) fn router(doors: &Doors) -> Router {
    Router::new().with_state(doors.clone())
}
