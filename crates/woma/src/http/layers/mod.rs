//! Layers that every request passes before its route: the client's address, tracing, panics, host
//! and origin, CORS, authentication, a place among the requests. A layer knows nothing of what a
//! route does.

pub(crate) mod auth;
pub(crate) mod basic;
pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod cors;
pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod open_downloads;
pub(crate) mod panic;
pub(crate) mod shares;
pub(crate) mod trace;

/// Routes of probes, which know neither a key nor a name of the server.
pub(crate) const HEALTH_PATH: &str = "/health";
pub(crate) const LIVE_PATH: &str = "/livez";
pub(crate) const READY_PATH: &str = "/readyz";

pub(crate) fn is_probe(path: &str) -> bool {
    [HEALTH_PATH, LIVE_PATH, READY_PATH].contains(&path)
}
