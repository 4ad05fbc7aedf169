//! One run, from request to reply. Start reading in [`spine`].
//! Calls `session`, `policy` and `workspace`; knows neither HTTP nor MCP.

pub(crate) mod admission;
pub(crate) mod audit;
mod datasets;
mod elsewhere;
pub(crate) mod environments;
mod header;
mod installer;
pub(crate) mod jobs;
mod kernel;
mod late;
mod loss;
pub(crate) mod middle;
mod network;
mod once;
pub(crate) mod output_cache;
pub(crate) mod packages;
pub(crate) mod pip;
pub(crate) mod record;
pub(crate) mod request;
mod restore;
pub(crate) mod running;
mod secrets;
pub(crate) mod spill;
pub(crate) mod spine;
pub(crate) mod worker;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use woma_sandbox::{Limits, Sandbox};

use self::admission::Admissions;
use self::environments::SessionEnvironments;
use self::jobs::Jobs;
use self::output_cache::OutputCache;
use crate::access::rate::RateLimiter;
use crate::datasets::Datasets;
use crate::metrics::Metrics;
use crate::model::caller::CallerId;
use crate::net::egress::Egress;
use crate::net::secrets::SecretShelf;
use crate::packages::Packages;
use crate::policy::Policies;
use crate::session::table::Sessions;
use crate::workspace::Workspaces;

/// Runs code. Every run goes through one of these.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) sandbox: Sandbox,
    pub(crate) environments: SessionEnvironments,
    pub(crate) settings: RunSettings,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) workspaces: Option<Arc<Workspaces>>,
    pub(crate) datasets: Option<Arc<Datasets>>,
    /// `None` without storage.
    pub(crate) packages: Option<Arc<Packages>>,
    /// Itself, for tasks that do not keep it alive.
    pub(crate) me: Weak<Self>,
    pub(crate) output_cache: OutputCache,
    pub(crate) metrics: Arc<Metrics>,
    /// Calls that run or wait.
    pub(crate) admissions: Admissions,
    /// Stops every run there is.
    pub(crate) stop: CancellationToken,
    pub(crate) rates: RateLimiter<CallerId>,
    pub(crate) jobs: Jobs,
    pub(crate) egress: Arc<Egress>,
    pub(crate) secrets: SecretShelf,
}

/// The limits and rules that hold for runs.
#[derive(Debug, Clone)]
pub(crate) struct RunSettings {
    /// Of every session; `wall` is the longest that a run may ask for.
    pub(crate) limits: Limits,
    /// The time limit of a run that does not ask for one.
    pub(crate) timeout_default: Duration,
    pub(crate) timeout_max: Duration,
    /// The memory limit of a run that does not ask for one; `limits` has the most.
    pub(crate) memory_bytes_default: u64,
    /// The same of a run in a container.
    pub(crate) container_memory_bytes: Option<u64>,
    /// Memory of all sessions together, where a cgroup can hold it.
    pub(crate) memory_bytes_all: Option<u64>,
    pub(crate) source_bytes_max: usize,
    /// Characters of each stream that a reply has, where that is less than `limits` has in bytes.
    pub(crate) output_chars_max: Option<usize>,
    /// Of every caller whose key does not say otherwise.
    pub(crate) executions_per_minute: Option<u32>,
    pub(crate) logs_code: bool,
    pub(crate) policies: Policies,
    /// Whether callers reach servers in their sessions.
    pub(crate) ports: bool,
}
