//! Authentication, scopes, and the separation of callers.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, message, request};
use crate::durability::pass;
use crate::harness::{Answer, Server, descendants, environment, until};

pub(crate) const KEY: &str = "s3cret-of-the-operator-0123456789";
/// Public paths: probes, and the documentation, which has a field for the key.
const PUBLIC: [&str; 6] = ["/health", "/livez", "/readyz", "/docs", "/redoc", "/openapi.json"];
/// Downloads by capability URL, readable by every origin.
const DOWNLOADS: &str = "/dl/";

pub(crate) fn woma(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_woma"))
        .arg("--data-dir")
        .arg(folder)
        .arg("--env")
        .arg(environment())
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server with keys of its own.
pub(crate) struct Keyed {
    pub(crate) server: Server,
    folder: TempDir,
}

impl Keyed {
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let arguments = ["--data-dir", folder.path().to_str().unwrap()];
        Self { server: Server::start_with(&arguments, variables), folder }
    }

    pub(crate) fn key(&self, name: &str, more: &[&str]) -> String {
        let arguments = [&["keys", "create", name], more].concat();
        let output = woma(self.folder.path(), &arguments, &[]);
        assert!(output.status.success(), "{}", said(&output));
        let key = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        // Until the server has read its first key, it accepts everybody as one caller.
        until("the server is closed", || self.nobody().get("/api/v1/sessions").status != 200);
        // A key that is not known yet counts as a guess, and thirty guesses a minute are allowed.
        let mut pause = Duration::from_millis(50);
        until("the key is known", || {
            let code = self.client(&key).get("/api/v1/sessions").json()["code"].take();
            let is_known = code != "unauthenticated" && code != "rate_limited";
            if !is_known {
                pass(pause);
                pause *= 2;
            }
            is_known
        });
        key
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn client<'a>(&'a self, key: &'a str) -> Client<'a> {
        Client { server: &self.server, key: Some(key) }
    }

    fn nobody(&self) -> Client<'_> {
        Client { server: &self.server, key: None }
    }
}

/// One with a fixed key, shared by the tests that change nothing about keys.
fn fixed() -> &'static Keyed {
    static KEYED: OnceLock<Keyed> = OnceLock::new();
    KEYED.get_or_init(|| {
        Keyed::start(&[("API_KEY", KEY), ("MAX_KERNELS", "50"), ("LOG_LEVEL", "debug")])
    })
}

fn refused(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
    let body = answer.json();
    assert!(body["code"].is_string() && body["message"].is_string(), "{body}");
    assert!(!answer.text().contains(KEY));
}

/// Every route, with one of its methods.
fn routes(keyed: &Keyed) -> Vec<(String, String)> {
    let document = keyed.client(KEY).get("/openapi.json").json();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{session_id}", "s").replace("{execution_id}", "e");
        let path = path.replace("{number}", "1");
        for method in methods.as_object().unwrap().keys() {
            routes.push((method.to_uppercase(), path.clone()));
        }
    }
    assert!(routes.len() > 15, "{routes:?}");
    for path in ["/mcp", "/mcp/", "/mcp/sse", "/messages", "/messages/?session_id=x", "/"] {
        routes.push(("POST".to_owned(), path.to_owned()));
    }
    for path in ["/mcp", "/sse", "/mcp/sse", "/nowhere"] {
        routes.push(("GET".to_owned(), path.to_owned()));
    }
    routes.push(("DELETE".to_owned(), "/mcp".to_owned()));
    routes
}

#[test]
fn only_public_routes_answer_without_a_key() {
    let keyed = fixed();
    for (method, path) in routes(keyed) {
        let answer = keyed.nobody().send(&method, &path, &[], &json!({})).answer(method == "HEAD");
        if path.starts_with(DOWNLOADS) {
            assert_eq!(answer.status, 400, "the id itself is the key: {path}");
            continue;
        }
        let is_public = PUBLIC.iter().any(|public| path.starts_with(public));
        if is_public {
            assert_eq!(answer.status, 200, "{method} {path}");
            continue;
        }
        assert_eq!(answer.status, 401, "{method} {path}");
        let challenge = answer.get("www-authenticate").unwrap();
        assert_eq!(challenge, "Bearer realm=\"woma\"");
    }
    for path in PUBLIC {
        assert_eq!(keyed.nobody().get(path).status, 200);
    }
    // It has keys only: no client is sent into a login that does not exist.
    for path in ["oauth-protected-resource/mcp", "oauth-authorization-server"] {
        let answer = keyed.nobody().get(&format!("/.well-known/{path}"));
        refused(&answer, 404);
        assert!(answer.json()["hint"].as_str().unwrap().contains("X-API-Key"));
    }
}

#[test]
fn accepts_a_valid_key_in_either_header() {
    let keyed = fixed();
    let ask = |headers: &[(&str, &str)]| {
        let body = br#"{"code": "1 + 1"}"#;
        keyed.server.request("POST", "/execute", headers, body)
    };
    let bearer = format!("Bearer {KEY}");
    for headers in [
        &[("Authorization", bearer.as_str())][..],
        &[("X-API-Key", KEY)],
        &[("Authorization", &bearer), ("X-API-Key", KEY)],
    ] {
        assert_eq!(ask(headers).json()["result"], 2, "{headers:?}");
    }
    let short = format!("Bearer {}", &KEY[1..]);
    for headers in [
        &[("Authorization", "Bearer wrong")][..],
        &[("Authorization", &short)],
        &[("Authorization", "Bearer")],
        &[("Authorization", KEY)],
        &[("X-API-Key", "")],
        &[("X-API-Key", "wrong"), ("Authorization", &bearer)],
    ] {
        refused(&ask(headers), 401);
    }
    // A key in the query is not accepted.
    let path = format!("/api/v1/sessions?api_key={KEY}");
    refused(&keyed.nobody().get(&path), 401);
}

#[test]
fn the_key_can_come_from_a_file_and_the_status_from_a_preset() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    let variables =
        [("API_KEY_FILE", file.to_str().unwrap()), ("COMPAT_PROFILE", "power-interpreter")];
    let keyed = Keyed::start(&variables);
    refused(&keyed.nobody().get("/api/v1/sessions"), 403);
    refused(&keyed.nobody().post("/mcp/sse", &request(1, "tools/list", &json!({}))), 403);
    assert_eq!(keyed.client(KEY).get("/api/v1/sessions").status, 200);
}

#[test]
fn refuses_to_listen_publicly_without_a_key() {
    let folder = TempDir::new().unwrap();
    let serve = ["serve", "--port", "0"];
    let output = woma(folder.path(), &serve, &[("REQUIRE_API_KEY", "true")]);
    assert!(!output.status.success());
    let text = said(&output);
    assert!(text.contains("API_KEY") && text.contains("woma keys create"), "{text}");
    let output = woma(folder.path(), &[&serve[..], &["--host", "0.0.0.0"]].concat(), &[]);
    assert!(!output.status.success());
    let text = said(&output);
    for way_out in ["API_KEY", "woma keys create", "ALLOW_OPEN=true"] {
        assert!(text.contains(way_out), "{text}");
    }
    let missing = folder.path().join("missing");
    let output = woma(folder.path(), &serve, &[("API_KEY_FILE", missing.to_str().unwrap())]);
    assert!(!output.status.success());
    assert!(said(&output).contains("API_KEY_FILE"), "{}", said(&output));
    let variables = [("ALLOW_OPEN", "true"), ("HOST", "0.0.0.0")];
    let server = Server::start_with(&["--data-dir", folder.path().to_str().unwrap()], &variables);
    assert!(server.log().contains("WARNING: this server needs no key"), "{}", server.log());
}

#[test]
fn keys_are_made_and_revoked_while_the_server_runs() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let key = keyed.key("alice", &[]);
    until("the key is known", || keyed.client(&key).get("/api/v1/sessions").status == 200);
    assert_eq!(keyed.client(&key).code("s", "1 + 1")["result"], 2);
    let output = woma(keyed.folder.path(), &["keys", "revoke", "alice"], &[]);
    assert!(output.status.success(), "{}", said(&output));
    let started = Instant::now();
    until("the key is refused", || {
        let status = keyed.client(&key).get("/api/v1/sessions").status;
        assert!([200, 401].contains(&status), "{status}");
        status == 401
    });
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(keyed.client(KEY).get("/api/v1/sessions").status, 200);
    let output = woma(keyed.folder.path(), &["keys", "revoke", "alice"], &[]);
    assert!(said(&output).contains("revoked already"), "{}", said(&output));
}

#[test]
fn a_key_is_limited_to_its_scopes() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let (reads, runs) =
        (keyed.key("reads", &["--scope", "read"]), keyed.key("runs", &["--scope", "execute"]));
    let (reads, runs) = (keyed.client(&reads), keyed.client(&runs));
    until("the keys are known", || reads.get("/api/v1/sessions").status == 200);
    refused(&reads.post("/execute", &json!({ "code": "1" })), 403);
    refused(&reads.post("/api/v1/sessions", &json!({})), 403);
    refused(&reads.send("DELETE", "/api/v1/sessions/s", &[], &Value::Null).answer(false), 403);
    let text = reads.refused("execute_code", &json!({ "code": "1" }));
    assert!(text.contains("`execute`"), "{text}");
    assert_eq!(reads.call("list_sessions", &json!({}))["structuredContent"]["total"], 0);
    assert_eq!(runs.code("s", "6 * 7")["result"], 42);
    assert_eq!(runs.call("list_sessions", &json!({}))["structuredContent"]["total"], 1);
}

#[test]
fn a_key_is_limited_to_its_quota() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let slow = keyed.key("slow", &["--rate", "3"]);
    let few = keyed.key("few", &["--sessions", "2"]);
    let (slow, few) = (keyed.client(&slow), keyed.client(&few));
    until("the keys are known", || few.get("/api/v1/sessions").status == 200);
    let mut answer = slow.post("/execute", &json!({ "code": "1" }));
    for _ in 0..3 {
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer = slow.post("/execute", &json!({ "code": "1" }));
    }
    refused(&answer, 429);
    assert_eq!(answer.json()["code"], "rate_limited");
    let wait: u64 = answer.get("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let text = slow.refused("execute_code", &json!({ "code": "1" }));
    assert!(text.contains("Retry after"), "{text}");
    // Others are not slowed down.
    for name in ["a", "b", "a", "b", "a"] {
        assert_eq!(few.code(name, "1")["result"], 1);
    }
    let full = few.post("/execute", &json!({ "code": "1", "session_id": "c" }));
    refused(&full, 429);
    assert_eq!(full.json()["code"], "quota_exceeded");
    let text = few.refused("execute_code", &json!({ "code": "1", "session_id": "c" }));
    assert!(text.contains('2'), "{text}");
    few.call("delete_session", &json!({ "session_id": "a" }));
    assert_eq!(few.code("c", "1")["result"], 1);
}

/// One key tries to access all data of another key on one server.
#[test]
fn a_key_cannot_access_data_of_another_key() {
    let keyed = Keyed::start(&[("API_KEY", KEY), ("MAX_KERNELS", "20")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let (alice, bob) = (keyed.client(&alice), keyed.client(&bob));
    until("the keys are known", || bob.get("/api/v1/sessions").status == 200);
    let code = "secret = 'of alice'\nprint(secret)\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()";
    alice.code("shared-name", code);
    let mut records = Value::Null;
    until("the run is on record", || {
        records = alice.get("/api/v1/executions").json();
        records["executions"].as_array().map(Vec::len) == Some(1)
    });
    let execution = records["executions"][0]["execution_id"].as_str().unwrap();
    // One name, two sessions.
    assert_eq!(bob.code("shared-name", "secret")["error"]["type"], "NameError");
    bob.code("shared-name", "mine = 1");
    assert_eq!(alice.code("shared-name", "secret")["result"], "of alice");
    alice.code("only-hers", "x = 1");
    for answer in [
        bob.get("/api/v1/sessions/only-hers"),
        bob.send("DELETE", "/api/v1/sessions/only-hers", &[], &Value::Null).answer(false),
        bob.post("/api/v1/sessions/only-hers/interrupt", &json!({})),
        bob.post("/api/v1/sessions/only-hers/reset", &json!({})),
        bob.get(&format!("/api/v1/executions/{execution}/output")),
        bob.get(&format!("/api/v1/executions/{execution}/images/1")),
    ] {
        refused(&answer, 404);
    }
    assert_eq!(alice.get(&format!("/api/v1/executions/{execution}/images/1")).status, 200);
    assert!(!bob.get("/api/v1/sessions").text().contains("only-hers"));
    for tool in ["delete_session", "interrupt_session", "reset_session"] {
        let text = bob.refused(tool, &json!({ "session_id": "only-hers" }));
        assert!(text.contains("does not exist"), "{tool}: {text}");
    }
    bob.refused("read_output", &json!({ "execution_id": execution }));
    assert!(!bob.call("list_sessions", &json!({})).to_string().contains("only-hers"));
    assert!(!bob.result("resources/list", &json!({})).to_string().contains("only-hers"));
    for uri in [
        "session://only-hers".to_owned(),
        "session://only-hers/log".to_owned(),
        format!("execution://{execution}/stdout"),
        format!("execution://{execution}/images/1"),
    ] {
        let read = bob.rpc("resources/read", &json!({ "uri": uri }));
        assert!(read["error"]["code"].is_i64(), "{uri}: {read}");
    }
    assert_eq!(alice.code("only-hers", "x")["result"], 1);
    // The same for the streams of her messages.
    let id = alice.open("2025-06-18");
    let stolen = bob.legacy(&id, &request(2, "tools/list", &json!({}))).answer(false);
    refused(&stolen, 404);
    let headers = [("Mcp-Session-Id", id.as_str()), ("Accept", "text/event-stream")];
    for method in ["GET", "DELETE"] {
        refused(&bob.send(method, "/mcp", &headers, &Value::Null).answer(false), 404);
    }
    let still = alice.legacy(&id, &request(3, "ping", &json!({}))).answer(false);
    assert_eq!(message(&still)["id"], 3);
    let (_events, address) = alice.stream("/sse");
    refused(&bob.post(&address, &request(1, "ping", &json!({}))), 404);
    assert_eq!(alice.post(&address, &crate::client::initialize("2024-11-05")).status, 202);
}

#[test]
fn a_task_belongs_to_its_owner() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let bob = keyed.key("bob", &[]);
    let (alice, bob) = (keyed.client(KEY), keyed.client(&bob));
    until("the key is known", || bob.get("/api/v1/sessions").status == 200);
    let extension = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let meta = json!({ "io.modelcontextprotocol/clientCapabilities": extension });
    let params = json!({ "name": "execute_code", "arguments": { "code": "while True: pass" } });
    let task = message(&alice.modern("tools/call", &params, &meta).answer(false));
    assert_eq!(task["result"]["resultType"], "task", "{task}");
    let id = json!({ "taskId": task["result"]["taskId"] });
    for method in ["tasks/get", "tasks/cancel"] {
        let answer = message(&bob.modern(method, &id, &meta).answer(false));
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    let seen = message(&alice.modern("tasks/get", &id, &meta).answer(false));
    assert_eq!(seen["result"]["status"], "working");
    alice.modern("tasks/cancel", &id, &meta).answer(false);
    assert_eq!(alice.run(&json!({ "code": "1" }))["result"], 1);
}

#[test]
fn every_route_rejects_foreign_hosts_and_origins() {
    let keyed = fixed();
    for (method, path) in routes(keyed) {
        for (host, origin) in [
            ("evil.example", ""),
            ("127.0.0.1.evil.example", ""),
            ("localhost", "http://evil.example"),
        ] {
            let mut connection = keyed.server.connect();
            let origin =
                if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{origin}X-API-Key: {KEY}\r\n\
                 Content-Length: 2\r\n\r\n{{}}"
            );
            connection.write(head.as_bytes()).unwrap();
            let answer = connection.answer(method == "HEAD");
            let is_open = path.starts_with(DOWNLOADS) && host == "localhost";
            let is_probe = PUBLIC[..3].contains(&path.as_str()) && host != "localhost";
            let status = match (is_open, is_probe) {
                (true, _) => 400,
                (_, true) => 200,
                _ => 403,
            };
            assert_eq!(answer.status, status, "{method} {path} {host} {origin}");
        }
    }
}

/// Looks for the key in everything that code can read: its own memory too. The pattern does not
/// match itself.
const SNOOP: &str = r"import glob, os, re
pattern = re.compile(rb's3cret-of-the-[o]perator-\d+')
seen, read = [repr(sorted(os.environ)).encode()], 0
for path in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'):
    try:
        seen.append(open(path, 'rb').read())
    except OSError:
        pass
memory = open('/proc/self/mem', 'rb', buffering=0)
for line in open('/proc/self/maps'):
    start, end = (int(part, 16) for part in line.split()[0].split('-'))
    try:
        memory.seek(start)
        seen.append(memory.read(end - start))
        read += len(seen[-1])
    except (OSError, ValueError, OverflowError):
        pass
    found = [match.group() for text in seen for match in pattern.finditer(text)]
    seen.clear()
    if found: break
(len(found), read > 10_000_000, 'API_KEY' in os.environ)";

#[test]
fn the_key_does_not_leak() {
    let keyed = fixed();
    let here = keyed.client(KEY);
    let snooped = here.run(&json!({ "code": SNOOP, "session_id": "snoop" }));
    assert_eq!(snooped["result"], json!([0, true, false]), "{snooped}");
    let mut replies = vec![snooped.to_string()];
    for path in ["/health", "/metrics", "/openapi.json", "/docs", "/api/v1/sessions", "/"] {
        replies.push(here.get(path).text().to_owned());
    }
    replies.push(here.call("get_sandbox_info", &json!({})).to_string());
    replies.push(here.result("resources/list", &json!({})).to_string());
    replies.push(here.post("/execute", &json!({ "code": [KEY] })).text().to_owned());
    replies.push(here.rpc("no/such", &json!({})).to_string());
    for reply in &replies {
        assert!(!reply.contains(KEY), "{reply}");
    }
    let log = keyed.server.log();
    assert!(log.contains("woma::audit"), "{log}");
    assert!(!log.contains(KEY), "the key is in the log");
    // All processes of the server, including sessions.
    let children = descendants(keyed.server.pid);
    assert!(children.len() >= 3, "{children:?}");
    for pid in children {
        for file in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(KEY), "{pid}: {file}: {text}");
        }
    }
}
