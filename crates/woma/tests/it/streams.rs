//! Streams: events during a run, and disconnecting clients.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Connection, shared, unique};

/// Begins to run code in a session and returns after the head of the response.
fn begin(path: &str, accept: &str, session: &str, code: &str) -> Connection {
    let mut connection = shared().connect();
    let body = json!({ "code": code, "session_id": session }).to_string();
    connection.send("POST", path, &[("Accept", accept)], body.as_bytes());
    assert_eq!(connection.head().unwrap().status, 200);
    connection
}

fn object(connection: &mut Connection) -> Option<Value> {
    let chunk = connection.chunk().unwrap()?;
    Some(serde_json::from_slice(&chunk).unwrap())
}

#[test]
fn lines_arrive_before_the_code_ends() {
    let session = unique("early");
    let code = "import time\nprint('now')\ntime.sleep(60)\nprint('never')";
    let started = Instant::now();
    let mut connection = begin("/api/v1/execute", "*/*", &session, code);
    assert_eq!(object(&mut connection), Some(json!({ "text": "now\n" })));
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    shared().post(&format!("/api/v1/sessions/{session}/interrupt"), &json!({}));
    let end = object(&mut connection).unwrap();
    assert!(end["error"].as_str().unwrap().contains("nterrupt"), "{end}");
    assert_eq!(object(&mut connection), None);
}

#[test]
fn a_disconnect_stops_the_code() {
    let code = "import time\nx = 1\nprint('started')\ntime.sleep(60)\nx = 2";
    for (path, accept) in [
        ("/api/v1/execute", "*/*"),
        ("/api/v1/execute", "text/event-stream"),
        ("/execute", "application/json"),
    ] {
        let session = unique("gone");
        shared().code(&session, "x = 0");
        let mut connection = shared().connect();
        let body = json!({ "code": code, "session_id": session }).to_string();
        connection.send("POST", path, &[("Accept", accept)], body.as_bytes());
        if path == "/execute" {
            shared().until_busy(&session, true);
        } else {
            connection.head().unwrap();
            connection.chunk().unwrap().unwrap();
        }
        drop(connection);
        let started = Instant::now();
        let reply = shared().code(&session, "x");
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(20), "{accept}: {waited:?}");
        // The first call may not have begun when its client disconnected.
        let result = reply["result"].as_u64().unwrap();
        assert!(result == 1 || (result == 0 && path == "/execute"), "{reply}");
        assert_eq!(reply["session_restarted"], false);
    }
}

#[test]
fn the_value_of_the_last_expression_is_a_text_line() {
    let answer = shared().post("/api/v1/execute", &json!({ "code": "print('a')\n6 * 7" }));
    assert_eq!(answer.lines(), [json!({ "text": "a\n" }), json!({ "text": "42" })]);
    let table = json!({ "code": "import pandas as pd\npd.DataFrame({'n': [1]})" });
    let lines = shared().post("/api/v1/execute", &table).lines();
    assert!(lines.len() == 1 && lines[0]["text"].as_str().unwrap().contains('n'), "{lines:?}");
}

#[test]
fn output_arrives_in_order_and_complete() {
    let code = "import sys\nfor n in range(20000): print(n)\nprint('é' * 100000, end='')";
    let lines = shared().post("/api/v1/execute", &json!({ "code": code })).lines();
    let text: String = lines.iter().map(|line| line["text"].as_str().unwrap()).collect();
    let mut expected = (0..20000).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    expected.push_str(&"é".repeat(100_000));
    assert_eq!(text.len(), expected.len());
    assert_eq!(text, expected);
    let silent = json!({ "code": "print(1)\n2", "capture_output": false });
    assert_eq!(shared().post("/api/v1/execute", &silent).lines(), [json!({ "text": "2" })]);
}

#[test]
fn full_events_have_streams_and_the_reply() {
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0";
    let body = json!({ "code": code, "session_id": unique("full"), "colour": 1 });
    let lines = shared().post("/api/v1/execute?events=full", &body).lines();
    assert_eq!(lines[0], json!({ "text": "out\n", "stream": "stdout" }));
    assert_eq!(lines[1], json!({ "text": "err\n", "stream": "stderr" }));
    assert_eq!(lines[2]["error"], "ZeroDivisionError: division by zero");
    let done = &lines[3]["done"];
    assert_eq!((&done["success"], &done["stdout"]), (&json!(false), &json!("out\n")));
    assert!(done["warnings"][0].as_str().unwrap().contains("colour"), "{done}");
    assert_eq!(lines.len(), 4);
}

#[test]
fn progress_is_an_event_of_full_streams() {
    let code = "progress(0.25, 'reading')\nprint('read')\nprogress(1)";
    let body = json!({ "code": code, "session_id": unique("progress") });
    let told = |path: &str| -> Vec<Value> {
        let lines = shared().post(path, &body).lines();
        lines.iter().filter_map(|line| line.get("progress").cloned()).collect()
    };
    let expected = [json!({ "fraction": 0.25, "message": "reading" }), json!({ "fraction": 1.0 })];
    assert_eq!(told("/api/v1/execute?events=full"), expected);
    assert_eq!(told("/api/v1/execute"), [Value::Null; 0]);
}

#[test]
fn streams_server_sent_events() {
    let headers = [("Accept", "text/event-stream")];
    let body = json!({ "code": "print('a\\nb')\n1 / 0" }).to_string();
    let answer = shared().request("POST", "/api/v1/execute", &headers, body.as_bytes());
    assert_eq!(answer.get("content-type"), Some("text/event-stream; charset=utf-8"));
    let events: Vec<(String, Value)> = answer
        .text()
        .split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            (name.strip_prefix("event: ").unwrap().to_owned(), data)
        })
        .collect();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["text", "error", "done"]);
    assert_eq!(events[0].1, json!({ "text": "a\nb\n" }));
    assert_eq!(events[2].1["done"]["success"], false);
}

#[test]
fn sends_heartbeats_if_the_format_has_them() {
    let sleep = "import time\ntime.sleep(10.4)";
    let first = |path: &'static str, accept: &'static str| {
        thread::spawn(move || {
            let mut connection = begin(path, accept, &unique("silent"), sleep);
            connection.chunk().unwrap().map(|chunk| String::from_utf8(chunk).unwrap())
        })
    };
    let events = first("/api/v1/execute", "text/event-stream");
    let full = first("/api/v1/execute?events=full", "*/*");
    let plain = first("/api/v1/execute", "*/*");
    assert_eq!(events.join().unwrap().unwrap(), ": keep-alive\n\n");
    let heartbeat: Value = serde_json::from_str(&full.join().unwrap().unwrap()).unwrap();
    assert!(heartbeat["heartbeat"].as_f64().unwrap() >= 9.9, "{heartbeat}");
    assert_eq!(plain.join().unwrap(), None);
}
