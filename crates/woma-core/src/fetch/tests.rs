//! The guard, from tables of addresses to downloads from servers that want something else.

mod addresses;
mod downloads;
mod refusals;
mod targets;
mod world;

pub(super) use world::Route;
