//! Cost of a hostile cell to the server: memory for each byte that it sends, and a neighbour's
//! time.

use std::time::Instant;

use serde_json::json;

use super::client::{self, Connection, Reply};
use super::measure::{milliseconds, row};
use super::server::Server;
use super::{Fallible, Row};

/// Data that each program sends, in MiB.
const SENT_MIB: f64 = 16.0;

const SENDING: &str = r#"
import os, select, struct
def send(header, part=b""):
    header = header.encode()
    body = struct.pack(">I", len(header)) + header + part
    data = memoryview(struct.pack(">IB", len(body) + 1, 0x82) + body)
    while data:
        select.select([], [900], [])
        try:
            data = data[os.write(900, data):]
        except BlockingIOError:
            pass
objects = lambda size: "[" + ",".join(['{"a":{}}'] * (size // 9)) + "]"
"#;

/// Displays that a well-behaved kernel would not send: many small objects, text, pictures.
const SHAPES: [&str; 4] = [
    "inner = objects(250_000)\n\
     for _ in range(64): send('{\"role\":\"display\",\"data\":{\"application/json\":%s}}' % inner)",
    "inner = objects(4 << 20).encode()\n\
     for _ in range(4): send('{\"role\":\"display\",\"binary\":[{\"mime\":\"application/json\",\
     \"bytes\":%d,\"form\":\"json\"}]}' % len(inner), inner)",
    "for _ in range(4): send('{\"role\":\"display\",\"binary\":[{\"mime\":\"text/html\",\
     \"bytes\":%d,\"form\":\"text\"}]}' % (4 << 20), b'x' * (4 << 20))",
    "for _ in range(4): send('{\"role\":\"display\",\"binary\":[{\"mime\":\"image/png\",\
     \"bytes\":%d}]}' % (4 << 20), bytes(4 << 20))",
];

/// Both rows: the worst memory growth for each byte, and a neighbour's latency meanwhile.
pub(super) async fn rows(server: &Server) -> Fallible<Vec<Row>> {
    let address = server.address;
    let mut neighbour = Connection::open(address).await?;
    let print_one = client::print_one(address, "neighbour");
    neighbour.exchange(&print_one).await?;
    let (mut growth, mut waits) = (Vec::new(), Vec::new());
    for shape in SHAPES {
        server.settle().await?;
        server.forget_peak()?;
        let before = server.resident_mib()?;
        let code = format!("{SENDING}{shape}\nprint(1)");
        let arguments = json!({"code": code, "stateless": true, "timeout": 30});
        let request = client::tool_call(address, "execute_code", &arguments);
        let mut connection = Connection::open(address).await?;
        let attack = tokio::spawn(async move { connection.exchange(&request).await });
        while !attack.is_finished() {
            let started = Instant::now();
            let answer = neighbour.exchange(&print_one).await?;
            waits.push(milliseconds(started.elapsed()));
            Reply::of_rpc(&answer.body)?.printed_one()?;
        }
        attack.await??;
        growth.push((server.peak_mib()? - before).max(0.0) / SENT_MIB);
    }
    let worst = growth.into_iter().fold(0.0, f64::max);
    let what = "the server's growth for each byte that a hostile cell sends, the worst of four";
    let mut grown = row("growth", what, "bytes", 4.0, vec![worst]);
    grown.p99 = None;
    let what = "print(1) of a neighbour meanwhile";
    Ok(vec![grown, row("growth-neighbour", what, "ms", 50.0, waits)])
}
