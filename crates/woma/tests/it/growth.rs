//! Server memory under hostile frames: frames that no kernel sends are written straight to the
//! channel while the server's memory and a neighbour's latency are measured.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::client;
use crate::harness::Server;

/// Data that a cell of this test sends, in MiB.
const SENT_MIB: u64 = 16;
/// Allowed growth of the server: bytes for each sent byte, plus a constant in MiB.
const FACTOR_MAX: u64 = 4;
const CONSTANT_MIB: u64 = 16;
/// How long a neighbour may wait for `print(1)`; the hostile frames once stalled it for seconds.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(20);

const SENDING: &str = r#"
import select, struct, os
def send(kind, body):
    data = memoryview(struct.pack(">IB", len(body) + 1, kind) + body)
    while data:
        select.select([], [900], [])
        try:
            data = data[os.write(900, data):]
        except BlockingIOError:
            pass
def display(header, parts=b""):
    header = header.encode()
    send(0x82, struct.pack(">I", len(header)) + header + parts)
def filled(item, size):
    return ",".join([item] * (size // (len(item) + 1)))
def header(data="{}", binary="[]", metadata="{}"):
    return '{"role":"display","id":null,"data":%s,"binary":%s,"metadata":%s}' % (data, binary, metadata)
def done(**more):
    body = {"run": 1, "status": '"completed"', "exit_code": "null", "error": "null", "result": "null",
            "execution_count": 1, "variables": "[]", **more}
    send(0x83, ("{" + ",".join(f'"{k}":{v}' for k, v in body.items()) + "}").encode())
MIB = 1 << 20
"#;

/// Shapes of hostile frames; each sends about [`SENT_MIB`] or what a run may, whichever is less.
const SHAPES: &[(&str, &str)] = &[
    (
        "objects in data",
        r#"
inner = "[" + filled('{"a":{}}', 250_000) + "]"
for _ in range(64): display(header('{"application/json":%s}' % inner))"#,
    ),
    (
        "objects in large headers",
        r#"
inner = "[" + filled('{"a":{}}', 3_900_000) + "]"
for _ in range(4): display(header('{"application/json":%s}' % inner))"#,
    ),
    (
        "objects in metadata",
        r#"
inner = '{"a":[' + filled('{"a":{}}', 250_000) + "]}"
for _ in range(64): display(header(metadata=inner))"#,
    ),
    (
        "many keys",
        r#"
keys = "{" + ",".join(f'"{i:x}":0' for i in range(25_000)) + "}"
for _ in range(64): display(header(keys))"#,
    ),
    (
        "many parts",
        r#"
parts = "[" + filled('{"mime":"","bytes":0}', 250_000) + "]"
for _ in range(64): display(header(binary=parts))"#,
    ),
    (
        "objects in parts",
        r#"
inner = ("[" + filled('{"a":{}}', 4_000_000) + "]").encode()
part = '[{"mime":"application/json","bytes":%d,"form":"json"}]' % len(inner)
for _ in range(4): display(header(binary=part), inner)"#,
    ),
    (
        "text in parts",
        r#"
part = '[{"mime":"text/html","bytes":%d,"form":"text"}]' % (4 * MIB)
for _ in range(4): display(header(binary=part), b"x" * (4 * MIB))"#,
    ),
    (
        "pictures",
        r#"
part = '[{"mime":"image/png","bytes":%d}]' % (4 * MIB)
for _ in range(4): display(header(binary=part), bytes(4 * MIB))"#,
    ),
    (
        "drawings",
        r#"
part = '[{"mime":"image/svg+xml","bytes":%d,"form":"text"}]' % (4 * MIB)
for _ in range(4): display(header(binary=part), b"x" * (4 * MIB))"#,
    ),
    (
        "small displays",
        r#"
for _ in range(100_000): display(header('{"text/plain":"' + "x" * 60 + '"}'))"#,
    ),
    (
        "notes",
        r#"
for _ in range(16): send(0x84, ('{"code":"c","text":"%s"}' % ("x" * 1_000_000)).encode())"#,
    ),
    (
        "many notes",
        r#"
for _ in range(100): send(0x84, ('{"code":"c","text":"%s"}' % ("x" * 160_000)).encode())"#,
    ),
    (
        "a long traceback",
        r#"
lines = "[" + filled('""', 1_000_000) + "]"
done(error='{"name":"E","message":"","traceback":%s,"line":null}' % lines)"#,
    ),
    (
        "a result of objects",
        r#"
done(result='{"text":"","json":[%s]}' % filled('{"a":{}}', 1_000_000))"#,
    ),
    (
        "many variables",
        r#"
done(variables="[" + filled('{"name":"","type":""}', 1_000_000) + "]")"#,
    ),
];

impl Server {
    fn memory_kib(&self, row: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(row)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Resets the peak memory of the server.
    fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5").unwrap();
    }
}

/// The slowest answer to a neighbour while something is done.
fn beside<T>(server: &Server, work: impl FnOnce() -> T) -> (T, Duration) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let reply = server.code("neighbour", "print(secret)");
                assert_eq!(reply["stdout"], "kept\n", "{reply}");
                slowest = slowest.max(asked.elapsed());
            }
            slowest
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (done, neighbour.join().unwrap())
    })
}

fn measure(door: &str, ask: &dyn Fn(&Server, &str)) {
    let server = Server::start(&[]);
    server.code("neighbour", "secret = 'kept'");
    // One-time setup does not count as growth.
    ask(&server, "print(1)");
    let before = server.memory_kib("VmRSS:");
    let mut failures = Vec::new();
    for (name, shape) in SHAPES {
        server.forget_peak();
        let code = format!("{SENDING}{shape}\n");
        let ((), slowest) = beside(&server, || ask(&server, &code));
        let grown_mib = server.memory_kib("VmHWM:").saturating_sub(before) / 1024;
        let kept_mib = server.memory_kib("VmRSS:").saturating_sub(before) / 1024;
        eprintln!(
            "{door}, {name}: {grown_mib} MiB more, {kept_mib} MiB afterwards, \
             the neighbour waited {slowest:?}"
        );
        if grown_mib > FACTOR_MAX * SENT_MIB + CONSTANT_MIB || slowest > NEIGHBOUR_MAX {
            failures.push(format!("{name}: {grown_mib} MiB, {slowest:?}"));
        }
    }
    assert!(failures.is_empty(), "{door}: {failures:#?}");
}

#[test]
fn server_memory_is_bounded_by_what_a_cell_sends() {
    measure("a reply", &|server, code| {
        let body = json!({ "code": code, "timeout": 20, "stateless": true });
        assert_eq!(server.post("/execute", &body).status, 200);
    });
}

#[test]
fn server_memory_is_bounded_for_a_streamed_run() {
    measure("a stream", &|server, code| {
        let body = json!({ "code": code, "timeout": 20, "stateless": true }).to_string();
        let path = "/api/v1/execute?events=full";
        let answer = server.request("POST", path, &[], body.as_bytes());
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("\"done\""), "the stream has no end");
    });
}

#[test]
fn server_memory_is_bounded_for_a_tool_call() {
    measure("MCP", &|server, code| {
        let arguments = json!({ "code": code, "timeout": 20, "stateless": true });
        let params = json!({ "name": "execute_code", "arguments": arguments });
        let answer = client(server).rpc("tools/call", &params);
        assert!(answer["result"]["content"].is_array(), "{answer}");
    });
}
