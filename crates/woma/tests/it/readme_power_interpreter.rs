//! The README of Power Interpreter MCP, played back against its preset: its endpoints, its tables of
//! variables, names, paths and libraries.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{Client, client};
use crate::harness::{Server, unique, until};

/// `SANDBOX_FILE_MAX_MB` of the server.
const FILE_MAX: usize = 1 << 20;
const KEY: &str = "a-key-that-nobody-guesses-0123456789";

fn here() -> Client<'static> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let start = || {
        let limits = [("MAX_CONCURRENT_KERNELS", "12"), ("SANDBOX_FILE_MAX_MB", "1")];
        let variables = [&limits[..], &[("API_KEY", KEY)]].concat();
        Server::start_with(&["--preset", "power-interpreter"], &variables)
    };
    Client { key: Some(KEY), ..client(SERVER.get_or_init(start)) }
}

/// The text of a reply, and the reply.
fn run(session: &str, code: &str) -> (String, Value) {
    let mut called = here().call("execute_code", &json!({ "code": code, "session_id": session }));
    let text = called["content"][0]["text"].as_str().unwrap().to_owned();
    (text, called["structuredContent"].take())
}

#[test]
fn a_chart_is_named_in_the_text_with_its_address() {
    let session = unique("chart");
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()";
    let called = here().call("execute_code", &json!({ "code": code, "session_id": session }));
    let text = called["content"][0]["text"].as_str().unwrap();
    let image = &called["structuredContent"]["inline_images"][0];
    let url = image["url"].as_str().unwrap();
    assert!(text.starts_with(&format!("Chart: chart_001.png\nDownload URL: {url}\n")), "{text}");
    assert!(!text.contains("no output"), "{text}");
    assert_eq!(called["content"][1]["type"], "image", "{called}");
    // A saved one is a file; its link is named once.
    let (text, reply) = run(&session, "plt.plot([1])\nplt.savefig('mine.png')\nplt.show()");
    let saved = reply["download_urls"][0]["url"].as_str().unwrap();
    assert_eq!(text.matches(saved).count(), 1, "{text}");
    let (text, _) = run(&session, "x = 1");
    assert!(text.starts_with("Code executed successfully (no output).\nExecution: "), "{text}");
}

#[test]
fn the_default_timeout_is_the_documented_one() {
    // “MAX_EXECUTION_TIME: 600, Default code execution timeout in seconds”.
    let (_, reply) = run(&unique("time"), "1");
    assert_eq!(reply["timeout_applied"], 600.0);
    let info = here().call("get_sandbox_info", &json!({}))["structuredContent"].take();
    assert_eq!(info["resource_limits"]["timeout"], 600.0);
    assert_eq!(info["resource_limits"]["memory_limit"], "4096m");
}

#[test]
fn the_documented_endpoints_answer_with_the_key() {
    let (_, address) = here().stream("/mcp/sse");
    assert!(address.starts_with("/messages/"), "{address}");
    let asked = crate::client::request(1, "tools/list", &json!({}));
    let listed = here().post("/mcp/sse", &asked).json();
    assert_eq!(listed["result"]["tools"][0]["name"], "execute_code", "{listed}");
    let server = here().server;
    assert_eq!(server.get("/health").json()["status"], "healthy");
    for path in ["/mcp/sse", "/api/sessions"] {
        server.get(path).refused(403);
    }
    // With a key, it listens as its README starts it: on every address.
    assert!(server.address.ip().is_unspecified(), "{}", server.address);
}

#[test]
fn replies_over_rest_have_names_and_types() {
    let asked = json!({ "code": "x = 1\ny = 'a'\nx", "session_id": unique("rest") });
    let reply = here().post("/api/execute", &asked).json();
    assert_eq!(reply["variables"], json!({ "x": "int", "y": "str" }), "{reply}");
    for field in [
        "success",
        "stdout",
        "stderr",
        "result",
        "execution_time_ms",
        "files_created",
        "download_urls",
        "inline_images",
        "kernel_info",
    ] {
        assert!(reply.get(field).is_some(), "{field}: {reply}");
    }
    let failed = here().post("/api/execute", &json!({ "code": "1 / 0" })).json();
    assert_eq!(failed["error_message"], "ZeroDivisionError: division by zero");
    assert!(failed["error_traceback"].as_str().unwrap().contains("line 1"), "{failed}");
}

#[test]
fn preloaded_names_need_no_import() {
    let names = "pandas pd numpy np json csv math statistics datetime timedelta timezone date \
                 collections itertools functools re io copy hashlib base64 Path Decimal Fraction \
                 typing Dict List Optional Tuple Set Any plt sns px go sm";
    let names: Vec<&str> = names.split_whitespace().collect();
    let code = names.iter().map(|name| format!("print('{name}', {name} is None)"));
    let (text, reply) = run(&unique("names"), &code.collect::<Vec<_>>().join("\n"));
    let printed: Vec<String> = names.iter().map(|name| format!("{name} False")).collect();
    assert_eq!(reply["stdout"].as_str().unwrap().lines().collect::<Vec<_>>(), printed, "{text}");
}

#[test]
fn paths_of_the_readme_are_the_sessions_own() {
    let session = unique("paths");
    for path in ["/tmp/file.csv", "/var/tmp/file.csv", r"C:\Users\me\file.csv", "default/file.csv"]
    {
        let code = format!("with open(r'{path}', 'w') as f:\n    f.write({path:?})");
        let (text, reply) = run(&session, &code);
        assert_eq!(reply["success"], true, "{path}: {text}");
    }
    let (_, reply) = run(&session, "import os\nsorted(n for n in os.listdir('.') if 'file' in n)");
    assert_eq!(reply["result"], json!(["file.csv"]), "{reply}");
    let (text, reply) = run(&session, "open('/etc/x', 'w')");
    assert_eq!(reply["error"]["type"], "PermissionError", "{reply}");
    assert!(text.contains("Write below the working directory"), "{text}");
}

#[test]
fn an_unknown_route_is_refused() {
    assert!(here().get("/api/nowhere").refused(404).contains("no route matches"));
}

#[test]
fn a_job_is_submitted_followed_and_read_as_in_the_readme() {
    let arguments =
        json!({ "code": "print('long'); 6 * 7", "session_id": "default", "timeout": 600 });
    let submitted = here().call("submit_job", &arguments)["structuredContent"].take();
    assert_eq!(submitted["status"], "pending", "{submitted}");
    assert!(submitted["message"].is_string(), "{submitted}");
    let id = json!({ "job_id": submitted["job_id"] });
    let mut status = json!(null);
    until("the job has ended", || {
        status = here().call("get_job_status", &id)["structuredContent"].take();
        !matches!(status["status"].as_str(), Some("pending" | "running"))
    });
    for field in ["submitted_at", "started_at", "completed_at"] {
        assert!(status[field].is_string(), "{field}: {status}");
    }
    for field in ["elapsed_ms", "execution_time_ms"] {
        assert!(status[field].is_u64(), "{field}: {status}");
    }
    assert_eq!((&status["has_result"], &status["has_error"]), (&json!(true), &json!(false)));
    let result = here().call("get_job_result", &id)["structuredContent"].take();
    assert_eq!((&result["success"], &result["stdout"]), (&json!(true), &json!("long\n")));
    assert_eq!(result["result"], json!(42), "{result}");
    // Older routes, with an id of a session that is no UUID.
    let body = json!({ "code": "import time; time.sleep(30)", "session_id": unique("not-a-uuid") });
    let submitted = here().post("/api/jobs/submit", &body).json();
    let id = submitted["job_id"].as_str().unwrap();
    let result = here().get(&format!("/api/jobs/{id}/result"));
    assert_eq!(result.status, 202, "{}", result.text());
    assert!(here().get("/api/jobs").json()["jobs"].as_array().unwrap().len() >= 2);
    let cancelled = here().post(&format!("/api/jobs/{id}/cancel"), &json!({})).json();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let status = here().get(&format!("/api/jobs/{id}/status")).json();
    assert_eq!(status["status"], "cancelled", "{status}");
}

#[test]
fn an_upload_in_base64_has_its_limits() {
    use base64::Engine as _;
    let upload = |bytes: usize| {
        let content = base64::engine::general_purpose::STANDARD.encode(vec![b'x'; bytes]);
        let body = json!({ "filename": "big.bin", "content_base64": content, "session_id": "big" });
        here().post("/api/files/upload", &body)
    };
    assert_eq!(upload(FILE_MAX).json()["size_bytes"], FILE_MAX);
    upload(FILE_MAX + 1).refused(413);
    let bad = json!({ "filename": "x", "content_base64": "%%%" });
    here().post("/api/files/upload", &bad).refused(400);
}
