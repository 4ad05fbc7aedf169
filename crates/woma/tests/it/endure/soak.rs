//! Mixed load that stops by itself: sessions with work of every kind, streams, sessions made and
//! deleted. Afterwards nothing has leaked, and the slopes while it lasted say the same.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Held, float, mounts, number};
use crate::client::request;
use crate::durability::{Home, Over, done, health, pass, until_recorded};
use crate::files::path;
use crate::harness::{Connection, Server};

/// In `make test`; `make soak` sets `SOAK_SECONDS`, `SOAK_SESSIONS`, `SOAK_STREAMS`, `SOAK_CLIENTS`.
const SECONDS: u64 = 8;
const SESSIONS: usize = 24;
const STREAMS: usize = 6;
const CLIENTS: usize = 4;
/// Sessions that are made, used and deleted in a minute.
const CHURN_PER_MINUTE: u64 = 1_000;
/// Outputs that the server keeps, which are soon as many as it may keep.
const KEPT_OUTPUT_MIB: f64 = 2.0;
/// Work that there must have been, and time for it beyond the seconds.
const CALLS_MIN: u64 = 40;
const CHURNED_MIN: u64 = 2;
const MORE_MAX: Duration = Duration::from_secs(60);
/// Samples of what the server holds, one every so often.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Allowed between the second and the last quarter of a run.
const GROWTH_KIB_MAX: f64 = 12.0 * 1024.0;
/// Allowed after everything is deleted, beyond what was there before: kept outputs, and what an
/// allocator cannot give back.
const LEFT_KIB_MAX: f64 = (KEPT_OUTPUT_MIB + 20.0) * 1024.0;
const LEFT_DESCRIPTORS_MAX: f64 = 40.0;
const LEFT_THREADS_MAX: f64 = 12.0;
const LEFT_ROOMS_MAX: f64 = 12.0;
/// Time for that.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(60);

/// Results of all clients.
#[derive(Default)]
struct Seen {
    calls: AtomicU64,
    churned: AtomicU64,
    /// Refused by 503 with a time to retry after.
    busy: AtomicU64,
    /// Times of calls by kind.
    times: Mutex<BTreeMap<&'static str, Vec<Duration>>>,
}

impl Seen {
    fn add(&self, kind: &'static str, started: Instant) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.times.lock().unwrap().entry(kind).or_default().push(started.elapsed());
    }
}

/// A client of some of the sessions, with a connection of its own.
struct Worker<'a> {
    server: &'a Server,
    connection: Connection,
    /// Runs that each of its sessions has acknowledged.
    counts: BTreeMap<usize, u64>,
    seen: &'a Seen,
}

impl Worker<'_> {
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.connection.send(method, path, &[], body.as_bytes());
        let answer = self.connection.answer(false);
        let reply = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        (answer.status, reply)
    }

    /// Runs code until the server is not busy.
    fn run(&mut self, session: &str, code: &str) -> Value {
        loop {
            let body = json!({ "code": code, "session_id": session });
            match self.ask("POST", "/execute", &body) {
                (200, reply) => return reply,
                (503, _) => {
                    self.seen.busy.fetch_add(1, Ordering::Relaxed);
                    pass(Duration::from_millis(50));
                }
                (status, reply) => panic!("{status}: {reply}"),
            }
        }
    }

    /// One piece of work in one of its sessions.
    fn work(&mut self, session: usize, round: u64) {
        let name = format!("soak-{session}");
        // Each session counts its runs: a lost or repeated one, and lost variables, would show.
        let started = Instant::now();
        let reply = self.run(&name, "n = globals().get('n', 0) + 1\nn");
        self.seen.add("counter", started);
        let count = self.counts.entry(session).or_default();
        *count += 1;
        assert_eq!(reply["result"], *count, "session {session}: {reply}");
        let started = Instant::now();
        match round % 8 {
            0 => {
                let reply = self.run(&name, "print('y' * 20_000)");
                assert_eq!(reply["stdout"].as_str().map(str::len), Some(20_001), "{reply}");
                self.seen.add("output", started);
            }
            1 => {
                let body = round.to_string();
                let place = path(&name, "up.txt");
                self.connection.send("PUT", &place, &[], body.as_bytes());
                assert!(self.connection.answer(false).status < 300);
                self.connection.send("GET", &place, &[], b"");
                assert_eq!(self.connection.answer(false).text(), body);
                self.seen.add("file", started);
            }
            2 => {
                let reply = self.run(&name, "1 / 0");
                assert_eq!(reply["error"]["type"], "ZeroDivisionError", "{reply}");
                self.seen.add("error", started);
            }
            3 => {
                let arguments = json!({ "code": "6 * 7", "session_id": name });
                let params = json!({ "name": "execute_code", "arguments": arguments });
                let (status, reply) = self.ask("POST", "/", &request(1, "tools/call", &params));
                assert_eq!(status, 200, "{reply}");
                assert!(reply["result"].to_string().contains("42"), "{reply}");
                self.seen.add("mcp", started);
            }
            4 => {
                let (status, reply) = self.ask("GET", "/api/v1/sessions?limit=20", &Value::Null);
                assert_eq!(status, 200, "{reply}");
                self.seen.add("listing", started);
            }
            5 => {
                let code = "import subprocess\nsubprocess.run(['true']).returncode";
                assert_eq!(self.run(&name, code)["result"], 0);
                self.seen.add("child", started);
            }
            6 if round % 32 == 6 => {
                let code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()";
                let reply = self.run(&name, code);
                assert_eq!(reply["success"], true, "{reply}");
                self.seen.add("chart", started);
            }
            _ => {
                let code = "import pandas as pd\nlen(pd.DataFrame({'a': range(100)}))";
                assert_eq!(self.run(&name, code)["result"], 100);
                self.seen.add("table", started);
            }
        }
    }
}

fn client(server: &Server, own: &[usize], over: &AtomicBool, seen: &Seen) {
    let mut worker = Worker { server, connection: server.connect(), counts: BTreeMap::new(), seen };
    worker.connection.patience(Duration::from_secs(120));
    for round in 0.. {
        for session in own {
            if over.load(Ordering::Relaxed) {
                return;
            }
            worker.work(*session, round + *session as u64);
        }
        // Some connections are new.
        worker.connection = worker.server.connect();
        worker.connection.patience(Duration::from_secs(120));
    }
}

/// A stream of events, read to its end, again and again.
fn stream(server: &Server, which: usize, over: &AtomicBool, seen: &Seen) {
    let code = "import time\nfor i in range(10):\n    print(i, flush=True)\n    time.sleep(0.1)";
    let body = json!({ "code": code, "session_id": format!("stream-{which}") }).to_string();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let headers = [("Accept", "text/event-stream")];
        let mut connection = server.connect();
        connection.patience(Duration::from_secs(120));
        connection.send("POST", "/api/v1/execute", &headers, body.as_bytes());
        let answer = connection.answer(false);
        if answer.status == 503 {
            seen.busy.fetch_add(1, Ordering::Relaxed);
            pass(Duration::from_millis(200));
            continue;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains('9'), "{}", answer.text());
        seen.add("stream", started);
    }
}

/// Makes, uses and deletes sessions at a steady rate.
fn churn(server: &Server, over: &AtomicBool, seen: &Seen) {
    let begun = Instant::now();
    for number in 0_u64.. {
        let due = Duration::from_millis(number * 60_000 / CHURN_PER_MINUTE);
        while begun.elapsed() < due {
            pass(Duration::from_millis(2));
        }
        if over.load(Ordering::Relaxed) {
            return;
        }
        let started = Instant::now();
        let name = format!("churn-{number}");
        let answer = server.post("/execute", &json!({ "code": "print(1)", "session_id": name }));
        if answer.status == 503 {
            seen.busy.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        assert_eq!(answer.json()["stdout"], "1\n", "{}", answer.text());
        let path = format!("/api/v1/sessions/{name}");
        assert_eq!(server.request("DELETE", &path, &[], b"").status, 200);
        seen.add("create and delete", started);
        seen.churned.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn mixed_load_leaves_nothing_behind() {
    let home = Home::new();
    let (sessions, streams) = (number("SOAK_SESSIONS", SESSIONS), number("SOAK_STREAMS", STREAMS));
    let (clients, seconds) = (number("SOAK_CLIENTS", CLIENTS), number("SOAK_SECONDS", SECONDS));
    let kept = format!("{KEPT_OUTPUT_MIB}");
    let server =
        home.start(&[("KEPT_OUTPUT_MB", &kept), ("PRELOAD", "full"), ("MAX_SESSIONS", "4000")]);
    // What is made once is no growth: thread pools, caches, the first session.
    done(&server, "first", "import pandas, matplotlib.pyplot\nprint('y' * 200_000)");
    delete(&server, "first");
    until_recorded(&server);
    let (before, mounts_before) = (Held::by(server.pid), mounts());
    let (over, seen) = (AtomicBool::new(false), Seen::default());
    let mut samples: Vec<(f64, Held)> = Vec::new();
    thread::scope(|scope| {
        let (server, over, seen) = (&server, &over, &seen);
        for which in 0..clients {
            let own: Vec<usize> = (which..sessions).step_by(clients).collect();
            scope.spawn(move || client(server, &own, over, seen));
        }
        for which in 0..streams {
            scope.spawn(move || stream(server, which, over, seen));
        }
        scope.spawn(move || churn(server, over, seen));
        let ending = Over(over);
        let begun = Instant::now();
        // On a busy machine, a short load goes on until there was some.
        let is_enough = || {
            let calls = seen.calls.load(Ordering::Relaxed) > CALLS_MIN;
            calls && seen.churned.load(Ordering::Relaxed) > CHURNED_MIN
        };
        let most = Duration::from_secs(seconds) + MORE_MAX;
        while begun.elapsed() < Duration::from_secs(seconds)
            || begun.elapsed() < most && !is_enough()
        {
            pass(SAMPLE_EVERY.max(Duration::from_secs(seconds) / 400));
            samples.push((begun.elapsed().as_secs_f64(), Held::by(server.pid)));
        }
        drop(ending);
    });
    let told = report(&samples, &seen, seconds);
    eprintln!("{told}");
    assert!(seen.calls.load(Ordering::Relaxed) > CALLS_MIN, "{told}");
    assert!(seen.churned.load(Ordering::Relaxed) > CHURNED_MIN, "{told}");
    let grown = quarter(&samples, 3).memory_kib - quarter(&samples, 1).memory_kib;
    assert!(grown < GROWTH_KIB_MAX || seconds < 60, "it grew by {grown} KiB: {told}");
    everything_is_given_back(&home, &server, &before, mounts_before);
}

fn delete(server: &Server, session: &str) {
    let path = format!("/api/v1/sessions/{session}");
    assert_eq!(server.request("DELETE", &path, &[], b"").status, 200);
}

/// Deletes all sessions, and waits until the server holds what it held before.
fn everything_is_given_back(home: &Home, server: &Server, before: &Held, mounts_before: usize) {
    loop {
        let page = server.get("/api/v1/sessions?limit=500").json();
        let names: Vec<String> = page["sessions"].as_object().unwrap().keys().cloned().collect();
        if names.is_empty() {
            break;
        }
        for name in names {
            delete(server, &name);
        }
    }
    until_recorded(server);
    for table in ["sessions", "checkpoints", "files"] {
        let rows = home.rows(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(rows[0][0], 0, "rows of {table} are left");
    }
    let allowed =
        [LEFT_KIB_MAX, LEFT_DESCRIPTORS_MAX, LEFT_THREADS_MAX, LEFT_ROOMS_MAX, LEFT_ROOMS_MAX];
    let too_much = |held: &Held| {
        let rows = held.rows().into_iter().zip(before.rows()).zip(allowed);
        rows.map(|(((name, now), (_, then)), most)| (name, now - then, most))
            .find(|(_, more, most)| more > most)
    };
    // A thread that is idle ends after ten seconds, and memory is given back in quiet time.
    let started = Instant::now();
    let held = loop {
        let held = Held::by(server.pid);
        let Some(more) = too_much(&held) else { break held };
        let waited = started.elapsed();
        assert!(waited < GIVEN_BACK_MAX, "kept: {more:?} of {held:?}, {before:?}");
        pass(Duration::from_millis(500));
    };
    eprintln!("given back after {:?}: {held:?}; before: {before:?}", started.elapsed());
    assert_eq!(mounts(), mounts_before);
    assert_eq!(health(server)["status"], "healthy");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// Means of a quarter of the samples.
fn quarter(samples: &[(f64, Held)], which: usize) -> Held {
    let length = samples.len() / 4;
    let part = &samples[which * length..(which + 1) * length];
    let mean = |of: fn(&Held) -> f64| {
        part.iter().map(|(_, held)| of(held)).sum::<f64>() / float(part.len().max(1))
    };
    Held {
        memory_kib: mean(|held| held.memory_kib),
        descriptors: mean(|held| held.descriptors),
        threads: mean(|held| held.threads),
        processes: mean(|held| held.processes),
        groups: mean(|held| held.groups),
    }
}

/// Least squares over the last three quarters, each minute.
fn slope(samples: &[(f64, Held)], of: usize) -> f64 {
    let points: Vec<(f64, f64)> = samples[samples.len() / 4..]
        .iter()
        .map(|(at, held)| (at / 60.0, held.rows()[of].1))
        .collect();
    let count = float(points.len());
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if under > 0.0 { over / under } else { 0.0 }
}

fn report(samples: &[(f64, Held)], seen: &Seen, seconds: u64) -> String {
    let mut lines = vec![format!(
        "{} calls in {seconds} s, {} sessions made and deleted, {} times busy",
        seen.calls.load(Ordering::Relaxed),
        seen.churned.load(Ordering::Relaxed),
        seen.busy.load(Ordering::Relaxed),
    )];
    for (row, (name, _)) in Held::default().rows().into_iter().enumerate() {
        let at = |which| quarter(samples, which).rows()[row].1;
        lines.push(format!(
            "{name}: quarters {:.0} {:.0} {:.0} {:.0}, {:+.2} a minute",
            at(0),
            at(1),
            at(2),
            at(3),
            slope(samples, row)
        ));
    }
    for (kind, times) in seen.times.lock().unwrap().iter_mut() {
        times.sort_unstable();
        let at = |permille: usize| times[(times.len() - 1) * permille / 1000];
        lines.push(format!(
            "{kind}: {} calls, p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, most {:.1?}",
            times.len(),
            at(500),
            at(990),
            at(999),
            at(1000)
        ));
    }
    lines.join("\n")
}
