//! What a session may use, and the two ways of holding it to that: cgroups, where the machine gives
//! us some, and the watchdog, which looks every now and then.

pub(crate) mod cgroup;
pub(crate) mod watchdog;

use std::time::Duration;

use crate::workspace::Contents;

const MIB: u64 = 1024 * 1024;

/// The limits of a session. Every field has its unit in its name or type; docs/SPEC.md lists the
/// defaults with the test that reaches each.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Time that one run may take, from its first instruction on.
    pub wall: Duration,
    /// Processor time that one run may take, over all its processes.
    pub cpu: Duration,
    /// Processors that the session may keep busy at once.
    pub cpu_cores: f64,
    /// Memory of all processes of the session together, files in memory included.
    pub memory_bytes: u64,
    /// Processes and threads of the session.
    pub processes: u64,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Size of one file.
    pub file_bytes: u64,
    /// Size of the workspace.
    pub workspace_bytes: u64,
    /// Files and folders in the workspace.
    pub workspace_files: u64,
    /// Size of temporary files and shared memory.
    pub scratch_bytes: u64,
    /// Bytes of standard output and error, together, that one run's reply keeps.
    pub output_bytes: u64,
    /// Displayed objects that one run's reply keeps.
    pub displays: u32,
    /// Bytes of displayed objects that one run's reply keeps; text counts four times, because it
    /// takes more memory here than on the wire.
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
            file_bytes: 512 * MIB,
            workspace_bytes: 1024 * MIB,
            workspace_files: 50_000,
            scratch_bytes: 256 * MIB,
            output_bytes: MIB,
            displays: 100,
            display_bytes: 64 * MIB,
            figures: 20,
        }
    }
}

/// What a session has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Duration,
    /// The most memory at any one time; without a cgroup, of the times at which somebody looked.
    pub memory_peak_bytes: u64,
    /// Processes that the kernel ended for want of memory.
    pub out_of_memory_kills: u64,
}
