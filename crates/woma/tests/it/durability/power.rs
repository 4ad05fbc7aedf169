//! Loss of power: what a server has acknowledged is there afterwards, even if the disk drops every
//! write that was not synced. A preloaded library keeps what was synced; after a kill, a data folder
//! with nothing else is made of that.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::postgres::Cluster;
use super::{Home, blobs_are_whole, done, health, until_recorded};
use crate::harness::{Server, until};

/// A data folder, and what the disk would have of it.
struct Disk {
    home: Home,
    kept: TempDir,
    library: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let (home, kept) = (Home::new(), TempDir::new().unwrap());
        let library = kept.path().join("power.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/durability/power.c");
        // A machine that has built this test has a linker.
        let mut build = Command::new("cc");
        build.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
        assert!(build.status().unwrap().success());
        Self { home, kept, library }
    }

    fn start(&self, variables: &[(&str, &str)]) -> Server {
        let mut all = vec![
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("WOMA_TEST_POWER_ROOT", self.home.path().to_str().unwrap()),
            ("WOMA_TEST_POWER_KEPT", self.kept.path().to_str().unwrap()),
            // A confined server may write to its data folder only.
            ("RUN_AS", "root"),
        ];
        all.extend(variables);
        self.home.start(&all)
    }

    /// The data folder after loss of power.
    fn after(&self) -> Home {
        let home = Home::new();
        self.restore(&key_of(self.home.path(), 'd'), home.path());
        home
    }

    /// A folder that was not synced is empty, and so is a file.
    fn restore(&self, key: &str, folder: &Path) {
        let names = fs::read_to_string(self.kept.path().join(key)).unwrap_or_default();
        for line in names.lines() {
            let (key, name) = line.split_once(' ').unwrap();
            let path = folder.join(name);
            if key.starts_with('d') {
                fs::create_dir(&path).unwrap();
                self.restore(key, &path);
            } else {
                let content = fs::read(self.kept.path().join(key)).unwrap_or_default();
                fs::write(&path, content).unwrap();
            }
        }
    }
}

/// As `name_of` in power.c.
fn key_of(path: &Path, kind: char) -> String {
    let about = fs::metadata(path).unwrap();
    let born = about.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
    format!("{kind}{}-{}-{}", about.ino(), born.as_secs(), born.subsec_nanos())
}

/// Creates a session with a name, a file with an address and a checkpoint; gives the address.
fn made(server: &Server, session: &str) -> String {
    let body = json!({ "session_id": session, "name": format!("{session} of mine") });
    assert_eq!(server.post("/api/v1/sessions", &body).status, 200);
    let reply = done(server, session, "x = 41\nopen('a.csv', 'w').write('1')");
    let saved = server.post(&format!("/api/v1/sessions/{session}/checkpoint"), &Value::Null);
    assert_eq!(saved.status, 200, "{}", saved.text());
    let url = reply["download_urls"][0]["url"].as_str().unwrap();
    format!("/{}", url.splitn(4, '/').last().unwrap())
}

#[test]
fn what_was_acknowledged_survives_loss_of_power() {
    let disk = Disk::new();
    for round in 0..2 {
        let server = disk.start(&[]);
        let [kept, deleted, reset] =
            ["kept", "deleted", "reset"].map(|name| format!("{name}-{round}"));
        let files = [&kept, &deleted, &reset].map(|session| made(&server, session));
        let gone = server.request("DELETE", &format!("/api/v1/sessions/{deleted}"), &[], b"");
        assert_eq!(gone.status, 200, "{}", gone.text());
        let empty = server.post(&format!("/api/v1/sessions/{reset}/reset"), &Value::Null);
        assert_eq!(empty.status, 200, "{}", empty.text());
        server.kill();

        let home = disk.after();
        blobs_are_whole(home.path());
        let server = home.start(&[]);
        let listed = server.get("/api/v1/sessions").json().to_string();
        assert!(listed.contains(&format!("{kept} of mine")), "{listed}");
        assert!(!listed.contains(&deleted), "{listed}");
        let [of_kept, of_deleted, _] = files;
        assert_eq!(server.get(&of_kept).text(), "1");
        assert_eq!(server.get(&of_deleted).status, 404);
        assert_eq!(done(&server, &kept, "x + 1")["result"], 42);
        for session in [&deleted, &reset] {
            assert_eq!(done(&server, session, "'x' in globals()")["result"], false, "{session}");
        }
        let trail = server.get("/api/v1/audit?limit=1000").json().to_string();
        for action in ["delete_session", "reset_session"] {
            assert!(trail.contains(action), "{trail}");
        }
        server.stop();
    }
}

/// While the database is away, the outbox is all there is.
#[test]
fn deletions_during_an_outage_survive_loss_of_power() {
    let (cluster, disk) = (Cluster::start(), Disk::new());
    let database = cluster.fresh();
    let url = cluster.url(&database);
    let server = disk.start(&[("DATABASE_URL", &url)]);
    for session in ["deleted", "kept"] {
        made(&server, session);
    }
    until_recorded(&server);
    cluster.stop("-QUIT");
    until("the database is missed", || health(&server)["status"] == "degraded");
    let gone = server.request("DELETE", "/api/v1/sessions/deleted", &[], b"");
    assert_eq!(gone.status, 200, "{}", gone.text());
    let body = json!({ "session_id": "new", "name": "made meanwhile" });
    assert_eq!(server.post("/api/v1/sessions", &body).status, 200);
    server.kill();

    let home = disk.after();
    cluster.launch();
    let server = home.start(&[("DATABASE_URL", &url)]);
    until_recorded(&server);
    let sql = "SELECT id FROM sessions ORDER BY id";
    let left = cluster.sql(&database, sql).unwrap();
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), ["kept", "new"]);
    let sql = "SELECT count(*) FROM audit WHERE action = 'delete_session'";
    assert_eq!(cluster.sql(&database, sql).unwrap().trim(), "1");
}

/// The library drops what was not synced: otherwise the test above could not fail.
#[test]
fn what_was_not_synced_is_lost() {
    let disk = Disk::new();
    let server = disk.start(&[]);
    done(&server, "s", "open('a.txt', 'w').write('1')");
    let written = disk.home.path().join("not-synced");
    fs::write(&written, "1").unwrap();
    server.kill();
    let home = disk.after();
    assert!(home.path().join("server-id").is_file());
    assert!(!home.path().join("not-synced").exists());
    assert!(
        fs::metadata(home.path().join("journal")).unwrap().len() == 0,
        "its lines are not synced"
    );
}
