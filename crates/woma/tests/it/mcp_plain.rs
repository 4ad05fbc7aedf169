//! Stateless calls bypass rmcp; their replies must be the same.

use serde_json::{Value, json};

use crate::client::{Client, client, here, modern_headers, modern_request};
use crate::harness::{Answer, Server, unique, until};

/// Fields that differ between calls, besides the ids of session and execution.
const VARYING: [&str; 5] =
    ["execution_time_ms", "execution_time", "memory_used_mb", "cpu_time_ms", "/dl/"];
/// Placeholder in the table below for the session of each path.
const SESSION: &str = "SESSION";

/// The same message on both paths: as it is, and with an unknown field, which rmcp ignores.
/// Each path has a session of its own, with the same calls.
fn both_ways(here: &Client<'_>, name: &str, message: &Value, sessions: [&str; 2]) -> [Answer; 2] {
    let headers = modern_headers("tools/call", Some(name));
    let [mut plain, mut usual] = sessions.map(|session| {
        let text = message.to_string().replace(SESSION, session);
        serde_json::from_str::<Value>(&text).unwrap()
    });
    usual["unknown"] = json!(1);
    [&mut plain, &mut usual].map(|body| here.send("POST", "/mcp", &headers, body).answer(false))
}

/// An answer as text, without the parts that vary. Texts within texts have their quotes escaped.
fn lasting(answer: &Answer, session: &str) -> String {
    let mut text = answer.text().replace(session, SESSION);
    if let Some(id) = answer.json()["result"]["structuredContent"]["execution_id"].as_str() {
        text = text.replace(id, "EXECUTION");
    }
    for name in VARYING {
        let (mut rest, mut kept) = (text.as_str(), String::new());
        while let Some(at) = rest.find(name) {
            let (before, after) = rest.split_at(at + name.len());
            kept.push_str(before);
            rest = after.trim_start_matches(|one: char| !matches!(one, ',' | '}'));
        }
        kept.push_str(rest);
        text = kept;
    }
    text
}

fn lasting_headers(answer: &Answer) -> Vec<(String, String)> {
    let varies = |name: &str| matches!(name, "date" | "x-request-id" | "content-length");
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| !varies(name));
    headers.sort();
    headers
}

#[test]
fn the_fast_path_answers_as_rmcp_does() {
    let (here, plain, usual) = (here(), unique("plain"), unique("usual"));
    let sessions = [plain.as_str(), usual.as_str()];
    let code = |code: &str| json!({ "code": code, "session_id": SESSION });
    let chart = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()";
    for (name, arguments) in [
        ("execute_code", code("x = 1\nprint(x)\nx")),
        ("execute_code", code("1 / 0")),
        ("execute_code", code("def")),
        ("execute_code", code(chart)),
        ("execute_code", code("print('é' * 30_000)")),
        ("run_python_code", code("x")),
        ("execute_code", json!({})),
        ("execute_code", json!({ "code": 1, "session_id": SESSION })),
        ("execute_code", json!({ "code": "1", "timeout": "soon", "session_id": SESSION })),
        ("execute_code", json!({ "code": "1", "nonsense": true, "session_id": SESSION })),
        ("validate_code", json!({ "code": "import os" })),
        ("read_output", json!({ "execution_id": "none" })),
        (
            "upload_file",
            json!({ "session_id": SESSION, "path": "a.txt", "content_base64": "YQ==" }),
        ),
        ("delete_file", json!({ "session_id": SESSION, "path": "a.txt" })),
        ("fetch_file", json!({ "session_id": SESSION, "path": "none" })),
        ("interrupt_session", json!({ "session_id": SESSION })),
        ("delete_session", json!({ "session_id": SESSION })),
        ("delete_session", json!({ "session_id": "there-is-none" })),
        ("get_sandbox_info", json!({})),
        ("no_such_tool", json!({})),
    ] {
        let params = json!({ "name": name, "arguments": arguments });
        let message = modern_request("tools/call", &params, &json!({}));
        let [plain, usual] = both_ways(&here, name, &message, sessions);
        assert_eq!(plain.status, usual.status, "{name} {arguments}");
        let texts = [(&plain, sessions[0]), (&usual, sessions[1])];
        let [left, right] = texts.map(|(answer, session)| lasting(answer, session));
        assert_eq!(left, right, "{name} {arguments}");
        assert_eq!(lasting_headers(&plain), lasting_headers(&usual), "{name} {arguments}");
    }
}

/// The two paths above differ.
#[test]
fn plain_calls_take_the_fast_path() {
    let server = Server::start_with(&[], &[("LOG_LEVEL", "debug"), ("LOG_FORMAT", "json")]);
    let params = json!({ "name": "list_sessions", "arguments": {} });
    let message = modern_request("tools/call", &params, &json!({}));
    let [plain, usual] = both_ways(&client(&server), "list_sessions", &message, ["", ""]);
    let request = |answer: &Answer| answer.get("x-request-id").unwrap().to_owned();
    let (plain, usual) = (request(&plain), request(&usual));
    let is_said = |of: &str| {
        let log = server.log();
        log.lines().any(|line| line.contains("the call is plain") && line.contains(of))
    };
    until("the plain call is known for one", || is_said(&plain));
    assert!(!is_said(&usual));
}

#[test]
fn every_kind_of_id_is_returned_unchanged() {
    let here = here();
    for id in [json!(0), json!(-1), json!(i64::MAX), json!(2.0), json!(""), json!("ä\"\n")] {
        let params = json!({ "name": "list_sessions", "arguments": {} });
        let mut message = modern_request("tools/call", &params, &json!({}));
        message["id"] = id.clone();
        let [plain, usual] = both_ways(&here, "list_sessions", &message, ["", ""]);
        assert_eq!(plain.json()["id"], usual.json()["id"], "{id}");
        assert_eq!((plain.status, usual.status), (200, 200), "{id}");
    }
}

/// rmcp would have to check tools whose arguments must be headers too.
#[test]
fn no_tool_takes_arguments_in_headers() {
    let listed = here().result("tools/list", &json!({})).to_string();
    assert!(listed.contains("inputSchema") && !listed.contains("x-mcp-header"));
}

/// rmcp reports invalid calls on both paths.
#[test]
fn other_calls_are_rejected_as_by_rmcp() {
    let here = here();
    let params = json!({ "name": "execute_code", "arguments": { "code": "1" } });
    let message = modern_request("tools/call", &params, &json!({}));
    for (name, value) in [
        ("Mcp-Name", "list_sessions"),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Protocol-Version", "2025-11-25"),
    ] {
        let mut headers = modern_headers("tools/call", Some("execute_code"));
        headers.retain(|(other, _)| *other != name);
        let missing = here.send("POST", "/mcp", &headers, &message).answer(false);
        assert_eq!(missing.status, 400, "without {name}: {}", missing.text());
        headers.push((name, value));
        let wrong = here.send("POST", "/mcp", &headers, &message).answer(false);
        assert_eq!(wrong.status, 400, "{name}: {}", wrong.text());
        assert_eq!(wrong.json()["error"]["code"], -32020, "{name}: {}", wrong.text());
    }
    for name in ["Mcp-Name", "Mcp-Method"] {
        let mut headers = modern_headers("tools/call", Some("execute_code"));
        let again = headers.iter().find(|(other, _)| *other == name).copied().unwrap();
        headers.push(again);
        let twice = here.send("POST", "/mcp", &headers, &message).answer(false);
        assert_eq!(twice.status, 400, "{name} twice: {}", twice.text());
    }
    // Positional parameters.
    let (named, mut by_place) = (&message["params"], message.clone());
    by_place["params"] = json!([named["name"], named["arguments"], named["_meta"]]);
    let headers = modern_headers("tools/call", Some("execute_code"));
    let answer = here.send("POST", "/mcp", &headers, &by_place).answer(false);
    assert_eq!(answer.status, 415, "{}", answer.text());
}
