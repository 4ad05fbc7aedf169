//! What a caller asks for and what it gets back: plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{Limits, Usage};
use crate::protocol::{Display, Done, Note};
use crate::steward::control::Tier;
use crate::workspace::Allowance;

/// A Python environment, as the sandbox needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The folder of the environment on the host.
    pub prefix: PathBuf,
    /// The interpreter, below `prefix` or anywhere that is mounted.
    pub python: PathBuf,
    /// A virtual environment refers to an interpreter elsewhere, and can itself be shown anywhere.
    pub is_virtual: bool,
    /// Host folders that must be seen at the same path, beyond `prefix` and the system's own.
    pub mounts: Vec<PathBuf>,
}

/// How a sandbox is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// The binary that answers to the steward's role; by default the running one.
    pub steward: PathBuf,
    pub environment: Environment,
    /// Which zygotes to keep; the base tier always is.
    pub preload: Tier,
    /// Cells kept ready for callers who want the default limits.
    pub pool: usize,
    /// The limits of pooled cells.
    pub limits: Limits,
    /// A folder of the server's own, closed to others and on the file system of the sessions' folders.
    /// Pooled cells get their workspaces here ahead, for [`Sandbox::open_at_once`]; whoever made the
    /// folder removes it. Sessions in memory then are not from the pool.
    ///
    /// [`Sandbox::open_at_once`]: crate::Sandbox::open_at_once
    pub spare_folders: Option<PathBuf>,
    /// A folder of the host that every session may read, under the names of upload folders. What is
    /// in it must be readable by everybody if the server is root.
    pub uploads: Option<PathBuf>,
}

impl Config {
    pub fn new(environment: Environment) -> Self {
        Self {
            steward: PathBuf::from("/proc/self/exe"),
            environment,
            preload: Tier::Full,
            pool: 0,
            limits: Limits::default(),
            spare_folders: None,
            uploads: None,
        }
    }
}

/// What one session needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    pub limits: Limits,
    pub workspace: Workspace,
    /// What a folder may hold, if whoever asks has looked at it; else it is looked at.
    pub allowance: Option<Allowance>,
    /// What the session is called: its workspace is `/app/sandbox_data/<name>` too.
    pub name: Option<String>,
    /// Which zygote to fork; the best that is ready, if it does not matter.
    pub tier: Option<Tier>,
}

/// Where a session's files are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Workspace {
    /// In memory, gone with the session; its size is held exactly.
    #[default]
    Memory,
    /// A folder of the host that is there; its size is watched.
    Folder(PathBuf),
}

/// One run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub source: String,
    /// Shorter than the session's limit, or the session's limit.
    pub wall: Option<Duration>,
    /// For this run only: less than the session's limit, or the session's limit.
    pub memory_bytes: Option<u64>,
    /// Names that the code finds set.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// What the code may do by the operator's wish; without one, whatever the walls allow.
    pub guard: Option<Arc<Guard>>,
}

/// What the kernel refuses to the code of a run. No wall: it shares its memory with that code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guard {
    /// Lists of modules; each must allow an import, and a name allows everything below it.
    pub imports: Vec<Vec<String>>,
    /// Builtins that raise when they are called.
    pub builtins: Vec<String>,
    /// Attributes that `getattr` and its like refuse.
    pub attributes: Vec<String>,
    /// Whether `!command` and its like are allowed.
    pub commands: bool,
    /// A blocked import is told and the program goes on; otherwise it raises at its line.
    pub annotate: bool,
    /// Names that are there without an import: `pd` is `pandas`, `Path` is `pathlib:Path`, and
    /// `@cwd` stands for the working directory.
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

/// What happens during a run, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Output { stream: Stream, bytes: Vec<u8> },
    Display(Display),
    Note(Note),
}

/// How a run ended. There is no error here: once begun, a run always ends in an `Exit`.
#[derive(Debug, Clone)]
pub struct Exit {
    pub outcome: Outcome,
    pub state: State,
    pub wall: Duration,
    /// Looked up only for runs that were long enough to matter.
    pub usage: Option<Usage>,
    /// What the kernel said at the end, if it lived to say it. Hostile: it may be a lie.
    pub done: Option<Box<Done>>,
    /// Output beyond the limit, which was read and dropped.
    pub output_bytes_dropped: u64,
    /// Displayed objects beyond the limits.
    pub displays_dropped: u64,
}

impl Exit {
    /// Of a run that did not happen.
    pub fn never_started(reason: &str) -> Self {
        Self {
            outcome: Outcome::NeverStarted { reason: reason.to_owned() },
            state: State::Lost,
            wall: Duration::ZERO,
            usage: None,
            done: None,
            output_bytes_dropped: 0,
            displays_dropped: 0,
        }
    }

    /// Of a run that did not begin, because it would have no room.
    pub(crate) fn of_full_workspace() -> Self {
        let outcome = Outcome::Interrupted(Interruption::WorkspaceFull);
        Self { outcome, state: State::Preserved, ..Self::never_started("") }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    /// Python raised an exception that nobody caught, or asked for a non-zero exit.
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
    /// As it stands in replies.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// The caller asked for it, or the code raised `KeyboardInterrupt` itself.
    Asked,
    /// The workspace grew over its limit; or it was over it, and had been made larger still by the
    /// run before, so that this one did not begin.
    WorkspaceFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Wall { limit: Duration },
    Cpu { limit: Duration },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crash {
    /// Ended by a signal, such as 11 for a segmentation fault.
    Signal(i32),
    /// Ended by `os._exit` or the like.
    Exited(i32),
    /// It closed or abused the channel to us.
    Protocol(String),
    /// The machinery around it failed; not the code's fault.
    Lost(String),
}

/// What became of the session's variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Preserved,
    Lost,
}
