//! Environments that sessions can name, as REST and MCP tell of them.

use schemars::JsonSchema;
use serde::Serialize;
use woma_core::environments::EnvironmentInfo;

use super::state::AppState;

/// An environment that sessions can be created in.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct EnvironmentBody {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    python_version: Option<String>,
    /// Number of packages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    packages: Option<usize>,
    /// Policy for the code of its sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    policy: Option<String>,
    /// Largest time limit of a call, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    timeout_max: Option<f64>,
    /// Memory of a session, such as `512m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    memory_limit_max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    processes: Option<u64>,
    /// Why no session can use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    unavailable: Option<String>,
    /// Whether a new session does not wait until it has started.
    running: bool,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct EnvironmentTable {
    /// Those that the operator has named, besides `default`.
    environments: Vec<EnvironmentBody>,
}

impl From<EnvironmentInfo> for EnvironmentBody {
    fn from(info: EnvironmentInfo) -> Self {
        let limits = info.limits;
        let megabytes = |bytes: u64| format!("{}m", bytes / (1024 * 1024));
        Self {
            name: info.name,
            description: info.description,
            python_version: info.python.map(|version| version.to_string()),
            packages: info.packages,
            policy: info.policy,
            timeout_max: limits.timeout.map(|time| time.as_secs_f64()),
            memory_limit_max: limits.memory_bytes.map(megabytes),
            cpu_cores: limits.cpu_cores,
            processes: limits.processes,
            unavailable: info.unavailable,
            running: info.is_running,
        }
    }
}

pub(crate) fn list(state: &AppState) -> EnvironmentTable {
    let environments = state.service.environments();
    EnvironmentTable { environments: environments.into_iter().map(EnvironmentBody::from).collect() }
}

impl EnvironmentTable {
    pub(crate) fn into_inner(self) -> Vec<EnvironmentBody> {
        self.environments
    }
}
