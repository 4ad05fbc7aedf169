//! Health of the server, for people and probes. Never blocks.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use woma_core::{Caller, DiskSpace, TierHealth};

use crate::api::reply::round;
use crate::api::state::AppState;
use crate::http::layers::auth::jwt::{IssuerProblem, Tokens};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HealthBody {
    /// `healthy` or `degraded`: with status 503 if code cannot run, with 200 if only the store is
    /// unavailable, the disk is below its reserve, or the token issuer's keys cannot be read.
    status: &'static str,
    /// Problems, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    service: &'static str,
    version: &'static str,
    executor_version: &'static str,
    /// `sqlite` or `postgresql`; `unavailable` if it does not answer.
    database: &'static str,
    /// Records waiting to be written to the store.
    unrecorded: usize,
    timestamp: String,
    started_at: String,
    /// Seconds.
    uptime: f64,
    active_sessions: usize,
    /// `full`, `strong`, `none`, or `examining` during the first second; sessions are contained all
    /// the time.
    isolation: &'static str,
    /// Isolation layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Value>")]
    layers: Option<Value>,
    limits_held_by: HeldBy,
    /// Warm interpreters.
    zygotes: BTreeMap<&'static str, Zygote>,
    /// Number of restarts of failed processes.
    restarts: u64,
    kernels: Filling,
    queue: Filling,
    cells: Cells,
    memory: MemoryBody,
    /// Disk of the data folder or of the sessions' files, whichever has less space.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DiskBody")]
    disk: Option<DiskBody>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DiskBody {
    total_bytes: u64,
    free_bytes: u64,
    /// Space that must stay free (`MIN_FREE_DISK`).
    reserve_bytes: u64,
    /// Inodes; 0 if the file system does not report them.
    total_files: u64,
    free_files: u64,
    reserve_files: u64,
    /// Free space is below the reserve: writers are stopped, and nothing new is stored.
    is_below_reserve: bool,
}

impl From<DiskSpace> for DiskBody {
    fn from(space: DiskSpace) -> Self {
        Self {
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            reserve_bytes: space.reserve_bytes,
            total_files: space.total_files,
            free_files: space.free_files,
            reserve_files: space.reserve_files,
            is_below_reserve: space.is_low(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct HeldBy {
    /// `cgroup` or `watchdog`.
    who: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    why: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Zygote {
    /// `starting`, `ready` or `gone`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    boot_ms: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Filling {
    used: usize,
    max: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Cells {
    live: usize,
    pooled: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct MemoryBody {
    /// Memory of the server process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    server_bytes: Option<u64>,
    /// Memory of all sessions, if a cgroup counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    sessions_bytes: Option<u64>,
    /// Limit of the sessions' memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    sessions_bytes_max: Option<u64>,
}

/// Health without a key: nothing of the machine, and nothing of other callers. A caller gets a
/// [`HealthBody`].
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PublicHealth {
    /// `healthy` or `degraded`.
    status: &'static str,
    service: &'static str,
    version: &'static str,
    /// `sqlite` or `postgresql`; `unavailable` if it does not answer.
    database: &'static str,
    timestamp: String,
}

/// Reply to a probe.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProbeBody {
    /// `alive`, `ready` or `not ready`.
    status: &'static str,
}

/// Health for everybody; the details are for callers.
pub(crate) async fn public(
    State(state): State<AppState>,
    Extension(tokens): Extension<Option<Tokens>>,
    caller: Option<Extension<Caller>>,
) -> Response {
    let (body, is_well) = whole(&state, tokens.as_ref());
    if caller.is_some() {
        return uncached(is_well, body);
    }
    let HealthBody { status, service, version, database, timestamp, .. } = body;
    uncached(is_well, PublicHealth { status, service, version, database, timestamp })
}

pub(crate) async fn health(
    State(state): State<AppState>,
    Extension(tokens): Extension<Option<Tokens>>,
) -> Response {
    let (body, is_well) = whole(&state, tokens.as_ref());
    uncached(is_well, body)
}

/// Liveness: the process answers. A restart would not help against anything else.
pub(crate) async fn live() -> Response {
    uncached(true, ProbeBody { status: "alive" })
}

/// Readiness: code can be run, and the server is not shutting down. Records wait for a database that
/// is away, so it does not count.
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    let is_ready = state.service.health().is_well;
    uncached(is_ready, ProbeBody { status: if is_ready { "ready" } else { "not ready" } })
}

fn uncached(is_well: bool, body: impl Serialize) -> Response {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

/// Health with the state of the store and of the issuer of tokens, and whether code can be run.
fn whole(state: &AppState, tokens: Option<&Tokens>) -> (HealthBody, bool) {
    let (mut body, is_well) = body(state);
    if let Some(problem) = tokens.and_then(Tokens::problem) {
        let text = match problem {
            IssuerProblem::NoKeys => {
                "the keys of the token issuer cannot be read: tokens are refused"
            }
            IssuerProblem::OldKeys => {
                "the keys of the token issuer cannot be read: those of the last hour are in use"
            }
        };
        body.status = "degraded";
        body.problems.push(text.to_owned());
    }
    match state.service.store_health() {
        Some(store) if store.is_healthy => body.database = store.backend,
        None => body.database = "none",
        Some(_) => {
            body.status = "degraded";
            body.problems.push("the store does not answer; code runs, records wait".to_owned());
        }
    }
    (body, is_well)
}

fn body(state: &AppState) -> (HealthBody, bool) {
    let health = state.service.health();
    let (who, why) = health.limits_held_by;
    let mut problems = Vec::new();
    if health.is_shutting_down {
        problems.push("the server is shutting down".to_owned());
    }
    if health.sandbox.broken.is_some() {
        // The reason may name host paths: only the log and `woma doctor` show it.
        problems.push("the sandbox cannot be built; `woma doctor` says why".to_owned());
    }
    let zygotes = health.sandbox.tiers.iter();
    let zygotes: BTreeMap<_, _> =
        zygotes.map(|(tier, state)| (tier.name(), zygote(state))).collect();
    if !zygotes.values().any(|zygote| zygote.state == "ready") {
        problems.push("no interpreter is ready".to_owned());
    }
    let is_low = health.disk.is_some_and(|disk| disk.is_low());
    if is_low {
        let text = "the disk is below its reserve (MIN_FREE_DISK): writers are stopped, and \
                    nothing new is stored";
        problems.push(text.to_owned());
    }
    let isolation = health.isolation.as_ref().map_or("examining", |found| found.isolation.name());
    let layers = health.isolation.map(|found| serde_json::to_value(found.layers));
    let is_well = health.is_well;
    let body = HealthBody {
        status: if health.is_well && !is_low { "healthy" } else { "degraded" },
        problems,
        service: "woma",
        version: VERSION,
        executor_version: VERSION,
        database: "unavailable",
        unrecorded: state.service.unrecorded(),
        timestamp: jiff::Timestamp::now().to_string(),
        started_at: health.started_at.to_string(),
        uptime: round(health.uptime.as_secs_f64()),
        active_sessions: health.sessions,
        isolation,
        layers: layers.and_then(Result::ok),
        limits_held_by: HeldBy { who, why },
        zygotes,
        restarts: health.sandbox.restarts,
        kernels: Filling { used: health.kernels, max: health.kernels_max },
        queue: Filling { used: health.queued, max: health.queue_max },
        cells: Cells { live: health.cells, pooled: health.pooled },
        memory: MemoryBody {
            server_bytes: server_memory_bytes(),
            sessions_bytes: health.memory_bytes,
            sessions_bytes_max: health.memory_bytes.and(health.memory_bytes_max),
        },
        disk: health.disk.map(DiskBody::from),
    };
    (body, is_well)
}

fn zygote(state: &TierHealth) -> Zygote {
    match state {
        TierHealth::Starting => Zygote { state: "starting", boot_ms: None },
        TierHealth::Ready { boot_ms, .. } => Zygote { state: "ready", boot_ms: Some(*boot_ms) },
        TierHealth::Gone { .. } => Zygote { state: "gone", boot_ms: None },
    }
}

/// Resident memory of this process.
pub(crate) fn server_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
