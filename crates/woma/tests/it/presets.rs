//! The same routes under other presets.

use serde_json::json;

use crate::harness::Server;

#[test]
fn a_call_without_a_session_can_create_one_and_returns_its_id() {
    let server = Server::start(&["--preset", "sandbox-mcp"]);
    let first = server.post("/api/v1/execute", &json!({ "code": "x = 1" }));
    let session = first.get("x-session-id").unwrap().to_owned();
    assert_eq!(session.len(), 36);
    let second = server.post("/api/v1/execute", &json!({ "code": "x" }));
    assert_ne!(second.get("x-session-id"), Some(session.as_str()));
    assert!(second.lines()[0]["error"].as_str().unwrap().starts_with("NameError"));
    assert_eq!(server.code(&session, "x")["result"], 1);
    assert!(server.get("/api/v1/sessions").json()["sessions"][&session].is_object());
    let reply = server.run(&json!({ "code": "1", "timeout": 500 }));
    assert_eq!(reply["timeout_applied"], 30.0);
}

#[test]
fn a_call_without_a_session_can_be_ephemeral() {
    let server = Server::start(&["--preset", "sandbox-service"]);
    for _ in 0..2 {
        let answer =
            server.post("/execute", &json!({ "code": "x = globals().get('x', 0) + 1\nx" }));
        let reply = answer.json();
        assert_eq!((&reply["result"], reply.get("session_id")), (&json!(1), None));
        assert_eq!(answer.get("x-session-id"), None);
        assert_eq!(reply["kernel_info"]["session_persisted"], false);
    }
    assert_eq!(server.get("/api/v1/sessions").json()["total"], 0);
    assert_eq!(server.code("named", "y = 1")["session_id"], "named");
    assert_eq!(server.code("named", "y")["result"], 1);
}

#[test]
fn with_a_key_only_health_answers_without_it() {
    let key = "a-key-that-nobody-guesses-0123456789";
    let server = Server::start(&["--api-key", key]);
    assert_eq!(server.get("/health").status, 200);
    let body = br#"{"code": "1 + 1"}"#;
    for (method, path) in [
        ("POST", "/execute"),
        ("POST", "/api/v1/execute"),
        ("POST", "/api/v1/execute_sync"),
        ("GET", "/api/v1/sessions"),
        ("GET", "/api/sessions"),
        ("POST", "/api/sessions"),
        ("GET", "/api/v1/executions/x/output"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
    ] {
        server.request(method, path, &[], body).refused(401);
        let wrong = [("Authorization", "Bearer something-else")];
        server.request(method, path, &wrong, body).refused(401);
    }
    let bearer = format!("Bearer {key}");
    for header in [("Authorization", bearer.as_str()), ("X-API-Key", key)] {
        let answer = server.request("POST", "/execute", &[header], body);
        assert_eq!(answer.json()["result"], 2);
    }
    assert!(!server.log().contains(key), "the log tells the key");
}

#[test]
fn a_key_in_the_address_opens_a_stream() {
    use base64::Engine as _;
    let key = "a-key-that-nobody-guesses-0123456789";
    let server = Server::start(&["--api-key", key]);
    // What a client makes of http://woma:KEY@host/sse, for the stream and for its messages.
    let basic = |user: &str, password: &str| {
        let both = format!("{user}:{password}");
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both))
    };
    let header = basic("woma", key);
    let headers = [("Authorization", header.as_str())];
    for path in ["/sse", "/mcp/sse"] {
        let mut connection = server.connect();
        connection.send("GET", path, &headers, b"");
        let mut events = crate::client::Events::new(connection);
        let (kind, address) = events.next_event().unwrap();
        assert_eq!(kind, "endpoint");
        let message = crate::client::initialize("2024-11-05").to_string();
        let posted = server.request("POST", &address, &headers, message.as_bytes());
        assert_eq!(posted.status, 202, "{}", posted.text());
        assert!(events.next().unwrap()["result"]["serverInfo"].is_object());
        server.request("POST", &address, &[], message.as_bytes()).refused(401);
    }
    for (user, password) in [("woma", "wrong"), ("proxy", key), ("woma", "")] {
        let header = basic(user, password);
        server.request("GET", "/sse", &[("Authorization", &header)], b"").refused(401);
    }
    // A key beside the password of a proxy counts; a key in the query does not.
    let proxied = [("Authorization", &*basic("proxy", "p")), ("X-API-Key", key)];
    assert_eq!(server.request("GET", "/api/v1/sessions", &proxied, b"").status, 200);
    server.get(&format!("/sse?api_key={key}")).refused(401);
    assert!(!server.log().contains(key), "the log tells the key");
}

#[test]
fn limits_follow_the_settings() {
    let server = Server::start(&["--set", "max_code_bytes=2000", "--set", "max_body_mb=1"]);
    let long = json!({ "code": "#".repeat(3_000) });
    let message = server.post("/execute", &long).refused(413);
    assert_eq!(message, "the code is too large: it has 3000 bytes; the limit is 2000");
    let longer = json!({ "code": "1", "variables": { "x": "y".repeat(1_200_000) } });
    server.post("/execute", &longer).refused(413);
}

#[test]
fn allows_pages_of_configured_origins() {
    let server = Server::start(&["--set", "allowed_origins=http://friend.example"]);
    let ask = |origin: &str, method: &str| {
        let headers = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "content-type,x-api-key"),
        ];
        server.request(method, "/execute", &headers, b"{\"code\": \"1\"}")
    };
    let preflight = ask("http://friend.example", "OPTIONS");
    assert_eq!(preflight.status, 200);
    let origin = "access-control-allow-origin";
    assert_eq!(preflight.get(origin), Some("http://friend.example"));
    assert!(preflight.get("access-control-allow-headers").unwrap().contains("x-api-key"));
    let answer = ask("http://friend.example", "POST");
    assert_eq!((answer.status, answer.get(origin)), (200, Some("http://friend.example")));
    let exposed = answer.get("access-control-expose-headers").unwrap();
    for header in ["x-session-id", "content-disposition", "content-length", "content-type"] {
        assert!(exposed.contains(header), "{exposed}");
    }
    let stranger = ask("http://stranger.example", "POST");
    assert_eq!((stranger.status, stranger.get(origin)), (403, None));
}
