//! Logs: one line for each execution, with its ids.

use serde_json::{Value, json};

use crate::harness::{Server, until};

/// The events of a JSON log; lines for people are skipped.
fn events(server: &Server) -> Vec<Value> {
    server.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn event(server: &Server, words: &str, execution: &str) -> Value {
    let find = || {
        events(server).into_iter().find(|event| {
            event["message"].as_str().is_some_and(|message| message.contains(words))
                && event["id"] == execution
        })
    };
    until(&format!("{words} of {execution} is logged"), || find().is_some());
    find().unwrap()
}

#[test]
fn log_lines_have_the_ids_of_an_execution() {
    let server = Server::start_with(&[], &[("LOG_LEVEL", "debug"), ("LOG_FORMAT", "json")]);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [("X-Request-Id", "mine-1"), ("traceparent", parent.as_str())];
    let rest = json!({ "code": "secret = 1\nprint(2)", "session_id": "s" });
    let call = json!({ "name": "execute_code", "arguments": { "code": "print(3)" } });
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call });
    for (runs, path, body) in [(1, "/execute", &rest), (2, "/mcp/sse", &rpc)] {
        let answer = server.request("POST", path, &headers, body.to_string().as_bytes());
        assert_eq!((answer.status, answer.get("x-request-id")), (200, Some("mine-1")));
        let reply = answer.json();
        // The reply of a tool has no id that its client does not need.
        let mut records = Value::Null;
        until("the run is on record", || {
            records = server.get("/api/v1/executions").json();
            records["executions"].as_array().is_some_and(|rows| rows.len() == runs)
        });
        let latest = &records["executions"][0]["execution_id"];
        let id = reply.get("execution_id").unwrap_or(latest).as_str().unwrap();
        let line = event(&server, "Execution completed in 0.", id);
        assert_eq!((&line["caller"], &line["outcome"]), (&json!("local"), &json!("completed")));
        let text = line.to_string();
        assert!(text.contains("mine-1") && text.contains(trace), "{path}: {text}");
        event(&server, "Executing code: ", id);
    }
}

#[test]
fn logs_failures_in_the_words_of_the_older_system() {
    let server = Server::start_with(&[], &[("LOG_FORMAT", "json")]);
    let reply = server.run(&json!({ "code": "while True: pass", "timeout": 0.3 }));
    event(&server, "Execution timeout after 0.3s", reply["execution_id"].as_str().unwrap());
    // A frame of an impossible length ends the session. The program waits: if it ended by itself,
    // that could be seen first.
    let code = "import os, time\nfor fd in os.listdir('/proc/self/fd'):\n    \
                try: int(fd) > 2 and os.write(int(fd), b'\\xff' * 100)\n    \
                except OSError: pass\ntime.sleep(60)";
    let reply = server.run(&json!({ "code": code, "session_id": "vandal" }));
    assert_eq!(reply["outcome"], "crashed", "{reply}");
    event(&server, "Security event: ", reply["execution_id"].as_str().unwrap());
    let quiet = events(&server);
    let told = |event: &Value| event["message"].as_str().is_some_and(|m| m.contains("Executing"));
    assert!(!quiet.iter().any(told), "code is logged only where debugging was asked for");
}
