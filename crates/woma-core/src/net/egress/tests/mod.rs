//! Tests of the way out, without a sandbox: its tasks over streams in memory.

mod fuzz;
mod http;
mod limits;
mod names;
mod secrets;
mod tunnels;
mod world;

pub(super) use world::Route;
