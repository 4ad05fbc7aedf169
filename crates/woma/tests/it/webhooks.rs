//! Webhooks: signed, tried again, told once for each attempt, and never to where a caller may not
//! reach.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::durability::Home;
use crate::durability::postgres::Cluster;
use crate::harness::{Server, until};
use crate::jobs::{ended, job};

const PRIVATE: (&str, &str) = ("FETCH_ALLOW_PRIVATE", "true");
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[derive(Debug, Clone)]
struct Message {
    head: String,
    body: String,
}

impl Message {
    fn header(&self, name: &str) -> &str {
        let found = self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then_some(value.trim())
        });
        found.unwrap_or_else(|| panic!("{name} is missing: {}", self.head))
    }
}

/// A server that answers with the statuses of its list, then with 204.
struct Receiver {
    address: SocketAddr,
    messages: Arc<Mutex<Vec<Message>>>,
}

impl Receiver {
    fn start(answers: &[&'static str]) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), answers)
    }

    fn listen(listener: TcpListener, answers: &[&'static str]) -> Self {
        let (address, messages) = (listener.local_addr().unwrap(), Arc::default());
        let kept: Arc<Mutex<Vec<Message>>> = Arc::clone(&messages);
        let answers: Vec<&'static str> = answers.to_vec();
        let mut answers = answers.into_iter();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(socket) = socket else { continue };
                let answer = answers.next().unwrap_or("204 No Content");
                if let Some(message) = receive(&socket) {
                    kept.lock().unwrap().push(message);
                }
                let head = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
                // The server may have gone.
                if (&socket).write_all(head.as_bytes()).is_err() {}
            }
        });
        Self { address, messages }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?token=1", self.address)
    }

    fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap().clone()
    }
}

fn receive(socket: &TcpStream) -> Option<Message> {
    let mut reader = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let message = Message { head, body: String::new() };
    let mut body = vec![0; message.header("content-length").parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Message { body: String::from_utf8(body).ok()?, ..message })
}

fn submit(server: &Server, url: &str) -> Value {
    let body = json!({ "code": "print('secret output')", "stateless": true, "webhook": url,
        "webhook_secret": SECRET });
    let answer = server.post("/api/v1/jobs", &body);
    assert_eq!(answer.status, 202, "{}", answer.text());
    answer.json()
}

/// Waits until the webhook of a job has this state.
fn until_told(server: &Server, id: &str, state: &str) -> Value {
    let mut seen = Value::Null;
    until("the webhook has its state", || {
        seen = job(server, id)["webhook"].clone();
        seen["status"] == state
    });
    seen
}

fn id_of(job: &Value) -> &str {
    job["job_id"].as_str().unwrap()
}

#[test]
fn a_webhook_is_signed_and_says_how_the_job_ended_without_its_output() {
    let server = Server::start_with(&[], &[PRIVATE]);
    let receiver = Receiver::start(&[]);
    let queued = submit(&server, &receiver.url());
    assert_eq!(queued["webhook"]["status"], "waiting", "{queued}");
    assert!(queued.get("webhook_secret").is_none(), "the caller has its own: {queued}");
    let id = id_of(&queued);
    let told = until_told(&server, id, "delivered");
    assert_eq!(told["attempts"], 1, "{told}");
    let messages = receiver.messages();
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert!(message.head.starts_with("POST /hook?token=1 HTTP/1.1\r\n"), "{}", message.head);
    let (message_id, timestamp) =
        (message.header("webhook-id"), message.header("webhook-timestamp").parse().unwrap());
    assert_eq!(message_id, format!("msg_{id}"));
    let signed = woma_core::webhook_signature(SECRET, message_id, timestamp, &message.body);
    assert_eq!(Some(message.header("webhook-signature")), signed.as_deref());
    let body: Value = serde_json::from_str(&message.body).unwrap();
    assert_eq!((&body["type"], &body["data"]["job_id"]), (&json!("job.completed"), &json!(id)));
    assert!(!message.body.contains("secret output") && message.body.len() < 4096);
    // Without a secret of its own, a caller is told the one that was made, once.
    let body = json!({ "code": "1/0", "stateless": true, "webhook": receiver.url() });
    let queued = server.post("/api/v1/jobs", &body).json();
    let secret = queued["webhook_secret"].as_str().unwrap();
    until_told(&server, id_of(&queued), "delivered");
    let message = receiver.messages()[1].clone();
    let timestamp = message.header("webhook-timestamp").parse().unwrap();
    let signed = woma_core::webhook_signature(
        secret,
        message.header("webhook-id"),
        timestamp,
        &message.body,
    );
    assert_eq!(Some(message.header("webhook-signature")), signed.as_deref());
    assert!(message.body.contains("job.failed"), "{}", message.body);
    assert!(!job(&server, id_of(&queued)).to_string().contains(secret));
    let metrics = server.get("/metrics").text().to_owned();
    assert!(metrics.contains("woma_webhooks_total{outcome=\"delivered\"} 2"), "{metrics}");
}

#[test]
fn a_webhook_is_tried_again_and_a_redirect_is_not_followed() {
    let server = Server::start_with(&[], &[PRIVATE]);
    let receiver = Receiver::start(&["500 Internal Server Error", "503 Service Unavailable"]);
    let queued = submit(&server, &receiver.url());
    let told = until_told(&server, id_of(&queued), "delivered");
    assert_eq!(told["attempts"], 3, "{told}");
    let messages = receiver.messages();
    assert_eq!(messages.len(), 3);
    assert!(
        messages.iter().all(|one| one.header("webhook-id") == messages[0].header("webhook-id"))
    );
    let inner = Receiver::start(&[]);
    let location: &'static str =
        Box::leak(format!("302 Found\r\nlocation: {}", inner.url()).into_boxed_str());
    let outer = Receiver::start(&[location]);
    let queued = submit(&server, &outer.url());
    let told = until_told(&server, id_of(&queued), "failed");
    assert!(told["error"].as_str().unwrap().contains("redirects are not followed"), "{told}");
    assert_eq!((outer.messages().len(), inner.messages().len()), (1, 0));
}

#[test]
fn webhooks_reach_public_addresses_only_and_nothing_can_be_injected() {
    let server = Server::start_with(&[], &[]);
    let submit = |body: Value| server.post("/api/v1/jobs", &body);
    for url in [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://metadata.google.internal/",
        "http://10.0.0.1/",
        "http://user:password@example.org/",
        "https://example.org:22/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "http://example.org/\r\nx-evil: 1",
        "http://example.org/ HTTP/1.1\r\nhost: inner",
        "",
        "example.org",
    ] {
        let answer = submit(json!({ "code": "1", "stateless": true, "webhook": url }));
        assert!(matches!(answer.status, 400 | 403 | 422), "{url}: {}", answer.text());
    }
    for secret in ["short", "a secret\r\nx-evil: 1", "whsec_%%%", &"x".repeat(300)] {
        let body = json!({ "code": "1", "stateless": true, "webhook": "https://example.org/",
            "webhook_secret": secret });
        assert_eq!(submit(body).status, 400, "{secret}");
    }
    let alone = json!({ "code": "1", "stateless": true, "webhook_secret": SECRET });
    assert_eq!(submit(alone).status, 400);
    assert_eq!(server.get("/api/v1/jobs").json()["jobs"], json!([]), "none was queued");
    let off = Server::start_with(&[], &[("WEBHOOKS", "false")]);
    let body = json!({ "code": "1", "stateless": true, "webhook": "https://example.org/" });
    assert!(off.post("/api/v1/jobs", &body).refused(400).contains("webhooks are off"));
}

#[test]
fn a_killed_server_delivers_its_webhooks_after_its_restart() {
    let home = Home::new();
    // Reserved, and not listened to: every attempt is refused until a receiver comes.
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    drop(held);
    let server = home.start(&[PRIVATE]);
    let queued = submit(&server, &format!("http://{address}/hook"));
    let id = id_of(&queued).to_owned();
    assert_eq!(ended(&server, &id)["status"], "completed");
    server.kill();
    let receiver = Receiver::listen(TcpListener::bind(address).unwrap(), &[]);
    let server = home.start(&[PRIVATE]);
    until_told(&server, &id, "delivered");
    assert_eq!(receiver.messages().len(), 1);
}

#[test]
fn two_servers_send_each_attempt_once() {
    let cluster = Cluster::start_trusting();
    let url = cluster.url(&cluster.fresh());
    let variables = [("DATABASE_URL", url.as_str()), PRIVATE];
    let (home_a, home_b) = (Home::new(), Home::new());
    let (a, b) = (home_a.start(&variables), home_b.start(&variables));
    let receiver = Receiver::start(&["500 Internal Server Error"; 4]);
    let ids: Vec<String> = (0..8).map(|_| id_of(&submit(&a, &receiver.url())).to_owned()).collect();
    let attempts: u64 =
        ids.iter().map(|id| until_told(&b, id, "delivered")["attempts"].as_u64().unwrap()).sum();
    assert_eq!((attempts, receiver.messages().len()), (12, 12));
}

#[test]
fn a_flood_of_webhooks_that_hang_does_not_keep_those_of_another_caller() {
    let keyed = Keyed::start(&[("API_KEY", "x"), ("MAX_CONCURRENT_JOBS", "4"), PRIVATE]);
    let (ann, bob) = (keyed.key("ann", &[]), keyed.key("bob", &[]));
    let (ann, bob) = (keyed.client(&ann), keyed.client(&bob));
    // Accepts by its backlog and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}/", silent.local_addr().unwrap());
    for _ in 0..24 {
        let body = json!({ "code": "1", "stateless": true, "webhook": silent, "run_at": null });
        assert_eq!(ann.post("/api/v1/jobs", &body).status, 202);
    }
    let receiver = Receiver::start(&[]);
    let body = json!({ "code": "1", "stateless": true, "webhook": receiver.url() });
    let his = bob.post("/api/v1/jobs", &body).json();
    let his = id_of(&his).to_owned();
    until("his is delivered", || {
        bob.get(&format!("/api/v1/jobs/{his}")).json()["webhook"]["status"] == "delivered"
    });
}
