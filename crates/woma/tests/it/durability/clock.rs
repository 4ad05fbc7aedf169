//! Jumps of the wall clock by an hour while a server runs. Time namespaces cannot move it, and the
//! machine's clock must not change: a preloaded library reports another time.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Home, done, health, until_recorded};
use crate::harness::{Server, until};

const HOUR: i64 = 3_600;

/// Time that the server sees.
struct Clock {
    home: Home,
    library: PathBuf,
    moved: PathBuf,
}

impl Clock {
    fn new() -> Self {
        let home = Home::new();
        let (library, moved) = (home.path().join("clock.so"), home.path().join("clock"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/durability/clock.c");
        // A machine that has built this test has a linker.
        let mut build = Command::new("cc");
        build.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
        assert!(build.status().unwrap().success());
        let clock = Self { home, library, moved };
        clock.moved_by(0);
        clock
    }

    /// Offset from the true time.
    fn moved_by(&self, seconds: i64) {
        // In one step: no reader finds half a number.
        let aside = self.moved.with_extension("new");
        fs::write(&aside, seconds.to_string()).unwrap();
        fs::rename(aside, &self.moved).unwrap();
    }

    fn start(&self, variables: &[(&str, &str)]) -> Server {
        let mut all = vec![
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("WOMA_TEST_CLOCK", self.moved.to_str().unwrap()),
        ];
        all.extend(variables);
        self.home.start(&all)
    }
}

/// How far the server's clock is from ours, in seconds.
fn distance(server: &Server) -> i64 {
    let told: Timestamp = health(server)["timestamp"].as_str().unwrap().parse().unwrap();
    told.duration_since(Timestamp::now()).as_secs()
}

/// Everything is as it was: kernels, limits, tasks, records.
fn goes_on(server: &Server, round: usize) {
    for session in ["one", "two", "three"] {
        let reply = done(server, session, "x += 1\nx");
        assert_eq!(reply["result"], round, "{reply}");
        assert_eq!(reply["session_restarted"], false, "{reply}");
        let listed = server.get(&format!("/api/v1/sessions/{session}")).json();
        assert_eq!(listed["is_live"], true, "{listed}");
        let left = listed["expires_in_seconds"].as_f64().unwrap_or(600.0);
        assert!((0.0..=600.0).contains(&left), "{listed}");
    }
    let body = json!({ "code": "import time; time.sleep(0.5); 1", "timeout": 20 });
    assert_eq!(server.run(&body)["result"], 1);
    let reply = server.run(&json!({ "code": "while True: pass", "timeout": 1 }));
    assert_eq!(reply["error"]["category"], "timeout", "{reply}");
    let wall = reply["execution_time"].as_f64().unwrap();
    assert!((0.9..30.0).contains(&wall), "{reply}");
    let file = done(server, "one", &format!("open('{round}.csv', 'w').write('1')"));
    let url = file["download_urls"][0]["url"].as_str().unwrap();
    assert_eq!(server.get(&format!("/{}", url.splitn(4, '/').last().unwrap())).status, 200);
    until_recorded(server);
}

#[test]
fn a_clock_jump_does_not_end_sessions_or_runs() {
    let clock = Clock::new();
    let server = clock.start(&[("KERNEL_TIMEOUT", "600"), ("RATE_LIMIT_EXEC", "1000")]);
    for session in ["one", "two", "three"] {
        done(&server, session, "x = 0");
    }
    for (round, seconds) in [0, HOUR, 0, -HOUR, HOUR, 0].into_iter().enumerate() {
        clock.moved_by(seconds);
        assert!((distance(&server) - seconds).abs() < 60, "the clock does not obey");
        goes_on(&server, round + 1);
    }
}

/// A clock jump does not change the time limit of a run.
#[test]
fn a_clock_jump_does_not_affect_a_run() {
    let clock = Clock::new();
    let server = clock.start(&[]);
    for seconds in [HOUR, -HOUR] {
        clock.moved_by(0);
        let mut running = server.connect();
        let code = "open('begun', 'w').close()\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n'done'";
        let body = json!({ "code": code, "session_id": "s", "timeout": 50 });
        running.send("POST", "/execute", &[], body.to_string().as_bytes());
        let files = || server.get("/api/v1/sessions/s/files").json().to_string();
        until("it runs", || files().contains("begun"));
        clock.moved_by(seconds);
        assert!((distance(&server) - seconds).abs() < 60, "the clock does not obey");
        let put = server.request("PUT", "/api/v1/sessions/s/files/go", &[], b"1");
        assert!(put.status < 300, "{}", put.text());
        let reply = running.answer(false).json();
        assert_eq!(reply["result"], "done", "{reply}");
        done(&server, "s", "import os\nos.remove('go'); os.remove('begun')");
    }
}

/// The latest checkpoint is restored, whatever the clock says.
#[test]
fn checkpoints_keep_their_order_when_the_clock_goes_back() {
    let clock = Clock::new();
    clock.moved_by(HOUR);
    let server = clock.start(&[]);
    let save = |server: &Server| {
        let answer = server.post("/api/v1/sessions/s/checkpoint", &Value::Null);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    done(&server, "s", "x = 1");
    save(&server);
    clock.moved_by(-HOUR);
    done(&server, "s", "x = 2");
    save(&server);
    server.kill();
    let server = clock.start(&[]);
    assert_eq!(done(&server, "s", "x")["result"], 2);
    // The same by a server that has not seen the previous checkpoint.
    done(&server, "s", "x = 3");
    clock.moved_by(-24 * HOUR);
    save(&server);
    server.kill();
    let server = clock.start(&[]);
    let reply = done(&server, "s", "x");
    assert_eq!(reply["result"], 3, "{reply}");
    let saved: Timestamp = reply["session_restored"]["saved_at"].as_str().unwrap().parse().unwrap();
    assert!(saved < Timestamp::now() + SignedDuration::from_hours(2), "{reply}");
}
