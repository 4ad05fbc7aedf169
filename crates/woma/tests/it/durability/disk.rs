//! Disks that are full or read-only. A small disk is a mount in the server's own namespace: it
//! leaves nothing behind, and an ordinary user can create it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Home, blobs_are_whole, done, health, until_recorded};
use crate::files::put;
use crate::harness::{Server, environment, until};

/// After space is back.
const NORMAL_MAX: Duration = Duration::from_secs(30);

/// Mounts a small disk on a folder and becomes the program that follows.
const SMALL: &str = "mount -t tmpfs -o \"$0\" woma-test \"$1\" && shift && exec \"$@\"";
/// Locks a folder, and becomes the program that follows.
const LOCKED: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";

fn namespace() -> Vec<&'static str> {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let more: &[&str] = if is_root { &[] } else { &["--user", "--map-root-user"] };
    [&["unshare", "--mount"], more].concat()
}

/// A server whose data folder is a small disk.
struct Small {
    server: Server,
    home: Home,
}

impl Small {
    /// Without a reserve: it becomes as full as it can be.
    fn start(options: &str) -> Self {
        Self::with_reserve(options, "0")
    }

    fn with_reserve(options: &str, reserve: &str) -> Self {
        let home = Home::new();
        let folder = home.path().to_str().unwrap();
        let place = [namespace(), vec!["sh", "-c", SMALL, options, folder]].concat();
        let variables = [("MAX_KERNELS", "20"), ("MIN_FREE_DISK", reserve)];
        let server = Server::start_in(&place, &["--data-dir", folder], &variables);
        Self { server, home }
    }

    /// The data folder, as the server sees it.
    fn folder(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.server.pid);
        PathBuf::from(root).join(self.home.path().strip_prefix("/").unwrap())
    }

    fn free_bytes(&self) -> u64 {
        let output = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(self.folder()).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_whitespace().map(|number| number.parse::<u64>().unwrap()).product()
    }

    /// Runs plain code until a reply says that it could not be recorded. All runs succeed.
    fn until_warned(&self, session: &str) -> String {
        let mut warning = None;
        until("it is said that there is no space", || {
            let reply = done(&self.server, session, "6 * 7");
            assert_eq!(reply["result"], 42);
            warning = reply["warnings"][0].as_str().map(str::to_owned);
            warning.is_some()
        });
        warning.unwrap()
    }

    fn is_normal_again(&self, session: &str) {
        let started = Instant::now();
        until("runs are recorded", || {
            done(&self.server, session, "6 * 7")["warnings"] == json!([])
        });
        assert!(started.elapsed() < NORMAL_MAX, "{:?}", started.elapsed());
        let reply = done(&self.server, session, "open('after.csv', 'w').write('x')");
        assert_eq!(
            (&reply["warnings"], &reply["files_created"]),
            (&json!([]), &json!(["after.csv"]))
        );
        assert_eq!(reply["download_urls"][0]["size"], 1, "{reply}");
        until_recorded(&self.server);
        blobs_are_whole(&self.folder());
        // SQLite would follow the way there to a folder of ours.
        let copy = Home::new();
        for name in ["woma.db", "woma.db-wal"] {
            fs::copy(self.folder().join(name), copy.path().join(name)).unwrap();
        }
        let statuses = copy.rows("SELECT DISTINCT status FROM executions");
        assert_eq!(statuses, [[json!("finished")]]);
    }
}

#[test]
fn code_runs_on_a_full_disk_with_a_warning() {
    let small = Small::start("size=64m");
    let server = &small.server;
    done(server, "plain", "x = 1");
    let reply = server
        .code("greedy", "with open('big.bin', 'wb') as f:\n    while True: f.write(b'x' * 65536)");
    assert_eq!(reply["error"]["type"], "OSError", "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("No space left"), "{reply}");
    let warning = small.until_warned("plain");
    assert!(warning.contains("could not be recorded: No space left"), "{warning}");
    assert_eq!(done(server, "plain", "x")["result"], 1);
    // New sessions need a folder, which may or may not fit: the reply is clear either
    // way.
    let answer = server.post("/execute", &json!({ "code": "1", "session_id": "another" }));
    let said = answer.text();
    assert!(answer.status == 200 || said.contains("space"), "{} {said}", answer.status);
    until("it is told", || health(server)["status"] == "degraded");

    done(server, "greedy", "import os; os.remove('big.bin')");
    small.is_normal_again("plain");
    done(server, "another", "1");
}

#[test]
fn a_file_that_cannot_be_stored_stays_in_its_session_with_a_warning() {
    let small = Small::start("size=64m");
    let server = &small.server;
    let code = "with open('half.csv', 'wb') as f:\n    f.write(b'x' * 40_000_000)";
    let reply = done(server, "files", code);
    assert_eq!(reply["files_created"], json!(["half.csv"]), "{reply}");
    assert_eq!(reply["download_urls"], json!([]), "{reply}");
    let warnings: Vec<&str> =
        reply["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let said = warnings.concat();
    assert!(
        said.contains("half.csv has no download address") && said.contains("no space"),
        "{said}"
    );
    assert_eq!(blobs_are_whole(&small.folder()), 0);
    assert_eq!(
        done(server, "files", "import os; os.path.getsize('half.csv')")["result"],
        40_000_000
    );
    done(server, "files", "os.remove('half.csv')");
    small.is_normal_again("files");
}

#[test]
fn code_runs_without_free_inodes() {
    let small = Small::start("size=64m,nr_inodes=400");
    let server = &small.server;
    done(server, "plain", "x = 1");
    let code = "import os\nos.mkdir('many')\nfor n in range(1000): open(f'many/{n}', 'w').close()";
    let reply = server.code("greedy", code);
    assert_eq!(reply["error"]["type"], "OSError", "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("No space left"), "{reply}");
    assert_eq!(done(server, "plain", "x + 1")["result"], 2);
    let answer = server.post("/execute", &json!({ "code": "1", "session_id": "another" }));
    let said = answer.text();
    assert!(answer.status == 200 || said.contains("space"), "{} {said}", answer.status);
    done(server, "greedy", "import shutil; shutil.rmtree('many')");
    small.is_normal_again("plain");
    done(server, "another", "1");
}

#[test]
fn below_the_reserve_writers_are_stopped_and_the_server_works() {
    let small = Small::with_reserve("size=256m", "128");
    let server = &small.server;
    done(server, "plain", "x = 1");
    assert_eq!(health(server)["disk"]["is_below_reserve"], false, "{}", health(server));
    let code = "import time\nwith open('big.bin', 'wb') as file:\n    while True:\n        \
                file.write(b'x' * 262144)\n        time.sleep(0.005)";
    let reply = server.code("greedy", code);
    assert_eq!(reply["outcome"], "interrupted", "{reply}");
    assert!(reply.to_string().contains("below its reserve (MIN_FREE_DISK)"), "{reply}");
    assert!(small.free_bytes() > 64 << 20, "{} are left", small.free_bytes());
    until("it is told", || health(server)["disk"]["is_below_reserve"] == true);
    let told = health(server);
    assert_eq!(
        (&told["status"], &told["disk"]["reserve_bytes"]),
        (&json!("degraded"), &json!(128 << 20))
    );
    assert!(told["problems"].to_string().contains("MIN_FREE_DISK"), "{told}");
    let figures = server.get("/metrics");
    assert!(figures.text().contains("woma_disk_below_reserve 1"), "{}", figures.text());
    // New data is refused by name; runs and records go on.
    let session = "/api/v1/sessions/plain";
    let upload = json!({ "path": "a.bin", "size": 10, "session_id": "plain" });
    let refused = [
        put(server, "plain", "new.txt", b"x"),
        server.post("/api/v1/uploads", &upload),
        server.post(&format!("{session}/checkpoint"), &json!({})),
    ];
    for answer in refused {
        assert_eq!(answer.status, 507, "{}", answer.text());
        let said = answer.json();
        assert_eq!(said["code"], "insufficient_storage", "{said}");
        assert!(said["message"].as_str().unwrap().contains("MIN_FREE_DISK"), "{said}");
    }
    let reply = done(server, "plain", "open('small.csv', 'w').write('1'); x");
    assert_eq!((&reply["result"], &reply["download_urls"]), (&json!(1), &json!([])), "{reply}");
    let said = reply["warnings"].to_string();
    assert!(said.contains("small.csv has no download address") && said.contains("MIN_FREE_DISK"));
    for _ in 0..20 {
        assert_eq!(done(server, "plain", "x + 1")["warnings"], json!([]), "records are written");
    }
    until("records are written", || health(server)["unrecorded"] == 0);
    // Runs that are too short to be checked do not fill it either.
    for n in 0..40 {
        server.code("short", &format!("open('{n}.bin', 'wb').write(b'x' * (4 << 20)); None"));
    }
    assert!(small.free_bytes() > 64 << 20, "{} are left", small.free_bytes());

    // The run has enlarged a folder that was too full; no code runs until that is undone.
    let reply = server.code("short", "1");
    assert!(reply.to_string().contains("MIN_FREE_DISK"), "{reply}");
    assert_eq!(server.request("DELETE", "/api/v1/sessions/short", &[], b"").status, 200);
    done(server, "greedy", "import os; os.remove('big.bin')");
    until("it is told", || health(server)["status"] == "healthy");
    assert_eq!(put(server, "plain", "new.txt", b"x").status, 201);
    small.is_normal_again("plain");
}

#[test]
fn inodes_have_a_reserve_too() {
    let small = Small::with_reserve("size=64m,nr_inodes=3000", "40%");
    let server = &small.server;
    let code = "import os, time\nos.mkdir('many')\nfor n in range(5000):\n    \
                open(f'many/{n}', 'w').close()\n    time.sleep(0.001)";
    let reply = server.code("greedy", code);
    assert_eq!(reply["outcome"], "interrupted", "{reply}");
    assert!(reply.to_string().contains("MIN_FREE_DISK"), "{reply}");
    assert_eq!(put(server, "plain", "new.txt", b"x").status, 507);
    done(server, "greedy", "import shutil; shutil.rmtree('many')");
    until("it is told", || health(server)["status"] == "healthy");
    assert_eq!(put(server, "plain", "new.txt", b"x").status, 201);
}

#[test]
fn rejects_a_read_only_data_folder_by_name() {
    let home = Home::new();
    for is_used in [false, true] {
        if is_used {
            let server = home.start(&[]);
            done(&server, "s", "1");
            server.stop();
        }
        let folder = home.path().to_str().unwrap();
        let place = [namespace(), vec!["sh", "-c", LOCKED, folder]].concat();
        let output = Command::new(place[0])
            .args(&place[1..])
            .arg(env!("CARGO_BIN_EXE_woma"))
            .args(["--data-dir", folder, "--env"])
            .arg(environment())
            .args(["serve", "--port", "0"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(&format!("the data folder {folder} cannot be used")), "{said}");
        assert!(said.contains("Read-only") || said.contains("may only be read"), "{said}");
        assert!(said.contains("--data-dir"), "{said}");
    }
    done(&home.start(&[]), "s", "1");
}
