//! Servers in sessions, reached by their owners.

use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::harness::{BASE, Connection, Server, unique};

/// Starts a server on a thread, which tells what it has received; a request for `/ws` switches to
/// repeating what it gets.
const SERVER: &str = include_str!("ports/server.py");

fn on() -> Server {
    Server::start_with(&[], &[("PORTS", "true"), BASE])
}

/// The port of a server that runs in a session.
fn serve(server: &Server, session: &str) -> u16 {
    let reply = server.code(session, SERVER);
    reply["stdout"].as_str().unwrap().trim().parse().unwrap_or_else(|_| panic!("{reply:#}"))
}

#[test]
fn an_owner_reaches_a_server_in_a_session() {
    let server = on();
    let session = unique("web");
    let port = serve(&server, &session);
    for root in [format!("/sessions/{session}"), format!("/api/v1/sessions/{session}")] {
        let prefix = format!("{root}/ports/{port}");
        let answer = server.get(&format!("{prefix}/a%20b?c=d"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = answer.json();
        assert_eq!(told["line"], "GET /a%20b?c=d HTTP/1.1");
        assert_eq!(told["headers"]["host"], format!("localhost:{port}"));
        assert_eq!(told["headers"]["x-forwarded-prefix"], prefix.as_str());
        let body = vec![b'x'; 3_000_000];
        let posted = server.request("POST", &format!("{prefix}/"), &[], &body);
        assert_eq!(posted.json()["length"], 3_000_000);
        let bare = server.get(&format!("{prefix}?q=1"));
        assert_eq!((bare.status, bare.get("location")), (308, Some(&*format!("{prefix}/?q=1"))));
        let moved = server.get(&format!("{prefix}/moved"));
        assert_eq!((moved.status, moved.get("location")), (302, Some(&*format!("{prefix}/there"))));
        assert_eq!(server.get(&format!("{prefix}/missing")).status, 404);
    }
    // Also while code runs.
    let (busy, path) = (session.clone(), format!("/sessions/{session}/ports/{port}/"));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            server.run(&json!({
                "code": "while not stop: __import__('time').sleep(0.01)", "session_id": busy,
            }))
        });
        server.until_busy(&session, true);
        assert_eq!(server.get(&path).status, 200);
        assert_eq!(server.get(&format!("{path}stop")).status, 200);
        assert_eq!(running.join().unwrap()["success"], true);
    });
}

#[test]
fn keys_and_cookies_stay_outside_and_pages_have_no_origin() {
    let keyed = Keyed::start(&[("PORTS", "true"), BASE]);
    let (mine, other) = (keyed.key("mine", &[]), keyed.key("other", &[]));
    let reads = keyed.key("reads", &["--scope", "read"]);
    let ran = keyed.client(&mine).code("web", SERVER);
    let port = ran["stdout"].as_str().unwrap().trim().to_owned();
    let path = format!("/sessions/web/ports/{port}/page");
    let bearer = format!("Bearer {mine}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Cookie", "woma=secret"),
        ("Referer", "http://localhost/sessions"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Accept", "text/html"),
    ];
    let answer = keyed.server.request("GET", &path, &headers, b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    assert_eq!(told["headers"]["accept"], "text/html");
    let seen = told.to_string();
    for secret in [mine.as_str(), "secret", "10.0.0.1", "referer", "authorization", "x-api-key"] {
        assert!(!seen.contains(secret), "{secret}: {seen}");
    }
    let policies = answer.headers.iter().filter(|(name, _)| name == "content-security-policy");
    let policies: Vec<_> = policies.map(|(_, policy)| policy.as_str()).collect();
    assert_eq!(policies.len(), 2, "the server's own holds too: {policies:?}");
    assert!(policies[1].starts_with("sandbox allow-scripts"), "{policies:?}");
    assert!(!policies.concat().contains("allow-same-origin"), "{policies:?}");
    for gone in ["set-cookie", "access-control-allow-origin", "clear-site-data", "x-hop"] {
        assert_eq!(answer.get(gone), None, "{gone}");
    }
    assert_eq!(answer.get("x-content-type-options"), Some("nosniff"));
    // A page without an origin may not use the routes of the server.
    let from_page = [("Authorization", bearer.as_str()), ("Origin", "null")];
    keyed.server.request("GET", "/api/v1/sessions", &from_page, b"").refused(403);
    // Neither another caller, nor one who may only read, nor one without a key.
    keyed.client(&other).get(&path).refused(404);
    keyed.client(&reads).get(&path).refused(403);
    assert_eq!(keyed.server.get(&path).status, 401);
}

#[test]
fn a_connection_switches_to_another_protocol() {
    let server = on();
    let session = unique("ws");
    let port = serve(&server, &session);
    let mut connection = server.connect();
    let path = format!("/sessions/{session}/ports/{port}/ws");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    connection.write(head.as_bytes()).unwrap();
    let answer = connection.head().unwrap();
    assert_eq!((answer.status, answer.get("upgrade")), (101, Some("websocket")));
    for line in ["one", "two"] {
        connection.write(format!("{line}\n").as_bytes()).unwrap();
        assert_eq!(connection.line().unwrap(), line);
    }
    // The connection ends with the session.
    let deleted = server.request("DELETE", &format!("/api/v1/sessions/{session}"), &[], b"");
    assert_eq!(deleted.status, 200);
    assert!(connection.is_closed());
}

#[test]
fn a_refusal_says_what_to_do() {
    let server = on();
    let session = unique("none");
    server.code(&session, "1");
    for (path, status, said) in [
        (format!("/sessions/{session}/ports/5000/"), 404, "no server listens on port 5000"),
        (format!("/sessions/{session}/ports/80/"), 404, "no server listens on port 80"),
        (format!("/sessions/{session}/ports/0/"), 404, "no server listens on port 0"),
        ("/sessions/unknown/ports/5000/".to_owned(), 404, "does not exist"),
        (format!("/sessions/{session}/ports/70000/"), 400, "path"),
        (format!("/sessions/{session}/ports/x/"), 400, "path"),
    ] {
        let message = server.get(&path).refused(status);
        assert!(message.contains(said), "{path}: {message}");
    }
    let raw = "import socket, threading\nlistener = socket.create_server(('', 5001))\n\
               def answer():\n    while True:\n        peer = listener.accept()[0]\n        \
               peer.sendall(b'220 mail.test\\r\\n')\n        peer.close()\n\
               threading.Thread(target=answer, daemon=True).start()";
    server.code(&session, raw);
    let message = server.get(&format!("/sessions/{session}/ports/5001/")).refused(502);
    assert!(message.contains("did not answer"), "{message}");
    // Off, unless the operator wants it.
    let closed = crate::harness::shared();
    let answer = closed.get("/sessions/default/ports/5000/");
    assert!(answer.json()["hint"].as_str().unwrap().contains("PORTS=true"), "{}", answer.text());
    assert!(answer.refused(404).contains("PORTS is off"));
}

#[test]
fn a_run_that_serves_until_its_time_is_over_is_told_its_port() {
    let server = on();
    let session = unique("slow");
    let code = "import http.server\n\
                http.server.HTTPServer(('127.0.0.1', 5002), None).serve_forever()";
    let reply = server.run(&json!({ "code": code, "session_id": session, "timeout": 2 }));
    assert_eq!(reply["outcome"], "timed_out", "{reply:#}");
    let said = reply["warnings"].to_string();
    assert!(said.contains("port 5002") && said.contains("subprocess.Popen"), "{said}");
    assert!(said.contains(&format!("/sessions/{session}/ports/5002/")), "{said}");
}

#[test]
fn a_caller_has_a_number_of_connections_to_ports() {
    let settings = [("PORTS", "true"), ("MAX_CONNECTIONS", "2000"), BASE];
    let server = Server::start_with(&[], &settings);
    let session = unique("many");
    let code = "import socket, threading\nlistener = socket.create_server(('', 5003), backlog=128)\n\
                held = []\ndef accept():\n    while True:\n        peer = listener.accept()[0]\n        \
                peer.recv(9999)\n        peer.sendall(b'HTTP/1.1 101 X\\r\\nConnection: upgrade\\r\\n\
                Upgrade: x\\r\\n\\r\\n')\n        held.append(peer)\n\
                threading.Thread(target=accept, daemon=True).start()";
    assert_eq!(server.code(&session, code)["success"], true);
    let path = format!("/sessions/{session}/ports/5003/");
    let open = || {
        let mut connection: Connection = server.connect();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
        );
        connection.write(head.as_bytes()).unwrap();
        let status = connection.head().unwrap().status;
        (connection, status)
    };
    // A server without keys has one caller, who may have all.
    let held: Vec<_> = (0..128).map(|_| open()).collect();
    assert!(held.iter().all(|(_, status)| *status == 101));
    assert_eq!(open().1, 503);
    drop(held);
    crate::harness::until("there is room again", || open().1 == 101);
}

#[test]
fn nothing_hostile_that_a_server_sends_harms_the_next_reply() {
    let server = on();
    let session = unique("hostile");
    let code = include_str!("ports/hostile.py");
    let reply = server.code(&session, code);
    let ports: Vec<u16> = serde_json::from_str(reply["stdout"].as_str().unwrap()).unwrap();
    for port in ports {
        let mut connection = server.connect();
        let path = format!("/sessions/{session}/ports/{port}/");
        connection.send("GET", &path, &[], b"");
        // An error, or a body that is cut; and the server goes on.
        if let Ok(answer) = connection.try_answer(false) {
            assert!(matches!(answer.status, 200 | 502 | 999), "{port}: {answer:?}");
            assert!(answer.body.len() < 10_000_000);
        }
    }
    let after: Value = server.code(&session, "print(6 * 7)");
    assert_eq!(after["stdout"], "42\n");
}
