//! Sessions as REST and MCP tell of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use woma_core::SessionInfo;

use super::reply::{WORKSPACE, round};

/// A session as its owner sees it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Session {
    pub(crate) session_id: String,
    pub(crate) name: String,
    pub(crate) description: String,
    /// The session's working directory, as its code sees it.
    pub(crate) sandbox_dir: &'static str,
    pub(crate) created_at: String,
    pub(crate) last_activity: String,
    /// Running or waiting for its turn.
    pub(crate) is_busy: bool,
    /// Whether its variables are in memory.
    pub(crate) is_live: bool,
    pub(crate) execution_count: u64,
    /// The rules that it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) policy: Option<String>,
    /// The environment that it was made in, if it is not the server's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) environment: Option<String>,
    /// Seconds until its Python ends if nothing is run in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub(crate) expires_in: Option<f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// Seconds without a call after which it is deleted; absent where the server's time holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub(crate) lifetime: Option<u64>,
    /// The rules of its network that it chose for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) network: Option<String>,
    /// Names of the secrets that it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) secrets: Vec<String>,
}

impl From<SessionInfo> for Session {
    fn from(info: SessionInfo) -> Self {
        Self {
            session_id: info.id.to_string(),
            name: info.name,
            description: info.description,
            sandbox_dir: WORKSPACE,
            created_at: info.created_at.to_string(),
            last_activity: info.last_activity.to_string(),
            is_busy: info.is_busy,
            is_live: info.is_live,
            execution_count: info.execution_count,
            policy: info.policy,
            environment: info.environment,
            expires_in: info.expires_in.map(|left| round(left.as_secs_f64())),
            labels: info.labels,
            lifetime: info.lifetime.map(|lifetime| lifetime.as_secs()),
            network: info.network,
            secrets: info.secrets,
        }
    }
}
