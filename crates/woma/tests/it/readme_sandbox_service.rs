//! The README of Sandbox Service, played back against its preset: every request as it is written
//! there, port aside.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{client, request};
use crate::harness::Server;
use crate::package_index::Index;

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
fn packages_are_installed_with_the_four_fields() {
    let index = Index::start();
    index.add("suspicious_package", "1.0", &[]);
    index.add("numpy", "1.24.0", &[]);
    let url = index.url();
    let settings =
        [("COMPAT_PROFILE", "sandbox-service"), ("PACKAGE_INDEX_URL", &url), ("HOST", "127.0.0.1")];
    let server = &Server::start_with(&[], &settings);
    let installed = |headers: &[(&str, &str)], body: &str| {
        let answer = server.request("POST", "/pip_install", headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        let reply = answer.json();
        assert!(reply["message"].is_string() && reply["installation_time"].is_number(), "{reply}");
        reply
    };
    // It is there already, and no index is asked.
    let reply = installed(&[JSON], r#"{"package": "requests", "version": "latest"}"#);
    assert_eq!(reply["success"], true, "{reply}");
    assert!(reply["installed_version"].is_string() && index.requests("").is_empty(), "{reply}");
    // “Package installation fails”: without a content type.
    let reply = installed(&[], r#"{"package": "suspicious-package"}"#);
    assert_eq!((&reply["success"], &reply["installed_version"]), (&json!(true), &json!("1.0")));
    // “Try specific version”.
    let reply = installed(&[], r#"{"package": "numpy", "version": "1.24.0"}"#);
    assert_eq!((&reply["success"], &reply["installed_version"]), (&json!(true), &json!("1.24.0")));
    let reply = installed(&[], r#"{"package": "no-such-package"}"#);
    assert_eq!(reply["success"], false, "{reply}");
    assert!(reply["message"].as_str().unwrap().contains("was not found"), "{reply}");
    let called = client(server).call("pip_install", &json!({ "package": "suspicious-package" }));
    assert_eq!(called["structuredContent"]["success"], true, "{called}");
    // Its metric, and its line “Blocked suspicious package: …”. What fails is an error, and no installation.
    let reply = installed(&[], r#"{"package": "ctypes"}"#);
    assert_eq!(reply["message"], "Package ctypes is blocked for security reasons");
    let metrics = server.get("/metrics").text().to_owned();
    for sample in ["sandbox_package_installs_total 4", "sandbox_errors_total{type=\"package\"} 2"] {
        assert!(metrics.lines().any(|line| line == sample), "{sample}: {metrics}");
    }
    let line = "Blocked suspicious package: Package ctypes is blocked for security reasons";
    assert!(server.log().contains(line), "{}", server.log());
}
