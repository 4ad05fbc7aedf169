//! Orderly restarts, and data folders of other versions.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::postgres::Cluster;
use super::{Home, done, health, until_recorded};
use crate::client::{Spoken, request};
use crate::harness::{Server, environment, until};

/// Starts a server that must refuse to start, and returns its message.
pub(super) fn refusal(home: &Home) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_woma"))
        .arg("--data-dir")
        .arg(home.path())
        .arg("--env")
        .arg(environment())
        .args(["serve", "--port", "0"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn sigterm_saves_variables_and_records() {
    let home = Home::new();
    let server = home.start(&[]);
    let mut ids = Vec::new();
    for session in ["one", "two", "three"] {
        let reply = done(&server, session, "x = 1; words = ['a', 'b']");
        ids.push(reply["execution_id"].as_str().unwrap().to_owned());
    }
    // At once: nothing has been idle for long enough to be saved by itself.
    server.stop();
    assert_eq!(home.journal_bytes(), 0, "everything is in the store");
    assert_eq!(home.rows("SELECT session_id FROM checkpoints").len(), 3);
    let known: Vec<_> = home.rows("SELECT id FROM executions WHERE status = 'finished'").concat();
    assert!(ids.iter().all(|id| known.contains(&json!(id))), "{known:?}");

    let server = home.start(&[]);
    let listed = server.get("/api/v1/sessions").json();
    assert_eq!(listed["total"], 3, "{listed}");
    for session in ["one", "two", "three"] {
        let reply = done(&server, session, "x, words");
        assert_eq!(reply["result"], json!([1, ["a", "b"]]), "{reply}");
        assert_eq!(reply["session_restored"]["restored"], json!(["x", "words"]), "{reply}");
        assert_eq!(reply["kernel_info"]["execution_count"], 2, "{reply}");
    }
}

#[test]
fn a_restart_finds_all_data_and_rejects_a_newer_schema() {
    let home = Home::new();
    for _ in 0..2 {
        let server = home.start(&[]);
        done(&server, "s", "1");
        until_recorded(&server);
        server.stop();
    }
    assert_eq!(home.rows("SELECT id FROM executions").len(), 2);
    home.rows("INSERT INTO schema_versions SELECT version + 1000, applied_at FROM schema_versions");
    let said = refusal(&home);
    assert!(said.contains("the store has version") && said.contains("newer program"), "{said}");
    home.rows("DELETE FROM schema_versions WHERE version > 1000");
    done(&home.start(&[]), "s", "1");
}

/// A second `woma serve` on the folder is refused, and told which process has it. The lock ends with
/// that process.
#[test]
fn a_second_server_on_a_folder_is_refused_by_the_name_of_the_first() {
    let home = Home::new();
    let first = home.start(&[]);
    let said = refusal(&home);
    let holder = format!("another `woma serve` (pid {}, http://{})", first.pid, first.address);
    assert!(said.contains(&holder), "{said}");
    assert!(said.contains("--data-dir") && said.contains("DATABASE_URL"), "{said}");
    done(&first, "a", "1");
    first.kill();
    done(&home.start(&[]), "a", "1");
}

/// A process of a desktop client beside a server, with one folder.
fn beside(home: &Home, variables: &[(&str, &str)]) -> Spoken {
    let folder = home.path().to_str().unwrap();
    let mut spoken = Spoken::start(&["--data-dir", folder, "stdio"], variables);
    spoken.begin();
    spoken
}

fn send_code(spoken: &mut Spoken, session: &str, code: &str) {
    let arguments = json!({ "code": code, "session_id": session });
    let params = json!({ "name": "execute_code", "arguments": arguments });
    spoken.send(&request(2, "tools/call", &params));
}

fn spoken_done(spoken: &mut Spoken, session: &str, code: &str) -> Value {
    send_code(spoken, session, code);
    let result = spoken.next()["result"].take();
    assert_eq!(result["isError"], false, "{result}");
    result["structuredContent"]["result"].clone()
}

/// A server and processes of clients with one folder: none records another's runs as lost.
#[test]
fn processes_that_share_a_folder_keep_their_records_apart() {
    let home = Home::new();
    let first = home.start(&[]);
    let mut running = first.connect();
    // Both go on until a file is there: on a busy machine, a second process takes its time.
    let wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n";
    let body = json!({ "code": wait, "session_id": "a" }).to_string();
    running.send("POST", "/execute", &[], body.as_bytes());
    first.until_busy("a", true);
    // They do not remove the folder of an ephemeral run either.
    let mut passing = first.connect();
    let code = format!("open('a.csv', 'w').write('1')\n{wait}open('a.csv').read()");
    let body = json!({ "code": code, "stateless": true }).to_string();
    passing.send("POST", "/execute", &[], body.as_bytes());
    let places = home.path().join("sessions/passing");
    let mut place = None;
    until("it has written", || {
        let places = fs::read_dir(&places).unwrap().flatten();
        let runs = places.flat_map(|place| fs::read_dir(place.path())).flatten().flatten();
        place = runs.map(|run| run.path()).find(|run| run.join("a.csv").is_file());
        place.is_some()
    });
    let mut second = beside(&home, &[]);
    assert_eq!(spoken_done(&mut second, "b", "1"), 1);
    fs::write(place.unwrap().join("go"), "").unwrap();
    let left = passing.answer(false).json();
    let created = left["files_created"].as_array().unwrap();
    assert!(created.contains(&json!("a.csv")), "{left}");
    let put = first.request("PUT", "/api/v1/sessions/a/files/go", &[], b"now");
    assert_eq!(put.status, 201, "{}", put.text());
    let reply = running.answer(false).json();
    until_recorded(&first);
    let sql = format!("SELECT status FROM executions WHERE id = {}", reply["execution_id"]);
    assert_eq!(home.rows(&sql.replace('"', "'")), [[json!("finished")]]);

    // The next process finds the records of the second one.
    // The record of its first run may still wait there too: this one has begun when it has written.
    send_code(&mut second, "b", "import time\nopen('begun', 'w').close()\ntime.sleep(600)");
    let sessions = home.path().join("sessions");
    until("it has begun", || {
        let below = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        let owners = below(sessions.clone()).flat_map(|owner| below(owner.path()));
        owners.map(|session| session.path()).any(|session| session.join("begun").is_file())
    });
    second.child.kill().unwrap();
    second.child.wait().unwrap();
    let third = beside(&home, &[]);
    let lost = "SELECT session_id FROM executions WHERE status = 'lost'";
    until("it is known to be lost", || home.rows(lost) == [[json!("b")]]);
    assert_eq!(health(&first)["status"], "healthy");
    drop(third);
}

/// Spare folders of a killed server are removed; those of a live process stay.
#[test]
fn spare_folders_of_a_killed_server_are_removed() {
    let home = Home::new();
    let places = home.path().join("sessions/passing");
    let spares = || {
        let places = fs::read_dir(&places).unwrap().flatten();
        let below = places.flat_map(|place| fs::read_dir(place.path())).flatten().flatten();
        below.filter(|entry| entry.file_name().to_string_lossy().starts_with("spare-")).count()
    };
    let settings = [("SESSION_POOL_SIZE", "2")];
    let first = home.start(&settings);
    until("its pool is full", || spares() == 2);
    done(&first, "a", "open('a.csv', 'w').write('1')");
    let mut second = beside(&home, &settings);
    until("both pools are full", || spares() == 4);
    first.kill();
    spoken_done(&mut second, "b", "open('b.csv', 'w').write('2')");
    until("its pool is full, and the folders of the first are still there", || spares() == 4);
    let third = home.start(&settings);
    until("the pool of the third is full", || health(&third)["cells"]["pooled"] == 2);
    until("folders of the first server are gone", || spares() == 4);
    // A spare folder that a session has taken stays with the session.
    assert_eq!(done(&third, "a", "open('a.csv').read()")["result"], "1");
    assert_eq!(spoken_done(&mut second, "b", "open('b.csv').read()"), "2");
    second.hang_up();
    until("it has ended", || second.child.try_wait().unwrap().is_some());
    third.stop();
    assert_eq!(spares(), 0);
}

/// The rules of a session do not depend on the database.
#[test]
fn a_session_keeps_its_rules_without_the_database() {
    let cluster = Cluster::start();
    let (home, database) = (Home::new(), cluster.fresh());
    let url = cluster.url(&database);
    let start = || home.start(&[("DATABASE_URL", &url)]);
    let server = start();
    let body = json!({ "session_id": "strict", "name": "Careful", "policy": "tiers" });
    assert_eq!(server.post("/api/sessions", &body).status, 200);
    let refuses = |server: &Server| {
        let reply = server.code("strict", "import os");
        assert_eq!(
            (&reply["success"], &reply["error"]["category"]),
            (&json!(false), &json!("security"))
        );
    };
    done(&server, "strict", "x = 1");
    refuses(&server);
    server.kill();
    cluster.stop("-QUIT");
    let server = start();
    refuses(&server);
    let told = server.get("/api/v1/sessions/strict").json();
    assert_eq!((&told["name"], &told["policy"]), (&json!("Careful"), &json!("tiers")), "{told}");
    // The rules are deleted with the session only.
    assert_eq!(server.post("/api/v1/sessions/strict/reset", &json!({})).status, 200);
    done(&server, "strict", "1");
    server.kill();
    let server = start();
    refuses(&server);
    assert_eq!(server.request("DELETE", "/api/v1/sessions/strict", &[], b"").status, 200);
    done(&server, "strict", "import os");
    server.kill();
    done(&start(), "strict", "import os");
}
