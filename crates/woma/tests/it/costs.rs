//! Cost of hostile or hasty clients to the server and to other clients.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::client::{client, here, initialize, initialized, request};
use crate::harness::{Server, shared, unique, until};

const ENDLESS: &str = "while True: pass";

#[test]
fn rejects_a_message_of_many_values_before_parsing_it() {
    let server = Server::start(&[]);
    let before = server.memory_peak();
    let bomb = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":[{}1]}}"#,
        "1,".repeat(5_000_000)
    );
    for path in ["/", "/mcp", "/mcp/sse"] {
        let text = server.request("POST", path, &[], bomb.as_bytes()).refused(413);
        assert!(text.contains("200000 values"), "{path}: {text}");
    }
    let grown = server.memory_peak() - before;
    assert!(grown < 64, "ten megabytes of message cost {grown} MiB");
}

#[test]
fn reports_invalid_json_and_answers_batches_on_the_endpoint() {
    for path in ["/", "/mcp", "/mcp/sse"] {
        let answer = here().server.request("POST", path, &[], b"{bad");
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!(-32700)),
            "{path}"
        );
        let batch = json!([request(1, "ping", &json!({})), request(2, "tools/list", &json!({}))]);
        let answers = here().post(path, &batch).json();
        let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|a| &a["id"]).collect();
        assert_eq!(ids, [1, 2], "{path}");
    }
}

#[test]
fn invalid_parameters_are_not_reported_as_an_unknown_method() {
    let wrong = json!({ "name": "execute_code", "arguments": ["print(1)"] });
    let answer = here().rpc("tools/call", &wrong);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("`arguments`"), "{answer}");
}

#[test]
fn an_unread_event_stream_rejects_further_requests() {
    let server = Server::start(&[]);
    let client = client(&server);
    let (_unread, address) = client.stream("/sse");
    for message in [initialize("2024-11-05"), initialized()] {
        assert_eq!(client.post(&address, &message).status, 202);
    }
    // Each waits for two minutes, so that no request is answered.
    let sleep =
        json!({ "name": "execute_code", "arguments": { "code": "import time; time.sleep(120)" } });
    let statuses: Vec<u16> = (0..100)
        .map(|n| client.post(&address, &request(n + 2, "tools/call", &sleep)).status)
        .collect();
    let taken = statuses.iter().filter(|status| **status == 202).count();
    assert!((60..=64).contains(&taken), "{taken} of 100 were taken: {statuses:?}");
    assert_eq!(statuses.last(), Some(&503));
    let many: Vec<Value> = (0..200).map(|n| request(n + 500, "ping", &json!({}))).collect();
    assert_eq!(client.post(&address, &json!(many)).status, 400, "a batch has a hundred at most");
}

#[test]
fn a_disconnect_during_a_kernel_start_leaves_no_kernel_in_use() {
    let server = Server::start_with(&["--set", "session_pool_size=0"], &[("KERNEL_TIMEOUT", "1")]);
    for attempt in 0..5 {
        let session = format!("hasty-{attempt}");
        let dying = "import os, threading; threading.Timer(.05, lambda: os._exit(3)).start()";
        server.code(&session, dying);
        let listed = |server: &Server| server.get(&format!("/api/v1/sessions/{session}")).json();
        let mut connection = server.connect();
        let body = json!({ "code": "print(1)", "session_id": session }).to_string();
        connection.send("POST", "/execute", &[], body.as_bytes());
        drop(connection);
        until("the session is at rest and has no kernel", || {
            let session = listed(&server);
            session["is_busy"] == false && session["is_live"] == false
        });
    }
    until("no kernel is in use", || server.get("/health").json()["kernels"]["used"] == 0);
}

#[test]
fn one_caller_cannot_take_every_place() {
    let keyed = Keyed::start(&[("API_KEY", "x"), ("MAX_KERNELS", "2"), ("MAX_QUEUE", "14")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let body = json!({ "code": "import time; time.sleep(60)", "session_id": "one" });
    let held: Vec<_> =
        (0..20).map(|_| keyed.client(&alice).send("POST", "/execute", &[], &body)).collect();
    // Fourteen of sixteen places: one call runs, the others wait.
    until("alice has all that she may have", || {
        keyed.client("x").get("/health").json()["queue"]["used"] == 13
    });
    assert_eq!(keyed.client(&alice).post("/execute", &body).status, 503);
    let ran = keyed.client(&bob).code("his", "print(6 * 7)");
    assert_eq!(ran["stdout"], "42\n", "{ran}");
    drop(held);
}

#[test]
fn stored_texts_have_a_length_limit() {
    let long = "x".repeat(1_001);
    let text = here().refused("create_session", &json!({ "name": long }));
    assert!(text.contains("name") && text.contains("1000"), "{text}");
    for field in ["name", "description"] {
        let refused = shared().post("/api/v1/sessions", &json!({ field: long })).refused(400);
        assert!(refused.contains(field) && refused.contains("1000"), "{refused}");
    }
    let text = here().refused("create_session", &json!({ "name": "n", "description": long }));
    assert!(text.contains("description"), "{text}");
    let code = "raise type('E' * 900_000, (Exception,), {})()";
    let reply = here().run(&json!({ "code": code, "session_id": unique("long-name") }));
    assert!(reply["error"]["type"].as_str().unwrap().len() <= 200);
    assert!(reply.to_string().len() < 60_000, "{}", reply.to_string().len());
}

#[test]
fn clients_cannot_forge_log_lines() {
    const FORGED: &str = "2026-01-01T00:00:00Z INFO woma::audit: FORGED";
    let server = Server::start_with(&[], &[("LOG_LEVEL", "debug")]);
    let forged = format!("x\n{FORGED} \u{1b}[31m");
    let message = json!({ "jsonrpc": "2.0", "id": forged, "method": forged, "params": {} });
    for path in ["/", "/mcp"] {
        server.post(path, &message);
    }
    // Each of these is in the log: the code, the session's name, the request's id and path.
    let session = format!("s\u{2028}{FORGED}");
    let code = format!("# x\n# {FORGED} \u{1b}[31m\n1");
    let body = json!({ "code": code, "session_id": session }).to_string();
    let headers = [("X-Request-Id", "id-FORGED")];
    let answer = server.request("POST", "/execute", &headers, body.as_bytes());
    assert_eq!(answer.json()["result"], 1, "{}", answer.text());
    server.get(&format!("/x%0a{}", FORGED.replace(' ', "%20")));
    let log = server.log();
    for trace in ["Executing code: ", r"s\u{2028}", "id-FORGED"] {
        let is_logged = log.lines().any(|line| line.contains(trace) && line.contains("FORGED"));
        assert!(is_logged, "{trace:?} is not in the log:\n{log}");
    }
    assert!(!log.contains('\u{1b}'), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("2026-01-01T00")).collect();
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn metrics_need_the_admin_scope() {
    let keyed = Keyed::start(&[("API_KEY", "the-operators-own-key-0123456789")]);
    let (usual, admin) = (keyed.key("usual", &[]), keyed.key("admin", &["--scope", "admin"]));
    assert_eq!(keyed.client(&usual).get("/metrics").status, 403);
    assert_eq!(keyed.client(&admin).get("/metrics").status, 200);
    assert_eq!(keyed.client("the-operators-own-key-0123456789").get("/metrics").status, 200);
}

#[test]
fn detects_a_disconnect_behind_pipelined_bytes() {
    for extra in ["\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let session = unique("extra");
        let mut connection = here().server.connect();
        let body = json!({ "code": ENDLESS, "session_id": session }).to_string();
        connection.send("POST", "/execute", &[], body.as_bytes());
        connection.write(extra.as_bytes()).unwrap();
        here().server.until_busy(&session, true);
        drop(connection);
        let started = Instant::now();
        here().server.until_busy(&session, false);
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }
}

#[test]
fn shutdown_stops_an_ephemeral_run_and_answers_it() {
    let server = Server::start(&["--set", "shutdown_grace=1"]);
    let mut connection = server.connect();
    let code = "import time\nprint('begun', flush=True)\ntime.sleep(60)";
    let body = json!({ "code": code, "stateless": true }).to_string();
    connection.send("POST", "/api/v1/execute", &[], body.as_bytes());
    assert_eq!(connection.head().unwrap().status, 200);
    let first = connection.chunk().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("begun"));
    server.signal("-TERM");
    let mut last = String::new();
    while let Some(chunk) = connection.chunk().unwrap() {
        last = String::from_utf8_lossy(&chunk).into_owned();
    }
    assert!(last.contains("interrupted"), "{last}");
    until("the server has ended", || server.exit_status() == Some(0));
}

#[test]
fn repeats_an_undelivered_restart_notice() {
    let server = Server::start_with(&[], &[("KERNEL_TIMEOUT", "1")]);
    server.code("x", "a = 1");
    until("its kernel is gone", || server.get("/api/v1/sessions/x").json()["is_live"] == false);
    let mut connection = server.connect();
    let body = json!({ "code": "import time; time.sleep(60)", "session_id": "x" }).to_string();
    connection.send("POST", "/execute", &[], body.as_bytes());
    server.until_busy("x", true);
    drop(connection);
    server.until_busy("x", false);
    let reply = server.code("x", "print(1)");
    assert_eq!(reply["session_restarted"], true, "{reply}");
    assert!(reply["restart_reason"].as_str().unwrap().contains("idle"), "{reply}");
}

#[test]
fn stateless_calls_leave_no_trace_in_any_preset() {
    let server = Server::start(&["--preset", "sandbox-mcp"]);
    for _ in 0..3 {
        let reply = server.run(&json!({ "code": "x = 1", "stateless": true }));
        assert_eq!(reply["session_id"], Value::Null, "{reply}");
    }
    assert_eq!(server.get("/api/v1/sessions").json()["total"], 0);
}

#[test]
fn a_program_that_kills_itself_has_the_exit_status_of_a_shell() {
    let code = "import os; os.kill(os.getpid(), 9)";
    let reply = here().run(&json!({ "code": code, "session_id": unique("kill") }));
    assert_eq!(
        (&reply["outcome"], &reply["exit_code"]),
        (&json!("crashed"), &json!(137)),
        "{reply}"
    );
}

#[test]
fn variables_have_a_size_limit() {
    let long = "x".repeat(9 * 1024 * 1024);
    let given = json!({ "code": "1", "variables": { "text": long } });
    let text = here().refused("execute_code", &given);
    assert!(text.contains("variables") && text.contains("8388608"), "{text}");
}

#[test]
fn calls_wait_no_longer_than_the_longest_run() {
    let variables = [("MAX_EXECUTION_TIME", "1"), ("DEFAULT_TIMEOUT", "1")];
    let server = Server::start_with(&[], &variables);
    let body = json!({ "code": ENDLESS, "session_id": "x" }).to_string();
    let mut calls = Vec::new();
    for _ in 0..4 {
        let mut call = server.connect();
        call.send("POST", "/execute", &[], body.as_bytes());
        calls.push(call);
    }
    let answers: Vec<_> = calls.iter_mut().map(|call| call.answer(false)).collect();
    let (ran, waited): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status == 200);
    assert!(!ran.is_empty() && !waited.is_empty(), "{answers:?}");
    for answer in waited {
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.text().contains("waited 1 seconds"), "{}", answer.text());
    }
}

#[test]
fn the_log_of_a_session_keeps_its_latest_bytes() {
    let session = unique("chatty");
    let code = "import threading, sys\nrelease = threading.Event()\ndef chat():\n    release.wait()\n    \
                for n in range(20000): print('line', n)\n    print('the last')\n\
                threading.Thread(target=chat).start()";
    here().code(&session, code);
    let uri = format!("session://{session}/log");
    here().code(&session, "threading.Timer(0.1, release.set).start()");
    let read = || {
        let read = here().result("resources/read", &json!({ "uri": uri }));
        read["contents"][0]["text"].as_str().unwrap().to_owned()
    };
    until("all of it was written", || read().trim_end().ends_with("the last"));
    let log = read();
    assert!(log.len() <= 32 * 1024 && log.len() > 30 * 1024, "{} bytes", log.len());
}

#[test]
fn mcp_sessions_and_event_streams_are_limited() {
    let server = Server::start(&[]);
    let client = client(&server);
    let statuses: Vec<u16> =
        (0..501).map(|_| client.post("/mcp", &initialize("2025-06-18")).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 500);
    let last = client.post("/mcp", &initialize("2025-06-18"));
    last.refused(503);
    assert_eq!(last.get("retry-after"), Some("1"));
    // Requests without a session are not affected by the limit.
    let listed = client.modern("tools/list", &json!({}), &json!({})).answer(false);
    assert_eq!(listed.status, 200, "{}", listed.text());
    let mut streams = Vec::new();
    for _ in 0..500 {
        let mut stream = server.connect();
        stream.send("GET", "/sse", &[], b"");
        streams.push(stream);
    }
    for stream in &mut streams {
        assert_eq!(stream.head().unwrap().status, 200);
    }
    server.get("/sse").refused(503);
    drop(streams);
    until("streams that are closed are forgotten", || {
        let mut stream = server.connect();
        stream.send("GET", "/sse", &[], b"");
        stream.head().unwrap().status == 200
    });
}

#[test]
fn health_names_every_wall() {
    until("the walls have been looked at", || {
        !here().server.get("/health").json()["layers"].is_null()
    });
    let health = here().server.get("/health").json();
    let layers = health["layers"].as_array().unwrap();
    for wall in ["namespaces", "inodes", "landlock", "seccomp", "limits", "server", "disk", "cell"]
    {
        let layer = layers.iter().find(|layer| layer["name"] == wall);
        let layer = layer.unwrap_or_else(|| panic!("{wall} is missing: {health}"));
        assert!(["enforced", "partly"].contains(&layer["state"].as_str().unwrap()), "{layer}");
    }
    let is_full = layers.iter().all(|layer| layer["state"] == "enforced");
    assert_eq!(health["isolation"], if is_full { "full" } else { "strong" });
}

#[test]
fn counts_rejections_before_the_service() {
    let keyed = Keyed::start(&[("API_KEY", "the-operators-own-key-0123456789")]);
    let operator = keyed.client("the-operators-own-key-0123456789");
    for _ in 0..3 {
        keyed.server.get("/api/v1/sessions").refused(401);
    }
    operator.post("/execute", &json!({ "code": 1.5e300, "timeout": [] })).refused(400);
    operator.post("/execute", &json!({ "code": "" })).refused(400);
    let figures = operator.get("/metrics");
    for line in [
        r#"woma_rejected_total{reason="unauthenticated"} 3"#,
        r#"woma_rejected_total{reason="invalid_argument"} 2"#,
    ] {
        assert!(figures.text().lines().any(|found| found == line), "{line}: {}", figures.text());
    }
}

#[test]
fn reports_a_deletion_or_reset_to_the_running_call() {
    for (way, method, path) in
        [("the session was deleted", "DELETE", ""), ("the session was reset", "POST", "/reset")]
    {
        let (server, session) = (here().server, unique("taken"));
        server.code(&session, "kept = 1");
        let mut running = server.connect();
        let body = json!({ "code": "import time; time.sleep(60)", "session_id": session });
        running.send("POST", "/execute", &[], body.to_string().as_bytes());
        server.until_busy(&session, true);
        let path = format!("/api/v1/sessions/{session}{path}");
        assert_eq!(server.request(method, &path, &[], b"").status, 200);
        let reply = running.answer(false).json();
        let message = reply["error_message"].as_str().unwrap();
        assert!(message.contains(way) && message.contains("are gone"), "{message}");
        assert_eq!(reply["kernel_info"]["session_persisted"], false);
        let next = server.code(&session, "kept");
        assert_eq!(next["error"]["type"], "NameError", "{next}");
    }
}

#[test]
fn results_are_exact_or_marked_as_inexact() {
    let run = |code: &str| here().run(&json!({ "code": code, "session_id": unique("exact") }));
    for (code, result) in [
        ("import math; math.factorial(25)", json!("15511210043330985984000000")),
        ("[2**64, 2**53 - 1]", json!(["18446744073709551616", 9_007_199_254_740_991_u64])),
        (
            "import numpy as np; {'mean': np.float64(2.5), 'n': np.int64(3)}",
            json!({"mean": 2.5, "n": 3}),
        ),
        ("'x' * 20000", json!("x".repeat(20_000))),
    ] {
        assert_eq!(run(code)["result"], result, "{code}");
    }
    let long = run("'x' * 100_000");
    assert!(long["result"].as_str().unwrap().contains("100,002 characters in all"), "{long}");
    let huge = run("10**5000");
    assert_ne!(huge["outcome"], "crashed", "{huge}");
    let kept = run("x = 10**5000\nresult = x\nprint('still here')");
    assert_eq!((&kept["success"], &kept["stdout"]), (&json!(true), &json!("still here\n")));
    let left = run("import sys; sys.exit(3)");
    assert_eq!(left["error_message"], "the program ended with status 3", "{left}");
    let shown = run(
        "from IPython.display import HTML, Markdown\ndisplay(Markdown('**42**'), HTML('<b>43</b>'))",
    );
    assert_eq!(shown["stdout"], "**42**\n43", "{shown}");
}

#[test]
fn a_signal_to_the_process_group_lets_running_code_finish() {
    let server = Server::start(&[]);
    let mut running = server.connect();
    let body = json!({ "code": "import time; time.sleep(1.5); print('done')", "session_id": "x" });
    running.send("POST", "/execute", &[], body.to_string().as_bytes());
    server.until_busy("x", true);
    // As a terminal or a supervisor does: to every process of the server's group.
    let group = std::fs::read_to_string(format!("/proc/{}/stat", server.pid)).unwrap();
    let group = group.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().to_owned();
    let members: Vec<u32> = crate::harness::descendants(server.pid)
        .into_iter()
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let stat = stat.rsplit(')').next().unwrap_or_default().to_owned();
            stat.split_whitespace().nth(2) == Some(&group)
        })
        .collect();
    assert!(members.is_empty(), "these would be hit by Ctrl-C too: {members:?}");
    server.signal("-INT");
    assert_eq!(running.answer(false).json()["stdout"], "done\n");
}
