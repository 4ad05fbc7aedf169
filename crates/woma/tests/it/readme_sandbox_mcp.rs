//! The README of Python Sandbox MCP Server, played back against its preset, and what its own tests
//! rely on.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{client, request};
use crate::harness::{Server, unique};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const KEY: &str = "your-api-key-that-nobody-guesses";

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let variables = [("API_KEY", KEY), ("FETCH_ALLOW_PRIVATE", "true"), ("HOST", "127.0.0.1")];
    SERVER.get_or_init(|| Server::start_with(&["--preset", "sandbox-mcp"], &variables))
}

fn send(method: &str, path: &str, body: &Value) -> crate::harness::Answer {
    let bearer = format!("Bearer {KEY}");
    let headers = [JSON, ("Authorization", bearer.as_str())];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server().request(method, path, &headers, body.as_bytes())
}

#[test]
fn the_documented_requests_get_the_documented_lines() {
    let code = "print('Hello, World!')\nimport matplotlib.pyplot as plt\nplt.plot([1,2,3], [1,4,9])\nplt.show()";
    let answer =
        send("POST", "/api/v1/execute", &json!({ "code": code, "session_id": "my-session" }));
    assert!(answer.get("content-type").unwrap().starts_with("application/x-ndjson"));
    let lines = answer.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], json!({ "text": "Hello, World!\n" }));
    assert!(lines[1]["image"].as_str().unwrap().starts_with("iVBORw0KGgoAAAANSUhEUgAA"));
    assert_eq!(lines[1]["format"], "png");
    // “With API Key Authentication”, and without.
    let hello = json!({ "code": "print('Hello, World!')" });
    assert_eq!(send("POST", "/api/v1/execute", &hello).lines()[0]["text"], "Hello, World!\n");
    server().post("/api/v1/execute", &hello).refused(401);
    // “Error Output”.
    let lines = send("POST", "/api/v1/execute", &json!({ "code": "undefined_var" })).lines();
    let error = &lines.last().unwrap();
    assert_eq!(error["error"], "NameError: name 'undefined_var' is not defined", "{lines:?}");
    assert_eq!(error["traceback"][0], "Traceback (most recent call last):");
    let sessions = send("GET", "/api/v1/sessions", &Value::Null).json();
    let session = &sessions["sessions"]["my-session"];
    for field in ["created_at", "last_activity", "is_busy", "execution_count"] {
        assert!(!session[field].is_null(), "{field}: {session}");
    }
    assert!(sessions["total"].as_u64().unwrap() >= 1);
    let health = send("GET", "/api/v1/health", &Value::Null).json();
    for field in ["status", "version", "active_sessions", "uptime"] {
        assert!(!health[field].is_null(), "{field}: {health}");
    }
    // MAX_EXECUTION_TIME is the limit of every request.
    let reply = send("POST", "/execute", &json!({ "code": "1", "timeout": 500 })).json();
    assert_eq!(reply["timeout_applied"], 30.0);
}

#[test]
fn the_envelope_has_texts_images_and_errors() {
    for path in ["/api/v1/execute_sync", "/ai/sandbox/v1/api/execute_sync"] {
        let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n6 * 7";
        let reply = send("POST", path, &json!({ "code": code })).json();
        assert_eq!((&reply["resultCode"], &reply["resultMsg"]), (&json!(0), &json!("success")));
        let data = &reply["data"];
        assert_eq!(data["texts"], json!(["out\n", "err\n", "42"]), "{data}");
        assert!(data["images"][0].as_str().unwrap().starts_with("iVBORw0KGgo"));
        assert_eq!((&data["errors"], &data["success"]), (&json!([]), &json!(true)));
        let data = &send("POST", path, &json!({ "code": "print(1)\n1 / 0" })).json()["data"];
        assert_eq!(data["texts"], json!(["1\n"]));
        assert_eq!(data["errors"][0]["error"], "ZeroDivisionError: division by zero");
        assert_eq!(data["errors"][0]["traceback"][0], "Traceback (most recent call last):");
    }
    // However much is printed, the reply keeps its limit.
    let code = "import sys\nprint('x' * 900000)\nprint('y' * 100000, file=sys.stderr)";
    let answer = send("POST", "/api/v1/execute_sync", &json!({ "code": code }));
    assert!(answer.body.len() < 1_000_000, "{}", answer.body.len());
    let data = &answer.json()["data"];
    assert_eq!(data["texts"][0], data["stdout"]);
    assert_eq!(data["truncated"][0]["stream"], "stdout", "{}", data["truncated"]);
}

#[test]
fn a_new_session_tells_its_folder_and_what_was_downloaded() {
    let id = unique("e2e");
    let asked = json!({ "session_id": id, "files": [] });
    let data = &send("POST", "/ai/sandbox/v1/api/sessions", &asked).json()["data"];
    assert_eq!(data["session_id"], json!(id));
    assert_eq!(data["working_directory"], "/mnt/data");
    assert_eq!((&data["downloaded_files"], &data["errors"]), (&json!([]), &json!([])));
    // The server itself has a file to download; nobody listens on port 1.
    let made = send("POST", "/execute", &json!({ "code": "open('a.csv', 'w').write('x,y')" }));
    let url = made.json()["download_urls"][0]["url"].as_str().unwrap().to_owned();
    let url = url.replace("localhost", &server().address.to_string());
    let id = unique("files");
    let asked =
        json!({ "session_id": id, "file_urls": [url, "http://127.0.0.1:1/b"], "timeout": 30 });
    let data = &send("POST", "/api/v1/sessions", &asked).json()["data"];
    assert_eq!(data["downloaded_files"], json!(["a.csv"]), "{data}");
    let errors = data["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{data}");
    assert!(errors[0].as_str().unwrap().starts_with("http://127.0.0.1:1/b: "), "{data}");
    let code = "import os\nprint(os.getcwd())\nprint(open('a.csv').read())";
    let run = json!({ "code": code, "session_id": id });
    let data = &send("POST", "/ai/sandbox/v1/api/execute_sync", &run).json()["data"];
    assert_eq!(data["texts"], json!(["/mnt/data\nx,y\n"]), "{data}");
    // The tool does the same, and the list of active sessions has those that have run.
    let mcp = crate::client::Client { key: Some(KEY), ..client(server()) };
    let tool_id = unique("tool");
    let asked = json!({ "session_id": tool_id, "file_urls": [url] });
    let created = mcp.call("create_session_with_files", &asked)["structuredContent"].take();
    assert_eq!(created["downloaded_files"], json!(["a.csv"]), "{created}");
    let too_many = json!({ "file_urls": vec![url; 21] });
    assert!(mcp.refused("create_session_with_files", &too_many).contains("the limit is 20"));
    let active = mcp.call("list_active_sessions", &json!({}))["structuredContent"].take();
    let is_listed = |name: &str| {
        let mut listed = active["sessions"].as_array().unwrap().iter();
        listed.any(|session| session["session_id"] == name)
    };
    assert!(is_listed(&id) && !is_listed(&tool_id), "{active}");
    let listed = send("GET", "/api/v1/sessions?active=true", &Value::Null).json();
    assert!(listed["sessions"][&id].is_object(), "{listed}");
    assert!(listed["sessions"][&tool_id].is_null(), "{listed}");
}

#[test]
fn mcp_needs_no_session_header() {
    let post = |body: &Value| {
        let bearer = format!("Bearer {KEY}");
        let both = ("Accept", "application/json, text/event-stream");
        let headers = [JSON, both, ("Authorization", bearer.as_str())];
        let text = body.to_string();
        let answer = server().request("POST", "/ai/sandbox/v1/mcp/", &headers, text.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        crate::client::message(&answer)
    };
    let opened = post(&crate::client::initialize("2024-11-05"));
    assert!(opened["result"]["serverInfo"]["name"].is_string(), "{opened}");
    for method in ["tools/list", "resources/list", "prompts/list"] {
        assert!(post(&request(2, method, &json!({})))["result"].is_object(), "{method}");
    }
    let arguments = json!({ "code": "result = 3 * 7\nprint(f'3 * 7 = {result}')", "session_id": unique("http") });
    let call = json!({ "name": "execute_python_code", "arguments": arguments });
    let answer = post(&request(3, "tools/call", &call));
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "3 * 7 = 21\n", "{answer}");
    let answer =
        post(&request(4, "tools/call", &json!({ "name": "nonexistent_tool", "arguments": {} })));
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Unknown tool: nonexistent_tool"), "{answer}");
}
