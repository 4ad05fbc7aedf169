//! The HTTP door: one listener, every route, the order in which a request is looked at.

mod body;
mod cors;
pub(crate) mod docs;
pub(crate) mod execute;
mod fit;
pub(crate) mod health;
mod listen;
pub(crate) mod metrics;
pub(crate) mod outputs;
mod rest;
pub(crate) mod sessions;
mod stream;
mod trace;

use axum::{Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;

use crate::doors::Doors;

pub(crate) use listen::{Listener, Listening};

/// Every route there is. The last layer is the first to see a request.
pub(crate) fn router(doors: &Doors) -> Router {
    Router::new()
        .merge(rest::routes(doors))
        .fallback(rest::not_found)
        .method_not_allowed_fallback(rest::method_not_allowed)
        .layer(CatchPanicLayer::custom(rest::panicked))
        .layer(cors::layer(&[]))
        .layer(middleware::from_fn(trace::trace))
}
