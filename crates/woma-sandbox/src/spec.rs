//! Requests to the sandbox and their results: plain data.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::container::RuntimeChoice;
use crate::limits::{Limits, Usage};
use crate::protocol::{Display, Done, Note};
use crate::rung::Rung;
use crate::steward::control::{Rotation, Tier};
use crate::workspace::{Allowance, Excess, Reserve};

/// A Python environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The folder of the environment on the host.
    pub prefix: PathBuf,
    /// The interpreter, below `prefix` or in another mounted folder.
    pub python: PathBuf,
    /// A virtual environment refers to an interpreter elsewhere, and can be shown at any path.
    pub is_virtual: bool,
    /// Host folders that must appear at the same path inside, besides `prefix` and the system's
    /// own.
    pub mounts: Vec<PathBuf>,
    /// Program that installs packages, for cells that install; shown at [`INSTALLER_PROGRAM`].
    ///
    /// [`INSTALLER_PROGRAM`]: crate::INSTALLER_PROGRAM
    pub installer: Option<PathBuf>,
}

/// Configuration of a sandbox.
#[derive(Debug, Clone)]
pub struct Config {
    /// Binary that implements the steward's role; the running one by default.
    pub steward: PathBuf,
    pub environment: Environment,
    /// Highest tier to preload; the base tier always is, and the light one from its first use on.
    pub preload: Tier,
    /// Number of cells kept ready for callers with the default limits.
    pub pool: usize,
    /// Limits of pooled cells.
    pub limits: Limits,
    /// Memory limit of all cells together; enforced only with cgroups.
    pub memory_bytes: Option<u64>,
    /// Folder of the server, closed to others and on the same file system as the sessions' folders.
    /// Workspaces of pooled cells are created here ahead of time, for [`Sandbox::open_at_once`].
    /// The caller that created the folder removes it. Sessions in memory are then not pooled.
    ///
    /// [`Sandbox::open_at_once`]: crate::Sandbox::open_at_once
    pub spare_folders: Option<PathBuf>,
    /// Host folder that every session may read, shown under the names of upload folders. If the
    /// server is root, its contents must be readable by everyone.
    pub uploads: Option<PathBuf>,
    /// Name of a service that every room has a listener of, made with the room; see
    /// [`Cell::take_service`].
    ///
    /// [`Cell::take_service`]: crate::Cell::take_service
    pub service: Option<&'static str>,
    /// Certificate authorities, in PEM, that programs of sessions trust beside those of the host.
    pub trust: Option<String>,
    /// When zygotes are replaced.
    pub rotation: Rotation,
    /// Free space to keep on the disk of the sessions' folders.
    pub reserve: Option<Arc<Reserve>>,
    /// Runtime of sessions in containers; `None` if there are none.
    pub containers: Option<RuntimeChoice>,
    /// The highest rung of isolation to try, and the lowest to accept.
    pub highest: Rung,
    pub lowest: Rung,
}

impl Config {
    pub fn new(environment: Environment) -> Self {
        Self {
            steward: PathBuf::from("/proc/self/exe"),
            environment,
            preload: Tier::Full,
            pool: 0,
            limits: Limits::default(),
            memory_bytes: None,
            spare_folders: None,
            uploads: None,
            service: None,
            trust: None,
            rotation: Rotation::default(),
            reserve: None,
            containers: None,
            highest: Rung::Rooms,
            lowest: Rung::Rooms,
        }
    }
}

/// Requirements of one session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    pub limits: Limits,
    pub workspace: Workspace,
    /// Allowance of the folder, if the caller has measured it; otherwise it is measured.
    pub allowance: Option<Allowance>,
    /// Name of the session; its workspace is also shown as `/app/sandbox_data/<name>`.
    pub name: Option<String>,
    /// Tier of the zygote to fork; by default the best that is ready. That is also taken where the
    /// light tier is named and not ready.
    pub tier: Option<Tier>,
    /// Open it in a container, or not at all.
    pub container: bool,
}

/// Storage of a session's files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Workspace {
    /// In memory, deleted with the session; its size is enforced exactly.
    #[default]
    Memory,
    /// An existing folder of the host; its size is enforced by a project quota where the file
    /// system has them, and watched elsewhere.
    Folder(PathBuf),
}

/// One run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub source: String,
    /// Wall time limit; at most the session's limit, which is the default.
    pub wall: Option<Duration>,
    /// Memory limit of this run only; at most the session's limit, which is the default.
    pub memory_bytes: Option<u64>,
    /// Variables to set before the code runs.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// Text on standard input; without it, the input is empty.
    pub stdin: Option<String>,
    /// Standard input as a pipe, in place of a text.
    pub stdin_pipe: Option<Arc<OwnedFd>>,
    /// Set for a program with arguments.
    pub script: Option<Script>,
    /// Restrictions by the operator's policy; without a guard, containment is the only limit.
    pub guard: Option<Arc<Guard>>,
    /// Environment variables to set before the code runs; null takes one away.
    pub environ: serde_json::Map<String, serde_json::Value>,
}

/// A program with arguments. One with a name runs as `python` runs it: no magics, no repairs, no
/// value of the last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// File name in tracebacks; without it, the program runs as a cell of a session does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `sys.argv`.
    pub argv: Vec<String>,
    /// `__file__`, relative to the working directory; its folder is the first one of `sys.path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Operations that the kernel refuses to the code of a run. Not a security boundary: the guard
/// shares its memory with that code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guard {
    /// Lists of modules. Every list must allow an import; a name allows all its submodules.
    pub imports: Vec<Vec<String>>,
    /// Builtins that raise when they are called.
    pub builtins: Vec<String>,
    /// Attributes that `getattr` and similar functions refuse.
    pub attributes: Vec<String>,
    /// Whether `!command` and similar syntax is allowed.
    pub commands: bool,
    /// If true, a blocked import is noted and the program goes on; otherwise it raises.
    pub annotate: bool,
    /// Names available without an import: `pd` is `pandas`, `Path` is `pathlib:Path`, and `@cwd`
    /// stands for the working directory.
    pub names: BTreeMap<String, String>,
}

impl Run {
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Events of a run, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Output {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// Bytes of a stream that is over its limit, between the beginning and the end that are kept.
    /// They precede the next ones of their stream, and all of them its gap.
    Middle {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// Bytes that may belong to the end that is kept, as they come. A later event has each of them
    /// again: `Middle`, or `Output` after the last of these.
    Held {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// So many bytes of a stream were dropped here, because it is over its limit.
    Gap {
        stream: Stream,
        bytes: u64,
    },
    Display(Display),
    Note(Note),
}

/// How a run ended. Not an error: once begun, a run always ends in an `Exit`.
#[derive(Debug, Clone)]
pub struct Exit {
    pub outcome: Outcome,
    pub state: State,
    pub wall: Duration,
    /// Read only for runs that were long enough.
    pub usage: Option<Usage>,
    /// The kernel's final message, if it sent one. Untrusted.
    pub done: Option<Box<Done>>,
    /// Output beyond the limit; read and dropped.
    pub output_bytes_dropped: u64,
    /// Displayed objects beyond the limits; dropped.
    pub displays_dropped: u64,
    /// Children killed for memory while Python went on; a note reports them.
    pub children_killed: u64,
}

impl Exit {
    /// Exit of a run that did not start.
    pub fn never_started(reason: &str) -> Self {
        Self {
            outcome: Outcome::NeverStarted { reason: reason.to_owned() },
            state: State::Lost,
            wall: Duration::ZERO,
            usage: None,
            done: None,
            output_bytes_dropped: 0,
            displays_dropped: 0,
            children_killed: 0,
        }
    }

    /// Exit of a run that did not start because the workspace is full.
    pub(crate) fn of_full_workspace(why: Interruption) -> Self {
        let outcome = Outcome::Interrupted(why);
        Self { outcome, state: State::Preserved, ..Self::never_started("") }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Completed,
    /// Python raised an uncaught exception, or asked for a non-zero exit status.
    Raised,
    Interrupted(Interruption),
    TimedOut(Clock),
    OutOfMemory {
        limit_bytes: u64,
    },
    Crashed(Crash),
    NeverStarted {
        reason: String,
    },
}

impl Outcome {
    /// Name in replies.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Raised => "raised",
            Self::Interrupted(_) => "interrupted",
            Self::TimedOut(_) => "timed_out",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::Crashed(_) => "crashed",
            Self::NeverStarted { .. } => "never_started",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interruption {
    /// The caller asked for it, or the code itself raised `KeyboardInterrupt`.
    Asked,
    /// The workspace grew over its limit. Or it was over its limit and the previous run made it
    /// larger still, so that this run did not begin.
    WorkspaceFull,
    /// As `WorkspaceFull`, but only because of deleted files that are still open.
    DeletedFiles { bytes: u64 },
    /// The disk of the workspace is below its reserve, and the workspace grew.
    DiskReserve,
    /// The session exceeded a limit that no cgroup can enforce.
    TooMany { what: KernelObject, limit: u64 },
}

/// Kernel objects whose memory is not charged to any cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelObject {
    FileLock,
    OpenFile,
    Socket,
    /// Counted only where the kernel counts those of all sessions together.
    Process,
}

impl KernelObject {
    /// Name in messages.
    pub fn plural(self) -> &'static str {
        match self {
            Self::FileLock => "file locks",
            Self::OpenFile => "open files",
            Self::Socket => "sockets",
            Self::Process => "processes and threads",
        }
    }
}

impl From<Excess> for Interruption {
    fn from(excess: Excess) -> Self {
        match excess {
            Excess::Folder => Self::WorkspaceFull,
            Excess::Deleted { bytes } => Self::DeletedFiles { bytes },
            Excess::Reserve => Self::DiskReserve,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    Wall { limit: Duration },
    Cpu { limit: Duration },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Crash {
    /// Ended by a signal, such as 11 for a segmentation fault.
    Signal(i32),
    /// Ended by `os._exit` or the like.
    Exited(i32),
    /// It closed the channel or violated the protocol.
    Protocol(String),
    /// The sandbox itself failed; not caused by the code.
    Lost(String),
}

/// State of the session's variables after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Preserved,
    Lost,
}
