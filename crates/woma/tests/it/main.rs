//! Integration tests: a real server on a free port, with a real Python.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

mod abuse;
mod api;
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
mod datasets;
mod datasets_durable;
mod datasets_hostile;
mod downloads;
mod durability;
mod exports;
mod file_tools;
mod files;
mod growth;
mod hangup;
mod harness;
mod history;
mod import;
mod jobs;
mod jobs_crash;
mod lifecycle;
mod load;
mod logs;
mod mcp;
mod mcp_execute;
mod mcp_lean;
mod mcp_more;
mod mcp_output;
mod mcp_plain;
mod network;
mod openapi;
mod policy;
mod pools;
mod ports;
mod presets;
mod probes;
mod programs;
mod readme_ibm_sandbox;
mod readme_power_interpreter;
mod readme_python_executor;
mod readme_sandbox_mcp;
mod readme_sandbox_service;
mod redeploy;
mod rest;
mod rights;
mod rows;
mod seeds;
mod sessions;
mod shares;
mod start;
mod storage;
mod streams;
mod uploads;
mod webhooks;
mod whole_output;
mod whose_session;
