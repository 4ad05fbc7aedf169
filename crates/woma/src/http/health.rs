//! How the server is, for people, probes and those who watch. Nothing here waits for anything.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use woma_core::{Isolation, TierHealth};

use crate::doors::Doors;
use crate::wire::round;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const DESCRIPTION: &str = "A Python that AI agents can be trusted with";

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HealthBody {
    /// `healthy`; or `degraded`, with status 503 if code cannot be run, and 200 if only the store
    /// is away.
    status: &'static str,
    /// What is wrong, if anything is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    service: &'static str,
    version: &'static str,
    executor_version: &'static str,
    /// `sqlite` or `postgresql`, as far as it is there; else `unavailable`.
    database: &'static str,
    /// Records that wait for the store.
    unrecorded: usize,
    timestamp: String,
    started_at: String,
    /// Seconds.
    uptime: f64,
    active_sessions: usize,
    /// `full`, `none`, or `examining` for the first second: sessions are contained before that too.
    isolation: &'static str,
    /// The walls one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Value>")]
    layers: Option<Value>,
    limits_held_by: HeldBy,
    /// The warm interpreters.
    zygotes: BTreeMap<&'static str, Zygote>,
    /// How often something that died was replaced.
    restarts: u64,
    kernels: Filling,
    queue: Filling,
    cells: Cells,
    memory: MemoryBody,
}

#[derive(Debug, Serialize, JsonSchema)]
struct HeldBy {
    /// `cgroup` or the watchdog.
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
    /// Of the server itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    server_bytes: Option<u64>,
    /// Of all sessions, where a cgroup counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    sessions_bytes: Option<u64>,
}

pub(crate) async fn health(State(doors): State<Doors>) -> Response {
    let (mut body, is_well) = body(&doors);
    match doors.service.store_health() {
        Some(store) if store.is_healthy => body.database = store.backend,
        None => body.database = "none",
        Some(_) => {
            body.status = "degraded";
            body.problems.push("the store does not answer; code runs, records wait".to_owned());
        }
    }
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

fn body(doors: &Doors) -> (HealthBody, bool) {
    let health = doors.service.health();
    let (who, why) = health.limits_held_by;
    let mut problems = Vec::new();
    if health.is_shutting_down {
        problems.push("the server is shutting down".to_owned());
    }
    if health.sandbox.broken.is_some() {
        // Why is for the log and `woma doctor`: it may name paths of the host.
        problems.push("the sandbox cannot be built; `woma doctor` says why".to_owned());
    }
    let zygotes = health.sandbox.tiers.iter();
    let zygotes: BTreeMap<_, _> =
        zygotes.map(|(tier, state)| (tier.name(), zygote(state))).collect();
    if !zygotes.values().any(|zygote| zygote.state == "ready") {
        problems.push("no interpreter is ready".to_owned());
    }
    let isolation = health.isolation.as_ref().map_or("examining", |found| match found.isolation {
        Isolation::Full => "full",
        Isolation::None => "none",
    });
    let layers = health.isolation.map(|found| serde_json::to_value(found.layers));
    let is_well = health.is_well;
    let body = HealthBody {
        status: if health.is_well { "healthy" } else { "degraded" },
        problems,
        service: "woma",
        version: VERSION,
        executor_version: VERSION,
        database: "unavailable",
        unrecorded: doors.service.unrecorded(),
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
        },
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

/// The resident memory of this process. The kernel answers from memory: it cannot block.
pub(crate) fn server_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// What stands at the front door.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HomeBody {
    service: &'static str,
    version: &'static str,
    description: &'static str,
    docs: &'static str,
    openapi: &'static str,
    health: &'static str,
    metrics: &'static str,
    mcp: &'static str,
}

pub(crate) async fn home() -> Json<HomeBody> {
    Json(HomeBody {
        service: "woma",
        version: VERSION,
        description: DESCRIPTION,
        docs: "/docs",
        openapi: "/openapi.json",
        health: "/health",
        metrics: "/metrics",
        mcp: "/mcp",
    })
}
