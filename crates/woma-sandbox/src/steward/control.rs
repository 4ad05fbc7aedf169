//! Messages between the server and its steward.
//!
//! Server and steward are one binary of one build, so these types need no versioning.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::shared::Places;
use crate::rung::Rung;

/// Amount that a zygote imports before it is forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// IPython alone: cheapest to fork and to end, for programs that import nothing else.
    Light,
    /// IPython, numpy, pandas, matplotlib.
    Base,
    /// The whole scientific stack: a session never waits for an import.
    Full,
}

impl Tier {
    pub const ALL: [Self; 3] = [Self::Light, Self::Base, Self::Full];

    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Base => "base",
            Self::Full => "full",
        }
    }
}

/// First message to a new steward: everything it needs to build the outer sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The interpreter to run, as a path inside the sandbox.
    pub(crate) python: PathBuf,
    /// Host folders to show read-only inside: (host path, path inside).
    pub(crate) mounts: Vec<(PathBuf, PathBuf)>,
    pub(crate) tiers: Vec<Tier>,
    /// True without cgroups: the watchdog enforces the memory limit.
    pub(crate) watched: bool,
    pub(crate) room_ids: RoomIds,
    pub(crate) rotation: Rotation,
    /// Certificate authorities of the server, in PEM, which sessions trust beside all others.
    pub(crate) trust: Option<String>,
    pub(crate) rung: Rung,
    /// Existing folder in which sessions without mounts have their folders.
    pub(crate) scratch: PathBuf,
}

/// When a zygote is replaced by a fresh one, with another address layout and hash seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// Forks after which it is replaced.
    pub forks_max: u64,
    /// Age after which it is replaced, if it has forked at all.
    pub age_max: Duration,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { forks_max: 10_000, age_max: Duration::from_secs(3600) }
    }
}

/// User and group of the session inside its room; they also own its files on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoomIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Bounds of what a steward does for an unprivileged server. Set before the server has read any
/// untrusted input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PrivilegeBounds {
    /// The server's user. It owns the outer user namespace, and so may kill the processes inside.
    pub(crate) server: RoomIds,
    /// Folders that contain sessions' folders: as the server names them, and their real paths.
    pub(crate) folders: Vec<(PathBuf, PathBuf)>,
    /// As in [`Setup`]; other mounts are refused.
    pub(crate) mounts: Vec<(PathBuf, PathBuf)>,
}

/// Server to steward.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Descriptors: kernel socket, log pipe, the cgroup files to join.
    Open(Box<Open>),
    /// Serve this tier too, from now on.
    Serve(Tier),
    /// Kill the zygote of this tier, which does not respond, and start another.
    Restart(Tier),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) id: u64,
    pub(crate) tier: Tier,
    pub(crate) furnishing: Furnishing,
    pub(crate) rlimits: Rlimits,
}

/// In-memory file systems of a room. A workspace on disk is mounted over the first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Furnishing {
    pub(crate) workspace_bytes: u64,
    pub(crate) workspace_files: u64,
    pub(crate) scratch_bytes: u64,
    /// The workspace on disk, for a session without mounts.
    pub(crate) workspace: Option<PathBuf>,
}

/// Limits that a process sets on itself, in the units of `setrlimit`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rlimits {
    pub(crate) open_files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) processes: u64,
    /// Memory limit to name in error messages.
    pub(crate) memory_bytes: u64,
    /// Soft limit of data beyond the zygote's: allocations that cannot fit fail at once.
    pub(crate) data_bytes: u64,
    /// Hard limit of all data; only without a cgroup.
    pub(crate) data_bytes_max: Option<u64>,
}

/// Steward to server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The outer sandbox is built; zygotes are starting.
    Started(StewardInfo),
    /// The steward has failed and ended.
    Broken {
        step: String,
        reason: String,
    },
    ZygoteReady {
        tier: Tier,
        boot_ms: u64,
        loaded: Vec<String>,
        failed: BTreeMap<String, String>,
    },
    ZygoteGone {
        tier: Tier,
        reason: String,
    },
    /// Descriptors: init's command socket, init's pidfd, the kernel's pidfd.
    Opened {
        id: u64,
        /// The session's user id in the steward's user namespace.
        uid: u32,
        /// Folders of a session without mounts.
        places: Option<Places>,
    },
    Failed {
        id: u64,
        step: String,
        reason: String,
    },
    /// The kernel process of a cell has ended, with this wait status.
    Exited {
        id: u64,
        status: i32,
    },
}

/// Properties of the outer sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StewardInfo {
    /// Host id of the first session user; `None` if all sessions share the caller's id.
    pub(crate) uid_base: Option<u32>,
    /// Number of session ids.
    pub(crate) uid_count: u32,
    /// Namespaces of the steward; a cell must not be in any of them.
    pub(crate) namespaces: BTreeSet<String>,
    /// Why rooms share the template's inodes; `None` if each has its own.
    pub(crate) shared_inodes: Option<String>,
    /// False if rooms show the host's device nodes.
    pub(crate) own_devices: bool,
}

/// Server to launcher, the half of the steward that still sees the host's files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TreeOrder {
    pub(crate) path: PathBuf,
    /// Identity of the folder that the server checked; any other is refused.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// How the folder's owner maps to the session's user.
    pub(crate) owner: Owner,
    pub(crate) access: TreeAccess,
    /// Hard limits, if the file system supports them.
    pub(crate) quota: Option<Quota>,
    /// Projects of deleted folders, whose limits are to be removed.
    pub(crate) released: Vec<u32>,
}

/// Access of sessions to a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TreeAccess {
    Write,
    /// Read, and execute programs.
    Execute,
    /// Read only.
    Read,
}

/// Hard limits of a folder.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Quota {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// How the owner on disk becomes the session's user.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Owner {
    /// Both are the same user.
    Same,
    /// The owner has the id of the session's user inside the room: the room's user namespace is the
    /// mapping. A process of the room comes with the order.
    Room,
    /// Any other owner; creating a mapping takes a millisecond.
    Other(Idmap),
}

/// Owner on disk, and the host id that the session runs under.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Idmap {
    pub(crate) disk_uid: u32,
    pub(crate) disk_gid: u32,
    pub(crate) session_id: u32,
}

/// Launcher to server; `Tree` comes with one descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum TreeReport {
    Tree,
    Refused { step: String, reason: String },
}
