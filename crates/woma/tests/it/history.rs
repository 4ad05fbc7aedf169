//! Records of sessions and of the server: checkpoints, notebooks, executions, the audit trail.

use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::client::client;
use crate::harness::{Server, shared, unique, until};

fn call(tool: &str, arguments: &Value) -> Value {
    client(shared()).call(tool, arguments)["structuredContent"].clone()
}

/// Number of rows of a listing.
fn rows(listing: &Value, name: &str) -> usize {
    listing[name].as_array().map_or(0, Vec::len)
}

#[test]
fn restores_a_session_to_its_checkpoint() {
    let session = unique("checkpoint");
    let code = "x = 1\nframe = [1, 2]\ng = (n for n in 'ab')\nopen('kept.txt', 'w').write('a')";
    shared().code(&session, code);
    let made = call("checkpoint_session", &json!({ "session_id": session }));
    assert_eq!(made["saved"], json!(["x", "frame"]), "{made}");
    assert_eq!(made["not_saved"][0]["name"], "g", "{made}");
    assert!(made["not_saved"][0]["reason"].as_str().unwrap().contains("generator"), "{made}");
    shared().code(&session, "x = 2\ny = 3\nopen('kept.txt', 'w').write('b')");
    let back = call("restore_session", &json!({ "session_id": session }));
    assert_eq!(back["restored"], json!(["x", "frame"]), "{back}");
    let reply = shared().code(&session, "[x, 'y' in globals(), open('kept.txt').read()]");
    assert_eq!(reply["result"], json!([1, false, "b"]), "{reply}");
    assert_eq!(reply["session_restarted"], false, "it was told already: {reply}");
    let path = format!("/api/v1/sessions/{session}/checkpoint");
    assert_eq!(shared().post(&path, &json!({})).json()["success"], true);
    let path = format!("/api/v1/sessions/{session}/restore");
    assert_eq!(shared().post(&path, &json!({})).json()["restored"], json!(["x", "frame"]));
    let fresh = unique("fresh");
    shared().post("/api/sessions", &json!({ "session_id": fresh }));
    shared().post(&format!("/api/v1/sessions/{fresh}/checkpoint"), &json!({})).refused(409);
    shared().post(&format!("/api/v1/sessions/{fresh}/restore"), &json!({})).refused(404);
    // A missing checkpoint leaves the session unchanged.
    let unsaved = unique("unsaved");
    let server = Server::start_with(&[], &[("CHECKPOINT_MAX_MB", "0")]);
    server.code(&unsaved, "x = 1");
    server.post(&format!("/api/v1/sessions/{unsaved}/restore"), &json!({})).refused(404);
    assert_eq!(server.code(&unsaved, "x")["result"], 1);
    shared().post("/api/v1/sessions/nobody-knows/checkpoint", &json!({})).refused(404);
}

#[test]
fn a_reset_or_deletion_removes_the_checkpoint() {
    let session = unique("reset");
    shared().code(&session, "x = 1\nopen('a.txt', 'w').write('a')");
    call("checkpoint_session", &json!({ "session_id": session }));
    call("reset_session", &json!({ "session_id": session }));
    let reply = shared().code(&session, "import os\n['x' in globals(), os.listdir('.')]");
    assert_eq!(reply["result"], json!([false, []]), "{reply}");
    assert_eq!(reply.get("session_restored"), None, "{reply}");
    call("checkpoint_session", &json!({ "session_id": session }));
    call("delete_session", &json!({ "session_id": session }));
    let reply = shared().code(&session, "'os' in globals()");
    assert_eq!((&reply["result"], &reply["session_created"]), (&json!(false), &json!(true)));
}

/// A variable that reports when it is being saved, and is saved slowly.
const SLOW: &str = "import time
class Slow:
    def __reduce__(self):
        open('begun', 'w').close()
        time.sleep(1)
        return int, (7,)
slow = Slow()";

fn until_being_saved(server: &Server, session: &str) {
    until("its variables are being saved", || {
        let listed = server.get(&format!("/api/v1/sessions/{session}/files")).json();
        listed.to_string().contains("begun")
    });
}

#[test]
fn an_eviction_during_a_save_loses_nothing() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "1")]);
    server.code("a", SLOW);
    std::thread::scope(|scope| {
        let path = "/api/v1/sessions/a/checkpoint";
        let saved = scope.spawn(|| server.post(path, &json!({})).json());
        until_being_saved(&server, "a");
        server.code("b", "1");
        assert_eq!(saved.join().unwrap()["success"], true);
    });
    let reply = server.code("a", "slow");
    assert_eq!(reply["result"], 7, "{reply}");
}

#[test]
fn a_requested_checkpoint_waits_for_one_in_progress() {
    let server = Server::start(&[]);
    server.code("a", SLOW);
    // By itself, as the session is idle.
    until_being_saved(&server, "a");
    let made = server.post("/api/v1/sessions/a/checkpoint", &json!({}));
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(made.json()["saved"], json!(["time", "Slow", "slow"]), "{}", made.text());
    // Two concurrent requests wait for each other.
    server.code("a", "import os; os.remove('begun')\ny = 1");
    std::thread::scope(|scope| {
        let ask = || server.post("/api/v1/sessions/a/checkpoint", &json!({}));
        let both = [scope.spawn(ask), scope.spawn(ask)];
        for made in both.map(|one| one.join().unwrap()) {
            assert_eq!(made.status, 200, "{}", made.text());
            assert!(made.text().contains(r#""y""#), "{}", made.text());
        }
    });
}

/// A variable that ends the kernel in which it is restored.
const FATAL: &str = "class Fatal:
    def __reduce__(self):
        return exec, ('import os; os._exit(3)',)
fatal = Fatal()
x = 1";

#[test]
fn a_failed_restore_leaves_the_session_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // The server has one kernel only.
    let server = Server::start_with(&["--data-dir", path], &[("MAX_KERNELS", "1")]);
    let take_back = || server.post("/api/v1/sessions/a/restore", &json!({}));
    server.code("a", FATAL);
    assert_eq!(server.post("/api/v1/sessions/a/checkpoint", &json!({})).status, 200);
    server.code("a", "x = 2");
    let said = take_back().refused(409);
    assert!(said.contains("is unchanged") && said.contains("ended in the middle"), "{said}");
    let reply = server.code("a", "x += 1\nx");
    assert_eq!((&reply["result"], &reply["session_restarted"]), (&json!(3), &json!(false)));

    // A checkpoint whose content is gone leaves the session unchanged. A session that is idle for
    // two seconds is saved anew, on a machine that is slow enough; then it is tried again.
    let (blobs, aside) = (folder.path().join("blobs"), folder.path().join("aside"));
    server.code("a", "del fatal");
    let mut value = 10;
    until("a checkpoint is lost", || {
        value += 1;
        server.code("a", &format!("x = {value}"));
        assert_eq!(server.post("/api/v1/sessions/a/checkpoint", &json!({})).status, 200);
        server.code("a", "x = 4");
        std::fs::rename(&blobs, &aside).unwrap();
        let answer = take_back();
        if blobs.exists() {
            std::fs::remove_dir_all(&blobs).unwrap();
        }
        std::fs::rename(&aside, &blobs).unwrap();
        answer.status == 409 && answer.refused(409).contains("is unchanged")
    });
    let reply = server.code("a", "x");
    assert_eq!((&reply["result"], &reply["session_restarted"]), (&json!(4), &json!(false)));
    let back = take_back();
    assert_eq!((back.status, &back.json()["restored"]), (200, &json!(["Fatal", "x"])));
    let x = server.code("a", "x")["result"].clone();
    assert!(x == value || x == 4, "{x}: neither the saved nor the present value");
}

/// Code that ignores interrupts, so that it ends slowly.
const DEAF: &str = "import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
open('old.txt', 'w').close()
while True: time.sleep(1)";

#[test]
fn a_session_created_during_a_deletion_has_a_folder_of_its_own() {
    let server = Server::start(&[]);
    for _ in 0..3 {
        let mut running = server.connect();
        let body = json!({ "code": DEAF, "session_id": "a" }).to_string();
        running.send("POST", "/execute", &[], body.as_bytes());
        let files = || server.get("/api/v1/sessions/a/files").json().to_string();
        until("it runs", || files().contains("old.txt"));
        std::thread::scope(|scope| {
            let delete = || server.request("DELETE", "/api/v1/sessions/a", &[], b"").status;
            let deleting = scope.spawn(delete);
            let listed = || server.get("/api/v1/sessions").json();
            until("it is being deleted", || listed()["total"] == 0);
            let look = "import os\nopen('new.txt', 'a').close()\nos.listdir('.')";
            for is_first in [true, false] {
                let reply = server.code("a", look);
                assert_eq!(reply["result"], json!(["new.txt"]), "{reply}");
                assert_eq!(reply["session_created"], is_first, "{reply}");
                assert_eq!(reply["session_restarted"], false, "{reply}");
            }
            assert_eq!(deleting.join().unwrap(), 200);
            assert_eq!(
                server.code("a", "import os\nos.listdir('.')")["result"],
                json!(["new.txt"])
            );
        });
        let reply = running.answer(false).json();
        assert_eq!(reply["success"], false, "{reply}");
        assert_eq!(server.request("DELETE", "/api/v1/sessions/a", &[], b"").status, 200);
        server.request("DELETE", "/api/v1/sessions/a", &[], b"").refused(404);
    }
}

#[test]
fn a_reset_during_a_save_leaves_the_session_empty() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "1")]);
    server.code("a", SLOW);
    std::thread::scope(|scope| {
        let evicting = scope.spawn(|| server.code("b", "1"));
        until_being_saved(&server, "a");
        assert_eq!(server.post("/api/v1/sessions/a/reset", &json!({})).status, 200);
        assert_eq!(evicting.join().unwrap()["result"], 1);
    });
    server.post("/api/v1/sessions/a/restore", &json!({})).refused(404);
    let reply = server.code("a", "'slow' in globals()");
    assert_eq!(reply["result"], false, "{reply}");
}

#[test]
fn exports_a_session_as_a_notebook() {
    let session = unique("notebook");
    let chart = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()";
    for code in ["print('hello')\n40 + 2", chart, "1 / 0"] {
        shared().code(&session, code);
    }
    let answer = shared().get(&format!("/api/v1/sessions/{session}/notebook"));
    assert_eq!(answer.get("content-type"), Some("application/x-ipynb+json"));
    assert!(answer.get("content-disposition").unwrap().contains(".ipynb"));
    let notebook = answer.json();
    assert_eq!((&notebook["nbformat"], &notebook["nbformat_minor"]), (&json!(4), &json!(5)));
    let cells = notebook["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3, "{notebook}");
    assert_eq!(cells[0]["source"], "print('hello')\n40 + 2");
    assert_eq!(cells[0]["outputs"][0]["text"], "hello\n");
    assert_eq!(cells[0]["outputs"][1]["data"]["text/plain"], "42");
    assert!(cells[1]["outputs"][0]["data"]["image/png"].is_string(), "{notebook}");
    assert_eq!(cells[2]["outputs"][0]["ename"], "ZeroDivisionError", "{notebook}");
    let made = call("export_session", &json!({ "session_id": session, "filename": "a.ipynb" }));
    assert_eq!((&made["path"], &made["success"]), (&json!("a.ipynb"), &json!(true)), "{made}");
    let read = shared().code(&session, "import json\nlen(json.load(open('a.ipynb'))['cells'])");
    assert_eq!(read["result"], 3, "{read}");
}

#[test]
fn a_notebook_names_what_was_left_out() {
    let server = Server::start(&[]);
    server.code("n", "print('y' * 100_000)");
    let notebook = || server.get("/api/v1/sessions/n/notebook");
    let answer = notebook();
    assert_eq!(answer.get("x-notebook-outputs-cut"), Some("1"));
    assert_eq!(answer.get("x-notebook-cells-left-out"), Some("0"));
    let (whole, note) = (answer.json(), |book: &Value| book["cells"][0]["source"].to_string());
    assert_eq!(whole["cells"][0]["cell_type"], "markdown", "the first cell names what was cut");
    assert!(note(&whole).contains("1 output was cut"), "{}", note(&whole));
    let text = whole["cells"][1]["outputs"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("yyy") && text.ends_with("34465 more bytes"), "{}", text.len());

    let long = format!("# {}", "x".repeat(1_000_000));
    for number in 0..40 {
        server.code("n", &format!("{long}\n{number}"));
    }
    let answer = notebook();
    assert!(answer.body.len() < 20 << 20, "{}", answer.body.len());
    let cut = answer.json();
    let left_out = cut["metadata"]["woma"]["cells_left_out"].as_u64().unwrap();
    assert!((20..40).contains(&left_out), "{left_out}");
    assert_eq!(answer.get("x-notebook-cells-left-out"), Some(left_out.to_string().as_str()));
    assert_eq!(answer.get("x-notebook-outputs-cut"), Some("0"), "it was left out with its cell");
    let said = note(&cut);
    assert!(said.contains(&format!("{left_out} cells")) && said.contains("16 MiB"), "{said}");
    let cells = cut["cells"].as_array().unwrap();
    assert_eq!(cells.len() as u64, 1 + 41 - left_out, "all others are there");
    assert_eq!(cells.last().unwrap()["outputs"][0]["data"]["text/plain"], "39");
    let made = client(&server).call("export_session", &json!({ "session_id": "n" }));
    assert!(made["structuredContent"]["warnings"][0].as_str().unwrap().contains("16 MiB"));
    // A new session of that name has no data of it.
    server.post("/api/v1/sessions/n/reset", &json!({}));
    server.code("n", "1");
    let fresh = notebook();
    assert_eq!(fresh.json()["cells"].as_array().unwrap().len(), 1, "{}", fresh.text());
    assert_eq!(fresh.json()["metadata"].get("woma"), None, "{}", fresh.text());
    assert_eq!(fresh.get("x-notebook-cells-left-out"), Some("0"));
}

#[test]
fn executions_are_recorded_and_visible_to_their_owner_only() {
    let keyed = Keyed::start(&[("API_KEY", crate::auth::KEY), ("AUDIT_CODE", "true")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let run = |key: &str, code: &str| {
        let body = json!({ "code": code, "session_id": "s" }).to_string();
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str())];
        keyed.server.request("POST", "/execute", &headers, body.as_bytes()).json()
    };
    let get = |key: &str, path: &str| {
        let bearer = format!("Bearer {key}");
        keyed.server.request("GET", path, &[("Authorization", bearer.as_str())], b"").json()
    };
    let first = run(&alice, "open('a.csv', 'w').write('1')");
    run(&alice, "1 / 0");
    run(&bob, "2");
    until("all are recorded", || rows(&get(&alice, "/api/v1/executions"), "executions") == 2);
    // Records come in groups, and the last one is of the other key.
    until("all are in the trail", || {
        rows(&get(crate::auth::KEY, "/api/v1/audit?action=execute"), "audit") == 3
    });
    let listed = get(&alice, "/api/v1/executions?limit=1");
    assert_eq!(listed["executions"][0]["outcome"], "raised", "{listed}");
    assert_eq!(listed["executions"][0]["code"], "1 / 0", "{listed}");
    let trail = get(&alice, "/api/v1/audit?action=execute");
    assert_eq!(rows(&trail, "audit"), 2, "{trail}");
    let row = &trail["audit"][1];
    assert_eq!(row["execution_id"], first["execution_id"], "{trail}");
    assert_eq!(row["detail"]["files"]["added"], json!(["a.csv"]), "{trail}");
    assert_eq!(row["detail"]["outcome"], "completed", "{trail}");
    let of_bob = get(&bob, &format!("/api/v1/audit?owner={}", row["owner"].as_str().unwrap()));
    assert!(!of_bob.to_string().contains("a.csv"), "{of_bob}");
    let all = get(crate::auth::KEY, "/api/v1/audit?action=execute");
    assert_eq!(rows(&all, "audit"), 3, "an administrator sees all: {all}");
    let wrong = get(&alice, "/api/v1/audit?since=yesterday");
    assert!(wrong["message"].as_str().unwrap().contains("since"), "{wrong}");
}

#[test]
fn security_events_are_in_the_trail_and_the_command_line_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let server = Server::start_with(&["--data-dir", path], &[("SANDBOX_POLICY", "tiers")]);
    server.run(&json!({ "code": "import os" }));
    let trail = || server.get("/api/v1/audit?action=security_event").json();
    until("the event is recorded", || rows(&trail(), "audit") == 1);
    assert_eq!(trail()["audit"][0]["detail"]["subject"], "os", "{}", trail());
    let read = |arguments: &[&str]| {
        let output = crate::auth::woma(folder.path(), arguments, &[]);
        assert!(output.status.success(), "{}", crate::auth::said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = read(&["audit", "--action", "security_event"]);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("local  security_event  default"), "{text}");
    let json = read(&["audit", "--json", "--limit", "1", "--action", "execute"]);
    let row: Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(row["detail"]["category"], "security", "{row}");
    let empty = tempfile::tempdir().unwrap();
    let output = crate::auth::woma(empty.path(), &["audit"], &[]);
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn stored_files_of_runs_count_against_the_keys_quota() {
    let keyed = Keyed::start(&[("API_KEY", crate::auth::KEY)]);
    let key = keyed.key("small", &["--storage", "1m"]);
    let bearer = format!("Bearer {key}");
    let run = |code: &str| {
        let body = json!({ "code": code, "session_id": "s" }).to_string();
        let headers = [("Authorization", bearer.as_str())];
        keyed.server.request("POST", "/execute", &headers, body.as_bytes()).json()
    };
    let reply = run("for n in range(3): open(f'{n}.csv', 'w').write(str(n) * 400_000)");
    assert_eq!(reply["files_created"], json!(["0.csv", "1.csv", "2.csv"]), "{reply}");
    assert_eq!(reply["download_urls"].as_array().unwrap().len(), 2, "{reply}");
    assert!(reply["warnings"][0].as_str().unwrap().starts_with("2.csv has no"), "{reply}");
    let reply = run("open('3.csv', 'w').write('x' * 400_000)");
    assert_eq!(reply["download_urls"], json!([]), "{reply}");
}

/// Details of a run are in the audit trail, the outbox and the database: names of
/// exceptions, media types, files and refusals, as long as a cell can make them.
#[test]
fn long_names_cannot_fill_the_audit_trail() {
    let server = Server::start(&[]);
    let file = "import os\nfor i in range(200): open('n' * 240 + str(i), 'w').close()\n";
    let send = "import struct\n\
                def send(kind, body):\n\
                \x20   os.set_blocking(900, True)\n\
                \x20   os.write(900, struct.pack('>IB', len(body) + 1, kind) + body)\n\
                note = b'{\"code\":\"blocked_import\",\"text\":\"%s\",\"subject\":\"%s\"}'\n\
                for i in range(20): send(0x84, note % (b't' * 5_000, b's%d' % i * 900))\n\
                head = b'{\"role\":\"display\",\"binary\":[{\"mime\":\"%s\",\"bytes\":4}]}' % (b'm' * 200_000)\n\
                send(0x82, struct.pack('>I', len(head)) + head + b'abcd')\n";
    let raise = "raise type('N' * 900_000, (Exception,), {})('no')\n";
    let session = unique("names");
    server.code(&session, &[file, send, raise].concat());
    let trail = || server.get("/api/v1/audit?action=execute").json();
    until("it is in the trail", || rows(&trail(), "audit") == 1);
    let detail = &trail()["audit"][0]["detail"];
    let name = detail["error"].as_str().unwrap().chars().count();
    assert_eq!(name, 201, "the name of the exception is cut: {name}");
    assert!(detail.to_string().len() <= 8 * 1024, "{} bytes", detail.to_string().len());
    let added = detail["files"]["added"].as_array().unwrap();
    assert!(added.last().unwrap()["left_out"].as_u64().unwrap() > 100, "{detail}");
    let events = || server.get("/api/v1/audit?action=security_event&limit=100").json();
    until("the refusals are there", || rows(&events(), "audit") == 20);
    for event in events()["audit"].as_array().unwrap() {
        assert!(event["detail"].to_string().len() < 1_000, "{event}");
    }
    let files = server.get(&format!("/api/v1/sessions/{session}/files")).text().to_owned();
    assert!(!files.contains("mmmm"), "an unknown media type is not recorded: {files}");
}
