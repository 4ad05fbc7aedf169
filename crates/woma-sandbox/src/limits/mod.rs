//! Limits of a session, and the two ways to enforce them: cgroups where available, and the
//! watchdog, which samples periodically.

pub(crate) mod ceiling;
pub(crate) mod cgroup;
mod delegation;
pub(crate) mod deleted;
pub(crate) mod memory_reserve;
pub(crate) mod objects;
pub(crate) mod watchdog;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::workspace::Contents;

const MIB: u64 = 1024 * 1024;

/// Limits of a session. Units are in the name or type of each field; docs/SPEC.md lists the
/// defaults with the test that reaches each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time of one run.
    pub wall: Duration,
    /// CPU time of one run, over all its processes.
    pub cpu: Duration,
    /// Processors that the session may use at once.
    pub cpu_cores: f64,
    /// Memory of all processes of the session together, including files in memory.
    pub memory_bytes: u64,
    /// Processes and threads of the session.
    pub processes: u64,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Open descriptors of all processes of the session together.
    pub open_files_total: u64,
    /// File locks that the session holds or waits for.
    pub file_locks: u64,
    /// Sockets of the session.
    pub sockets: u64,
    /// TCP buffers, where a cgroup accounts for them separately.
    pub tcp_bytes: u64,
    /// Size of one file.
    pub file_bytes: u64,
    /// Size of the workspace.
    pub workspace_bytes: u64,
    /// Files and folders in the workspace.
    pub workspace_files: u64,
    /// Size of temporary files and shared memory.
    pub scratch_bytes: u64,
    /// Bytes of standard output and error together that the reply of a run keeps.
    pub output_bytes: u64,
    /// Displayed objects that the reply of a run keeps.
    pub displays: u32,
    /// Bytes of displayed objects that the reply of a run keeps; headers count twice, as received
    /// and as parsed.
    pub display_bytes: u64,
    /// Charts that one run may draw.
    pub figures: u32,
}

impl Limits {
    pub fn workspace(&self) -> Contents {
        Contents { bytes: self.workspace_bytes, files: self.workspace_files }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(60),
            cpu: Duration::from_secs(600),
            cpu_cores: 2.0,
            memory_bytes: 2048 * MIB,
            processes: 256,
            open_files: 1024,
            open_files_total: 16_384,
            file_locks: 4_096,
            sockets: 512,
            tcp_bytes: 32 * MIB,
            file_bytes: 512 * MIB,
            workspace_bytes: 1024 * MIB,
            workspace_files: 50_000,
            scratch_bytes: 256 * MIB,
            output_bytes: MIB,
            displays: 100,
            display_bytes: 32 * MIB,
            figures: 20,
        }
    }
}

/// Resources used by a session so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu: Duration,
    /// Peak memory; without a cgroup, the highest sample.
    pub memory_peak_bytes: u64,
    /// Processes killed by the kernel for lack of memory.
    pub out_of_memory_kills: u64,
}
