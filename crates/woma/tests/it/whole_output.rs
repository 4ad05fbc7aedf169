//! Output beyond `OUTPUT_LIMIT`: the reply has its beginning and its end, and all of it can be read.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{client, here, numbers};
use crate::harness::{Server, shared, unique, until};

/// Prints two megabytes, each line another one.
const MUCH: &str = "for n in range(300_000): print(n)";
const MUCH_LINES: u32 = 300_000;
const SAID: &str = "has the whole stdout";

/// The whole of a stream, read by a tool in pages.
fn read_all(session_reply: &Value, stream: &str) -> String {
    let id = session_reply["execution_id"].as_str().unwrap();
    let (mut whole, mut offset) = (String::new(), json!(0));
    while !offset.is_null() {
        let arguments = json!({ "execution_id": id, "stream": stream, "offset": offset });
        let page = here().call("read_output", &arguments)["structuredContent"].take();
        whole.push_str(page["text"].as_str().unwrap());
        offset = page["next_offset"].clone();
    }
    whole
}

#[test]
fn the_whole_of_a_long_output_can_be_read() {
    let session = unique("whole");
    let result = here().call("execute_code", &json!({ "code": MUCH, "session_id": session }));
    let (reply, text) = (&result["structuredContent"], result["content"][0]["text"].as_str());
    let text = text.unwrap();
    assert!(text.contains("\n299999\n") && text.starts_with("0\n1\n"), "{text}");
    let told = text.lines().filter(|line| line.contains(SAID)).count();
    assert_eq!(told, 1, "{text}");
    assert!(read_all(reply, "stdout") == numbers(MUCH_LINES), "the output is not whole");
    let code = format!("import sys\nsys.stdout = sys.stderr\n{MUCH}\nsys.stdout = sys.__stdout__");
    let reply = here().code(&session, &code);
    assert!(read_all(&reply, "stderr") == numbers(MUCH_LINES), "the errors are not whole");
}

#[test]
fn every_door_says_that_the_whole_can_be_read() {
    let body = json!({ "code": MUCH, "session_id": unique("doors") });
    for accepted in ["application/x-ndjson", "text/event-stream"] {
        let headers = [("Accept", accepted), ("Content-Type", "application/json")];
        let body = body.to_string();
        let streamed = shared().request("POST", "/api/v1/execute", &headers, body.as_bytes());
        let text = streamed.text();
        let line = text.find(" bytes of output left out: read_output(execution_id=");
        let line = text.get(line.expect(accepted)..).unwrap().lines().next().unwrap();
        assert!(line.contains(SAID), "{accepted}: {line}");
    }
    let reply = shared().run(&body);
    assert!(reply["warnings"].to_string().contains(SAID), "{}", reply["warnings"]);
    let id = reply["execution_id"].as_str().unwrap();
    let page = |offset: usize| {
        shared().get(&format!("/api/v1/executions/{id}/output?offset={offset}&limit=150000")).json()
    };
    let whole = numbers(MUCH_LINES);
    let middle = page(1_000_000);
    assert_eq!(middle["text"], whole[1_000_000..1_150_000]);
    assert_eq!(middle["total_chars"], whole.len());
    let plain = Server::start_with(&[], &[("REPLY", "full"), ("TEXT_FORMAT", "plain")]);
    let result = client(&plain).call("execute_code", &json!({ "code": MUCH }));
    assert!(result["content"][0]["text"].as_str().unwrap().contains(SAID));
}

/// Files with the middles of outputs.
fn spilled(data: &Path) -> Vec<u64> {
    let roots = fs::read_dir(data.join("sessions/passing")).unwrap().flatten();
    let files = roots.filter_map(|root| fs::read_dir(root.path()).ok()).flatten().flatten();
    let is_output = |name: &str| name.starts_with("output-");
    let outputs = files.filter(|file| file.file_name().to_str().is_some_and(is_output));
    outputs.filter_map(|file| file.metadata().ok()).map(|found| found.len()).collect()
}

#[test]
fn whole_outputs_are_bounded_and_go_with_their_session() {
    let data = tempfile::tempdir().unwrap();
    let place = ["--data-dir", data.path().to_str().unwrap()];
    let server = Server::start_with(&place, &[("DISK_MB", "16"), ("KEPT_OUTPUT_MB", "64")]);
    // Half of the disk limit is for one run, the other half for those before it.
    let code = "for n in range(12 << 10): print('x' * 1023)";
    let reply = server.code("a", code);
    let warnings = reply["warnings"].to_string();
    assert!(warnings.contains("bytes are lost: disk limit"), "{warnings}");
    for _ in 0..3 {
        server.code("a", code);
    }
    until("earlier outputs are gone", || {
        let bytes: u64 = spilled(data.path()).iter().sum();
        bytes > 0 && bytes <= 16 << 20
    });
    server.request("DELETE", "/api/v1/sessions/a", &[], b"");
    until("the outputs of the session are gone", || spilled(data.path()).is_empty());
    let id = reply["execution_id"].as_str().unwrap();
    let page = server.get(&format!("/api/v1/executions/{id}/output?offset=0&limit=10")).json();
    assert_eq!(page["text"], "x".repeat(10), "the beginning is still in memory");
}

#[test]
fn a_flood_fills_no_disk_and_slows_no_neighbour() {
    let data = tempfile::tempdir().unwrap();
    let place = ["--data-dir", data.path().to_str().unwrap()];
    let server = Server::start_with(&place, &[("DISK_MB", "1")]);
    server.code("neighbour", "x = 1");
    // The file says that more is printed than there is room for.
    let code = "for n in range(4_000): print('x' * 1000)\nopen('printed', 'w').close()\n\
                while True: print('x' * 1000)";
    let endless = json!({ "code": code, "session_id": "flood", "timeout": 300 });
    let flood = std::thread::scope(|scope| {
        let flood = scope.spawn(|| server.run(&endless));
        let mut slowest = Duration::ZERO;
        until("the flood has printed enough", || {
            let started = Instant::now();
            assert_eq!(server.code("neighbour", "x")["result"], 1);
            slowest = slowest.max(started.elapsed());
            assert!(!flood.is_finished(), "it prints for ever");
            is_below(&data.path().join("sessions"), "printed")
        });
        assert!(slowest < Duration::from_secs(20), "{slowest:?}");
        assert_eq!(server.post("/api/v1/sessions/flood/interrupt", &json!({})).status, 200);
        flood.join().unwrap()
    });
    assert_eq!(flood["outcome"], "interrupted", "{}", flood["outcome"]);
    assert!(flood["warnings"].to_string().contains("are lost"), "{}", flood["warnings"]);
    let bytes: u64 = spilled(data.path()).iter().sum();
    assert!(bytes <= 1 << 20, "{bytes}");
}

/// Whether the folder of a session has a file of this name.
fn is_below(sessions: &Path, name: &str) -> bool {
    let owners = fs::read_dir(sessions).unwrap().flatten();
    let mut folders =
        owners.filter_map(|owner| fs::read_dir(owner.path()).ok()).flatten().flatten();
    folders.any(|folder| folder.path().join(name).exists())
}

#[test]
fn a_caller_without_storage_keeps_no_more_output() {
    let data = tempfile::tempdir().unwrap();
    let place = ["--data-dir", data.path().to_str().unwrap()];
    let server = Server::start_with(&place, &[("STORAGE_MB", "1")]);
    let code = "for n in range(4 << 10): print('x' * 1023)";
    for session in ["a", "b", "c"] {
        let reply = server.code(session, code);
        assert!(reply["warnings"].to_string().contains("bytes are lost"), "{}", reply["warnings"]);
        let bytes: u64 = spilled(data.path()).iter().sum();
        assert!(bytes <= 1 << 20, "{bytes}");
    }
}

#[test]
fn outputs_of_a_killed_server_go_with_the_next_start() {
    let data = tempfile::tempdir().unwrap();
    let place = ["--data-dir", data.path().to_str().unwrap()];
    let killed = Server::start_with(&place, &[]);
    killed.code("a", MUCH);
    assert_eq!(spilled(data.path()).len(), 1);
    killed.kill();
    drop(killed);
    assert_eq!(spilled(data.path()).len(), 1, "nobody was there to remove it");
    let _next = Server::start_with(&place, &[]);
    assert_eq!(spilled(data.path()), [0; 0]);
}
