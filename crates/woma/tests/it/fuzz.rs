//! Bodies of REST and MCP that are put together from examples, through a real server: each has an
//! answer, and none is a fault of the server.

use std::thread;

use serde_json::Value;
use woma_fuzz::Target;

use crate::harness::{Connection, shared};

/// Mutations for each target; `make fuzz` has the readers of bodies alone, and many more.
const MUTATIONS: usize = 400;
const REST: &[&str] = &[
    "\"code\":",
    "\"session_id\":\"fuzz\"",
    "\"timeout\":0.2",
    "\"variables\":{",
    "null",
    "1e999",
    "\\ud800",
    "[",
    "]",
    "{",
    "}",
];
const MCP: &[&str] = &[
    "{\"jsonrpc\":\"2.0\",\"id\":1,",
    "\"method\":\"tools/call\"",
    "\"params\":{",
    "\"name\":\"list_files\"",
    "\"arguments\":{",
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}",
    "\"id\":null",
    "[",
    "]",
];

#[test]
fn any_body_has_an_answer() {
    let places = [
        ("bodies", REST, &["/api/v1/execute", "/execute", "/api/v1/jobs", "/api/v1/sessions"][..]),
        ("messages", MCP, &["/", "/mcp"][..]),
    ];
    thread::scope(|scope| {
        for (name, words, paths) in places {
            for path in paths {
                scope.spawn(move || {
                    for input in (Target { name, words }).inputs(MUTATIONS) {
                        check(path, &input);
                    }
                });
            }
        }
    });
    assert_eq!(shared().get("/health").status, 200);
    assert!(!shared().log().contains("panicked"), "{}", shared().log());
}

fn check(path: &str, body: &[u8]) {
    let shown = body.escape_ascii().to_string();
    let headers = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Connection", "close"),
    ];
    let mut connection = Connection::open(shared().address);
    connection.send("POST", path, &headers, body);
    let answer =
        connection.try_answer(false).unwrap_or_else(|error| panic!("{path} {shown}: {error}"));
    // Busy is an answer: other tests use the same server.
    assert!(answer.status < 500 || answer.status == 503, "{path} {shown}: {}", answer.text());
    if answer.status < 400 {
        return;
    }
    // The library that serves the older era of MCP refuses some messages by a line of text.
    let Ok(told) = serde_json::from_slice::<Value>(&answer.body) else {
        assert!(path == "/mcp" && answer.body.len() < 1_000, "{path} {shown}: {}", answer.text());
        return;
    };
    let is_told = told["message"].is_string() || told["error"].is_object() || told.is_array();
    assert!(is_told, "{path} {shown}: {told}");
}
