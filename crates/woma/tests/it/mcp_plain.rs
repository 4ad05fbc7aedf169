//! Plain calls of the newer era go past the protocol library; nobody may be able to tell.

use serde_json::{Value, json};

use crate::client::{Client, client, here, modern_headers, modern_request};
use crate::harness::{Answer, Server, unique, until};

/// Whatever of an answer differs from call to call, besides the names of session and execution.
const VARYING: [&str; 5] =
    ["execution_time_ms", "execution_time", "memory_used_mb", "cpu_time_ms", "/dl/"];
/// In the table below: the session of whichever way it is.
const SESSION: &str = "SESSION";

/// The same message each way: plain, and with a field that nobody knows, which the library ignores.
/// Each way has a session of its own, in which the same happens.
fn both_ways(here: &Client<'_>, name: &str, message: &Value, sessions: [&str; 2]) -> [Answer; 2] {
    let headers = modern_headers("tools/call", Some(name));
    let [mut plain, mut usual] = sessions.map(|session| {
        let text = message.to_string().replace(SESSION, session);
        serde_json::from_str::<Value>(&text).unwrap()
    });
    usual["unknown"] = json!(1);
    [&mut plain, &mut usual].map(|body| here.send("POST", "/mcp", &headers, body).answer(false))
}

/// An answer as text, without what varies. Texts within texts have their quotes escaped.
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
fn a_plain_call_is_answered_as_the_library_answers_it() {
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

/// The two ways above are two.
#[test]
fn a_plain_call_goes_its_own_way() {
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
fn every_kind_of_id_comes_back_as_it_was() {
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

/// Tools whose arguments must be headers too would have to be checked for that, by the library.
#[test]
fn no_tool_wants_its_arguments_as_headers() {
    let listed = here().result("tools/list", &json!({})).to_string();
    assert!(listed.contains("inputSchema") && !listed.contains("x-mcp-header"));
}

/// What is wrong with a call is said by the library, whichever way it would have gone.
#[test]
fn a_call_that_is_not_plain_is_refused_as_ever() {
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
    // Parameters by their places, not by their names.
    let (named, mut by_place) = (&message["params"], message.clone());
    by_place["params"] = json!([named["name"], named["arguments"], named["_meta"]]);
    let headers = modern_headers("tools/call", Some("execute_code"));
    let answer = here.send("POST", "/mcp", &headers, &by_place).answer(false);
    assert_eq!(answer.status, 415, "{}", answer.text());
}
