//! The versioned API: executions, sessions with labels and lifetimes, keys, pages of listings,
//! repeated requests, and the headers of every reply.

use std::thread;

use serde_json::{Value, json};

use crate::auth::{KEY, Keyed};
use crate::harness::{Answer, Server, shared, unique, until};

fn send(method: &str, path: &str, body: &Value) -> Answer {
    shared().request(method, path, &[], body.to_string().as_bytes())
}

fn run_with(server: &Server, headers: &[(&str, &str)], body: &Value) -> Answer {
    server.request("POST", "/api/v1/executions", headers, body.to_string().as_bytes())
}

#[test]
fn an_execution_is_created_and_can_be_read_again() {
    let session = unique("executions");
    let answer = run_with(shared(), &[], &json!({ "code": "6 * 7", "session_id": session }));
    assert_eq!((answer.status, &answer.json()["result"]), (201, &json!(42)));
    let location = answer.get("location").unwrap().to_owned();
    let id = answer.json()["execution_id"].as_str().unwrap().to_owned();
    assert_eq!(location, format!("/api/v1/executions/{id}"));
    until("it is recorded", || shared().get(&location).status == 200);
    let record = shared().get(&location).json();
    assert_eq!((&record["execution_id"], &record["outcome"]), (&json!(id), &json!("completed")));
    assert_eq!(record["session_id"], session);
    let output = shared().get(&format!("{location}/output?stream=result")).json();
    assert_eq!(output["text"], "42");
    shared().get("/api/v1/executions/no-such-execution").refused(404);
}

#[test]
fn a_stream_that_is_asked_for_has_rich_lines() {
    let code = "import pandas as pd\nimport plotly.graph_objects as go\n\
                display(pd.DataFrame({'a': [1]}))\ngo.Figure(go.Bar(y=[1, 2])).show()";
    let body = json!({ "code": code, "session_id": unique("rich") });
    let answer = run_with(shared(), &[("Accept", "application/x-ndjson")], &body);
    assert_eq!(answer.status, 201);
    let lines = answer.lines();
    let kind = |name: &str| lines.iter().filter_map(|line| line.get(name)).collect::<Vec<_>>();
    assert!(kind("html")[0].as_str().unwrap().contains("<table"), "{lines:?}");
    assert_eq!(kind("plotly")[0]["data"][0]["type"], "bar", "{lines:?}");
    assert_eq!(kind("done")[0]["success"], true);
    // The format of the older route has the lines that its clients know, and no other.
    for line in shared().post("/api/v1/execute", &body).lines() {
        let mut keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        keys.sort();
        assert!(keys == ["text"] || keys == ["format", "image"], "{keys:?}");
    }
    let full = shared().post("/api/v1/execute?events=full", &body).lines();
    assert!(full.iter().any(|line| line["plotly"].is_object()), "{full:?}");
}

#[test]
fn a_session_has_labels_and_a_lifetime() {
    let (session, label) = (unique("labelled"), unique("team"));
    let path = format!("/api/v1/sessions/{session}");
    let body = json!({ "name": "Sales", "labels": { &label: "a" }, "lifetime": 3600 });
    let made = send("PUT", &path, &body);
    assert_eq!((made.status, made.get("location")), (201, Some(path.as_str())));
    assert_eq!(made.json()["labels"], json!({ &label: "a" }));
    assert_eq!(made.json()["lifetime"], 3600);
    // A change leaves alone what it does not name; a replacement does not.
    let changed = send("PATCH", &path, &json!({ "labels": { &label: "b" } }));
    assert_eq!((changed.status, &changed.json()["name"]), (200, &json!("Sales")));
    for (filter, total) in
        [(label.clone(), 1), (format!("{label}=b"), 1), (format!("{label}=a"), 0)]
    {
        let listed = shared().get(&format!("/api/v1/sessions?label={filter}")).json();
        assert_eq!(listed["total"], total, "{filter}: {listed}");
    }
    let replaced = send("PUT", &path, &json!({ "description": "new" }));
    assert_eq!((replaced.status, &replaced.json()["name"]), (200, &json!(session)));
    assert_eq!(
        (&replaced.json()["labels"], &replaced.json()["lifetime"]),
        (&Value::Null, &Value::Null)
    );
    for (body, named) in [
        (json!({ "labels": { "a b": "c" } }), "a b"),
        (json!({ "labels": { "a": 1 } }), "labels"),
        (json!({ "lifetime": 10_000_000_000_u64 }), "lifetime"),
        (json!({ "session_id": "other" }), "session_id"),
    ] {
        let message = send("PATCH", &path, &body).refused(400);
        assert!(message.contains(named), "{message}");
    }
    send("PATCH", "/api/v1/sessions/no-such-session", &json!({ "name": "x" })).refused(404);
}

#[test]
fn a_session_is_deleted_at_the_end_of_its_lifetime_and_labels_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", folder.path().to_str().unwrap(), "--kernel-timeout", "1"];
    let put = |server: &Server, id: &str, body: &Value| {
        let path = format!("/api/v1/sessions/{id}");
        let answer = server.request("PUT", &path, &[], body.to_string().as_bytes());
        assert_eq!(answer.status, 201, "{}", answer.text());
    };
    let server = Server::start(&arguments);
    put(&server, "short", &json!({ "lifetime": 1 }));
    put(&server, "long", &json!({ "lifetime": 3600, "labels": { "team": "a" } }));
    until("its time is over", || server.get("/api/v1/sessions/short").status == 404);
    let trail = || server.get("/api/v1/audit?action=expire_session").json();
    until("it is in the trail", || trail()["audit"][0]["session_id"] == "short");
    server.stop();
    let server = Server::start(&arguments);
    let listed = server.get("/api/v1/sessions?label=team=a").json();
    assert_eq!(listed["sessions"]["long"]["lifetime"], 3600, "{listed}");
    let again = server.get("/api/v1/sessions/long").json();
    assert_eq!((&again["labels"]["team"], &again["lifetime"]), (&json!("a"), &json!(3600)));
}

/// All rows of a listing in pages of two.
fn paged(server: &Server, path: &str, name: &str) -> Vec<Value> {
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let joint = if path.contains('?') { '&' } else { '?' };
        let page = server.get(&format!("{path}{joint}limit=2{cursor}")).json();
        let rows: Vec<Value> = match &page[name] {
            Value::Array(rows) => rows.clone(),
            Value::Object(rows) => rows.values().cloned().collect(),
            other => panic!("{other}: {page}"),
        };
        assert!(rows.len() <= 2, "{page}");
        seen.extend(rows);
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return seen,
        }
    }
}

#[test]
fn listings_are_read_in_pages() {
    let server = Server::start(&["--kernel-timeout", "60"]);
    for number in 0..5 {
        server.code("s", &format!("open('{number}.txt', 'w').write('x'); None"));
        let path = format!("/api/v1/sessions/session-{number}");
        assert_eq!(server.request("PUT", &path, &[], b"{}").status, 201);
    }
    let whole = |path: &str, name: &str| server.get(path).json()[name].as_array().cloned();
    let executions = "/api/v1/executions?session_id=s";
    until("all are recorded", || whole(executions, "executions").unwrap().len() == 5);
    assert_eq!(paged(&server, executions, "executions"), whole(executions, "executions").unwrap());
    let audit = "/api/v1/audit?action=create_session";
    until("all are in the trail", || whole(audit, "audit").unwrap().len() == 5);
    assert_eq!(paged(&server, audit, "audit"), whole(audit, "audit").unwrap());
    let ids: Vec<Value> = paged(&server, "/api/v1/sessions", "sessions")
        .iter()
        .map(|session| session["session_id"].clone())
        .collect();
    assert_eq!(ids, ["s", "session-0", "session-1", "session-2", "session-3", "session-4"]);
    let page = server.get("/api/v1/sessions?limit=1").json();
    assert_eq!(page["total"], 6, "of all pages: {page}");
    let files = paged(&server, "/api/v1/sessions/s/files", "files");
    let names: Vec<&Value> = files.iter().map(|file| &file["path"]).collect();
    assert_eq!(names, ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt"]);
    for path in
        ["/api/v1/sessions?limit=0", "/api/v1/executions?limit=1001", "/api/v1/audit?limit=x"]
    {
        let message = server.get(path).refused(400);
        assert!(message.contains("limit"), "{message}");
    }
}

#[test]
fn a_repeated_key_gets_the_first_reply() {
    let session = unique("repeated");
    let (key, other) = (unique("key"), unique("key"));
    let body = |code: &str| json!({ "code": code, "session_id": session });
    let count = body("n = globals().get('n', 0) + 1\nn");
    let ask = |key: &str, body: &Value| run_with(shared(), &[("Idempotency-Key", key)], body);
    let first = ask(&key, &count);
    assert_eq!((first.status, first.get("idempotency-replayed")), (201, None));
    let again = ask(&key, &count);
    assert_eq!((again.status, again.get("idempotency-replayed")), (201, Some("true")));
    assert_eq!((again.text(), again.get("location")), (first.text(), first.get("location")));
    assert_eq!(ask(&other, &count).json()["result"], 2, "the repetition did not run");
    let message = ask(&key, &body("n")).refused(422);
    assert!(message.contains("another request"), "{message}");
    // Nothing was run, so that the key is free again.
    ask(&unique("empty"), &body("")).refused(400);
    let streamed = [("Idempotency-Key", "s"), ("Accept", "application/x-ndjson")];
    run_with(shared(), &streamed, &count).refused(400);
    ask(&"k".repeat(129), &count).refused(400);
    // The older routes have it too.
    for path in ["/execute", "/api/v1/execute_sync"] {
        let key = unique("older");
        let headers = [("Idempotency-Key", key.as_str())];
        let text = body("1").to_string();
        let ask = || shared().request("POST", path, &headers, text.as_bytes());
        assert_eq!(ask().text(), ask().text());
        assert_eq!(ask().get("idempotency-replayed"), Some("true"));
    }
}

#[test]
fn an_upload_is_done_once_for_its_key() {
    let session = unique("uploaded");
    let path = format!("/api/v1/sessions/{session}/files");
    let key = unique("upload");
    let up = |boundary: &str, content: &str| {
        let kind = format!("multipart/form-data; boundary={boundary}");
        let headers = [("Idempotency-Key", key.as_str()), ("Content-Type", kind.as_str())];
        let head = "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"";
        let body = format!("--{boundary}\r\n{head}\r\n\r\n{content}\r\n--{boundary}--\r\n");
        shared().request("POST", &path, &headers, body.as_bytes())
    };
    assert_eq!(up("one", "a").status, 201);
    shared().code(&session, "open('a.txt', 'w').write('changed')");
    // Programs draw another boundary for each attempt.
    assert_eq!(up("two", "a").get("idempotency-replayed"), Some("true"));
    assert_eq!(shared().get(&format!("{path}/a.txt")).text(), "changed");
    up("three", "b").refused(422);
}

#[test]
fn a_client_that_hangs_up_gets_the_reply_of_its_key_later() {
    let session = unique("hung");
    // It runs until the file is there: a fixed time would be over before a busy machine looks.
    let code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n'done'";
    let body = json!({ "code": code, "session_id": session });
    let headers = [("Idempotency-Key", "hung-up")];
    let mut connection = shared().connect();
    connection.send("POST", "/api/v1/executions", &headers, body.to_string().as_bytes());
    shared().until_busy(&session, true);
    let message = run_with(shared(), &headers, &body).refused(409);
    assert!(message.contains("in progress"), "{message}");
    drop(connection);
    let path = format!("/api/v1/sessions/{session}/files/go");
    assert_eq!(shared().request("PUT", &path, &[], b"now").status, 201);
    let mut answer = None;
    until("the first request has ended", || {
        let again = run_with(shared(), &headers, &body);
        let is_done = again.status == 201;
        answer = Some(again);
        is_done
    });
    let answer = answer.unwrap();
    assert_eq!(answer.json()["result"], "done", "it was not interrupted");
    assert_eq!(answer.get("idempotency-replayed"), Some("true"));
}

#[test]
fn simultaneous_requests_with_one_key_run_once() {
    let session = unique("together");
    let key = unique("together");
    let body = json!({ "code": "n = globals().get('n', 0) + 1\nn", "session_id": session });
    let statuses: Vec<u16> = thread::scope(|scope| {
        let ask = || run_with(shared(), &[("Idempotency-Key", &key)], &body).status;
        let asking: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| matches!(status, 201 | 409)), "{statuses:?}");
    assert_eq!(shared().code(&session, "n")["result"], 1);
}

#[test]
fn administrators_manage_keys() {
    let keyed = Keyed::start(&[("API_KEY", KEY), ("SESSION_POOL_SIZE", "0")]);
    let ask = |key: &str, method: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str())];
        keyed.server.request(method, path, &headers, body.to_string().as_bytes())
    };
    let body = json!({ "name": "laptop", "scopes": ["execute", "read"], "expires_in": 3600 });
    let made = ask(KEY, "POST", "/api/v1/keys", &body);
    assert_eq!(made.status, 201, "{}", made.text());
    let (made, location) = (made.json(), made.get("location").unwrap().to_owned());
    let secret = made["key"].as_str().unwrap();
    assert_eq!(location, format!("/api/v1/keys/{}", made["key_id"].as_str().unwrap()));
    until("the key is known", || ask(secret, "GET", "/api/v1/sessions", &json!({})).status == 200);
    // A key without the scope manages none, and no key gives a scope that it lacks.
    for (method, path) in
        [("GET", "/api/v1/keys"), ("POST", "/api/v1/keys"), ("DELETE", &*location)]
    {
        let answer = ask(secret, method, path, &json!({ "name": "more" }));
        let message = answer.refused(403);
        assert!(message.contains("admin"), "{message}");
    }
    let admin = keyed.key("admin-only", &["--scope", "admin"]);
    until("the key is known", || ask(&admin, "GET", "/api/v1/keys", &json!({})).status == 200);
    ask(&admin, "POST", "/api/v1/keys", &json!({ "name": "runs" })).refused(403);
    let listed = ask(KEY, "GET", "/api/v1/keys", &json!({}));
    assert!(!listed.text().contains(secret), "a secret is shown once");
    assert_eq!(listed.json()["keys"].as_array().unwrap().len(), 2);
    assert_eq!(ask(KEY, "GET", &location, &json!({})).json()["is_usable"], true);
    ask(KEY, "POST", "/api/v1/keys", &body).refused(409);
    for wrong in [json!({}), json!({ "name": "a b" }), json!({ "name": "x", "scopes": ["all"] })] {
        ask(KEY, "POST", "/api/v1/keys", &wrong).refused(400);
    }
    let gone = ask(KEY, "DELETE", &location, &json!({}));
    assert_eq!((gone.status, gone.text()), (204, ""));
    until("it is refused", || ask(secret, "GET", "/api/v1/sessions", &json!({})).status == 401);
    ask(KEY, "DELETE", &location, &json!({})).refused(409);
    ask(KEY, "DELETE", "/api/v1/keys/000000000000", &json!({})).refused(404);
    let actions = ask(KEY, "GET", "/api/v1/audit", &json!({})).text().to_owned();
    assert!(actions.contains("create_key") && actions.contains("revoke_key"), "{actions}");
    // The first key of a server without keys would lock everybody out.
    let message = send("POST", "/api/v1/keys", &json!({ "name": "first" })).refused(409);
    assert!(message.contains("close it"), "{message}");
}

#[test]
fn every_reply_has_the_protective_headers() {
    for (method, path) in [
        ("GET", "/health"),
        ("GET", "/docs"),
        ("GET", "/api/v1/sessions"),
        ("POST", "/execute"),
        ("GET", "/nowhere"),
        ("BREW", "/execute"),
        ("GET", "/metrics"),
        ("POST", "/mcp"),
    ] {
        let answer = send(method, path, &json!({ "code": "1" }));
        assert_eq!(answer.get("cache-control"), Some("no-store"), "{method} {path}");
        assert_eq!(answer.get("x-content-type-options"), Some("nosniff"), "{method} {path}");
        let policy = answer.get("cross-origin-resource-policy");
        assert_eq!(policy, Some("same-origin"), "{method} {path}");
    }
    let reply = shared().code(&unique("linked"), "open('a.txt', 'w').write('x')");
    let url = reply["download_urls"][0]["url"].as_str().unwrap();
    let path = url.split_once("/dl/").map(|(_, rest)| format!("/dl/{rest}")).unwrap();
    let file = shared().get(&path);
    assert_eq!(file.get("cross-origin-resource-policy"), Some("cross-origin"));
    // Contents that never change may be kept by their reader; others are asked for again.
    assert_eq!(file.get("cache-control"), Some("private, max-age=3600"));
    let session = unique("cached");
    let code =
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('a.png')\nplt.show()";
    let reply = shared().code(&session, code);
    let picture =
        format!("/api/v1/executions/{}/images/1", reply["execution_id"].as_str().unwrap());
    for (path, cache) in [
        (picture, "private, max-age=3600"),
        (format!("/charts/{session}/a.png"), "private, no-cache"),
        (format!("/api/v1/sessions/{session}/files/a.png"), "private, no-cache"),
        (format!("/api/v1/sessions/{session}/files?archive=zip"), "no-store"),
        (format!("/api/v1/sessions/{session}/notebook"), "no-store"),
    ] {
        let answer = shared().get(&path);
        assert_eq!((answer.status, answer.get("cache-control")), (200, Some(cache)), "{path}");
    }
}

#[test]
fn a_preflight_and_its_request_get_the_same_answer() {
    let server = Server::start_with(&[], &[("ALLOWED_ORIGINS", "https://Friend.example")]);
    for (origin, is_allowed) in [
        ("https://friend.example", true),
        ("http://localhost:3000", true),
        ("http://127.0.0.1:5173", true),
        ("https://stranger.example", false),
        ("null", false),
    ] {
        let origin_of = |answer: &Answer| answer.get("access-control-allow-origin").is_some();
        for (method, path) in [("PATCH", "/api/v1/sessions/x"), ("POST", "/api/v1/executions")] {
            let preflight = [
                ("Origin", origin),
                ("Access-Control-Request-Method", method),
                ("Access-Control-Request-Headers", "idempotency-key,upload-offset"),
            ];
            let asked = server.request("OPTIONS", path, &preflight, b"");
            assert_eq!(origin_of(&asked), is_allowed, "{origin} {method}");
            if is_allowed {
                let methods = asked.get("access-control-allow-methods").unwrap();
                assert!(methods.contains(method), "{methods}");
                let headers = asked.get("access-control-allow-headers").unwrap();
                assert!(headers.contains("idempotency-key"), "{headers}");
            }
            let done = server.request(method, path, &[("Origin", origin)], b"{\"code\": \"1\"}");
            assert_eq!(done.status != 403, is_allowed, "{origin} {method}: {}", done.text());
            assert_eq!(origin_of(&done), is_allowed, "{origin} {method}");
        }
    }
}

#[test]
fn the_documentation_can_be_used_with_a_key() {
    let keyed = Keyed::start(&[("API_KEY", KEY), ("SESSION_POOL_SIZE", "0")]);
    for path in ["/docs", "/redoc"] {
        let page = keyed.server.get(path);
        assert_eq!(page.status, 200);
        assert!(!page.text().contains(KEY));
    }
    let page = keyed.server.get("/docs").text().to_owned();
    assert!(page.contains("id=\"authorise\"") && page.contains("type=\"password\""));
    assert_eq!(keyed.server.get("/openapi.json").status, 200);
    keyed.server.get("/api/v1/sessions").refused(401);
}
