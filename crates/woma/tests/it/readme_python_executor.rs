//! The README of Python Code Executor MCP Server, played back against its preset.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{Client, client};
use crate::harness::Server;

fn here() -> Client<'static> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    client(SERVER.get_or_init(|| Server::start(&["--preset", "python-executor"])))
}

fn text(tool: &str, arguments: &Value) -> String {
    here().call(tool, arguments)["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn the_text_is_what_the_program_printed() {
    let run = |code: &str| text("execute_python", &json!({ "code": code }));
    assert_eq!(run("print('Hello, World!')"), "Hello, World!");
    assert_eq!(run("import math; print(math.sqrt(16))"), "4.0");
    assert_eq!(run("import sys\nprint(1)\nprint(2, file=sys.stderr)"), "1\n[STDERR]:\n2");
    assert_eq!(run("x = 1"), "Code executed successfully (no output).");
    let failed = run("print(1)\n1 / 0");
    let (begin, end) = (
        "1\n[STDERR]:\nTraceback (most recent call last):\n",
        "ZeroDivisionError: division by zero",
    );
    assert!(failed.starts_with(begin), "{failed}");
    assert!(failed.ends_with(&format!("{end}\nError: {end}")), "{failed}");
    assert_eq!(failed.matches("Traceback").count(), 1, "{failed}");
    let called = here().call("execute_python", &json!({ "code": "1 / 0" }));
    assert_eq!(called["isError"], true);
    // “default: 60, max: 300”; what is out of range is clamped, and said.
    for (asked, applied) in [(json!(null), 60.0), (json!(0), 1.0), (json!(900), 300.0)] {
        let called = here().call("execute_python", &json!({ "code": "1", "timeout": asked }));
        assert_eq!(called["structuredContent"]["timeout_applied"], applied, "{called}");
    }
    assert!(
        text("execute_python", &json!({ "code": "1", "timeout": 900 }))
            .contains("300 s was applied")
    );
    let endless = json!({ "code": "print('so far', flush=True)\nwhile True: pass", "timeout": 1 });
    let stopped = text("execute_python", &endless);
    assert!(stopped.starts_with("so far\n"), "{stopped}");
    assert!(stopped.contains("Error: Execution timed out after 1 seconds"), "{stopped}");
}

#[test]
fn the_documented_tools_answer() {
    let info = text("get_sandbox_info", &json!({}));
    let lines: Vec<&str> = info.lines().collect();
    assert!(lines[0].starts_with("Python Version: 3."), "{info}");
    assert_eq!(lines[1..], ["Environment Path: /opt/env", "Status: Initialized"]);
    // They are there already; the last one is the installer's to judge.
    for names in ["numpy", "pandas matplotlib seaborn", "requests>=2.28.0"] {
        let said = text("install_package", &json!({ "package_names": names }));
        assert!(said.starts_with("Already installed: "), "{said}");
        assert!(said.contains(names.split_whitespace().next().unwrap()), "{said}");
    }
    let listed = text("list_installed_packages", &json!({}));
    assert!(listed.contains("numpy==") && listed.contains("requests=="), "{listed}");
    let reset = text("reset_sandbox", &json!({}));
    assert!(reset.contains("is empty"), "{reset}");
}

#[test]
fn the_address_of_the_readme_streams_events() {
    // ~/.gemini/settings.json: {"url": "http://localhost:8000/sse"}
    let (mut events, address) = here().stream("/sse");
    let call =
        json!({ "name": "execute_python", "arguments": { "code": "print('Hello, World!')" } });
    let send = |message: &Value| assert_eq!(here().post(&address, message).status, 202);
    send(&crate::client::initialize("2024-11-05"));
    assert!(events.next().unwrap()["result"]["serverInfo"].is_object());
    send(&crate::client::initialized());
    send(&crate::client::request(2, "tools/call", &call));
    let answer = events.next().unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "Hello, World!", "{answer}");
}
