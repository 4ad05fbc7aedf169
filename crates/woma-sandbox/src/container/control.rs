//! Messages between server, launcher and pid 1 of a container. All are one binary of one build.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Runtime;
use crate::steward::control::{Furnishing, Rlimits, Setup, Tier};

/// First message to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LauncherSetup {
    pub(super) runtime: Runtime,
    /// The contents of containers; its tiers and rotation are the steward's.
    pub(super) shown: Setup,
}

/// Server to launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LauncherOrder {
    /// Descriptors: pid 1's end of its command socket; for a runtime with its own kernel, the
    /// mount of the workspace if it is a folder, then the cgroup files to join.
    Start(Box<Start>),
    /// Kill everything in this container.
    Kill { id: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(super) id: u64,
    pub(super) furnishing: Furnishing,
    pub(super) has_workspace: bool,
}

/// Launcher to server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LauncherReport {
    Ready {
        namespaces: BTreeSet<String>,
    },
    /// The launcher has failed and ended.
    Broken {
        step: String,
        reason: String,
    },
    /// One descriptor: the pidfd of the container's first process.
    Started {
        id: u64,
        /// Host id of the session's user; `None` if it is the server's own.
        uid: Option<u32>,
    },
    Failed {
        id: u64,
        step: String,
        reason: String,
    },
}

/// Server to pid 1, once. Descriptors: kernel socket, log pipe, exit pipe, cgroup files to join.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Contained {
    pub(super) python: PathBuf,
    pub(super) tier: Tier,
    pub(super) furnishing: Furnishing,
    pub(super) rlimits: Rlimits,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) watched: bool,
    pub(super) has_own_kernel: bool,
}

/// First message of pid 1 to the server: the kernel's process exists. Two descriptors, the pidfds
/// of pid 1 and of the kernel, unless the container has a kernel of its own.
pub(super) const UP: &[u8] = b"up";
