//! What the server and its steward say to each other.
//!
//! Server and steward are one binary of one build, so these types need no versioning.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How much a zygote has imported before it is forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// IPython, numpy, pandas, matplotlib: forks fastest.
    Base,
    /// The whole scientific stack: a session never waits for an import.
    Full,
}

impl Tier {
    pub const ALL: [Self; 2] = [Self::Base, Self::Full];

    pub fn name(self) -> &'static str {
        match self {
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
    /// No cgroup holds the memory; the watchdog does.
    pub(crate) watched: bool,
}

/// Server to steward.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Descriptors: kernel socket, log pipe, the cgroup files to join.
    Open(Box<Open>),
    /// Kill the zygote of this tier, which does not answer, and start another.
    Restart(Tier),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) id: u64,
    pub(crate) tier: Tier,
    pub(crate) furnishing: Furnishing,
    pub(crate) rlimits: Rlimits,
}

/// The file systems in memory that a room gets. A workspace on disk is mounted over the first.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Furnishing {
    pub(crate) workspace_bytes: u64,
    pub(crate) workspace_files: u64,
    pub(crate) scratch_bytes: u64,
}

/// Limits that a process sets on itself, in the units of `setrlimit`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rlimits {
    pub(crate) open_files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) processes: u64,
    /// Only where no cgroup holds the memory.
    pub(crate) data_bytes: Option<u64>,
}

/// Steward to server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The outer sandbox stands; zygotes are starting.
    Standing(Standing),
    /// The steward cannot work and has ended.
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

/// What the outer sandbox turned out to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Host id of the first of the session user ids; `None` when all sessions share the caller's.
    pub(crate) uid_base: Option<u32>,
    /// How many session ids there are.
    pub(crate) uid_count: u32,
    /// The steward's own namespaces; a cell must be in none of them.
    pub(crate) namespaces: BTreeSet<String>,
}

/// Server to launcher, the half of the steward that still sees the host's files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TreeOrder {
    pub(crate) path: PathBuf,
    /// What the server saw there; anything else at that path is refused.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Who owns the folder, if it is not the session's own id.
    pub(crate) owner: Owner,
}

/// How the owner on disk becomes the session's user.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Owner {
    /// It is that user.
    Same,
    /// It has the number that the session's user has inside: the room's own user namespace, which
    /// comes with the order, is the mapping.
    Room,
    /// Anybody else; a mapping has to be made, which takes a millisecond.
    Other(Idmap),
}

/// Owner on disk, and the host id that the session runs under.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Idmap {
    pub(crate) disk_uid: u32,
    pub(crate) disk_gid: u32,
    pub(crate) session_id: u32,
}

/// Launcher to server; a tree comes with one descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum TreeReport {
    Tree,
    Refused { step: String, reason: String },
}
