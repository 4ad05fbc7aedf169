//! Lifecycle of a server: start, many sessions, eviction, shutdown.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Spoken, client, here, initialize, initialized, request, roomy};
use crate::durability::Home;
use crate::harness::{Connection, Server, descendants, environment, is_alive, unique, until};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_hanging_call_delays_no_other() {
    let name = unique("crowd");
    let hanging = here().send(
        "POST",
        "/execute",
        &[],
        &json!({ "code": "while True: pass", "session_id": format!("{name}-0") }),
    );
    roomy().until_busy(&format!("{name}-0"), true);
    let barrier = Barrier::new(49);
    thread::scope(|scope| {
        for n in 1..50 {
            let (name, barrier) = (&name, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let reply = here().code(&format!("{name}-{n}"), &format!("{n} * 2"));
                assert_eq!(reply["result"], n * 2, "{reply}");
            });
        }
    });
    let still = roomy().get(&format!("/api/v1/sessions/{name}-0")).json();
    assert_eq!(still["is_busy"], true);
    drop(hanging);
}

/// Proportional memory of a process and everything below it, in bytes.
fn memory_bytes(pid: u32) -> u64 {
    let mut kilobytes = 0;
    for pid in descendants(pid) {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes += number.unwrap_or(0);
    }
    kilobytes * 1024
}

#[test]
fn hundreds_of_idle_sessions_are_cheap_and_delay_no_call() {
    const SESSIONS: u64 = 300;
    let server = Server::start_with(&[], &[("MAX_KERNELS", "310")]);
    let here = client(&server);
    here.code("first", "x = 0");
    let before = memory_bytes(server.pid);
    let mut waits = Vec::new();
    for n in 0..SESSIONS {
        let started = Instant::now();
        let reply = here.code(&format!("idle-{n}"), &format!("x = {n}"));
        waits.push(started.elapsed());
        assert_eq!(reply["success"], true, "{reply}");
    }
    waits.sort_unstable();
    let each = (memory_bytes(server.pid).saturating_sub(before)) / SESSIONS;
    assert!(each < 25 * 1024 * 1024, "each session takes {each} bytes");
    assert!(waits[waits.len() / 2] < Duration::from_secs(1), "{:?}", waits[waits.len() / 2]);
    let burning: Vec<Connection> = ["one", "two"]
        .map(|name| {
            let code = "import threading\nfor _ in range(4): threading.Thread(target=lambda: \
                        sum(iter(lambda: 1, 0))).start()\nwhile True: pass";
            let body = json!({ "code": code, "session_id": name });
            here.send("POST", "/execute", &[], &body)
        })
        .into();
    for name in ["one", "two"] {
        server.until_busy(name, true);
    }
    until("both have a kernel", || server.get("/health").json()["kernels"]["used"] == 303);
    let mut waits: Vec<Duration> = (0..50)
        .map(|_| {
            let started = Instant::now();
            assert_eq!(server.get("/health").json()["kernels"]["used"], 303);
            started.elapsed()
        })
        .collect();
    waits.sort_unstable();
    assert!(waits[48] < Duration::from_secs(2), "{:?}", &waits[40..]);
    drop(burning);
    for n in [0, SESSIONS / 2, SESSIONS - 1] {
        assert_eq!(here.code(&format!("idle-{n}"), "x")["result"], n);
    }
}

#[test]
fn evicts_the_oldest_idle_session_and_never_a_busy_one() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "3")]);
    let here = client(&server);
    let sleep = json!({ "code": "x = 1\nimport time; time.sleep(60)", "session_id": "busy" });
    let busy = here.send("POST", "/execute", &[], &sleep);
    server.until_busy("busy", true);
    here.code("old", "x = 1");
    here.code("new", "x = 1");
    assert_eq!(here.code("fourth", "x = 1").get("session_restarted"), None);
    assert_eq!(here.code("new", "x")["result"], 1, "the newer one was left alone");
    let reply = here.code("old", "x");
    assert_eq!((&reply["session_restarted"], reply.get("session_created")), (&json!(true), None));
    let reason = reply["restart_reason"].as_str().unwrap();
    assert!(reason.contains("evicted") && reason.contains("3 kernels"), "{reason}");
    assert_eq!(
        (&reply["result"], &reply["session_restored"]["restored"]),
        (&json!(1), &json!(["x"]))
    );
    let told = server.get("/api/v1/sessions/busy").json();
    assert_eq!((&told["is_busy"], &told["is_live"]), (&json!(true), &json!(false)));
    assert_eq!(here.post("/api/v1/sessions/busy/interrupt", &json!({})).status, 200);
    assert_eq!({ busy }.answer(false).json()["outcome"], "interrupted");
    // It is reported once.
    assert_eq!(here.code("old", "1").get("session_restarted"), None);
}

#[test]
fn idle_sessions_end() {
    let server = Server::start_with(&[], &[("KERNEL_TIMEOUT", "1")]);
    let here = client(&server);
    here.code("idle", "x = 1");
    let path = "/api/v1/sessions/idle";
    assert!(server.get(path).json()["expires_in"].as_f64().unwrap() <= 1.0);
    until("it has expired", || server.get(path).json()["is_live"] == false);
    let reply = here.code("idle", "x");
    assert_eq!((&reply["session_restarted"], &reply["result"]), (&json!(true), &json!(1)));
    assert!(reply["restart_reason"].as_str().unwrap().contains("idle for 1 second"), "{reply}");
    // A run that takes longer is not idle.
    assert_eq!(here.code("idle", "import time; x = 2; time.sleep(1.6)")["success"], true);
    assert_eq!(here.code("idle", "x")["result"], 2);
}

fn execute(id: u64, session: &str, code: &str) -> Value {
    let arguments = json!({ "code": code, "session_id": session });
    request(id, "tools/call", &json!({ "name": "execute_code", "arguments": arguments }))
}

#[test]
fn calls_that_are_sent_without_waiting_run_in_the_order_of_their_arrival() {
    let expected: Vec<u64> = (0..20).collect();
    let mut spoken = Spoken::start(&[], &[]);
    spoken.begin();
    spoken.send(&execute(100, "s", "x = []"));
    for n in &expected {
        spoken.send(&execute(*n + 2, "s", &format!("x.append({n})")));
    }
    spoken.send(&execute(101, "s", "x"));
    let last = loop {
        let answer = spoken.next();
        if answer["id"] == 101 {
            break answer;
        }
    };
    assert_eq!(last["result"]["structuredContent"]["result"], json!(expected));
}

#[test]
fn different_sessions_run_at_the_same_time() {
    let code = "import time\nstart = time.time()\ntime.sleep(1)\n[start, time.time()]";
    let spans: Vec<Value> = thread::scope(|scope| {
        let runs: Vec<_> =
            (0..4).map(|_| scope.spawn(|| here().code(&unique("span"), code))).collect();
        runs.into_iter().map(|run| run.join().unwrap()["result"].take()).collect()
    });
    let at = |span: &Value, index: usize| span[index].as_f64().unwrap();
    let last_start = spans.iter().map(|span| at(span, 0)).fold(0.0, f64::max);
    let first_end = spans.iter().map(|span| at(span, 1)).fold(f64::MAX, f64::min);
    assert!(last_start < first_end, "{spans:?}");
}

fn gone_within(limit: Duration, processes: &[u32]) {
    let started = Instant::now();
    until("every process is gone", || !processes.iter().any(|pid| is_alive(*pid)));
    assert!(started.elapsed() < limit, "{:?}", started.elapsed());
}

#[test]
fn sigterm_lets_running_code_finish() {
    let server = Server::start(&[]);
    let here = client(&server);
    here.code("idle", "x = 1");
    let code = "import time\ntime.sleep(2.5)\n'done'";
    let mut running = here.send("POST", "/execute", &[], &json!({ "code": code }));
    server.until_busy("default", true);
    let processes = descendants(server.pid);
    assert!(processes.len() >= 4, "{processes:?}");
    server.signal("-TERM");
    let started = Instant::now();
    until("no connection is accepted", || TcpStream::connect(server.address).is_err());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let answer = running.answer(false);
    assert_eq!((answer.status, &answer.json()["result"]), (200, &json!("done")));
    until("it has ended", || server.exit_status().is_some());
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert_eq!(server.exit_status(), Some(0));
    gone_within(SOON, &processes);
}

#[test]
fn code_that_does_not_end_is_interrupted_when_the_server_stops() {
    let server = Server::start_with(&[], &[("SHUTDOWN_GRACE", "1")]);
    let here = client(&server);
    let mut running = here.send("POST", "/execute", &[], &json!({ "code": "while True: pass" }));
    server.until_busy("default", true);
    server.signal("-TERM");
    let started = Instant::now();
    assert_eq!(running.answer(false).json()["outcome"], "interrupted");
    until("it has ended", || server.exit_status().is_some());
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert_eq!(server.exit_status(), Some(0));
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let server = Server::start(&[]);
    let running =
        client(&server).send("POST", "/execute", &[], &json!({ "code": "while True: pass" }));
    server.until_busy("default", true);
    let processes = descendants(server.pid);
    server.signal("-TERM");
    until("it stops", || server.log().contains("a second signal stops at once"));
    server.signal("-TERM");
    let started = Instant::now();
    until("it has ended", || server.exit_status().is_some());
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    gone_within(SOON, &processes);
    drop(running);
}

#[test]
fn nothing_outlives_a_server_that_is_killed() {
    let server = Server::start(&[]);
    let here = client(&server);
    here.code("idle", "import subprocess; p = subprocess.Popen(['sleep', '1000'])");
    let running = here.send("POST", "/execute", &[], &json!({ "code": "while True: pass" }));
    server.until_busy("default", true);
    let processes = descendants(server.pid);
    assert!(processes.len() >= 5, "{processes:?}");
    server.signal("-KILL");
    until("it has ended", || server.exit_status().is_some());
    gone_within(SOON, &processes);
    drop(running);
}

#[test]
fn standard_output_carries_messages_and_nothing_else() {
    let mut spoken = Spoken::start(&["stdio"], &[("LOG_LEVEL", "debug")]);
    spoken.begin();
    let code = "import os, sys, subprocess\nos.write(1, b'raw\\n')\nos.write(2, b'raw\\n')\n\
                print('printed')\nos.system('echo from a shell')\nsys.__stdout__.write('x\\n')";
    spoken.send(&execute(2, "s", code));
    let answer = spoken.next();
    let stdout = answer["result"]["structuredContent"]["stdout"].as_str().unwrap();
    for said in ["raw", "printed", "from a shell"] {
        assert!(stdout.contains(said), "{stdout}");
    }
    spoken.send(&execute(
        3,
        "s",
        "import threading\nthreading.Timer(0.1, print, ['late']).start()",
    ));
    assert_eq!(spoken.next()["id"], 3);
    spoken.send(&json!({ "jsonrpc": "2.0", "id": 4, "method": "no/such" }));
    assert_eq!(spoken.next()["error"]["code"], -32601);
    spoken.hang_up();
    assert!(spoken.child.wait().unwrap().success());
    for line in spoken.rest() {
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(message["jsonrpc"], "2.0");
    }
}

fn woma(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_woma"))
        .arg("--env")
        .arg(environment())
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn every_way_of_starting_starts() {
    // A client that disconnects before it sends anything.
    let output = woma(&[], &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty());
    assert_eq!(Server::start_with(&["--sse"], &[]).get("/health").status, 200);
    let home = Home::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_woma"))
        .arg("--env")
        .arg(environment())
        .args(["--sse", "--port", "0"])
        // Other tests serve from the usual folder, which can have one server.
        .env("WOMA_DATA_DIR", home.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        Some(line.split_once("listening on http://")?.1.parse().unwrap())
    });
    let mut connection = Connection::open(address.unwrap());
    connection.send("GET", "/sse", &[], b"");
    assert_eq!(connection.head().unwrap().status, 200);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn reports_why_a_server_cannot_start() {
    let port = roomy().address.port().to_string();
    let output = woma(&["serve", "--port", &port], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(text.contains(&format!("port {port} is in use")) && text.contains("--port"), "{text}");
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("woma.toml");
    fs::write(&file, "port = 0\ncolour = \"red\"\n").unwrap();
    let output = woma(&["serve"], &[("WOMA_CONFIG", file.to_str().unwrap())]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("colour"), "{text}");
    let output = woma(&["serve"], &[("MAX_KERNELS", "many")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("MAX_KERNELS"), "{text}");
}

/// The same over HTTP+SSE, where each message is acknowledged before the next one is posted.
#[test]
fn calls_on_an_event_stream_run_in_the_order_of_their_arrival() {
    let (here, session) = (here(), unique("sse-order"));
    let (mut events, address) = here.stream("/sse");
    for message in [initialize("2024-11-05"), initialized(), execute(2, &session, "x = []")] {
        assert_eq!(here.post(&address, &message).status, 202);
    }
    let appends: Vec<Value> =
        (0..20).map(|n| execute(n + 3, &session, &format!("x.append({n})"))).collect();
    let (first, second) = appends.split_at(10);
    for message in first {
        assert_eq!(here.post(&address, message).status, 202);
    }
    assert_eq!(here.post(&address, &json!(second)).status, 202);
    assert_eq!(here.post(&address, &execute(100, &session, "x")).status, 202);
    let last = loop {
        let message = events.next().unwrap();
        if message["id"] == 100 {
            break message;
        }
    };
    let expected: Vec<u64> = (0..20).collect();
    assert_eq!(last["result"]["structuredContent"]["result"], json!(expected));
}

#[test]
fn a_foreign_dot_env_does_not_prevent_stdio_from_starting() {
    let project = tempfile::tempdir().unwrap();
    fs::write(project.path().join(".env"), "PORT=three\nDATABASE_URL=mysql://x\nDEBUG=app:*\n")
        .unwrap();
    let start = |command: &str| {
        Command::new(env!("CARGO_BIN_EXE_woma"))
            .args(["--data-dir".as_ref(), project.path().as_os_str(), "--env".as_ref()])
            .arg(environment())
            .arg(command)
            .current_dir(project.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let spoken = start("stdio");
    let said = String::from_utf8_lossy(&spoken.stderr).into_owned();
    assert!(spoken.status.success() && said.contains("the file .env was not read"), "{said}");
    let served = start("serve");
    let said = String::from_utf8_lossy(&served.stderr).into_owned();
    assert!(!served.status.success() && said.contains("PORT"), "{said}");
}
