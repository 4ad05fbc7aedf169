//! Requests and replies, as every surface knows them.

pub(crate) mod caller;
mod datasets;
mod display;
mod ids;
mod outcome;
mod packages;
mod secret;
mod security;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use woma_sandbox::protocol::{Missing, Note, Raised, ResultValue, Role, Variable};
use woma_sandbox::{Script, Stream, Usage};

pub(crate) use self::datasets::table_name;
pub use self::datasets::{
    BadRow, BadRows, ColumnStatistics, Cut, DatasetColumn, DatasetDescription, DatasetError,
    DatasetInfo, DatasetName, DatasetProblem, LoadDataset, LoadedDataset, QueryDatasets,
    QueryFormat, QueryInfo, QueryOutput, QueryResult, SaveResult,
};
pub use self::display::{Picture, Representation, Shown};
pub(crate) use self::ids::hex;
pub use self::ids::{BadSessionId, ExecutionId, SessionChoice, SessionId};
pub use self::outcome::{ErrorCategory, Outcome};
pub use self::packages::{
    PackageAction, PackageChange, PackageError, PackageList, PackageProblem, PackageReport,
    PackageSet, SessionPackage,
};
pub use self::secret::NewSecret;
pub use self::security::{Action, EventKind, SecurityEvent};

/// One piece of code to run.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "choices that do not depend on each other")]
pub struct Execute {
    pub source: String,
    pub session: SessionChoice,
    /// Seconds, as they were asked for: any number. The server's default, if none is; clamped to its
    /// range.
    pub timeout: Option<f64>,
    /// For this run: less than the session's limit, or that limit.
    pub memory_bytes: Option<u64>,
    /// Names that the code finds set.
    pub variables: Map<String, Value>,
    /// Text that `input()` and `sys.stdin` read.
    pub stdin: Option<String>,
    /// Standard input as a pipe, in place of a text.
    pub stdin_pipe: Option<Arc<OwnedFd>>,
    /// Set for a program with arguments, which may run as `python` runs it.
    pub script: Option<Script>,
    /// False: what is printed is not in the reply.
    pub capture_output: bool,
    /// Of the modules that may be imported anyway, these alone.
    pub allowed_imports: Option<Vec<String>>,
    /// For an ephemeral session: its environment, by name.
    pub environment: Option<String>,
    /// For an ephemeral session: a folder of the operator's own to work in.
    pub folder: Option<PathBuf>,
    /// Displayed objects are told within the output, where they appeared, and not after it.
    pub inline_displays: bool,
    /// Reaction to its time limit.
    pub on_timeout: OnTimeout,
    /// Whether its client may make a job of it while it runs.
    pub is_detachable: bool,
    /// In a container, or not at all.
    pub use_container: bool,
}

/// Reaction to the time limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnTimeout {
    #[default]
    Interrupt,
    /// It goes on as a job.
    Detach,
}

impl Execute {
    pub fn new(source: impl Into<String>, session: SessionChoice) -> Self {
        Self {
            source: source.into(),
            session,
            timeout: None,
            environment: None,
            memory_bytes: None,
            variables: Map::new(),
            stdin: None,
            stdin_pipe: None,
            script: None,
            capture_output: true,
            allowed_imports: None,
            folder: None,
            inline_displays: false,
            on_timeout: OnTimeout::Interrupt,
            is_detachable: false,
            use_container: false,
        }
    }
}

/// Text that displays add to standard output where both are told as one, in bytes.
pub(crate) const DISPLAYED_BYTES_MAX: usize = 1024 * 1024;

/// An event of a run, in order, as readable text.
#[derive(Debug, Clone)]
pub enum RunEvent {
    Text { stream: Stream, text: String },
    Shown(Shown),
    Note(Note),
}

/// The result of an execution, from which each surface makes its reply.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct Execution {
    pub id: ExecutionId,
    /// `None` for a session that ended with the run.
    pub session: Option<SessionId>,
    pub session_created: bool,
    /// Why the variables and files of earlier runs are not there.
    pub session_restarted: Option<String>,
    pub outcome: Outcome,
    pub error_category: Option<ErrorCategory>,
    /// Whether the session's variables are still there.
    pub state_kept: bool,
    pub success: bool,
    /// Exit code as in a shell: 0, 1, the program's own, 124 for a time-out, 137 for memory.
    pub exit_code: i64,
    /// One sentence about any end but a plain one.
    pub message: Option<String>,
    pub stdout: String,
    pub stderr: String,
    pub result: Option<ResultValue>,
    pub error: Option<Raised>,
    pub displays: Vec<Shown>,
    /// For each of them, the bytes of `stdout` that were printed before it; empty unless the
    /// request asked for displays within the output.
    pub display_offsets: Vec<usize>,
    pub notes: Vec<Note>,
    pub wall: Duration,
    /// The time limit that held.
    pub timeout: Duration,
    pub execution_count: u64,
    pub variables: Vec<Variable>,
    /// Variables that are not listed, because there are too many.
    pub variables_left_out: u64,
    /// Imported names, without modules; not among the variables.
    pub names_imported: u64,
    /// Output beyond the limit, which was dropped.
    pub output_bytes_dropped: u64,
    pub displays_dropped: u64,
    /// Output of threads and processes of earlier runs that came after the end of these and after
    /// the last reply; the latest of it.
    pub late_output: String,
    pub usage: Option<Usage>,
    /// Deviations from the request.
    pub warnings: Vec<String>,
    /// Operations that were not allowed.
    pub events: Vec<SecurityEvent>,
    /// Whether its session has a network.
    pub is_networked: bool,
    /// Advice on the error, where it is known.
    pub hint: Option<String>,
    /// Changes to the session's files.
    pub files: FileReport,
    /// The pictures among `displays`, where they can be fetched.
    pub charts: Vec<StoredFile>,
    /// Variables restored from an earlier kernel.
    pub revival: Option<Revival>,
}

/// Changes of variables that were made after the checkpoint which a kernel was restored from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LostChanges {
    /// The checkpoint has all changes.
    #[default]
    None,
    /// Changes of an earlier process of the server, if it made any.
    Unknown,
    /// Changes of these variables, as far as the code tells.
    Of(Vec<String>),
}

/// The result of restoring a session's variables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Revival {
    /// Time of the checkpoint; variables set later are gone.
    pub saved_at: Option<Timestamp>,
    pub restored: Vec<String>,
    /// Variables that could not be saved or restored.
    pub missing: Vec<Missing>,
    /// Why nothing more was brought back.
    pub error: Option<String>,
}

/// Changes of a run to the files of its session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileReport {
    /// Paths below the working directory.
    pub added: Vec<String>,
    pub modified: Vec<String>,
    pub deleted: Vec<String>,
    /// Those of them that can be fetched by an address of their own.
    pub stored: Vec<StoredFile>,
    /// Those of them that have a copy on the host.
    pub exported: Vec<ExportedFile>,
    /// Why others cannot.
    pub notes: Vec<String>,
}

/// Copy of a session's file in a folder of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedFile {
    /// In the session's folder.
    pub path: String,
    pub size_bytes: u64,
    /// Of the copy.
    pub host_path: String,
}

/// A stored file: a client that knows its id can fetch it, even after its session has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    pub id: uuid::Uuid,
    /// In the session's folder.
    pub path: String,
    pub name: String,
    pub size_bytes: u64,
    pub media_type: String,
    /// `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl Execution {
    pub(crate) fn has_pictures(&self) -> bool {
        self.displays.iter().any(|shown| !shown.pictures.is_empty())
    }

    /// Standard output with the texts that the code displayed: after it or, with
    /// `display_offsets`, where they appeared, and then with a mark for each picture. The value of
    /// the last expression is told apart.
    pub fn stdout_and_displays(&self) -> String {
        let mut composed = Composed { text: String::new(), room: DISPLAYED_BYTES_MAX };
        let (mut told, mut pictures) = (0, 0);
        for (index, shown) in self.displays.iter().enumerate() {
            let offset = self.display_offsets.get(index).copied();
            let offset = offset.unwrap_or(self.stdout.len()).max(told);
            let offset = self.stdout.floor_char_boundary(offset);
            composed.add_output(self.stdout.get(told..offset).unwrap_or_default());
            told = offset;
            for _ in &shown.pictures {
                pictures += 1;
                if !self.display_offsets.is_empty() {
                    composed.add_mark(pictures);
                }
            }
            let is_picture = shown.data.keys().any(|kind| kind.starts_with("image/"));
            if let (false, Some(said)) = (is_picture || shown.role == Role::Result, shown.text()) {
                composed.add_display(said);
            }
        }
        composed.add_output(self.stdout.get(told..).unwrap_or_default());
        composed.text
    }
}

/// Output and displayed texts as one text.
struct Composed {
    text: String,
    /// Bytes left for displayed texts.
    room: usize,
}

impl Composed {
    fn start_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    fn add_mark(&mut self, number: usize) {
        self.start_line();
        let mark = format!("[chart {number}]\n");
        self.text.push_str(&mark);
    }

    fn add_output(&mut self, output: &str) {
        if !output.is_empty() {
            self.start_line();
            self.text.push_str(output);
        }
    }

    fn add_display(&mut self, said: &str) {
        self.start_line();
        let (fits, rest) = said.split_at(said.floor_char_boundary(self.room));
        self.text.push_str(fits);
        self.room -= fits.len();
        if !rest.is_empty() {
            let more = format!("… [{} more bytes of displayed text]\n", rest.len());
            self.text.push_str(&more);
        }
    }
}

/// A session to be made.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Minted and unguessable, if none is given.
    pub id: Option<SessionId>,
    pub name: Option<String>,
    pub description: String,
    /// The name of rules that hold in it, within its owner's.
    pub policy: Option<String>,
    /// An environment that the operator has named.
    pub environment: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// It is deleted after this long without a call, instead of after the server's time.
    pub lifetime: Option<Duration>,
    /// Rules of its network, within its owner's.
    pub network: Option<String>,
    /// Secrets of its own.
    pub secrets: Vec<NewSecret>,
    /// It is opened in containers.
    pub use_container: bool,
}

/// Changes of a session; what is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct SessionChange {
    pub name: Option<String>,
    pub description: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    /// `Some(None)`: the server's time.
    pub lifetime: Option<Option<Duration>>,
    /// `Some(None)`: as much as its owner has.
    pub network: Option<Option<String>>,
    /// In place of all that it has of its own.
    pub secrets: Option<Vec<NewSecret>>,
}

/// A session as its owner sees it.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub id: SessionId,
    pub name: String,
    pub description: String,
    pub created_at: Timestamp,
    pub last_activity: Timestamp,
    /// Running or waiting for its turn.
    pub is_busy: bool,
    /// Whether its variables are in memory.
    pub is_live: bool,
    pub execution_count: u64,
    /// The rules that it chose for itself, within its owner's.
    pub policy: Option<String>,
    /// Name of its environment; `None` for the default one.
    pub environment: Option<String>,
    /// When its Python ends if nothing is run in it.
    pub expires_in: Option<Duration>,
    pub labels: BTreeMap<String, String>,
    pub lifetime: Option<Duration>,
    /// The rules of its network that it chose for itself, within its owner's.
    pub network: Option<String>,
    /// Names of the secrets that it was given.
    pub secrets: Vec<String>,
    pub packages: PackageSet,
    /// Whether it is opened in containers.
    pub in_container: bool,
}
