//! Requests and replies, as every surface knows them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use woma_sandbox::protocol::{Note, Raised, ResultValue, Variable};

/// One piece of code to run.
#[derive(Debug, Clone, Default)]
pub struct Execute {
    pub source: String,
    /// Shorter than the session's limit, or that limit.
    pub timeout: Option<Duration>,
}

/// What came of it: one shape for every surface.
#[derive(Debug, Clone, Serialize)]
pub struct Execution {
    /// `completed`, `raised`, `interrupted`, `timed_out`, `out_of_memory`, `crashed`,
    /// `never_started`.
    pub outcome: &'static str,
    /// `preserved` or `lost`: whether the session's variables are still there.
    pub state: &'static str,
    pub success: bool,
    /// What a shell would get: 0, 1, the program's own, 124 for a time-out, 137 for memory.
    pub exit_code: i64,
    /// One sentence about any end but a plain one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub stdout: String,
    pub stderr: String,
    pub result: Option<ResultValue>,
    pub error: Option<Raised>,
    pub displays: Vec<Shown>,
    pub notes: Vec<Note>,
    /// Seconds.
    pub execution_time: f64,
    pub execution_time_ms: f64,
    pub execution_count: u64,
    pub variables: Vec<Variable>,
    /// Output beyond the limit, which was dropped.
    pub output_bytes_dropped: u64,
    pub displays_dropped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_time_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

/// A displayed object; pictures are in base64 where they leave us as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    pub role: woma_sandbox::protocol::Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub data: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    #[serde(skip)]
    pub pictures: Vec<Picture>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub media_type: String,
    pub bytes: Vec<u8>,
}
