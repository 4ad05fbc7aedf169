//! Errors of a request, as opposed to failures of the code in it.

mod code;

use std::time::Duration;

use woma_sandbox::workspace::BadPath;

use crate::access::keys;
use crate::environments;
use crate::model::caller::Forbidden;
use crate::model::{BadSessionId, DatasetError, ExecutionId, PackageError, SessionId};
use crate::net::egress::BadNetwork;
use crate::net::fetch::FetchError;
use crate::net::secrets::NotTaken;
use crate::shares::Closed;
use crate::storage::db::StoreError;
use crate::storage::layout::OpenError;

pub use self::code::Code;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the code is empty")]
    EmptyCode,
    #[error("the code is too large: it has {bytes} bytes; the limit is {limit_bytes}")]
    CodeTooLong { bytes: usize, limit_bytes: usize },
    #[error("the variables have {bytes} bytes; the limit is {limit_bytes}")]
    VariablesTooLarge { bytes: usize, limit_bytes: usize },
    #[error("`stdin` has {bytes} bytes; the limit is {limit_bytes}")]
    StdinTooLarge { bytes: usize, limit_bytes: usize },
    #[error("`{name}` cannot be the name of a variable")]
    BadVariable { name: String },
    #[error(transparent)]
    BadSessionId(#[from] BadSessionId),
    #[error("the {what} has more than {limit_chars} characters")]
    LabelTooLong { what: &'static str, limit_chars: usize },
    #[error("`{0}` cannot be the name of a label")]
    BadLabel(String),
    #[error("a session may have {limit} labels")]
    TooManyLabels { limit: usize },
    #[error("the lifetime of a session must be between 1 and {limit_s} seconds")]
    Lifetime { limit_s: u64 },
    #[error("session `{0}` does not exist")]
    NoSession(SessionId),
    #[error("session `{0}` was deleted while this call waited for its turn")]
    SessionDeleted(SessionId),
    #[error("session `{0}` has no variables to save: no code ran in it, or they are saved already")]
    NoKernel(SessionId),
    #[error("the variables of session `{0}` could not be saved; the log says why")]
    NotSaved(SessionId),
    #[error("session `{session}` could not be restored and is unchanged: {reason}")]
    NotRestored { session: SessionId, reason: String },
    #[error("session `{0}` has no checkpoint")]
    NoCheckpoint(SessionId),
    #[error("session `{0}` exists already")]
    SessionExists(SessionId),
    #[error("session `{session}` is open in another woma process{} with the same data folder", process(*pid))]
    SessionElsewhere { session: SessionId, pid: Option<u32> },
    #[error(
        "session `{session}` is in use by another server with the same database; its lease ends in \
         {} s unless that server renews it",
        left.as_secs() + 1
    )]
    SessionLeased { session: SessionId, left: Duration },
    #[error("execution `{0}` is not known, or no longer kept")]
    NoExecution(String),
    #[error("this server runs no jobs")]
    NoJobs,
    #[error("job `{0}` does not exist, or is no longer kept")]
    NoJob(String),
    #[error("the result of job `{0}` cannot be read")]
    BadJobResult(String),
    #[error("this idempotency key was used for another job")]
    KeyReused,
    #[error("the queue is full: {what}")]
    QueueFull { what: String },
    /// The sentence says which argument and why.
    #[error("{0}")]
    BadJob(String),
    #[error("the key that asked for this job was revoked or has expired")]
    KeyGone,
    #[error("schedule `{0}` does not exist")]
    NoSchedule(String),
    #[error("the limit of {limit} schedules is reached")]
    TooManySchedules { limit: u64 },
    #[error("execution `{0}` has no picture {1}")]
    NoPicture(ExecutionId, usize),
    #[error("the server is busy: {what}")]
    Busy { what: String, retry_after: Duration },
    #[error("the server is busy: {limit} {what} at once are the limit of a caller")]
    PoolBusy { what: &'static str, limit: usize },
    #[error("too many executions: {per_minute} a minute are allowed")]
    RateLimited { per_minute: u32, retry_after: Duration },
    #[error("the limit of {limit} sessions is reached")]
    SessionQuota { limit: u32 },
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error(transparent)]
    Key(#[from] keys::Error),
    #[error("this server needs no key, and the first one would close it")]
    OpenServer,
    #[error("servers in sessions cannot be reached: PORTS is off")]
    PortsOff,
    #[error("no server listens on port {port} of session `{session}`")]
    NoServer { session: SessionId, port: u16 },
    #[error("{limit} connections to servers in sessions are open, the most of one caller")]
    PortsBusy { limit: usize },
    #[error(transparent)]
    BadNetwork(#[from] BadNetwork),
    /// The network of the server's sessions cannot be made.
    #[error("{0}")]
    Network(String),
    #[error(transparent)]
    BadSecrets(#[from] NotTaken),
    #[error("the network `{wanted}` is beyond what this caller may have, which is `{allowed}`")]
    NetworkBeyond { wanted: String, allowed: String },
    #[error("the environment `{name}` does not exist{}; there are: {known}", suggest(near))]
    NoEnvironment { name: String, near: Vec<String>, known: String },
    #[error("the environment `{name}` cannot be used: {why}")]
    EnvironmentNotMade { name: String, why: String },
    #[error(transparent)]
    BadHeader(#[from] woma_policy::BadHeader),
    #[error("the header of the program requires Python {wanted}, and this environment has {found}{}", instead(other.as_deref()))]
    OtherPython { wanted: String, found: String, other: Option<String> },
    #[error("`use_container` is not available: containers are disabled on this server")]
    NoContainers,
    #[error("session `{0}` is not in a container, and a session stays what it is")]
    NotInContainer(SessionId),
    #[error("the policy `{name}` does not exist; there are: {known}")]
    NoPolicy { name: String, known: String },
    #[error("`{path}` is not a path of a file in the session: {why}")]
    BadPath { path: String, why: BadPath },
    #[error("there is no file `{path}` in the session{}", suggest(near))]
    NoFile { path: String, near: Vec<String> },
    /// The sentence says which file and why.
    #[error("{0}")]
    NotExported(String),
    #[error("there is no folder `{0}` in the session")]
    NoFolder(String),
    #[error("`{0}` is a folder")]
    IsFolder(String),
    #[error("`{0}` is not a plain file that can be read: links and devices are not followed")]
    NotPlain(String),
    #[error("cannot create `{0}`: a parent is not a folder")]
    InTheWay(String),
    #[error("the file is too large")]
    FileTooLarge,
    #[error(
        "the archive would have more than {files} files or {bytes} bytes, or a folder cannot be read"
    )]
    ArchiveTooLarge { files: u64, bytes: u64 },
    #[error("no storage left: {} may store {limit_bytes} bytes", holder.name())]
    NoRoom { holder: Holder, limit_bytes: u64 },
    #[error("no storage left: a session may have {limit} files and folders")]
    TooManyFiles { limit: u64 },
    #[error("the server's disk is full")]
    DiskFull,
    #[error("the server's disk is below its reserve (MIN_FREE_DISK): nothing new is stored")]
    DiskReserve,
    #[error("the content ended early: {0}")]
    BrokenOff(String),
    #[error("`{0}` is not the id of a download")]
    BadFileId(String),
    #[error("there is no download `{0}`")]
    NoDownload(String),
    #[error("this download has expired")]
    Expired,
    #[error("the upload `{0}` does not exist or was cancelled")]
    NoUpload(String),
    #[error("the upload continues at byte {offset}")]
    UploadOffset { offset: u64 },
    #[error("another part of this upload is being received")]
    UploadBusy,
    #[error("the upload is longer than announced")]
    UploadTooLong,
    #[error("the limit of {limit} open uploads is reached")]
    TooManyUploads { limit: usize },
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error("too many installations: {per_minute} a minute are allowed")]
    InstallsLimited { per_minute: u32, retry_after: Duration },
    #[error(transparent)]
    Fetch(FetchError),
    #[error("this server has no storage for files")]
    KeepsNoFiles,
    #[error("the client gave up before the code began to run")]
    GivenUp,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the execution was lost because of a server error")]
    Lost,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the session's folder cannot be used: {0}")]
    Folder(#[from] std::io::Error),
    /// At the start.
    #[error(transparent)]
    Open(OpenError),
    #[error(transparent)]
    Environment(#[from] environments::Error),
    #[error(transparent)]
    Sandbox(#[from] woma_sandbox::Error),
}

impl Error {
    /// A file that does not exist, without near names.
    pub(crate) fn no_file(path: impl Into<String>) -> Self {
        Self::NoFile { path: path.into(), near: Vec::new() }
    }
}

impl From<Closed> for Error {
    fn from(Closed: Closed) -> Self {
        Self::ShuttingDown
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => error.into(),
            OpenError::Io(error) => error.into(),
            error @ OpenError::DataFolder { .. } => Self::Open(error),
        }
    }
}

/// The id of a process, if it is known.
fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Place where a program could run.
fn instead(other: Option<&str>) -> String {
    match other {
        Some(name) => format!("; the environment `{name}` has one"),
        None => "; no environment of this server has one".to_owned(),
    }
}

/// Names that resemble the one that does not exist.
fn suggest(near: &[String]) -> String {
    let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

/// The holder of a storage limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Its folder.
    Session,
    /// By what its key says.
    Key,
    /// By the server's setting.
    Caller,
}

impl Holder {
    fn name(self) -> &'static str {
        match self {
            Self::Session => "the session",
            Self::Key => "this key",
            Self::Caller => "a caller",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Session => "delete files that are not needed, or raise DISK_MB",
            Self::Key => {
                "delete files and sessions that are not needed; `woma keys create --storage` says \
                 how much a key may keep"
            }
            Self::Caller => {
                "delete files and sessions that are not needed, or raise STORAGE_MB; stored \
                 versions end after SANDBOX_FILE_TTL_HOURS"
            }
        }
    }
}
