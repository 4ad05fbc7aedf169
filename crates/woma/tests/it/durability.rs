//! Durability: user data survives failures of kernels, servers, databases and disks; losses are
//! reported.

#[path = "durability/checkpoints.rs"]
mod checkpoints;
#[path = "durability/clock.rs"]
mod clock;
#[path = "durability/database.rs"]
mod database;
#[path = "durability/deletions.rs"]
mod deletions;
#[path = "durability/disk.rs"]
mod disk;
#[path = "durability/kills.rs"]
mod kills;
#[expect(dead_code, reason = "its other half is for the tests of the store")]
#[path = "../../../woma-core/tests/store/postgres.rs"]
pub(crate) mod postgres;
#[path = "durability/power.rs"]
mod power;
#[path = "durability/restarts.rs"]
mod restarts;
#[path = "durability/trail.rs"]
mod trail;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auth::woma;
use crate::harness::{Connection, Server, environment, until};

/// A data folder that outlives its servers.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn start(&self, variables: &[(&str, &str)]) -> Server {
        Server::start_with(&["--data-dir", self.path().to_str().unwrap()], variables)
    }

    /// Output of `woma keys`.
    fn keys(&self, arguments: &[&str]) -> String {
        let output = woma(self.path(), &[&["keys"], arguments].concat(), &[]);
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Rows of a query on the `SQLite` file.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<Value>> {
        rows(&self.path().join("woma.db"), sql)
    }

    fn journal_bytes(&self) -> u64 {
        fs::metadata(self.path().join("journal")).unwrap().len()
    }
}

fn python() -> OsString {
    let mut path = PathBuf::from(environment());
    path.push("bin/python");
    path.into()
}

/// Runs a program outside of any sandbox; it prints JSON.
fn outside(program: &str, arguments: &[&str], input: &str) -> Value {
    let mut child = Command::new(python())
        .args(["-I", "-c", program])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn rows(file: &Path, sql: &str) -> Vec<Vec<Value>> {
    let program = "import json, sqlite3, sys\n\
                   store = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)\n\
                   print(json.dumps(store.execute(sys.stdin.read()).fetchall()))";
    let rows = outside(program, &[file.to_str().unwrap()], sql);
    serde_json::from_value(rows).unwrap()
}

/// Every blob has the content that it is named after, and nothing is half done. Gives their number.
fn blobs_are_whole(folder: &Path) -> usize {
    let program = "import hashlib, json, os, sys\n\
                   found = []\n\
                   for shelf, _, names in os.walk(sys.argv[1]):\n\
                   \x20   for name in names:\n\
                   \x20       content = open(os.path.join(shelf, name), 'rb').read()\n\
                   \x20       digest = hashlib.sha256(content).hexdigest()\n\
                   \x20       found.append([os.path.basename(shelf) + name, digest])\n\
                   print(json.dumps(found))";
    let found = outside(program, &[folder.join("blobs").to_str().unwrap()], "");
    for pair in found.as_array().unwrap() {
        assert_eq!(pair[0], pair[1], "a blob is not what its name says");
    }
    found.as_array().unwrap().len()
}

/// Runs code; an error means that the server is gone.
pub(crate) fn try_code(address: SocketAddr, session: &str, code: &str) -> io::Result<Value> {
    let mut connection = Connection::try_open(address)?;
    let body = json!({ "code": code, "session_id": session }).to_string();
    connection.try_send("POST", "/execute", &[], body.as_bytes())?;
    let answer = connection.try_answer(false)?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    Ok(answer.json())
}

/// Runs code that must complete.
pub(crate) fn done(server: &Server, session: &str, code: &str) -> Value {
    let reply = server.code(session, code);
    assert_eq!(reply["success"], true, "{reply}");
    reply
}

pub(crate) fn health(server: &Server) -> Value {
    let answer = server.get("/health");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Waits until all records are in the database; returns the time that took.
pub(crate) fn until_recorded(server: &Server) -> Duration {
    let started = Instant::now();
    until("everything is recorded", || {
        let health = health(server);
        health["status"] == "healthy" && health["unrecorded"] == 0
    });
    started.elapsed()
}

/// Signals the end when it is dropped.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for a fixed time, because there is no state to wait for.
#[expect(clippy::disallowed_methods, reason = "what is tested is what happens in that time")]
pub(crate) fn pass(time: Duration) {
    thread::sleep(time);
}
