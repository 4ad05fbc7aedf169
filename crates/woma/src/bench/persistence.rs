//! Cost of persistence: files that are detected and downloaded, variables that are restored.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::client::{self, Connection, Reply};
use super::endpoints::{named, start};
use super::measure::{milliseconds, row};
use super::server::Folder;
use super::{Fallible, Row};
use crate::terminal::tell;

/// All rows of this file.
pub(super) const NAMES: &[&str] = &["files-1000", "revival", "download"];

const MANY: &str = "for n in range(1000): open(f'{n}.dat', 'w').write(str(n))\nprint(1)";
const FRAME: &str = "import numpy, pandas\nrandom = numpy.random.default_rng(1)\n\
                     frame = pandas.DataFrame({name: random.random(1_000_000) for name in 'abcd'})\n\
                     print(1)";
/// A file of 49 million bytes.
const LARGE: &str = "with open('large.csv', 'wb') as file: file.write(b'1,2,3,4,5,6\\n' * 4_083_334)\n\
                     print(1)";

pub(super) async fn all(prefix: &Path, wanted: &dyn Fn(&str) -> bool) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    if wanted("files-1000") || wanted("download") {
        tell("a server with many files");
        let folder = Folder::new("files")?;
        let server = start(prefix, &folder, &["session_pool_size=0"]).await?;
        if wanted("files-1000") {
            rows.push(named("files-1000", files(server.address)).await?);
        }
        if wanted("download") {
            rows.push(named("download", download(server.address)).await?);
        }
    }
    if wanted("revival") {
        tell("a server with a limit of one kernel");
        let folder = Folder::new("revival")?;
        let server = start(prefix, &folder, &["session_pool_size=0", "max_kernels=1"]).await?;
        rows.push(named("revival", revival(server.address)).await?);
    }
    Ok(rows)
}

async fn run(connection: &mut Connection, request: &[u8]) -> Fallible<Reply> {
    let reply = Reply::of_rpc(&connection.exchange(request).await?.body)?;
    reply.printed_one()?;
    Ok(reply)
}

fn code(address: SocketAddr, session: &str, code: &str) -> Vec<u8> {
    let arguments = json!({ "code": code, "session_id": session });
    client::tool_call(address, "execute_code", &arguments)
}

/// Extra cost of a run in a session with a thousand files.
async fn files(address: SocketAddr) -> Fallible<Row> {
    const TIMES: usize = 500;
    let mut connection = Connection::open(address).await?;
    run(&mut connection, &code(address, "many", MANY)).await?;
    let requests = ["none", "many"].map(|session| client::print_one(address, session));
    let mut values = Vec::with_capacity(TIMES);
    for number in 0..TIMES + TIMES / 10 {
        let mut times = [0.0; 2];
        for (time, request) in times.iter_mut().zip(&requests) {
            let started = Instant::now();
            run(&mut connection, request).await?;
            *time = milliseconds(started.elapsed());
        }
        // The first calls are a warm-up.
        if number >= TIMES / 10 {
            values.push(times[1] - times[0]);
        }
    }
    let what = "extra cost of a run in a folder of 1,000 files";
    Ok(row("files-1000", what, "ms", 3.0, values))
}

/// The first call after an eviction, which restores a table of a million rows.
async fn revival(address: SocketAddr) -> Fallible<Row> {
    const TIMES: usize = 7;
    let mut connection = Connection::open(address).await?;
    run(&mut connection, &code(address, "frame", FRAME)).await?;
    let look = code(address, "frame", "print(len(frame) // 1_000_000)");
    let mut values = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        // The limit is one kernel: this call evicts the one with the table.
        run(&mut connection, &client::print_one(address, "other")).await?;
        let started = Instant::now();
        let reply = run(&mut connection, &look).await?;
        values.push(milliseconds(started.elapsed()));
        if !reply.restored().iter().any(|name| name == "frame") {
            return Err("the table was not restored".into());
        }
    }
    let what =
        "first call after an eviction, with a DataFrame of 1 million rows (32 MB) to restore";
    Ok(row("revival", what, "ms", 1_000.0, values))
}

async fn download(address: SocketAddr) -> Fallible<Row> {
    const TIMES: usize = 20;
    let mut connection = Connection::open(address).await?;
    let reply = run(&mut connection, &code(address, "large", LARGE)).await?;
    let (url, size) = reply.download().ok_or("the file has no address")?;
    let path = url.splitn(4, '/').nth(3).ok_or("the address has no path")?;
    let request = client::get(address, &format!("/{path}"));
    let mut values = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let started = Instant::now();
        let (status, length) = connection.fetch(&request).await?;
        let seconds = started.elapsed().as_secs_f64();
        if (status, length) != (200, size) {
            return Err(format!("unexpected reply: status {status}, {length} bytes").into());
        }
        #[expect(clippy::cast_precision_loss, reason = "fifty million has eight digits")]
        values.push(size as f64 / 1e6 / seconds);
    }
    let what = "a file of 49 MB by its download address";
    let mut row = row("download", what, "MB/s", 500.0, values);
    (row.at_least, row.p99) = (true, None);
    Ok(row)
}
