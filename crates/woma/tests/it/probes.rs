//! Requests from other machines: probes under any name, clients behind proxies, guesses at the key.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

/// The shortest key that a server off loopback accepts; short enough that guesses are limited.
const KEY: &str = "0123456789abcdef";
/// Fields of health that the older systems told to everybody.
const TOLD: [&str; 5] = ["database", "service", "status", "timestamp", "version"];

/// A server on every address, behind a proxy on this machine.
fn exposed() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let variables = [("API_KEY", KEY), ("TRUST_PROXY", "127.0.0.0/8, 10.0.0.0/8")];
        Server::start_with(&["--host", "0.0.0.0"], &variables)
    })
}

/// A request with exactly these lines.
fn raw(server: &Server, lines: &[&str]) -> Answer {
    let mut connection = server.connect();
    connection.write(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes()).unwrap();
    connection.answer(false)
}

fn fields(answer: &Answer) -> Vec<String> {
    let mut names: Vec<String> = answer.json().as_object().unwrap().keys().cloned().collect();
    names.sort_unstable();
    names
}

#[test]
fn probes_are_answered_whatever_host_they_name() {
    let hosts = [
        "Host: healthcheck.railway.app",
        "Host: 10.1.2.3:8080",
        "Host: woma.default.svc.cluster.local:80",
        "Host: ",
        "Host: a b",
    ];
    for (path, status) in [("/health", "healthy"), ("/livez", "alive"), ("/readyz", "ready")] {
        for host in hosts {
            let answer = raw(exposed(), &[&format!("GET {path} HTTP/1.1"), host]);
            assert_eq!((answer.status, &answer.json()["status"]), (200, &json!(status)), "{host}");
            assert_eq!(answer.get("cache-control"), Some("no-store"));
        }
        let answer = raw(exposed(), &[&format!("GET {path} HTTP/1.0")]);
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!(status)), "{path}");
    }
    // Other routes still want a name of this server, key or not.
    let head = ["GET /api/v1/health HTTP/1.1", "Host: healthcheck.railway.app"];
    raw(exposed(), &head).refused(403);
    let page = ["GET /health HTTP/1.1", "Host: evil.example", "Origin: http://evil.example"];
    raw(exposed(), &page).refused(403);
}

#[test]
fn health_without_a_key_tells_nothing_of_the_machine_or_of_callers() {
    let wrong = [("X-API-Key", "0000000000000000"), ("X-Forwarded-For", "203.0.113.30")];
    for headers in [&[][..], &wrong] {
        let answer = exposed().request("GET", "/health", headers, b"");
        assert_eq!((answer.status, fields(&answer)), (200, TOLD.map(str::to_owned).to_vec()));
        assert_eq!(answer.json()["service"], "woma");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(fields(&exposed().get(path)), ["status"], "{path}");
    }
    let key = format!("X-API-Key: {KEY}");
    let strange = raw(exposed(), &["GET /health HTTP/1.1", "Host: elsewhere.example", &key]);
    assert_eq!(fields(&strange), TOLD);
    for path in ["/health", "/api/v1/health"] {
        let whole = exposed().request("GET", path, &[("X-API-Key", KEY)], b"");
        assert!(whole.json()["memory"]["server_bytes"].is_u64(), "{path}: {}", whole.text());
    }
}

/// A request through the proxy, for a client with this X-Forwarded-For.
fn sessions(forwarded: &str, key: Option<&str>) -> Answer {
    let mut headers = vec![("X-Forwarded-For", forwarded)];
    headers.extend(key.map(|key| ("X-API-Key", key)));
    exposed().request("GET", "/api/v1/sessions", &headers, b"")
}

#[test]
fn requests_without_a_key_are_never_limited() {
    for _ in 0..100 {
        let answer = sessions("203.0.113.1", None);
        answer.refused(401);
        assert!(answer.get("www-authenticate").unwrap().starts_with("Bearer "));
    }
    assert_eq!(sessions("203.0.113.1", Some(KEY)).status, 200);
}

#[test]
fn guesses_are_counted_for_the_client_behind_the_proxy() {
    let guesser = "203.0.113.7";
    let mut limited = None;
    // The allowance refills by one every two seconds, so a slow machine needs a few more.
    for number in 0..300 {
        // The first address is the guesser's own invention: only the proxy's counts.
        let forwarded = format!("198.51.100.{}, {guesser}, 10.0.0.5", number % 250);
        let answer = sessions(&forwarded, Some(&format!("wrong-{number}")));
        if answer.status == 429 {
            limited = Some((number, answer));
            break;
        }
        answer.refused(401);
    }
    let (number, answer) = limited.expect("guesses are never limited");
    assert!(number >= 30, "limited after {number} guesses");
    assert!(answer.get("retry-after").is_some());
    let challenge = answer.get("www-authenticate").unwrap();
    assert!(challenge.starts_with("Bearer realm=\"woma\""), "{challenge}");
    assert!(challenge.ends_with("error=\"invalid_token\""), "{challenge}");
    // Another client behind the same proxy is not the guesser.
    assert_eq!(sessions("203.0.113.8", Some(KEY)).status, 200);
    let log = exposed().log();
    assert!(log.contains("peer=203.0.113.7"), "{log}");
    assert!(!log.contains("peer=198.51.100."), "{log}");
    assert!(!log.contains("peer=10.0.0.5"), "{log}");
}

#[test]
fn links_use_the_scheme_that_a_trusted_proxy_names() {
    let headers = [
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-For", "203.0.113.2"),
        ("Accept", "text/html"),
    ];
    let answer = exposed().request("GET", "/", &headers, b"");
    let page = answer.text();
    assert!(page.contains("https://localhost/mcp") && !page.contains("http://localhost"), "{page}");
}

/// The configuration of mcpo that the older system ships: `http://sandbox:8001/mcp/sse`.
#[test]
fn the_preset_of_the_sandbox_service_answers_to_the_names_of_its_files() {
    let server = Server::start_with(&[], &[("COMPAT_PROFILE", "sandbox-service")]);
    let body = r#"{"code": "print(6 * 7)", "timeout": 10}"#;
    let length = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    for host in ["sandbox:8001", "sandbox", "host.docker.internal:8001", "localhost:8001"] {
        let mut connection = server.connect();
        let head = format!("POST /execute HTTP/1.1\r\nHost: {host}\r\n{length}");
        connection.write(head.as_bytes()).unwrap();
        let answer = connection.answer(false);
        assert_eq!((answer.status, &answer.json()["stdout"]), (200, &json!("42\n")), "{host}");
    }
    let mut connection = server.connect();
    connection.write(b"GET /mcp/sse HTTP/1.1\r\nHost: sandbox:8001\r\n\r\n").unwrap();
    let head = connection.head().unwrap();
    assert_eq!((head.status, head.get("content-type")), (200, Some("text/event-stream")));
    raw(&server, &["GET /docs HTTP/1.1", "Host: evil.example"]).refused(403);
}

#[test]
fn every_host_can_be_allowed() {
    let variables = [("COMPAT_PROFILE", "sandbox-service"), ("ALLOWED_HOSTS", "*")];
    let server = Server::start_with(&[], &variables);
    for host in ["sandbox:8001", "gateway.example", "10.0.0.7:8001"] {
        let host = format!("Host: {host}");
        assert_eq!(raw(&server, &["GET /api/v1/health HTTP/1.1", &host]).status, 200, "{host}");
    }
}

#[test]
fn the_preset_of_the_executor_resets_its_sandbox() {
    let server = Server::start_with(&[], &[("COMPAT_PROFILE", "python-executor")]);
    let here = crate::client::client(&server);
    for _ in 0..2 {
        let reset = here.call("reset_sandbox", &json!({}));
        assert_eq!(reset["isError"], false, "{reset}");
        let ran = here.call("execute_python", &json!({ "code": "import os; os.listdir()" }));
        assert_eq!(ran["structuredContent"]["result"], Value::Array(Vec::new()), "{ran}");
    }
    let named = here.refused("reset_sandbox", &json!({ "session_id": "never-made" }));
    assert!(named.contains("never-made"), "{named}");
}
