//! Sessions whose kernels end: restored variables, lost ones, and the report about both.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Home, done, pass};
use crate::auth::Keyed;
use crate::harness::{Server, until};

/// Variables of every kind; some of them cannot outlive their kernel.
const MAKE: &str = "import threading, pandas as pd\nx = 41\nframe = pd.DataFrame({'a': [1, 2]})\n\
                    def twice(n): return n * 2\nlock = threading.Lock()\nopen('kept.txt', 'w').write('kept')";
const LOOK: &str = "x, len(frame), twice(x), open('kept.txt').read(), 'lock' in globals()";

/// The variables are restored, and the reply names restored and missing ones.
fn came_back(reply: &Value, why: &str) {
    assert_eq!(reply["result"], json!([41, 2, 82, "kept", false]), "{reply}");
    assert_eq!(reply["session_restarted"], true, "{reply}");
    let reason = reply["restart_reason"].as_str().unwrap();
    assert!(reason.contains(why) && reason.contains("variables are back as of "), "{reply}");
    let restored = &reply["session_restored"];
    for name in ["x", "frame", "twice"] {
        assert!(restored["restored"].as_array().unwrap().contains(&json!(name)), "{reply}");
    }
    let missing = &restored["not_restored"][0];
    assert_eq!(missing["name"], "lock", "{reply}");
    assert!(missing["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{reply}");
    assert!(restored["saved_at"].is_string() && restored.get("error").is_none(), "{reply}");
}

fn is_saved(home: &Home, session: &str) -> bool {
    let sql = format!("SELECT session_id FROM checkpoints WHERE session_id = '{session}'");
    !home.rows(&sql).is_empty()
}

fn until_saved(home: &Home, session: &str) {
    until("it is saved", || is_saved(home, session));
}

#[test]
fn an_evicted_session_is_restored() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    done(&server, "first", MAKE);
    done(&server, "second", "y = 1");
    let reply = server.code("first", LOOK);
    came_back(&reply, "evicted");
    assert!(!reply["restart_reason"].to_string().contains("lost"), "{reply}");
    let reply = done(&server, "second", "y");
    assert_eq!((&reply["result"], &reply["session_restarted"]), (&json!(1), &json!(true)));
    // It is reported once.
    done(&server, "third", "1");
    done(&server, "second", "y += 1");
    let reply = done(&server, "second", "y");
    assert_eq!(reply["result"], 2);
    assert!(reply.get("session_restored").is_none(), "{reply}");
}

#[test]
fn an_expired_session_is_restored() {
    let home = Home::new();
    let server = home.start(&[("KERNEL_TIMEOUT", "1")]);
    done(&server, "idle", MAKE);
    until("it has expired", || server.get("/api/v1/sessions/idle").json()["is_live"] == false);
    came_back(&server.code("idle", LOOK), "idle for 1 second");
}

#[test]
fn a_crashed_kernel_is_restored_from_its_last_checkpoint() {
    let home = Home::new();
    let server = home.start(&[]);
    done(&server, "crashing", MAKE);
    until_saved(&home, "crashing");
    let reply = server.code("crashing", "x = 42\nframe['b'] = 1\nimport os; os._exit(3)");
    assert_eq!(reply["success"], false, "{reply}");
    assert_eq!(reply["kernel_info"]["session_persisted"], false, "{reply}");
    // Both replies say what comes back, and what is lost.
    let said = reply["error_message"].as_str().unwrap();
    assert!(said.contains("at the next call the variables are back as of "), "{said}");
    assert!(said.contains("changes since then are lost: x, frame."), "{said}");
    let reply = server.code("crashing", LOOK);
    came_back(&reply, "the run before this one");
    let said = reply["restart_reason"].as_str().unwrap();
    assert!(said.ends_with("; changes since then are lost: x, frame"), "{said}");
    // It is told once, and a crash in the first run of a new kernel is told of its own.
    assert_eq!(done(&server, "crashing", "x").get("restart_reason"), None);
    server.code("crashing", "import os; os._exit(3)");
    let reply = server.code("crashing", "later = 1\nimport os; os._exit(3)");
    assert!(!reply["restart_reason"].to_string().contains("later"), "{reply}");
    let reply = done(&server, "crashing", "x");
    assert!(reply["restart_reason"].as_str().unwrap().ends_with("are lost: later"), "{reply}");
}

/// Nothing was saved: both replies say that the variables are lost, and that the files are not.
#[test]
fn a_crash_before_the_first_checkpoint_loses_variables_and_no_files() {
    let home = Home::new();
    let server = home.start(&[]);
    let code = "x = 1\nopen('kept.txt', 'w').write('kept')\nimport os; os._exit(3)";
    let reply = server.code("new", code);
    let said = reply["error_message"].as_str().unwrap();
    assert!(said.ends_with("; the session's variables are lost, its files are still there."));
    let reply = done(&server, "new", "'x' in globals(), open('kept.txt').read()");
    assert_eq!(reply["result"], json!([false, "kept"]));
    let said = reply["restart_reason"].as_str().unwrap();
    assert!(said.ends_with("its variables are lost: x, its files are still there"), "{said}");
}

/// The latest checkpoint counts, even if it is empty.
#[test]
fn variables_that_were_deleted_stay_deleted() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    done(&server, "emptied", "x = 1");
    done(&server, "other", "1");
    assert_eq!(done(&server, "emptied", "x")["result"], 1);
    done(&server, "emptied", "del x");
    done(&server, "other", "1");
    let reply = server.code("emptied", "x");
    assert_eq!(reply["error"]["type"], "NameError");
    assert_eq!(reply["session_restarted"], true, "{reply}");
    assert_eq!(reply.get("session_restored"), None, "there was nothing to bring back: {reply}");
}

/// An upload before the first call finds the session with its rules and variables.
#[test]
fn an_upload_to_an_unloaded_session_keeps_its_variables_and_rules() {
    let home = Home::new();
    let server = home.start(&[]);
    let body = json!({ "session_id": "s", "policy": "tiers" });
    assert_eq!(server.post("/api/sessions", &body).status, 200);
    done(&server, "s", "x = 41");
    until_saved(&home, "s");
    // This one has rules, and nothing else yet.
    let body = json!({ "session_id": "bare", "policy": "tiers" });
    assert_eq!(server.post("/api/sessions", &body).status, 200);
    server.kill();
    let server = home.start(&[]);
    for session in ["s", "bare"] {
        let path = format!("/api/v1/sessions/{session}/files/a.txt");
        assert_eq!(server.request("PUT", &path, &[], b"new").status, 201);
        let refused = server.code(session, "import os");
        assert_eq!(refused["error"]["category"], "security", "{refused}");
        if session == "s" {
            let said = refused["restart_reason"].as_str().unwrap();
            assert!(said.ends_with("; later changes, if any, are lost"), "{said}");
        }
    }
    assert_eq!(done(&server, "s", "x")["result"], 41);
    assert_eq!(server.get("/api/v1/sessions/s/files/a.txt").text(), "new");
}

#[test]
fn reset_and_deleted_sessions_are_not_restored() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "2")]);
    for (session, method, path) in [
        ("reset", "POST", "/api/v1/sessions/reset/reset"),
        ("deleted", "DELETE", "/api/v1/sessions/deleted"),
    ] {
        done(&server, session, MAKE);
        until_saved(&home, session);
        let files = home.path().join("sessions");
        let count = || {
            // A folder that is being removed is elsewhere.
            let mut owners = std::fs::read_dir(&files).unwrap().flatten();
            let owner = owners.find(|entry| entry.file_name() != "passing").unwrap();
            let entries = std::fs::read_dir(owner.path()).unwrap().flatten();
            entries.filter(|entry| entry.path().is_dir()).count()
        };
        let before = count();
        assert_eq!(server.request(method, path, &[], b"").status, 200);
        assert_eq!(count(), before - 1, "its folder stays");
        assert!(!is_saved(&home, session));
        for code in ["x", "open('kept.txt')"] {
            let reply = server.code(session, code);
            assert_eq!(reply["success"], false, "{reply}");
            assert_eq!(reply["session_restarted"], false, "{reply}");
        }
        // The same after the next kernel has ended.
        server.code(session, "import os; os._exit(1)");
        assert_eq!(server.code(session, "x")["error"]["type"], "NameError");
    }
    server.kill();
    let server = home.start(&[]);
    for session in ["reset", "deleted"] {
        assert_eq!(server.code(session, "x")["error"]["type"], "NameError");
    }
}

#[test]
fn sessions_of_two_owners_with_one_name_are_separate() {
    let keyed = Keyed::start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    let keys = [keyed.key("ann", &[]), keyed.key("bob", &[])];
    let [ann, bob] = [keyed.client(&keys[0]), keyed.client(&keys[1])];
    until("the keys are known", || bob.get("/api/v1/sessions").status == 200);
    for round in 0..2 {
        for (name, client) in [("ann", ann), ("bob", bob)] {
            // Each evicts the other one.
            let code = format!("name = '{name}'; open('who', 'w').write(name)");
            if round == 0 {
                assert_eq!(client.code("same", &code)["success"], true);
            } else {
                let reply = client.code("same", "name, open('who').read()");
                assert_eq!(reply["result"], json!([name, name]), "{reply}");
                assert_eq!(reply["session_restored"]["restored"], json!(["name"]), "{reply}");
            }
        }
    }
}

/// Its variables are saved slowly.
const SLOW: &str = "import time\nclass Slow:\n    def __reduce__(self):\n        time.sleep(1.5)\n        \
                    return (int, (7,))\nslow = Slow()";

/// Waits until a checkpoint of that session is in progress.
fn until_being_saved(server: &Server, home: &Home) {
    done(server, "slow", SLOW);
    pass(Duration::from_millis(3_000));
    assert!(home.rows("SELECT session_id FROM checkpoints").is_empty(), "it is saved already");
}

#[test]
fn waits_for_a_checkpoint_in_progress() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    until_being_saved(&server, &home);
    done(&server, "other", "1");
    let reply = done(&server, "slow", "slow");
    assert_eq!(reply["result"], 7, "{reply}");
    assert_eq!(reply["session_restored"]["restored"], json!(["time", "Slow", "slow"]), "{reply}");
}

#[test]
fn shutdown_waits_for_checkpoints_in_progress() {
    let home = Home::new();
    let server = home.start(&[]);
    until_being_saved(&server, &home);
    server.stop();
    let server = home.start(&[]);
    assert_eq!(done(&server, "slow", "slow")["result"], 7);
}

#[test]
fn a_checkpoint_in_progress_does_not_undo_a_reset() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    done(&server, "slow", SLOW);
    // The eviction saves it; the reset comes during the save.
    let mut pushing = server.connect();
    let body = json!({ "code": "1", "session_id": "other" }).to_string();
    pushing.send("POST", "/execute", &[], body.as_bytes());
    until("it is being ended", || server.get("/api/v1/sessions/slow").json()["is_live"] == false);
    assert_eq!(server.post("/api/v1/sessions/slow/reset", &json!({})).status, 200);
    assert_eq!(pushing.answer(false).status, 200);
    assert!(home.rows("SELECT session_id FROM checkpoints").is_empty());
    assert_eq!(server.code("slow", "slow")["error"]["type"], "NameError");
}

/// A session that is used all the time has no quiet moment in which its variables are saved.
#[test]
fn a_session_that_is_never_idle_is_saved_every_half_a_minute() {
    let home = Home::new();
    let server = home.start(&[]);
    done(&server, "busy", "n = 0");
    let mut calls = 0;
    until("it is saved without a pause", || {
        calls += 1;
        done(&server, "busy", "n += 1");
        pass(Duration::from_millis(100));
        is_saved(&home, "busy")
    });
    assert!(calls > 50, "it was saved after {calls} calls: there was a pause");
    server.kill();
    let server = home.start(&[]);
    let kept = done(&server, "busy", "n")["result"].as_u64().unwrap();
    assert!((1..=calls).contains(&kept), "{kept} of {calls}");
}
