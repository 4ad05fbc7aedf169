//! A disconnect or a cancelled request interrupts the code, over every transport; the session
//! answers again at once and has kept its variables.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, Spoken, client, here, initialize, initialized, request, roomy};
use crate::harness::{Connection, Server, unique, until};

/// Far less than the code that is stopped would take.
const SOON: Duration = Duration::from_secs(20);

fn endless(session: &str) -> Value {
    json!({ "code": "x += 1\nwhile True: pass", "session_id": session })
}

fn call(session: &str) -> Value {
    json!({ "name": "execute_code", "arguments": endless(session) })
}

/// Starts an endless loop, disconnects its client, and checks that the code stops.
fn stops<T, K>(name: &str, start: impl FnOnce(Client<'_>, &str) -> T, stop: impl FnOnce(T) -> K) {
    let session = unique(name);
    let here = here();
    here.code(&session, "x = 1");
    let running = start(here, &session);
    roomy().until_busy(&session, true);
    // A session is busy as soon as its call is queued.
    until_running(roomy(), &session);
    let started = Instant::now();
    // The client keeps the value that `stop` returns until the end.
    let held = stop(running);
    let reply = here.code(&session, "x");
    assert!(started.elapsed() < SOON, "{name}: {:?}", started.elapsed());
    assert_eq!((&reply["result"], reply.get("session_restarted")), (&json!(2), None), "{name}");
    drop(held);
}

/// Waits until the session is busy for longer than a start takes, so that the code runs.
fn until_running(server: &Server, session: &str) {
    let busy = || server.get(&format!("/api/v1/sessions/{session}")).json()["is_busy"] == true;
    let started = Instant::now();
    until("the code has run for a while", || {
        assert!(busy(), "the code has ended by itself");
        started.elapsed() > Duration::from_millis(300)
    });
}

#[test]
fn streamable_http_of_the_newer_era() {
    let plain =
        |here: Client<'_>, session: &str| here.modern("tools/call", &call(session), &json!({}));
    stops("modern", plain, drop);
    let streamed = |here: Client<'_>, session: &str| {
        let mut connection =
            here.modern("tools/call", &call(session), &json!({ "progressToken": "p" }));
        assert_eq!(connection.head().unwrap().status, 200);
        connection
    };
    stops("modern-stream", streamed, drop);
}

#[test]
fn streamable_http_of_the_older_era() {
    let start = |here: Client<'_>, session: &str| {
        let id = here.open("2025-06-18");
        (here.legacy(&id, &request(7, "tools/call", &call(session))), id)
    };
    stops("legacy", start, drop);
    let cancel = |(connection, id): (Connection, String)| {
        let params = json!({ "requestId": 7, "reason": "not wanted any more" });
        let taken_back =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        assert_eq!(here().legacy(&id, &taken_back).answer(false).status, 202);
        connection
    };
    stops("legacy-cancelled", start, cancel);
}

#[test]
fn http_with_server_sent_events() {
    for path in ["/sse", "/mcp/sse"] {
        let start = |here: Client<'_>, session: &str| {
            let (mut events, address) = here.stream(path);
            assert_eq!(here.post(&address, &initialize("2024-11-05")).status, 202);
            assert_eq!(events.next().unwrap()["result"]["protocolVersion"], "2024-11-05");
            for message in [initialized(), request(2, "tools/call", &call(session))] {
                assert_eq!(here.post(&address, &message).status, 202);
            }
            events
        };
        stops("sse", start, drop);
    }
}

#[test]
fn direct_json_rpc() {
    for path in ["/", "/mcp/sse"] {
        let start = |here: Client<'_>, session: &str| {
            here.send("POST", path, &[], &request(1, "tools/call", &call(session)))
        };
        stops("direct", start, drop);
    }
}

#[test]
fn rest_as_lines_and_as_one_reply() {
    for path in ["/api/v1/execute", "/execute"] {
        let start =
            |here: Client<'_>, session: &str| here.send("POST", path, &[], &endless(session));
        stops("rest", start, drop);
    }
}

#[test]
fn a_disconnect_cancels_a_waiting_call() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "1"), ("MAX_QUEUE", "1")]);
    let here = client(&server);
    let first =
        here.send("POST", "/execute", &[], &json!({ "code": "import time; time.sleep(60)" }));
    server.until_busy("default", true);
    let waiting = || server.get("/health").json()["queue"]["used"].as_u64().unwrap();
    until("the first one runs", || waiting() == 0);
    let second = here.modern("tools/call", &call("other"), &json!({}));
    until("the second one waits", || waiting() == 1);
    here.post("/execute", &json!({ "code": "1" })).refused(503);
    drop(second);
    until("the place in the queue is free", || waiting() == 0);
    drop(first);
    assert_eq!(here.code("default", "1 + 1")["result"], 2);
}

#[test]
fn end_of_standard_input_ends_all_code() {
    let mut spoken = Spoken::start(&["stdio"], &[]);
    spoken.begin();
    spoken.send(&request(
        2,
        "tools/call",
        &json!({
            "name": "execute_code", "arguments": { "code": "while True: pass" },
        }),
    ));
    spoken.send(&request(3, "tools/call", &json!({ "name": "list_sessions", "arguments": {} })));
    let listed = spoken.next();
    assert_eq!(
        (&listed["id"], &listed["result"]["isError"]),
        (&json!(3), &json!(false)),
        "{listed}"
    );
    let started = Instant::now();
    spoken.hang_up();
    until("the process has ended", || spoken.child.try_wait().unwrap().is_some());
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(spoken.child.wait().unwrap().success());
}

#[test]
fn a_cancelled_request_on_standard_input_stops() {
    let mut spoken = Spoken::start(&["stdio"], &[]);
    spoken.begin();
    let execute = |code: &str| json!({ "name": "execute_code", "arguments": { "code": code } });
    spoken.send(&request(2, "tools/call", &execute("x = 41")));
    assert_eq!(spoken.next()["id"], 2);
    spoken.send(&request(3, "tools/call", &execute("x += 1\nwhile True: pass")));
    until("the code runs", || {
        spoken.send(&request(4, "tools/call", &json!({ "name": "list_sessions" })));
        spoken.next()["result"]["structuredContent"]["sessions"][0]["is_busy"] == true
    });
    let cancelled = json!({ "requestId": 3, "reason": "no" });
    spoken.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }),
    );
    let started = Instant::now();
    spoken.send(&request(5, "tools/call", &execute("x")));
    let answer = loop {
        let message = spoken.next();
        if message["id"] == 5 {
            break message;
        }
        assert_eq!(message["id"], 3, "{message}");
    };
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    let reply = &answer["result"]["structuredContent"];
    assert!(reply["result"] == 42 || reply["result"] == 41, "{answer}");
    assert_eq!(reply.get("session_restarted"), None);
}
