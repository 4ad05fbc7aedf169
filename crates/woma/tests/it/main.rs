//! The server as its clients meet it: a real one on a free port, with a real Python behind it.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

mod abuse;
mod attacks;
mod auth;
#[path = "../../../woma-core/tests/store/authority.rs"]
mod authority;
mod blobs;
#[expect(dead_code, reason = "its other half is for the tests of the store")]
#[path = "../../../woma-core/tests/store/bucket.rs"]
mod bucket;
mod client;
mod costs;
mod downloads;
mod durability;
mod files;
mod hangup;
mod harness;
mod history;
mod lifecycle;
mod load;
mod logs;
mod mcp;
mod mcp_execute;
mod mcp_more;
mod mcp_output;
mod mcp_plain;
mod openapi;
mod policy;
mod presets;
mod rest;
mod rows;
mod seeds;
mod sessions;
mod storage;
mod streams;
mod uploads;
