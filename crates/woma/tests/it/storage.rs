//! Quotas of a session's folder and of a caller's storage.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::client;
use crate::durability::pass;
use crate::files::{path, put};
use crate::harness::{Connection, Server, until};

fn warnings(reply: &Value) -> String {
    let texts = reply["warnings"].as_array().unwrap().iter().filter_map(Value::as_str);
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_folder_limit_applies_to_runs_of_any_length() {
    const MIB: u64 = 1024 * 1024;
    let server = Server::start_with(&[], &[("DISK_MB", "8")]);
    let piece = |code: &str| format!("{code}\nopen(f'.{{n}}.bin', 'wb').write(b'x' * (3 << 20))");
    assert_eq!(server.code("s", &piece("import os; n = 1"))["warnings"], json!([]));
    let mut said = Vec::new();
    for n in 2..12 {
        // The limit is remembered when a kernel ends itself.
        let reply =
            server.code("s", &format!("{}\nos._exit(0)", piece(&format!("import os; n = {n}"))));
        said.push(warnings(&reply));
    }
    let first = said.iter().find(|said| !said.is_empty()).unwrap();
    assert!(first.contains("its limit is 8 MB (DISK_MB)") && first.contains("delete"), "{first}");
    let last = said.last().unwrap();
    assert!(last.contains("nothing runs") && last.contains("`delete_file`"), "{last}");
    let reply = server.code("s", "1");
    assert_eq!((&reply["outcome"], &reply["success"]), (&json!("interrupted"), &json!(false)));
    let sizes: Vec<u64> = (1..12)
        .filter_map(|n| {
            let read = server.request("GET", &path("s", &format!(".{n}.bin")), &[], b"");
            (read.status == 200).then_some(read.body.len() as u64)
        })
        .collect();
    let sum: u64 = sizes.iter().sum();
    assert!(sum > 8 * MIB && sum <= (8 + 2 * 3) * MIB, "{sizes:?}");
    // A folder that is too full rejects uploads too, until there is space again.
    let full = put(&server, "s", "more.txt", b"x");
    full.refused(429);
    assert!(full.json()["hint"].as_str().unwrap().contains("DISK_MB"), "{}", full.text());
    for n in 1..12 {
        server.request("DELETE", &path("s", &format!(".{n}.bin")), &[], b"");
    }
    assert_eq!(put(&server, "s", "more.txt", b"x").status, 201);
    let reply = server.code("s", "open('more.txt').read()");
    assert_eq!((&reply["result"], &reply["warnings"]), (&json!("x"), &json!([])), "{reply}");
}

#[test]
fn code_can_empty_a_folder_that_is_too_full() {
    let server = Server::start_with(&[], &[("DISK_MB", "8")]);
    server.code("s", "import os\nkept = 1\nopen('large.bin', 'wb').write(b'x' * (12 << 20))");
    let reply = server.code("s", "os.listdir()");
    assert_eq!(reply["result"], json!(["large.bin"]), "{reply}");
    assert!(warnings(&reply).contains("may only make that less"), "{reply}");
    let reply = server.code("s", "os.remove('large.bin')\nkept");
    assert_eq!((&reply["result"], &reply["warnings"]), (&json!(1), &json!([])), "{reply}");
    let reply = server.code("s", "open('small.bin', 'wb').write(b'x' * (3 << 20))");
    assert_eq!((&reply["success"], &reply["warnings"]), (&json!(true), &json!([])), "{reply}");
}

/// Sends two requests at once; the last byte of each is sent when both are in progress.
fn both_at_once(server: &Server, targets: &[String; 2], bytes: usize) -> Vec<u16> {
    let mut open: Vec<Connection> = targets
        .iter()
        .map(|target| {
            let mut connection = server.connect();
            let head = format!(
                "PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n"
            );
            connection.write(head.as_bytes()).unwrap();
            connection.write(&vec![b'x'; bytes - 1]).unwrap();
            connection
        })
        .collect();
    for connection in &mut open {
        connection.write(b"x").unwrap();
    }
    let mut statuses: Vec<u16> =
        open.iter_mut().map(|connection| connection.answer(false).status).collect();
    statuses.sort_unstable();
    statuses
}

#[test]
fn concurrent_uploads_cannot_exceed_the_quota() {
    let server = Server::start_with(&[], &[("DISK_MB", "8"), ("STORAGE_MB", "10")]);
    for round in 0..5 {
        let session = format!("s{round}");
        let places = ["a.bin", "b.bin"].map(|name| path(&session, name));
        assert_eq!(both_at_once(&server, &places, 5 << 20), [201, 429], "in one session");
        let places = ["t", "u"].map(|other| path(&format!("{other}{round}"), "a.bin"));
        assert_eq!(both_at_once(&server, &places, 4 << 20), [201, 429], "of one caller");
        for session in [session, format!("t{round}"), format!("u{round}")] {
            server.request("DELETE", &format!("/api/v1/sessions/{session}"), &[], b"");
        }
    }
}

#[test]
fn stored_data_has_a_limit_without_a_key_too() {
    let server = Server::start_with(&[], &[("STORAGE_MB", "1")]);
    let code = "for n in range(3): open(f'{n}.csv', 'w').write(str(n) * 400_000)";
    let reply = server.code("s", code);
    assert_eq!(reply["files_created"], json!(["0.csv", "1.csv", "2.csv"]), "{reply}");
    assert_eq!(reply["download_urls"].as_array().unwrap().len(), 2, "{reply}");
    let said = warnings(&reply);
    assert!(said.starts_with("2.csv has no download address") && said.contains("STORAGE_MB"));
    // The same for a requested address and for an upload.
    let wanted = json!({ "session_id": "s", "path": "2.csv" });
    let fetched = client(&server).call("fetch_file", &wanted);
    assert_eq!(fetched["structuredContent"].get("download_url"), None, "{fetched}");
    let full = put(&server, "t", "more.bin", &vec![b'x'; 400_000]);
    full.refused(429);
    assert!(full.json()["hint"].as_str().unwrap().contains("STORAGE_MB"), "{}", full.text());
    // Deleting the session deletes its versions and frees space.
    assert_eq!(server.request("DELETE", "/api/v1/sessions/s", &[], b"").status, 200);
    let reply = server.code("u", "open('x.csv', 'w').write('x' * 400_000)");
    assert_eq!(reply["download_urls"].as_array().unwrap().len(), 1, "{reply}");
}

#[test]
fn reports_variables_that_exceed_the_quota() {
    let server = Server::start_with(&[], &[("STORAGE_MB", "1")]);
    server.code("s", "import os\nmuch = os.urandom(3 << 20)");
    let refused = server.post("/api/v1/sessions/s/checkpoint", &json!({}));
    refused.refused(429);
    assert!(refused.json()["hint"].as_str().unwrap().contains("STORAGE_MB"), "{}", refused.text());
    let said = warnings(&server.code("s", "len(much)"));
    assert!(said.contains("variables are not saved") && said.contains("STORAGE_MB"), "{said}");
    assert!(server.log().contains("Variables could not be saved"), "{}", server.log());
    assert_eq!(server.code("s", "del much\n1")["warnings"], json!([]));
    assert_eq!(server.post("/api/v1/sessions/s/checkpoint", &json!({})).status, 200);
}

/// A restored session may keep writing: restoring runs its code.
#[test]
fn restoring_a_checkpoint_respects_the_folder_limit() {
    const MAKE: &str = "import threading, time\n\
                        class Filler:\n\
                        \x20   def __getstate__(self): return {'n': 1}\n\
                        \x20   def __setstate__(self, state):\n\
                        \x20       threading.Thread(target=self.fill, daemon=True).start()\n\
                        \x20   def fill(self):\n\
                        \x20       for n in range(100_000):\n\
                        \x20           open(f'/mnt/data/{n}.bin', 'wb').write(b'x' * (1 << 20))\n\
                        \x20           time.sleep(0.05)\n\
                        filler = Filler()";
    let server = Server::start_with(&[], &[("DISK_MB", "8")]);
    assert_eq!(server.code("s", MAKE)["success"], true);
    for what in ["checkpoint", "restore"] {
        let answer = server.post(&format!("/api/v1/sessions/s/{what}"), &json!({}));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let is_there = |n: u32| server.get(&path("s", &format!("{n}.bin"))).status == 200;
    // Nothing else runs meanwhile: the idle disk watch must end it.
    let mut last = 0;
    until("it is over its limit, and has stopped", || {
        let before = last;
        last = (before..1_000).find(|n| !is_there(*n)).unwrap();
        pass(Duration::from_millis(500));
        last > 8 && last == before
    });
    assert!(last < 200, "{last} MB of 8");
}
