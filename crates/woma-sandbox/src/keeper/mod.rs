//! The keeper, the only root process of a server that was started as root: a small process that
//! performs a few privileged operations for the server and does not trust it.
//!
//! ```text
//! server (a user of its own, no capabilities, Landlock, a filter)
//!    │  two message sockets: requests that may take a moment; quick ones, answered at once
//!    ▼
//! keeper: woma keeper (root) ──► starts stewards, keeps cgroups, proves cells
//! ```
//!
//! The server sends the keeper's bounds once, before it reads any untrusted input ([`Mandate`]).
//! From then on the keeper serves only [`Request`] and [`QuickRequest`].

mod client;
mod removals;
mod serve;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

pub(crate) use client::{Keeper, of_this_process, start};

use crate::limits::Limits;
use crate::limits::cgroup::{Cgroups, Files};
use crate::rung::Rung;
use crate::steward::control::PrivilegeBounds;

/// First argument that makes the binary a keeper.
pub const ROLE: &str = "keeper";

/// Runs the keeper's role to its end.
pub fn main() -> ExitCode {
    serve::main()
}

/// First message to a keeper; comes with the socket for quick requests.
#[derive(Debug, Serialize, Deserialize)]
struct Mandate {
    /// The server's process.
    server: u32,
    bounds: PrivilegeBounds,
}

/// A request or reply with its number: a reply to a request that timed out must not be taken for
/// the next one's.
#[derive(Debug, Serialize, Deserialize)]
struct Numbered<T> {
    number: u64,
    message: T,
}

/// Requests of the server, each answered by [`Reply`].
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Create a cgroup with that name; the reply has the descriptors to join it.
    Group { name: String, limits: Limits },
    /// Verify that the process behind the descriptor is contained.
    Prove(Proof),
}

/// As [`crate::proof::Expected`], as a message.
#[derive(Debug, Serialize, Deserialize)]
struct Proof {
    steward: BTreeSet<String>,
    uid: u32,
    gid: u32,
    cgroup: Option<(String, usize)>,
    own_ids: bool,
    rung: Rung,
}

#[derive(Debug, Serialize, Deserialize)]
enum QuickRequest {
    /// Start a steward. Descriptors: its ends of the control socket and the folder socket, standard
    /// error.
    Steward,
    /// Start a launcher of containers. Descriptors: its end of the control socket, standard error.
    Containers,
    /// Change the hard and the soft memory limit of a group (`limits/memory_reserve.rs`).
    Memory { name: String, limit_bytes: u64, soft_limit_bytes: u64 },
    /// Measure the memory of these processes of sessions; counting stops above `enough`.
    MeasureMemory { pids: BTreeSet<u32>, enough: u64 },
    /// Count the open files of these processes of sessions; counting stops above `enough`.
    OpenFiles { pids: BTreeSet<u32>, enough: u64 },
    /// Measure deleted files that these processes and their descendants hold (`limits/deleted.rs`).
    /// `workspace`: of a session without mounts.
    Deleted { roots: [u32; 2], workspace: Option<PathBuf>, with_maps: bool },
    /// Limit the memory of all groups together.
    Ceiling { bytes: u64 },
    /// Remove this group once it is empty. Not answered.
    Remove { name: String },
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// The keeper is ready, with the location of its groups.
    Ready(Cgroups),
    /// With descriptors; `None` without cgroups.
    Group {
        name: String,
        files: Option<Files>,
    },
    /// Bytes or a count.
    Figure(u64),
    /// Bytes and files that are open, and that are only mapped.
    Deleted {
        open: (u64, u64),
        mapped: (u64, u64),
    },
    Done,
    TooMuch,
    Refused(String),
}
