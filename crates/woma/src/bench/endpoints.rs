//! Measurements over HTTP and standard input: this program as a server, a client on the same
//! machine.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::client::{self, Answer, Connection, Reply};
use super::measure::{PAUSE, milliseconds, row};
use super::server::{Folder, Pipes, Server, ourselves};
use super::{Fallible, Row};
use super::{hostile_output, many_sessions};
use crate::terminal::tell;

/// All rows of this file, of `many_sessions.rs` and of `hostile_output.rs`.
pub(super) const NAMES: &[&str] = &[
    "mcp-warm",
    "mcp-new",
    "mcp-new-pooled",
    "mcp-throughput",
    "rest-warm",
    "stdio-warm",
    "server-rss",
    "health-200",
    "sustained",
    "growth",
    "growth-neighbour",
];

/// Time limit of a row, which usually takes a few seconds.
const ROW_MAX: Duration = Duration::from_secs(60);
const WARM_TIMES: usize = 2_000;
const NEW_TIMES: usize = 100;
const CONNECTIONS: usize = 16;

pub(super) async fn all(prefix: &Path, wanted: &dyn Fn(&str) -> bool) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    if ["mcp-warm", "mcp-new", "mcp-throughput", "rest-warm"].into_iter().any(wanted) {
        tell("a server without a pool");
        let folder = Folder::new("doors")?;
        let server = start(prefix, &folder, &["session_pool_size=0", "max_kernels=64"]).await?;
        let address = server.address;
        if wanted("mcp-warm") {
            rows.push(named("mcp-warm", mcp_warm(address)).await?);
        }
        if wanted("mcp-new") {
            rows.push(named("mcp-new", mcp_new(address)).await?);
        }
        if wanted("mcp-throughput") {
            rows.push(named("mcp-throughput", mcp_throughput(address)).await?);
        }
        if wanted("rest-warm") {
            rows.push(named("rest-warm", rest_warm(address)).await?);
        }
    }
    if wanted("mcp-new-pooled") {
        tell("a server with a pool");
        let folder = Folder::new("pool")?;
        let server = start(prefix, &folder, &["session_pool_size=4"]).await?;
        rows.push(named("mcp-new-pooled", mcp_new_pooled(server.address)).await?);
    }
    if wanted("sustained") {
        tell("a server under a steady load, for twenty seconds");
        let folder = Folder::new("load")?;
        let server = start(prefix, &folder, &["max_kernels=32"]).await?;
        rows.push(named("sustained", many_sessions::sustained(server.address)).await?);
    }
    if wanted("growth") || wanted("growth-neighbour") {
        tell("a server with a hostile cell");
        let folder = Folder::new("growth")?;
        let server = start(prefix, &folder, &[]).await?;
        rows.extend(named("growth", hostile_output::rows(&server)).await?);
    }
    if wanted("stdio-warm") {
        rows.push(named("stdio-warm", stdio_warm(prefix)).await?);
    }
    if wanted("server-rss") || wanted("health-200") {
        tell("a server with two hundred sessions");
        let folder = Folder::new("crowd")?;
        let settings = ["session_pool_size=0", "max_kernels=256", "max_sessions=1000"];
        let server = start(prefix, &folder, &settings).await?;
        named("server-rss", many_sessions::gather(server.address)).await?;
        if wanted("server-rss") {
            rows.push(named("server-rss", many_sessions::resident(&server)).await?);
        }
        if wanted("health-200") {
            rows.push(named("health-200", many_sessions::health(server.address)).await?);
        }
    }
    Ok(rows)
}

pub(super) async fn start(prefix: &Path, folder: &Folder, settings: &[&str]) -> Fallible<Server> {
    let mut command = ourselves("serve", prefix, folder, settings)?;
    command.args(["--port", "0"]);
    let server = Server::start(command).await?;
    server.settle().await?;
    Ok(server)
}

pub(super) async fn named<T>(
    name: &str,
    measured: impl Future<Output = Fallible<T>>,
) -> Fallible<T> {
    within(ROW_MAX, name, measured).await
}

/// Adds the row's name to its failure, and a time limit.
async fn within<T>(
    limit: Duration,
    name: &str,
    measured: impl Future<Output = Fallible<T>>,
) -> Fallible<T> {
    match timeout(limit, measured).await {
        Ok(Ok(measured)) => Ok(measured),
        Ok(Err(error)) => Err(format!("{name} cannot be measured: {error}").into()),
        Err(_) => Err(format!("{name} cannot be measured: it took over {limit:?}").into()),
    }
}

fn checked(answer: &Answer) -> Fallible<()> {
    Reply::of_rpc(&answer.body)?.printed_one()
}

/// Time of each of many equal requests on one connection.
async fn repeat(
    address: SocketAddr,
    request: &[u8],
    times: usize,
    check: fn(&Answer) -> Fallible<()>,
) -> Fallible<Vec<f64>> {
    let mut connection = Connection::open(address).await?;
    // The first requests are a warm-up.
    for _ in 0..=times / 20 {
        check(&connection.exchange(request).await?)?;
    }
    let mut values = Vec::with_capacity(times);
    for _ in 0..times {
        let started = Instant::now();
        let answer = connection.exchange(request).await?;
        values.push(milliseconds(started.elapsed()));
        check(&answer)?;
    }
    Ok(values)
}

/// `execute_code(print(1))` in an existing session, over MCP, on any server.
pub(super) async fn warm_calls(address: SocketAddr, times: usize) -> Fallible<Vec<f64>> {
    repeat(address, &client::print_one(address, "warm"), times, checked).await
}

async fn mcp_warm(address: SocketAddr) -> Fallible<Row> {
    let values = warm_calls(address, WARM_TIMES).await?;
    let what = "execute_code(print(1)) over MCP, HTTP, a session that exists";
    Ok(row("mcp-warm", what, "ms", 0.5, values))
}

/// Time from the request to its result, in new sessions, one after the other.
async fn new_sessions(address: SocketAddr) -> Fallible<Vec<f64>> {
    let mut connection = Connection::open(address).await?;
    let mut values = Vec::new();
    for number in 0..NEW_TIMES {
        let session = format!("new-{number}");
        let request = client::print_one(address, &session);
        sleep(PAUSE).await;
        let started = Instant::now();
        let answer = connection.exchange(&request).await?;
        values.push(milliseconds(started.elapsed()));
        let reply = Reply::of_rpc(&answer.body)?;
        reply.printed_one()?;
        if reply.went_on() {
            return Err("a new session existed already".into());
        }
        let request = client::tool_call(address, "delete_session", &json!({"session_id": session}));
        let deleted = connection.exchange(&request).await?;
        if deleted.status != 200 {
            return Err(format!("delete_session answered {}", deleted.status).into());
        }
    }
    Ok(values)
}

async fn mcp_new(address: SocketAddr) -> Fallible<Row> {
    let what = "new session → print(1) over MCP, HTTP, no pool";
    Ok(row("mcp-new", what, "ms", 8.0, new_sessions(address).await?))
}

/// After a pause, most of the time goes to waking up processors and processes. The promise is a
/// multiple of that: of the same call in a session that exists, after the same pause.
async fn mcp_new_pooled(address: SocketAddr) -> Fallible<Row> {
    const TIMES_MAX: f64 = 1.5;
    let rested = row("rested", "", "ms", f64::NAN, rested_calls(address).await?).p50;
    tell(&format!("the same call in a session that exists, after the same pause: {rested:.2} ms"));
    let what =
        "new session from the pool → print(1) over MCP, HTTP; promised: 1.5 × the call above";
    let promise = (rested * TIMES_MAX * 100.0).round() / 100.0;
    Ok(row("mcp-new-pooled", what, "ms", promise, new_sessions(address).await?))
}

/// Calls in an existing session, each after a pause.
async fn rested_calls(address: SocketAddr) -> Fallible<Vec<f64>> {
    let mut connection = Connection::open(address).await?;
    let request = client::print_one(address, "rested");
    checked(&connection.exchange(&request).await?)?;
    let mut values = Vec::new();
    for _ in 0..NEW_TIMES {
        sleep(PAUSE).await;
        let started = Instant::now();
        let answer = connection.exchange(&request).await?;
        values.push(milliseconds(started.elapsed()));
        checked(&answer)?;
    }
    Ok(values)
}

/// Calls per second on sixteen connections, each with its own session, on any server.
pub(super) async fn calls_per_second(address: SocketAddr) -> Fallible<f64> {
    const FOR: Duration = Duration::from_secs(3);
    let mut connections = Vec::new();
    for number in 0..CONNECTIONS {
        let request = client::print_one(address, &format!("throughput-{number}"));
        let mut connection = Connection::open(address).await?;
        checked(&connection.exchange(&request).await?)?;
        connections.push((connection, request));
    }
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (mut connection, request) in connections {
        tasks.spawn(async move {
            let mut calls = 0_u32;
            while started.elapsed() < FOR {
                checked(&connection.exchange(&request).await?)?;
                calls += 1;
            }
            Fallible::Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(ended) = tasks.join_next().await {
        calls += ended??;
    }
    Ok(f64::from(calls) / started.elapsed().as_secs_f64())
}

async fn mcp_throughput(address: SocketAddr) -> Fallible<Row> {
    let rate = calls_per_second(address).await?;
    let what = "execute_code(print(1)) over MCP, HTTP, 16 connections and sessions";
    let mut row = row("mcp-throughput", what, "calls/s", 3_000.0, vec![rate]);
    (row.at_least, row.p99) = (true, None);
    Ok(row)
}

async fn rest_warm(address: SocketAddr) -> Fallible<Row> {
    let arguments = json!({"code": "print(1)", "session_id": "warm"});
    let request =
        client::post(address, "/api/v1/execute", "Accept: application/json\r\n", &arguments);
    let check = |answer: &Answer| Reply::of_rest(&answer.body)?.printed_one();
    let values = repeat(address, &request, WARM_TIMES, check).await?;
    let what = "POST /api/v1/execute, print(1), a session that exists";
    Ok(row("rest-warm", what, "ms", 0.5, values))
}

async fn stdio_warm(prefix: &Path) -> Fallible<Row> {
    let folder = Folder::new("stdio")?;
    let mut pipes = Pipes::start(ourselves("stdio", prefix, &folder, &[])?).await?;
    pipes.settle().await?;
    let values = warm_lines(&mut pipes, WARM_TIMES).await?;
    let what = "execute_code(print(1)) over MCP, stdio, a session that exists";
    Ok(row("stdio-warm", what, "ms", 0.5, values))
}

/// As [`warm_calls`], over standard input and output.
pub(super) async fn warm_lines(pipes: &mut Pipes, times: usize) -> Fallible<Vec<f64>> {
    let mut values = Vec::with_capacity(times);
    let warming = times / 20 + 1;
    for number in 0..warming + times {
        let request = pipes.print_one();
        let started = Instant::now();
        pipes.exchange(&request).await?;
        let elapsed = started.elapsed();
        pipes.reply()?.printed_one()?;
        if number >= warming {
            values.push(milliseconds(elapsed));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_row_that_fails_says_its_name() {
        let error =
            named("mcp-warm", async { Fallible::<()>::Err("no".into()) }).await.unwrap_err();
        assert_eq!(error.to_string(), "mcp-warm cannot be measured: no");
    }

    #[tokio::test]
    async fn a_row_that_hangs_ends() {
        let hangs = std::future::pending::<Fallible<()>>();
        let error = within(Duration::ZERO, "mcp-warm", hangs).await.unwrap_err();
        assert!(error.to_string().contains("took over"), "{error}");
    }
}
