//! Settings of the service. Every choice was made when the configuration was read.

use std::path::PathBuf;
use std::time::Duration;

use woma_sandbox::{Limits, Rung, RuntimeChoice, Tier};

use crate::environments::{Environment, NamedEnvironment};
use crate::execution::RunSettings;
use crate::execution::jobs::JobSettings;
use crate::net::egress::EgressSettings;
use crate::net::secrets::OperatorSecrets;
use crate::packages::PackageSettings;
use crate::policy::Policies;
use crate::storage::layout::StorageSettings;

/// All of them.
#[derive(Debug, Clone)]
pub struct Settings {
    pub environment: Environment,
    /// Name and version of its distributions.
    pub distributions: Vec<(String, String)>,
    /// Environments that sessions may name.
    pub environments: Vec<NamedEnvironment>,
    /// A named environment that no session uses is ended after this long.
    pub environment_idle: Duration,
    /// Of every session; `wall` is the longest that a run may ask for.
    pub limits: Limits,
    /// Sessions kept ready.
    pub pool: usize,
    /// How much the zygotes import.
    pub preload: Tier,
    /// Time limit of a run that does not ask for one.
    pub timeout_default: Duration,
    pub timeout_max: Duration,
    /// Memory limit of a run that does not ask for one; `limits` has the most.
    pub memory_bytes_default: u64,
    /// Runtime of sessions in containers; `None` if there are none.
    pub containers: Option<RuntimeChoice>,
    /// Memory limit of a run in a container that does not ask for one.
    pub container_memory_bytes: Option<u64>,
    /// Kernels that may be alive at once.
    pub kernels_max: usize,
    /// Calls that may run at once; no more than there are kernels.
    pub running_max: usize,
    /// Memory of all sessions together, where a cgroup can hold it.
    pub memory_bytes_all: Option<u64>,
    /// Sessions that are known at once, with and without a kernel.
    pub sessions_max: usize,
    /// Calls that may wait while all kernels are busy.
    pub queue_max: usize,
    /// A kernel goes after this long without a run.
    pub idle_max: Duration,
    pub source_bytes_max: usize,
    /// Whole outputs kept for later reading.
    pub kept_bytes_max: usize,
    /// Characters of each stream that a reply has, where that is less than `limits` has in bytes.
    pub output_chars_max: Option<usize>,
    /// Rules on code, besides the limits of the sandbox.
    pub policies: Policies,
    /// Durable storage; without it, files and records end with their kernels.
    pub storage: Option<StorageSettings>,
    /// A folder of the host that every session may read.
    pub uploads: Option<PathBuf>,
    /// Of every caller whose key does not say otherwise.
    pub executions_per_minute: Option<u32>,
    pub packages: PackageSettings,
    /// Whether the beginning of each program is logged for operators, and not for debugging only.
    pub logs_code: bool,
    pub jobs: JobSettings,
    pub egress: EgressSettings,
    /// Secrets of the operator.
    pub secrets: OperatorSecrets,
    /// Whether callers reach servers in their sessions.
    pub ports: bool,
    /// The least isolation to accept, where the machine refuses rooms.
    pub lowest_rung: Rung,
}

impl Settings {
    pub(super) fn of_runs(&self) -> RunSettings {
        RunSettings {
            limits: self.limits.clone(),
            timeout_default: self.timeout_default,
            timeout_max: self.timeout_max,
            memory_bytes_default: self.memory_bytes_default,
            container_memory_bytes: self.container_memory_bytes,
            memory_bytes_all: self.memory_bytes_all,
            source_bytes_max: self.source_bytes_max,
            output_chars_max: self.output_chars_max,
            executions_per_minute: self.executions_per_minute,
            logs_code: self.logs_code,
            policies: self.policies.clone(),
            ports: self.ports,
        }
    }

    /// As the documentation has them.
    pub fn new(environment: Environment) -> Self {
        let timeout_max = Duration::from_mins(10);
        let limits = Limits { wall: timeout_max, ..Limits::default() };
        Self {
            environment,
            distributions: Vec::new(),
            environments: Vec::new(),
            environment_idle: Duration::from_mins(10),
            memory_bytes_default: limits.memory_bytes,
            containers: None,
            container_memory_bytes: None,
            output_chars_max: None,
            limits,
            pool: 3,
            preload: Tier::Full,
            timeout_default: Duration::from_secs(55),
            timeout_max,
            kernels_max: 10,
            running_max: 16,
            memory_bytes_all: None,
            sessions_max: 1_000,
            queue_max: 256,
            idle_max: Duration::from_mins(5),
            source_bytes_max: 1024 * 1024,
            kept_bytes_max: 32 * 1024 * 1024,
            policies: Policies::open(),
            storage: None,
            uploads: None,
            executions_per_minute: None,
            logs_code: false,
            packages: PackageSettings::default(),
            jobs: JobSettings::default(),
            egress: EgressSettings::default(),
            secrets: OperatorSecrets::default(),
            ports: false,
            lowest_rung: Rung::Rooms,
        }
    }
}
