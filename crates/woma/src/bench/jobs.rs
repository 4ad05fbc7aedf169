//! Cost of jobs: how fast they are queued, and how much longer one takes than a direct call.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::client::{self, Connection};
use super::endpoints::{named, start};
use super::measure::{milliseconds, row};
use super::server::Folder;
use super::{Against, Fallible, Row};
use crate::terminal::tell;

/// All rows of this file.
pub(super) const NAMES: &[&str] = &["jobs-submit", "jobs-latency"];

/// Jobs that are queued while none of them can run.
const QUEUED: usize = 2_000;
/// Jobs that are followed to their end.
const FOLLOWED: usize = 50;

pub(super) async fn all(prefix: &Path, wanted: &dyn Fn(&str) -> bool) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    if !NAMES.iter().any(|name| wanted(name)) {
        return Ok(rows);
    }
    tell("a server with jobs");
    let folder = Folder::new("jobs")?;
    let server = start(prefix, &folder, &[]).await?;
    if wanted("jobs-latency") {
        rows.push(named("jobs-latency", latency(server.address)).await?);
    }
    if wanted("jobs-submit") {
        rows.push(named("jobs-submit", submit_rate(server.address)).await?);
    }
    Ok(rows)
}

async fn submit(connection: &mut Connection, server: SocketAddr, body: &Value) -> Fallible<String> {
    let request = client::post(server, "/api/v1/jobs", "", body);
    let answer = connection.exchange(&request).await?;
    let reply: Value = serde_json::from_slice(&answer.body)?;
    let id = reply["job_id"].as_str().map(str::to_owned);
    id.ok_or_else(|| format!("a job was not queued: {reply}").into())
}

/// Submissions in a second, one after the other, with a queue that grows.
async fn submit_rate(server: SocketAddr) -> Fallible<Row> {
    let mut connection = Connection::open(server).await?;
    let later = json!({ "code": "1", "stateless": true, "run_at": "2100-01-01T00:00:00Z" });
    let began = Instant::now();
    for _ in 0..QUEUED {
        submit(&mut connection, server, &later).await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let rate = QUEUED as f64 / began.elapsed().as_secs_f64();
    let what = "jobs queued, one after the other, while 2,000 come to wait";
    let rate = row("jobs-submit", what, "jobs/s", 200.0, vec![rate]);
    Ok(Row { at_least: true, p99: None, ..rate })
}

/// Time from the submission of a job to its result, and of the same code as a call.
async fn latency(server: SocketAddr) -> Fallible<Row> {
    let mut connection = Connection::open(server).await?;
    let body = json!({ "code": "1", "stateless": true });
    let direct = client::post(server, "/api/v1/execute_sync", "", &body);
    let (mut jobs, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..FOLLOWED {
        let began = Instant::now();
        connection.exchange(&direct).await?;
        calls.push(milliseconds(began.elapsed()));
        let began = Instant::now();
        let id = submit(&mut connection, server, &body).await?;
        let path = format!("/api/v1/jobs/{id}/result?wait=60");
        connection.exchange(&client::get(server, &path)).await?;
        jobs.push(milliseconds(began.elapsed()));
    }
    let what = "a job from its submission to its result; promised 400 ms more than a call";
    let call = row("jobs-latency", what, "ms", 0.0, calls);
    let measured = row("jobs-latency", what, "ms", call.p50 + 400.0, jobs);
    let against = Against { peer: "a call", value: call.p50, ratio: call.p50 / measured.p50 };
    Ok(Row { against: vec![against], ..measured })
}
