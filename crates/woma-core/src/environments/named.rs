//! Environments that sessions can name: what the operator's template says of one, and the Python
//! environment that belongs to it, if it has been made.

use std::time::Duration;

use super::{Environment, Version};

/// Environments that an operator may name; each of them in use has a process with its libraries.
pub const NAMED_MAX: usize = 32;

/// An environment by name, as a server knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedEnvironment {
    pub name: String,
    pub description: String,
    /// Rules on the code of its sessions, by name; a session may choose stricter ones.
    pub policy: Option<String>,
    /// Whether everything that is known is preloaded, and not only the base.
    pub preloads_all: bool,
    pub limits: EnvironmentLimits,
    /// Or why there is none, in words for the caller.
    pub made: Result<MadeEnvironment, String>,
}

/// A Python environment with its distributions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeEnvironment {
    pub environment: Environment,
    /// Name and version of each distribution.
    pub packages: Vec<(String, String)>,
}

/// Limits of sessions in an environment, below those of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EnvironmentLimits {
    /// Longest run.
    pub timeout: Option<Duration>,
    pub memory_bytes: Option<u64>,
    pub cpu_cores: Option<f64>,
    pub processes: Option<u64>,
}

/// A named environment as callers are told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvironmentInfo {
    pub name: String,
    pub description: String,
    /// Version of its Python, if it has been made.
    pub python: Option<Version>,
    /// Number of its distributions.
    pub packages: Option<usize>,
    pub policy: Option<String>,
    pub limits: EnvironmentLimits,
    /// Why sessions cannot use it.
    pub unavailable: Option<String>,
    /// Whether a session needs not wait for its start.
    pub is_running: bool,
}
