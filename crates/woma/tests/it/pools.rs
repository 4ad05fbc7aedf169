//! Two tenants at every pool: one does its worst, and the other gets its place at once.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::auth::Keyed;
use crate::client::Client;
use crate::files::path;
use crate::harness::{Answer, Connection, until};
use crate::shares::metric;

const ROOT: &str = "x";
const KIB: usize = 1024;

/// Places of a pool that are taken, and calls that wait for one.
fn pool(keyed: &Keyed, name: &str) -> (u64, u64) {
    let of = |what| metric(keyed.client(ROOT), &format!("woma_places_{what}{{pool=\"{name}\"}}"));
    (of("taken"), of("waiting"))
}

/// A request whose body is announced with this length, and ends after these bytes.
fn half(key: &str, connection: &mut Connection, line: &str, length: usize, bytes: &[u8]) {
    let head = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    connection.write(&[head.as_bytes(), bytes].concat()).unwrap();
}

/// Duration of the slowest but one of many calls, all of which must succeed.
fn slowest(count: usize, call: impl Fn(usize) -> Answer) -> Duration {
    let time = |n| {
        let started = Instant::now();
        let answer = call(n);
        assert!(answer.status < 300, "{}", answer.text());
        started.elapsed()
    };
    let mut waits: Vec<Duration> = (0..count).map(time).collect();
    waits.sort_unstable();
    waits[count - 2]
}

/// The other caller waits for the machine, and not for the first caller, whose transfers last longer.
fn is_unharmed(quiet: Duration, loaded: Duration) {
    assert!(loaded < quiet * 10 + Duration::from_secs(10), "{quiet:?}, then {loaded:?}");
}

#[test]
fn slow_uploads_of_one_caller_do_not_stop_anothers() {
    let keyed = Keyed::start(&[("API_KEY", ROOT)]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let file = |n: usize| {
        let target = path("his", &format!("{n}.txt"));
        keyed.client(&bob).send("PUT", &target, &[], &json!("content")).answer(false)
    };
    let quiet = slowest(10, file);
    let upload = |n: usize, bytes: &[u8]| {
        let mut connection = keyed.server.connect();
        let line = format!("PUT {}", path("hers", &format!("{n}.bin")));
        half(&alice, &mut connection, &line, 1 << 24, bytes);
        connection
    };
    // Enough to be in time for the next minute.
    let mut hers: Vec<Connection> = (0..28).map(|n| upload(n, &vec![0; 512 * KIB])).collect();
    until("she has all writers that she can have", || pool(&keyed, "file_writers").0 == 28);
    hers.extend((28..40).map(|n| upload(n, b"more")));
    until("the others wait", || pool(&keyed, "file_writers") == (28, 12));
    let loaded = slowest(10, |n| file(n + 10));
    assert_eq!(pool(&keyed, "file_writers").0, 28, "she had them all the while");
    is_unharmed(quiet, loaded);
    // An archive takes a place too.
    let target = "/api/v1/sessions/his/files?archive=zip";
    assert_eq!(keyed.client(&bob).get(target).status, 200);
    drop(hers);
    until("nothing is left of her uploads", || pool(&keyed, "file_writers") == (0, 0));
}

#[test]
fn bodies_of_one_caller_do_not_take_the_memory_of_others() {
    // Memory for four of the longest bodies: 64 blocks, of which one caller has 56.
    let keyed = Keyed::start(&[("API_KEY", ROOT), ("MAX_BODY_MB", "1")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    // Large, and quickly read.
    let upload = |n: usize| {
        let body = json!({ "filename": format!("{n}.txt"), "content_base64": "aGk=" });
        let body = body.to_string() + &" ".repeat(14 * 64 * KIB);
        let authorization = format!("Bearer {bob}");
        let headers = [("Authorization", authorization.as_str())];
        keyed.server.request("POST", "/api/v1/sessions/his/files", &headers, body.as_bytes())
    };
    let quiet = slowest(5, upload);
    let body = |bytes: usize| {
        let mut connection = keyed.server.connect();
        half(&alice, &mut connection, "POST /execute", 1 << 20, &vec![b' '; bytes]);
        connection
    };
    // Twelve blocks each, as their bytes arrive, and not what they announce.
    let mut hers: Vec<Connection> = (0..4).map(|_| body((64 + 12 * 64) * KIB)).collect();
    until("four bodies are in memory", || pool(&keyed, "body_memory") == (48, 0));
    hers.push(body((64 + 9 * 64) * KIB));
    until("the fifth goes beyond it", || {
        pool(&keyed, "body_memory").0 == 56 && pool(&keyed, "bodies_beyond_memory").0 == 1
    });
    hers.push(body(3 * 64 * KIB));
    until("the sixth waits", || pool(&keyed, "body_memory") == (56, 1));
    // Eight blocks are left, his bodies need fourteen, and each of them is received.
    let loaded = slowest(5, |n| upload(n + 5));
    assert_eq!(pool(&keyed, "body_memory").0, 56, "she had it all the while");
    is_unharmed(quiet, loaded);
    drop(hers);
    until("nothing is left of her bodies", || pool(&keyed, "body_memory") == (0, 0));
    until("nor beyond the memory", || pool(&keyed, "bodies_beyond_memory") == (0, 0));
}

/// Answers `/file` and leaves every other request without an answer.
fn web() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stuck = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 9];
            stream.read_exact(&mut head).unwrap();
            if head.starts_with(b"GET /file") {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.write_all(answer).unwrap_or_default();
            }
            // Kept, so that no connection ends.
            stuck.push(stream);
        }
    });
    format!("http://{address}")
}

#[test]
fn downloads_of_one_caller_do_not_stop_anothers() {
    let keyed = Keyed::start(&[("API_KEY", ROOT), ("FETCH_ALLOW_PRIVATE", "true")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let web = web();
    let fetch = |client: Client<'_>, name: &str| {
        let body = json!({ "url": format!("{web}/{name}"), "session_id": "s" });
        client.send("POST", "/api/files/fetch", &[], &body)
    };
    let mut hers: Vec<Connection> = (0..10).map(|_| fetch(keyed.client(&alice), "stuck")).collect();
    until("she has all that she can have", || pool(&keyed, "fetches") == (7, 3));
    for _ in 0..5 {
        let answer = fetch(keyed.client(&bob), "file").answer(false);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    assert_eq!(pool(&keyed, "fetches"), (7, 3), "she had them all the while");
    // One that ends makes way for the next of hers.
    hers.remove(0);
    until("the next one has its turn", || pool(&keyed, "fetches") == (7, 2));
}

#[test]
fn uploads_in_parts_count_as_storage_of_their_caller_alone() {
    let keyed = Keyed::start(&[("API_KEY", ROOT), ("STORAGE_MB", "1")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let (alice, bob) = (keyed.client(&alice), keyed.client(&bob));
    let begin = |client: Client<'_>, size: usize| {
        let body = json!({ "path": "parts.bin", "size": size, "session_id": "s" });
        client.post("/api/v1/uploads", &body)
    };
    let begun = begin(alice, 700_000).json();
    let target = format!("/api/v1/uploads/{}", begun["upload_id"].as_str().unwrap());
    let part = |offset: &str, size: usize| {
        let bytes = "x".repeat(size - 2);
        // As JSON it has two quotation marks more.
        alice.send("PATCH", &target, &[("Upload-Offset", offset)], &json!(bytes)).answer(false)
    };
    assert_eq!(part("0", 600_000).json()["offset"], 600_000);
    // What has come counts: there is no room for as much again.
    let put = |client: Client<'_>, size: usize| {
        client.send("PUT", &path("s", "file.bin"), &[], &json!("x".repeat(size))).answer(false)
    };
    assert!(put(alice, 600_000).refused(429).contains("no storage left"));
    assert!(begin(alice, 600_000).refused(429).contains("no storage left"));
    // Of another caller nothing counts here.
    assert_eq!(put(bob, 600_000).status, 201);
    // The last part makes a file of it, which counts once.
    let last = part("600000", 100_000).json();
    assert_eq!(last["complete"], true, "{last}");
    assert!(put(alice, 400_000).refused(429).contains("no storage left"));
    assert_eq!(put(alice, 200_000).status, 201);
    // Uploads that are begun are limited for each caller.
    for n in 0..16 {
        assert_eq!(begin(alice, 1).status, 201, "{n}");
    }
    begin(alice, 1).refused(429);
    assert_eq!(begin(bob, 1).status, 201);
}

#[test]
fn connections_of_one_address_and_requests_of_one_caller_leave_room_for_others() {
    const OTHER: [u8; 4] = [127, 0, 0, 2];
    // 56 for one address; of as many requests, 49 for one caller.
    let keyed = Keyed::start(&[("API_KEY", ROOT), ("MAX_CONNECTIONS", "64")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let ask = |mut connection: Connection, key: &str, target: &str| {
        let authorization = format!("Bearer {key}");
        connection.send("GET", target, &[("Authorization", &authorization)], b"");
        connection
    };
    let from_there = |key: &str, target: &str| {
        ask(Connection::open_from(OTHER, keyed.server.address), key, target).answer(false)
    };
    // Streams that never end.
    let mut hers = Vec::new();
    for _ in 0..49 {
        let mut stream = ask(keyed.server.connect(), &alice, "/sse");
        assert_eq!(stream.head().unwrap().status, 200);
        hers.push(stream);
    }
    let refused = ask(keyed.server.connect(), &alice, "/api/v1/sessions").answer(false);
    assert!(refused.refused(503).contains("49 requests"), "{}", refused.text());
    assert_eq!(refused.get("retry-after"), Some("1"));
    // Another caller behind the same address, as behind a proxy, still has its requests.
    for _ in 0..5 {
        let answer = ask(keyed.server.connect(), &bob, "/api/v1/sessions").answer(false);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // Connections without a key count for their address, which has seven more at most.
    let mut silent: Vec<Connection> = (0..7).map(|_| keyed.server.connect()).collect();
    until("the address has all that it can have", || {
        let mut connection = keyed.server.connect();
        connection.patience(Duration::from_millis(200));
        let answer = connection.try_answer(false);
        silent.push(connection);
        answer.is_ok_and(|it| it.status == 503 && it.text().contains("56 connections"))
    });
    for _ in 0..5 {
        assert_eq!(from_there(&bob, "/api/v1/sessions").status, 200);
    }
    drop((silent, hers));
    until("all places are free again", || {
        let metrics = from_there(ROOT, "/metrics");
        let name = "woma_places_taken{pool=\"requests\"} 1\n";
        metrics.status == 200 && metrics.text().contains(name)
    });
}
