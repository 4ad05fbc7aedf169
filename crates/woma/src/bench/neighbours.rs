//! A caller beside one that does its worst: at each pool, the p99 of its calls while the other has all
//! that it may have and more of its calls wait, as a multiple of the p99 before, in the same run.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::client::Connection;
use super::endpoints::{named, start};
use super::measure::milliseconds;
use super::server::{Folder, Server};
use super::{Fallible, Row};
use crate::terminal::tell;

/// All rows of this file.
pub(super) const NAMES: &[&str] = &[
    "neighbour-writers",
    "neighbour-bodies",
    "neighbour-fetches",
    "neighbour-kernels",
    "neighbour-queue",
    "neighbour-connections",
];

/// Key of the operator, of a server that only this program reaches.
const ROOT: &str = "a-key-that-is-only-for-the-bench";
/// Calls of the neighbour, before and meanwhile.
const TIMES: usize = 200;
/// Calls before the first measurement.
const WARM_UP: usize = 20;
/// The p99 meanwhile is at most so many times the p99 before.
const PROMISE: f64 = 2.0;
const STATE_MAX: Duration = Duration::from_secs(20);
const STATE_STEP: Duration = Duration::from_millis(20);
const KIB: usize = 1024;

/// Request line and body of the neighbour's call of this number.
type Call<'a> = &'a (dyn Fn(usize) -> (String, Vec<u8>) + Sync);

/// A server with two callers.
struct World {
    server: Server,
    greedy: String,
    neighbour: String,
    _folder: Folder,
}

pub(super) async fn all(prefix: &Path, wanted: &dyn Fn(&str) -> bool) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    let is_wanted = |names: &[&str]| names.iter().any(|name| wanted(name));
    if is_wanted(&["neighbour-writers", "neighbour-bodies", "neighbour-fetches"]) {
        tell("a server with small pools");
        let settings = ["max_body_mb=1", "fetch_allow_private=true"];
        let world = World::start(prefix, "transfers", &settings).await?;
        if wanted("neighbour-writers") {
            rows.push(named("neighbour-writers", writers(&world)).await?);
        }
        if wanted("neighbour-bodies") {
            rows.push(named("neighbour-bodies", bodies(&world)).await?);
        }
        if wanted("neighbour-fetches") {
            rows.push(named("neighbour-fetches", fetches(&world)).await?);
        }
    }
    if wanted("neighbour-kernels") {
        tell("a server with few kernels");
        let settings = ["max_kernels=8", "max_running=8"];
        let world = World::start(prefix, "kernels", &settings).await?;
        let what = "print(1) beside a caller whose sleeping sessions want three times all kernels";
        let name = "neighbour-kernels";
        rows.push(named(name, runs(&world, name, what, 24)).await?);
    }
    if wanted("neighbour-queue") {
        tell("a server with a short queue");
        let settings = ["max_kernels=64", "max_running=8", "max_queue=64"];
        let world = World::start(prefix, "queue", &settings).await?;
        let what = "print(1) beside a caller who has filled its part of the queue";
        let name = "neighbour-queue";
        rows.push(named(name, runs(&world, name, what, 60)).await?);
    }
    if wanted("neighbour-connections") {
        tell("a server with few connections");
        let world = World::start(prefix, "connections", &["max_connections=64"]).await?;
        rows.push(named("neighbour-connections", connections(&world)).await?);
    }
    Ok(rows)
}

impl World {
    async fn start(prefix: &Path, name: &str, more: &[&str]) -> Fallible<Self> {
        let folder = Folder::new(name)?;
        let key = format!("api_key={ROOT}");
        let mut settings = vec!["preload=base", key.as_str()];
        settings.extend(more);
        let server = start(prefix, &folder, &settings).await?;
        let mut keys = Vec::new();
        for name in ["greedy", "neighbour"] {
            let body = json!({ "name": name }).to_string();
            let made = request(server.address, ROOT, "POST /api/v1/keys", body.as_bytes());
            let answer = Connection::open(server.address).await?.exchange(&made).await?;
            let made: Value = serde_json::from_slice(&answer.body)?;
            let key = made["key"].as_str().ok_or_else(|| format!("no key was made: {made}"))?;
            keys.push(key.to_owned());
        }
        let [greedy, neighbour] = <[String; 2]>::try_from(keys).map_err(|_| "two keys")?;
        Ok(Self { server, greedy, neighbour, _folder: folder })
    }

    /// A request of the greedy caller, on a connection that stays open.
    async fn hold(&self, line: &str, body: &[u8]) -> Fallible<Connection> {
        let mut connection = Connection::open(self.server.address).await?;
        connection.send(&request(self.server.address, &self.greedy, line, body)).await?;
        Ok(connection)
    }

    /// The same with a body that ends early.
    async fn half(&self, line: &str, length: usize, bytes: usize) -> Fallible<Connection> {
        let mut connection = Connection::open(self.server.address).await?;
        let head = head(self.server.address, &self.greedy, line, length);
        connection.send(&[head.as_bytes(), &vec![b' '; bytes]].concat()).await?;
        Ok(connection)
    }

    /// Waits until the pool has so many places taken, and at least so many calls wait.
    async fn until(&self, pool: &str, taken: u64, waiting: u64) -> Fallible<()> {
        let asked = request(self.server.address, ROOT, "GET /metrics", b"");
        let started = Instant::now();
        loop {
            let answer = Connection::open(self.server.address).await?.exchange(&asked).await?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let of = |what: &str| {
                let name = format!("woma_places_{what}{{pool=\"{pool}\"}} ");
                let found = text.lines().find_map(|line| line.strip_prefix(&name));
                found.and_then(|count| count.parse::<u64>().ok()).unwrap_or_default()
            };
            let state = (of("taken"), of("waiting"));
            if state.0 == taken && state.1 >= waiting {
                return Ok(());
            }
            if started.elapsed() > STATE_MAX {
                return Err(format!("{pool} has {state:?}, not {taken} and {waiting}").into());
            }
            sleep(STATE_STEP).await;
        }
    }

    /// The p99 of the neighbour's calls, each on a connection of its own, in milliseconds.
    async fn p99(&self, call: Call<'_>) -> Fallible<f64> {
        let mut waits = self.calls(call, TIMES).await?;
        waits.sort_by(f64::total_cmp);
        waits.get(TIMES * 99 / 100).copied().ok_or_else(|| "no calls".into())
    }

    async fn calls(&self, call: Call<'_>, times: usize) -> Fallible<Vec<f64>> {
        let mut waits = Vec::with_capacity(times);
        for number in 0..times {
            let (line, body) = call(number);
            let asked = request(self.server.address, &self.neighbour, &line, &body);
            let started = Instant::now();
            let answer = Connection::open(self.server.address).await?.exchange(&asked).await?;
            waits.push(milliseconds(started.elapsed()));
            if answer.status >= 300 {
                return Err(String::from_utf8_lossy(&answer.body).into_owned().into());
            }
        }
        Ok(waits)
    }
}

fn head(server: SocketAddr, key: &str, line: &str, length: usize) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: {server}\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

fn request(server: SocketAddr, key: &str, line: &str, body: &[u8]) -> Vec<u8> {
    [head(server, key, line, body.len()).as_bytes(), body].concat()
}

/// How many times the p99 before is the p99 meanwhile.
fn ratio(name: &'static str, what: &'static str, quiet: f64, loaded: f64) -> Row {
    tell(&format!("{name}: p99 {quiet:.2} ms, then {loaded:.2} ms"));
    let (unit, p50, promise) = ("times", loaded / quiet, PROMISE);
    Row { name, what, unit, p50, p99: None, promise, at_least: false, against: Vec::new() }
}

async fn writers(world: &World) -> Fallible<Row> {
    let put = |number: usize| {
        (format!("PUT /api/v1/sessions/his/files/{number}.txt"), b"content".to_vec())
    };
    world.calls(&put, WARM_UP).await?;
    let quiet = world.p99(&put).await?;
    let mut held = Vec::new();
    for number in 0..40 {
        let line = format!("PUT /api/v1/sessions/hers/files/{number}.bin");
        held.push(world.half(&line, 1 << 24, 512 * KIB).await?);
    }
    world.until("file_writers", 28, 12).await?;
    let loaded = world.p99(&put).await?;
    let what = "a file is written beside a caller whose uploads have all writers they can have";
    Ok(ratio("neighbour-writers", what, quiet, loaded))
}

async fn bodies(world: &World) -> Fallible<Row> {
    let upload = |number: usize| {
        let body = json!({ "filename": format!("{number}.txt"), "content_base64": "aGk=" });
        let body = body.to_string() + &" ".repeat(6 * 64 * KIB);
        ("POST /api/v1/sessions/his/files".to_owned(), body.into_bytes())
    };
    world.calls(&upload, WARM_UP).await?;
    let quiet = world.p99(&upload).await?;
    // Each wants 12 blocks of 64 KiB, after the first 64: more than the 56 that one caller may have
    // and the one body that it may finish beyond them.
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(world.half("POST /execute", 1 << 20, 13 * 64 * KIB).await?);
    }
    world.until("body_memory", 56, 1).await?;
    let loaded = world.p99(&upload).await?;
    let what = "a body of 384 KiB beside a caller whose bodies have all memory they can have";
    Ok(ratio("neighbour-bodies", what, quiet, loaded))
}

/// Answers `/file`, and leaves every other request without an answer.
async fn web() -> Fallible<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        // Kept, so that no connection ends.
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut begin = [0; 9];
            let is_read = stream.read_exact(&mut begin).await.is_ok();
            if is_read && begin.starts_with(b"GET /file") {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.write_all(answer).await.unwrap_or_default();
            }
            kept.push(stream);
        }
    });
    Ok(address)
}

async fn fetches(world: &World) -> Fallible<Row> {
    let web = web().await?;
    let body = |name: &str, number: usize| {
        let url = format!("http://{web}/{name}");
        let path = format!("{number}.txt");
        json!({ "url": url, "session_id": "s", "filename": path }).to_string().into_bytes()
    };
    let fetch = |number: usize| ("POST /api/v1/fetches".to_owned(), body("file", number));
    world.calls(&fetch, WARM_UP).await?;
    let quiet = world.p99(&fetch).await?;
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(world.hold("POST /api/v1/fetches", &body("stuck", number)).await?);
    }
    world.until("fetches", 7, 3).await?;
    let loaded = world.p99(&fetch).await?;
    let what = "a download from a URL beside a caller whose downloads never end";
    Ok(ratio("neighbour-fetches", what, quiet, loaded))
}

/// The greedy caller sends so many calls that sleep, each in a session of its own.
async fn runs(
    world: &World,
    name: &'static str,
    what: &'static str,
    calls: usize,
) -> Fallible<Row> {
    let print_one = |_| {
        let body = json!({ "code": "print(1)", "session_id": "his" });
        ("POST /execute".to_owned(), body.to_string().into_bytes())
    };
    world.calls(&print_one, WARM_UP).await?;
    let quiet = world.p99(&print_one).await?;
    let mut held = Vec::new();
    for number in 0..calls {
        let code = "import time\ntime.sleep(300)";
        let body = json!({ "code": code, "session_id": format!("hers-{number}"), "timeout": 300 });
        held.push(world.hold("POST /execute", body.to_string().as_bytes()).await?);
    }
    world.until("running", 7, 1).await?;
    let loaded = world.p99(&print_one).await?;
    Ok(ratio(name, what, quiet, loaded))
}

async fn connections(world: &World) -> Fallible<Row> {
    let list = |_| ("GET /api/v1/sessions".to_owned(), Vec::new());
    world.calls(&list, WARM_UP).await?;
    let quiet = world.p99(&list).await?;
    let mut held = Vec::new();
    for _ in 0..49 {
        held.push(world.hold("GET /sse", b"").await?);
    }
    // One is the question itself.
    world.until("requests", 50, 0).await?;
    let loaded = world.p99(&list).await?;
    let what = "a listing beside a caller whose streams take all requests they can have";
    Ok(ratio("neighbour-connections", what, quiet, loaded))
}
