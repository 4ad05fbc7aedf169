//! Layers that every request passes before its route: tracing, panics, host and origin, CORS,
//! authentication. A layer knows nothing of what a route does.

pub(crate) mod auth;
pub(crate) mod cors;
pub(crate) mod guard;
pub(crate) mod open_downloads;
pub(crate) mod panic;
pub(crate) mod trace;
