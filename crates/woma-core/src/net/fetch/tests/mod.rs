//! Tests of the SSRF guard: address tables, URL parsing, downloads from hostile servers.

mod addresses;
mod downloads;
mod refusals;
mod targets;
mod world;

pub(super) use world::Route;
