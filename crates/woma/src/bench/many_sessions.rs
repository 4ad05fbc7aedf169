//! A server with two hundred sessions: its memory, and its latency.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{self, Connection, Reply};
use super::measure::{milliseconds, row};
use super::server::Server;
use super::{Fallible, Row};

pub(super) const SESSIONS: usize = 200;
/// Connections that open sessions concurrently.
const LANES: usize = 4;

/// Opens two hundred live sessions, verified by a second call to each.
pub(super) async fn gather(address: SocketAddr) -> Fallible<()> {
    print_in_all(address).await?;
    match print_in_all(address).await? {
        SESSIONS => Ok(()),
        other => Err(format!("of {SESSIONS} sessions only {other} live").into()),
    }
}

/// Runs code in every session; returns how many existed before.
pub(super) async fn print_in_all(address: SocketAddr) -> Fallible<usize> {
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        lanes.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut known = 0;
            for number in (lane..SESSIONS).step_by(LANES) {
                let request = client::print_one(address, &format!("crowd-{number}"));
                let answer = connection.exchange(&request).await?;
                let reply = Reply::of_rpc(&answer.body)?;
                reply.printed_one()?;
                known += usize::from(reply.went_on());
            }
            Fallible::Ok(known)
        });
    }
    let mut known = 0;
    while let Some(ended) = lanes.join_next().await {
        known += ended??;
    }
    Ok(known)
}

pub(super) async fn resident(server: &Server) -> Fallible<Row> {
    server.settle().await?;
    let what = "the server's own process with 200 live sessions (RSS)";
    let mut row = row("server-rss", what, "MiB", 60.0, vec![server.resident_mib()?]);
    row.p99 = None;
    Ok(row)
}

/// Latency of `/health` while sessions keep every core busy.
pub(super) async fn health(address: SocketAddr) -> Fallible<Row> {
    const TIMES: usize = 200;
    const BETWEEN: Duration = Duration::from_millis(10);
    let mut burners = burn(address, Duration::from_secs(8)).await?;
    let mut connection = Connection::open(address).await?;
    let request = client::get(address, "/health");
    let what = "p99 of GET /health with 200 idle sessions, every core busy with code";
    let (began, mut values) = (Instant::now(), Vec::new());
    while values.len() < TIMES && began.elapsed() < Duration::from_secs(5) {
        sleep(BETWEEN).await;
        let started = Instant::now();
        let answer = connection.exchange(&request).await?;
        values.push(milliseconds(started.elapsed()));
        if answer.status != 200 {
            return Err(format!("unexpected status {}", answer.status).into());
        }
    }
    if burners.try_join_next().is_some() {
        return Err("the cores were not busy all the time".into());
    }
    while let Some(ended) = burners.join_next().await {
        ended??.printed_one()?;
    }
    let mut row = row("health-200", what, "ms", 200.0, vec![p99(values)?]);
    row.p99 = None;
    Ok(row)
}

/// Two hundred calls a second, evenly, in twenty sessions; a failed call fails the row.
pub(super) async fn sustained(address: SocketAddr) -> Fallible<Row> {
    const LANES: u32 = 20;
    const CALLS: u32 = 200;
    const BETWEEN: Duration = Duration::from_millis(100);
    let mut lanes = JoinSet::new();
    let began = tokio::time::Instant::now() + BETWEEN;
    for lane in 0..LANES {
        lanes.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let request = client::print_one(address, &format!("steady-{lane}"));
            connection.exchange(&request).await?;
            let mut values = Vec::new();
            for call in 0..CALLS {
                // Scheduled by the clock: a late call does not delay the next one.
                let due = began + BETWEEN * call + BETWEEN * lane / LANES;
                tokio::time::sleep_until(due).await;
                let answer = connection.exchange(&request).await?;
                Reply::of_rpc(&answer.body)?.printed_one()?;
                values.push(milliseconds(due.elapsed()));
            }
            Fallible::Ok(values)
        });
    }
    let mut values = Vec::new();
    while let Some(ended) = lanes.join_next().await {
        values.extend(ended??);
    }
    let what = "p99 of print(1), 200 calls/s in 20 sessions, from when each was due";
    let mut row = row("sustained", what, "ms", 50.0, vec![p99(values)?]);
    row.p99 = None;
    Ok(row)
}

fn p99(mut values: Vec<f64>) -> Fallible<f64> {
    values.sort_by(f64::total_cmp);
    let p99 = values.get(values.len().saturating_sub(1) * 99 / 100).copied();
    Ok(p99.ok_or("no answers")?)
}

/// Starts twice as many busy sessions as there are cores; returns when all of them run.
async fn burn(address: SocketAddr, time: Duration) -> Fallible<JoinSet<Fallible<Reply>>> {
    let cores = std::thread::available_parallelism()?.get();
    let source = format!(
        "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass\nprint(1)",
        time.as_secs()
    );
    let mut burners = JoinSet::new();
    for number in 0..cores * 2 {
        let session = format!("burner-{number}");
        let mut connection = Connection::open(address).await?;
        // The session is opened first, so that only its code keeps the core busy.
        connection.exchange(&client::print_one(address, &session)).await?;
        let arguments = json!({"code": source, "session_id": session, "timeout": 30});
        let request = client::tool_call(address, "execute_code", &arguments);
        burners.spawn(async move {
            let answer = connection.exchange(&request).await?;
            Reply::of_rpc(&answer.body)
        });
    }
    // Time for the last one to start.
    sleep(Duration::from_millis(500)).await;
    Ok(burners)
}
