//! The start of a server: options in any place, settings that do nothing, the line that says it is
//! ready.

use serde_json::json;
use tempfile::TempDir;

use crate::auth::{said, woma};
use crate::harness::Server;

const KEY: &str = "a-key-of-the-command-line-0123456789";

/// The line that says that the server is ready.
fn start_line(server: &Server) -> String {
    let log = server.log();
    log.lines().find(|line| line.contains("listening on")).unwrap().to_owned()
}

#[test]
fn options_before_the_command_count() {
    let server = Server::start(&["--api-key", KEY, "--preset", "ibm-sandbox", "serve"]);
    let line = start_line(&server);
    assert!(line.contains("preset ibm-sandbox, a key is needed, data in /"), "{line}");
    server.get("/api/v1/sessions").refused(401);
    let body = json!({ "code": "import os" }).to_string();
    let ran = server.request("POST", "/execute", &[("X-API-Key", KEY)], body.as_bytes());
    assert_eq!(ran.json()["success"], false, "the rules of the preset: {}", ran.text());
}

#[test]
fn the_start_says_what_is_in_force_and_what_does_nothing() {
    let variables = [
        ("SANDBOX_CONTAINER_IMAGE", "mine:1"),
        ("SANDBOX_ENABLE_NETWORK", "true"),
        ("LOG_DIR", "/var/log/older"),
        ("PRIVATE_DOWNLOADS", "true"),
    ];
    let folder = TempDir::new().unwrap();
    let place = folder.path().to_str().unwrap();
    let server = Server::start_with(&["--data-dir", place], &variables);
    let line = start_line(&server);
    let expected = format!("preset default, no key is needed, data in {place}, listening on http");
    assert!(line.contains(&expected), "{line}");
    let log = server.log();
    for (variable, reason) in [
        ("SANDBOX_CONTAINER_IMAGE (environment) has no effect", "and no image"),
        ("SANDBOX_ENABLE_NETWORK (environment) gives sessions no network", "NETWORK is off"),
        ("LOG_DIR (environment) has no effect", "standard error"),
        ("PRIVATE_DOWNLOADS has no effect", "no keys"),
    ] {
        let found = log.lines().find(|line| line.contains(variable));
        assert!(found.is_some_and(|line| line.contains(reason)), "{variable}: {log}");
    }
    // The same for arguments: used, or said.
    let session = json!({ "name": "a", "colour": "red" });
    let made = server.post("/api/sessions", &session).json();
    assert_eq!(made["warnings"], json!(["the argument `colour` is not known and was ignored"]));
    assert_eq!(made["name"], "a");
    let ran = server.run(&json!({ "code": "x", "context": { "x": 7 }, "files": ["a.csv"] }));
    assert_eq!(ran["result"], 7, "{ran}");
    assert_eq!(ran["warnings"], json!(["the argument `files` is not known and was ignored"]));
    let twice = json!({ "code": "x", "context": { "x": 1 }, "variables": { "x": 2 } });
    let refused = server.post("/execute", &twice).refused(400);
    assert!(refused.contains("`variables` and `context` are one argument"), "{refused}");
}

#[test]
fn a_short_key_is_refused_off_loopback() {
    let folder = TempDir::new().unwrap();
    let serve = ["serve", "--port", "0", "--host", "0.0.0.0"];
    let output = woma(folder.path(), &serve, &[("API_KEY", "0123456789abcde")]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("shorter than 16 characters"), "{text}");
    assert!(text.contains("openssl rand -hex 24") && text.contains("woma keys create"), "{text}");
    assert!(!text.contains("0123456789abcde"), "{text}");
}
