//! The README of Sandbox Service, played back against its preset: every request as it is written
//! there, port aside.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{client, request};
use crate::harness::Server;

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&["--preset", "sandbox-service"]))
}

fn execute(body: &str) -> Value {
    let answer = server().request("POST", "/execute", &[JSON], body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn the_documented_fields_are_in_every_reply() {
    // “Tool Specifications”, the example of `execute_python`.
    let arguments = json!({
        "code": "print('Hello, World!')\nresult = 2 + 2\nprint(f'2 + 2 = {result}')",
        "timeout": 10,
    });
    let called = client(server()).call("execute_python", &arguments);
    let reply: Value =
        serde_json::from_str(called["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(reply["stdout"], "Hello, World!\n2 + 2 = 4\n");
    assert_eq!((&reply["stderr"], &reply["exit_code"]), (&json!(""), &json!(0)));
    assert_eq!((&reply["success"], &reply["timeout_applied"]), (&json!(true), &json!(10.0)));
    assert!(reply["execution_time"].as_f64().unwrap() > 0.0);
    // “Direct API Calls”.
    let reply = execute(
        "{\n    \"code\": \"import math\\nprint(f\\\"π = {math.pi}\\\")\",\n    \"timeout\": 10\n  }",
    );
    assert_eq!(reply["stdout"], "π = 3.141592653589793\n", "{reply}");
    // “Testing”.
    let reply = execute(r#"{"code": "print(\"Hello from sandbox!\")"}"#);
    assert_eq!(reply["stdout"], "Hello from sandbox!\n");
    assert_eq!(reply["timeout_applied"], 30.0);
    // “default: 30, max: 120”, and the troubleshooting of a timeout.
    let reply = execute(r#"{"code": "1", "timeout": 60}"#);
    assert_eq!(reply["timeout_applied"], 60.0);
    assert_eq!(execute(r#"{"code": "1", "timeout": 121}"#)["timeout_applied"], 120.0);
    // MAX_OUTPUT_SIZE = 10000 characters.
    let reply = execute(r#"{"code": "print('é' * 20000, end='')"}"#);
    assert_eq!(reply["stdout"].as_str().unwrap().matches('é').count(), 10_000);
}

#[test]
fn standard_error_has_the_traceback_of_failed_code() {
    let reply =
        execute(r#"{"code": "import sys\nprint('so far')\nprint('own', file=sys.stderr)\n1 / 0"}"#);
    assert_eq!((&reply["success"], &reply["exit_code"]), (&json!(false), &json!(1)), "{reply}");
    assert_eq!(reply["stdout"], "so far\n");
    let stderr = reply["stderr"].as_str().unwrap();
    assert!(stderr.starts_with("own\nTraceback (most recent call last):\n"), "{stderr}");
    assert!(stderr.ends_with("ZeroDivisionError: division by zero\n"), "{stderr}");
    let reply = execute(r#"{"code": "print(1, flush=True)\nwhile True: pass", "timeout": 1}"#);
    assert_eq!((&reply["exit_code"], &reply["stdout"]), (&json!(124), &json!("1\n")), "{reply}");
    let stderr = reply["stderr"].as_str().unwrap();
    assert!(stderr.contains("Execution timed out after 1 seconds"), "{stderr}");
    let reply = execute(r#"{"code": "import sys\nsys.exit(3)"}"#);
    assert_eq!(reply["exit_code"], 3);
    // Over MCP the reply is the same, and no error of the tool: mcpo would answer 500.
    let called = client(server()).call("execute_python", &json!({ "code": "1 / 0" }));
    assert_eq!(called["isError"], false, "{called}");
    let reply: Value =
        serde_json::from_str(called["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(reply["stderr"].as_str().unwrap().contains("ZeroDivisionError"), "{reply}");
}

#[test]
fn the_documented_routes_answer() {
    let server = server();
    assert_eq!(server.get("/health").json()["status"], "healthy");
    assert_eq!(server.get("/docs").status, 200);
    // “GET /mcp/sse” holds and names the address to post to.
    let (_, address) = client(server).stream("/mcp/sse");
    assert!(address.starts_with("/messages/?session_id="), "{address}");
    // “POST /mcp - Direct MCP tool calls”: no handshake, no session.
    let call = json!({ "name": "execute_python", "arguments": { "code": "print(6 * 7)" } });
    let answer = server.post("/mcp", &request(1, "tools/call", &call));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["result"]["structuredContent"]["stdout"], "42\n");
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.post("/mcp", &notification).status, 202);
    let listed = server.post("/mcp", &request(2, "tools/list", &json!({}))).json();
    assert_eq!(listed["result"]["tools"][0]["name"], "execute_python");
    let metrics = server.get("/metrics");
    for name in ["sandbox_executions_total", "sandbox_execution_duration_seconds"] {
        assert!(metrics.text().contains(name), "{name}");
    }
    // “Executing code: {code[:100]}...”, “Execution completed in …”.
    let log = server.log();
    assert!(log.contains("Executing code: \"print(6 * 7)\""), "{log}");
    assert!(log.contains("Execution completed in "), "{log}");
}

#[test]
fn packages_are_refused_with_the_version_and_a_remedy() {
    let server = server();
    for (headers, body) in [
        (&[JSON][..], r#"{"package": "requests", "version": "latest"}"#),
        (&[JSON][..], r#"{"package": "requests", "version": "2.31.0"}"#),
        // “Package installation fails”: without a content type.
        (&[][..], r#"{"package": "suspicious-package"}"#),
    ] {
        let answer = server.request("POST", "/pip_install", headers, body.as_bytes());
        let message = answer.refused(404);
        assert!(message.contains(env!("CARGO_PKG_VERSION")), "{message}");
        assert!(answer.json()["hint"].as_str().unwrap().contains("WOMA_ENV"), "{answer:?}");
    }
    let refused = client(server).refused("pip_install", &json!({ "package": "requests" }));
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert!(refused["error"].as_str().unwrap().contains("does not have packages"), "{refused}");
}
