//! Requests and replies, as every surface knows them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use woma_sandbox::protocol::{Missing, Note, Raised, ResultValue, Role, Variable};
use woma_sandbox::{Stream, Usage};

use crate::Error;
use crate::policy::SecurityEvent;

/// Longest name of a session, in bytes.
pub(crate) const SESSION_ID_BYTES_MAX: usize = 128;

/// A session's name in its owner's space: chosen by the caller, or minted here and unguessable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

impl SessionId {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let reason = if text.is_empty() {
            "it is empty"
        } else if text.len() > SESSION_ID_BYTES_MAX {
            "it is longer than 128 bytes"
        } else if text.chars().any(char::is_control) {
            "it has control characters"
        } else if text.contains(['/', '\\']) {
            "it has a slash"
        } else if text == "." || text == ".." {
            "it is a folder's name"
        } else {
            return Ok(Self(text.into()));
        };
        Err(Error::BadSessionId { reason })
    }

    pub(crate) fn mint() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// One execution's name: in its reply, in the log, in metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionId(Arc<str>);

impl ExecutionId {
    /// Later ones are greater: rows that are written together lie together in an index.
    pub(crate) fn mint() -> Self {
        Self(uuid::Uuid::now_v7().to_string().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Which session code runs in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    /// This one; it is made if it does not exist.
    Named(SessionId),
    /// The caller's own `default`.
    #[default]
    Default,
    /// A new one, whose minted id the reply tells.
    New,
    /// One that ends with the run.
    Ephemeral,
}

impl SessionChoice {
    /// The id, where it may be that of a session that exists.
    pub(crate) fn named(&self) -> Option<SessionId> {
        match self {
            Self::Named(id) => Some(id.clone()),
            Self::Default => SessionId::parse(crate::sessions::DEFAULT).ok(),
            Self::New | Self::Ephemeral => None,
        }
    }
}

/// One piece of code to run.
#[derive(Debug, Clone)]
pub struct Execute {
    pub source: String,
    pub session: SessionChoice,
    /// The server's default, if nothing is asked for; clamped to its cap.
    pub timeout: Option<Duration>,
    /// For this run: less than the session's limit, or that limit.
    pub memory_bytes: Option<u64>,
    /// Names that the code finds set.
    pub variables: Map<String, Value>,
    /// False: what is printed is not in the reply.
    pub capture_output: bool,
    /// Of the modules that may be imported anyway, these alone.
    pub allowed_imports: Option<Vec<String>>,
    /// For an ephemeral session: a folder of the operator's own to work in.
    pub folder: Option<PathBuf>,
}

impl Execute {
    pub fn new(source: impl Into<String>, session: SessionChoice) -> Self {
        Self {
            source: source.into(),
            session,
            timeout: None,
            memory_bytes: None,
            variables: Map::new(),
            capture_output: true,
            allowed_imports: None,
            folder: None,
        }
    }
}

/// What happens during a run, in order, as text that people can read.
#[derive(Debug, Clone)]
pub enum Happening {
    Text { stream: Stream, text: String },
    Shown(Shown),
    Note(Note),
}

/// What came of an execution. Surfaces make their one reply of it.
#[derive(Debug, Clone)]
pub struct Execution {
    pub id: ExecutionId,
    /// None for a session that ended with the run.
    pub session: Option<SessionId>,
    pub session_created: bool,
    /// Why the variables and files of earlier runs are not there.
    pub session_restarted: Option<String>,
    /// `completed`, `raised`, `interrupted`, `timed_out`, `out_of_memory`, `crashed`,
    /// `never_started`, or `rejected` by the rules before anything ran.
    pub outcome: &'static str,
    /// `syntax`, `runtime`, `timeout`, `memory`, `interrupted`, `resource`, `security`, `crash` or
    /// `internal`.
    pub error_category: Option<&'static str>,
    /// Whether the session's variables are still there.
    pub state_kept: bool,
    pub success: bool,
    /// What a shell would get: 0, 1, the program's own, 124 for a time-out, 137 for memory.
    pub exit_code: i64,
    /// One sentence about any end but a plain one.
    pub message: Option<String>,
    pub stdout: String,
    pub stderr: String,
    pub result: Option<ResultValue>,
    pub error: Option<Raised>,
    pub displays: Vec<Shown>,
    pub notes: Vec<Note>,
    pub wall: Duration,
    /// The time limit that held.
    pub timeout: Duration,
    pub execution_count: u64,
    pub variables: Vec<Variable>,
    /// Output beyond the limit, which was dropped.
    pub output_bytes_dropped: u64,
    pub displays_dropped: u64,
    pub usage: Option<Usage>,
    /// What was not done as asked.
    pub warnings: Vec<String>,
    /// What was not allowed.
    pub events: Vec<SecurityEvent>,
    /// What to do about the error, where that is known.
    pub hint: Option<String>,
    /// What became of the session's files.
    pub files: FileReport,
    /// The pictures among `displays`, where they can be fetched.
    pub charts: Vec<StoredFile>,
    /// What was brought back of the variables of an earlier kernel.
    pub revival: Option<Revival>,
}

/// What was brought back of a session's variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Revival {
    /// What was set after this is gone.
    pub saved_at: Option<Timestamp>,
    pub restored: Vec<String>,
    /// What could not be saved, or not be brought back.
    pub missing: Vec<Missing>,
    /// Why nothing more was brought back.
    pub error: Option<String>,
}

/// What a run did to the files of its session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileReport {
    /// Paths below the working directory.
    pub added: Vec<String>,
    pub modified: Vec<String>,
    pub deleted: Vec<String>,
    /// Those of them that can be fetched by an address of their own.
    pub stored: Vec<StoredFile>,
    /// Why others cannot.
    pub notes: Vec<String>,
}

/// A file that can be fetched by whoever knows its id, whatever becomes of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// Standard output, and after it the texts that the code displayed. The value of the last
    /// expression is told apart, and so are pictures.
    pub fn stdout_and_displays(&self) -> String {
        let mut text = self.stdout.clone();
        for shown in &self.displays {
            let is_picture = shown.data.keys().any(|kind| kind.starts_with("image/"));
            if let (false, Some(said)) = (is_picture || shown.role == Role::Result, shown.text()) {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(said);
            }
        }
        text
    }
}

/// A displayed object; pictures are in base64 where they leave us as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    pub role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub data: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    #[serde(skip)]
    pub pictures: Vec<Picture>,
}

impl Shown {
    /// What it says, in the form that is best read: Markdown before plain text, and HTML where the
    /// plain text is nothing but the name of a class.
    pub fn text(&self) -> Option<&str> {
        let said = |kind: &str| self.data.get(kind).and_then(Value::as_str);
        let plain = said("text/plain");
        let is_opaque = plain.is_none_or(|text| text.starts_with('<') && text.ends_with("object>"));
        let html = || said("text/html").or_else(|| said("text/latex")).filter(|_| is_opaque);
        said("text/markdown").or_else(html).or(plain)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub media_type: String,
    pub bytes: bytes::Bytes,
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
    /// When its Python ends if nothing is run in it.
    pub expires_in: Option<Duration>,
}
