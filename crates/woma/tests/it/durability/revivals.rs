//! Kernels that end, and sessions that go on: what comes back, what does not, and what is said.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Home, done, pass};
use crate::auth::Keyed;
use crate::harness::{Server, until};

/// Variables of every kind; some of them cannot outlive their kernel.
const MAKE: &str = "import threading, pandas as pd\nx = 41\nframe = pd.DataFrame({'a': [1, 2]})\n\
                    def twice(n): return n * 2\nlock = threading.Lock()\nopen('kept.txt', 'w').write('kept')";
const LOOK: &str = "x, len(frame), twice(x), open('kept.txt').read(), 'lock' in globals()";

/// The variables are back, the reply says so, and says what is not.
fn came_back(reply: &Value, why: &str) {
    assert_eq!(reply["result"], json!([41, 2, 82, "kept", false]), "{reply}");
    assert_eq!(reply["session_restarted"], true, "{reply}");
    assert!(reply["restart_reason"].as_str().unwrap().contains(why), "{reply}");
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
fn a_session_that_had_to_make_room_goes_on_where_it_was() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    done(&server, "first", MAKE);
    done(&server, "second", "y = 1");
    came_back(&server.code("first", LOOK), "evicted");
    let reply = done(&server, "second", "y");
    assert_eq!((&reply["result"], &reply["session_restarted"]), (&json!(1), &json!(true)));
    // Told once is enough.
    done(&server, "third", "1");
    done(&server, "second", "y += 1");
    let reply = done(&server, "second", "y");
    assert_eq!(reply["result"], 2);
    assert!(reply.get("session_restored").is_none(), "{reply}");
}

#[test]
fn a_session_that_was_idle_for_too_long_goes_on_where_it_was() {
    let home = Home::new();
    let server = home.start(&[("KERNEL_TIMEOUT", "1")]);
    done(&server, "idle", MAKE);
    until("it has expired", || server.get("/api/v1/sessions/idle").json()["is_live"] == false);
    came_back(&server.code("idle", LOOK), "idle for 1 second");
}

#[test]
fn a_kernel_that_crashes_comes_back_as_it_was_last_saved() {
    let home = Home::new();
    let server = home.start(&[]);
    done(&server, "crashing", MAKE);
    until_saved(&home, "crashing");
    let reply = server.code("crashing", "x = 42\nimport os; os._exit(3)");
    assert_eq!(reply["success"], false, "{reply}");
    assert_eq!(reply["kernel_info"]["session_persisted"], false, "{reply}");
    came_back(&server.code("crashing", LOOK), "the run before this one");
}

/// What was saved last is what is: also when that is nothing.
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

/// A file that comes first finds the session as it was, with its rules and its variables.
#[test]
fn an_upload_takes_nothing_from_a_session_that_is_not_at_hand() {
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
    }
    assert_eq!(done(&server, "s", "x")["result"], 41);
    assert_eq!(server.get("/api/v1/sessions/s/files/a.txt").text(), "new");
}

#[test]
fn a_session_that_was_reset_or_deleted_does_not_come_back() {
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
            // What is being removed is in a folder of its own.
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
        // Nor after the kernel that followed has gone.
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
fn two_owners_of_the_same_name_do_not_meet() {
    let keyed = Keyed::start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    let keys = [keyed.key("ann", &[]), keyed.key("bob", &[])];
    let [ann, bob] = [keyed.client(&keys[0]), keyed.client(&keys[1])];
    until("the keys are known", || bob.get("/api/v1/sessions").status == 200);
    for round in 0..2 {
        for (name, client) in [("ann", ann), ("bob", bob)] {
            // Each pushes the other one out.
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

/// Its variables take their time to be saved.
const SLOW: &str = "import time\nclass Slow:\n    def __reduce__(self):\n        time.sleep(1.5)\n        \
                    return (int, (7,))\nslow = Slow()";

/// Waits until a checkpoint of that session must be on its way, and is not there yet.
fn until_being_saved(server: &Server, home: &Home) {
    done(server, "slow", SLOW);
    pass(Duration::from_millis(3_000));
    assert!(home.rows("SELECT session_id FROM checkpoints").is_empty(), "it is saved already");
}

#[test]
fn a_checkpoint_on_its_way_is_waited_for() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    until_being_saved(&server, &home);
    done(&server, "other", "1");
    let reply = done(&server, "slow", "slow");
    assert_eq!(reply["result"], 7, "{reply}");
    assert_eq!(reply["session_restored"]["restored"], json!(["time", "Slow", "slow"]), "{reply}");
}

#[test]
fn a_server_that_stops_waits_for_checkpoints_on_their_way() {
    let home = Home::new();
    let server = home.start(&[]);
    until_being_saved(&server, &home);
    server.stop();
    let server = home.start(&[]);
    assert_eq!(done(&server, "slow", "slow")["result"], 7);
}

#[test]
fn a_reset_is_not_undone_by_a_checkpoint_on_its_way() {
    let home = Home::new();
    let server = home.start(&[("MAX_KERNELS", "1"), ("SESSION_POOL_SIZE", "0")]);
    done(&server, "slow", SLOW);
    // Pushed out, it is saved; the reset comes in the middle of that.
    let mut pushing = server.connect();
    let body = json!({ "code": "1", "session_id": "other" }).to_string();
    pushing.send("POST", "/execute", &[], body.as_bytes());
    until("it is being ended", || server.get("/api/v1/sessions/slow").json()["is_live"] == false);
    assert_eq!(server.post("/api/v1/sessions/slow/reset", &json!({})).status, 200);
    assert_eq!(pushing.answer(false).status, 200);
    assert!(home.rows("SELECT session_id FROM checkpoints").is_empty());
    assert_eq!(server.code("slow", "slow")["error"]["type"], "NameError");
}
