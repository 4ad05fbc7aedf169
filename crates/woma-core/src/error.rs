//! What can go wrong with a request, as opposed to what happens to the code in it.

use std::path::PathBuf;
use std::time::Duration;

use woma_sandbox::workspace::BadPath;

use crate::environments;
use crate::fetch::FetchError;
use crate::model::{ExecutionId, SessionId};
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the code is empty")]
    EmptyCode,
    #[error("the code has {bytes} bytes; the limit is {limit_bytes}")]
    CodeTooLong { bytes: usize, limit_bytes: usize },
    #[error("the variables have {bytes} bytes; the limit is {limit_bytes}")]
    VariablesTooLarge { bytes: usize, limit_bytes: usize },
    #[error("`{name}` cannot be the name of a variable")]
    BadVariable { name: String },
    #[error("the session id cannot be used: {reason}")]
    BadSessionId { reason: &'static str },
    #[error("the {what} has more than {limit_chars} characters")]
    LabelTooLong { what: &'static str, limit_chars: usize },
    #[error("session `{0}` does not exist")]
    NoSession(SessionId),
    #[error("session `{0}` was deleted while this call waited for its turn")]
    SessionDeleted(SessionId),
    #[error(
        "session `{0}` has no variables: nothing has been run in it, or they are saved already"
    )]
    NoKernel(SessionId),
    #[error("the variables of session `{0}` could not be saved; the log says why")]
    NotSaved(SessionId),
    #[error("session `{session}` could not be taken back, and is as it was: {reason}")]
    NotRestored { session: SessionId, reason: String },
    #[error("session `{0}` has no checkpoint")]
    NoCheckpoint(SessionId),
    #[error("session `{0}` exists already")]
    SessionExists(SessionId),
    #[error("execution `{0}` is not known, or no longer kept")]
    NoExecution(String),
    #[error("execution `{0}` has no picture {1}")]
    NoPicture(ExecutionId, usize),
    #[error("the server is busy: {what}")]
    Busy { what: String, retry_after: Duration },
    #[error("too many executions: {per_minute} a minute are allowed")]
    RateLimited { per_minute: u32, retry_after: Duration },
    #[error("{limit} sessions are allowed, and they exist already")]
    SessionQuota { limit: u32 },
    #[error("this key lacks the scope `{scope}`")]
    Forbidden { scope: &'static str },
    #[error("the policy `{name}` does not exist; there are: {known}")]
    NoPolicy { name: String, known: String },
    #[error("`{path}` is no path of a file in the session: {why}")]
    BadPath { path: String, why: BadPath },
    #[error("there is no file `{0}` in the session")]
    NoFile(String),
    #[error("there is no folder `{0}` in the session")]
    NoFolder(String),
    #[error("`{0}` is a folder")]
    IsFolder(String),
    #[error("`{0}` is not a plain file that can be read: links and devices are not followed")]
    NotPlain(String),
    #[error("`{0}` cannot be made: something on the way to it is no folder")]
    InTheWay(String),
    #[error("the file is too large")]
    FileTooLarge,
    #[error("an archive has at most {files} files and {bytes} bytes, and every folder can be read")]
    ArchiveTooLarge { files: u64, bytes: u64 },
    #[error("there is no room for it: {} may keep {limit_bytes} bytes", holder.name())]
    NoRoom { holder: Holder, limit_bytes: u64 },
    #[error("there is no room for it: a session may have {limit} files and folders")]
    TooManyFiles { limit: u64 },
    #[error("the server's disk is full")]
    DiskFull,
    #[error("the content could not be read to its end: {0}")]
    BrokenOff(String),
    #[error("`{0}` is no id of a download")]
    BadFileId(String),
    #[error("there is no download `{0}`")]
    NoDownload(String),
    #[error("this download has expired")]
    Expired,
    #[error("the upload `{0}` does not exist, or was given up")]
    NoUpload(String),
    #[error("the upload goes on at byte {offset}")]
    UploadOffset { offset: u64 },
    #[error("another part of this upload is on its way")]
    UploadBusy,
    #[error("the upload is longer than it was said to be")]
    UploadTooLong,
    #[error("{limit} uploads are allowed at once, and they are open already")]
    TooManyUploads { limit: usize },
    #[error(transparent)]
    Fetch(FetchError),
    #[error("this server keeps no files")]
    KeepsNoFiles,
    #[error("the client gave up before the code began to run")]
    GivenUp,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the execution was lost by a fault of the server")]
    Lost,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the session's folder cannot be used: {0}")]
    Folder(#[from] std::io::Error),
    /// At the start; only the operator sees it.
    #[error("the data folder {} cannot be used: {reason}", folder.display())]
    DataFolder { folder: PathBuf, reason: String },
    #[error(transparent)]
    Environment(#[from] environments::Error),
    #[error(transparent)]
    Sandbox(#[from] woma_sandbox::Error),
}

/// Whose limit of bytes there is no room in.
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

/// What a caller can do about an error; surfaces translate it to their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    InvalidArgument,
    TooLarge,
    NotFound,
    /// It was there once.
    Gone,
    Conflict,
    Busy,
    Cancelled,
    RateLimited,
    QuotaExceeded,
    Unauthenticated,
    Forbidden,
    Unavailable,
    /// Another server, whom we asked for somebody, did not do its part.
    FetchFailed,
    Internal,
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::TooLarge => "too_large",
            Self::NotFound => "not_found",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::Unavailable => "unavailable",
            Self::FetchFailed => "fetch_failed",
            Self::Internal => "internal",
        }
    }
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::EmptyCode
            | Self::BadVariable { .. }
            | Self::BadSessionId { .. }
            | Self::NoPolicy { .. }
            | Self::BadPath { .. }
            | Self::NotPlain(_)
            | Self::BrokenOff(_)
            | Self::BadFileId(_)
            | Self::LabelTooLong { .. } => Code::InvalidArgument,
            Self::CodeTooLong { .. }
            | Self::VariablesTooLarge { .. }
            | Self::FileTooLarge
            | Self::UploadTooLong
            | Self::ArchiveTooLarge { .. }
            | Self::Store(StoreError::TooLarge { .. }) => Code::TooLarge,
            Self::NoSession(_)
            | Self::SessionDeleted(_)
            | Self::NoExecution(_)
            | Self::NoFile(_)
            | Self::NoFolder(_)
            | Self::NoDownload(_)
            | Self::NoUpload(_)
            | Self::NoPicture(..)
            | Self::NoCheckpoint(_)
            | Self::Store(StoreError::NotFound) => Code::NotFound,
            Self::Expired => Code::Gone,
            Self::SessionExists(_)
            | Self::IsFolder(_)
            | Self::InTheWay(_)
            | Self::UploadOffset { .. }
            | Self::UploadBusy
            | Self::NoKernel(_)
            | Self::NotRestored { .. }
            | Self::Store(StoreError::Conflict) => Code::Conflict,
            Self::Fetch(error) => code_of_fetch(error),
            Self::Busy { .. } => Code::Busy,
            Self::GivenUp => Code::Cancelled,
            Self::RateLimited { .. } => Code::RateLimited,
            Self::SessionQuota { .. }
            | Self::NoRoom { .. }
            | Self::TooManyFiles { .. }
            | Self::TooManyUploads { .. } => Code::QuotaExceeded,
            Self::Forbidden { .. } => Code::Forbidden,
            Self::ShuttingDown
            | Self::DiskFull
            | Self::KeepsNoFiles
            | Self::Store(_)
            | Self::Folder(_)
            | Self::NotSaved(_)
            | Self::DataFolder { .. }
            | Self::Sandbox(woma_sandbox::Error::ShutDown | woma_sandbox::Error::Build { .. }) => {
                Code::Unavailable
            }
            Self::Lost | Self::Environment(_) | Self::Sandbox(_) => Code::Internal,
        }
    }

    /// When it is worth another try.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } | Self::RateLimited { retry_after, .. } => {
                Some(*retry_after)
            }
            Self::ShuttingDown | Self::Fetch(FetchError::Busy { .. }) => {
                Some(Duration::from_secs(5))
            }
            _ => None,
        }
    }

    /// The way out, where there is one that the message does not name already.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::EmptyCode => "send the Python code to run in `code`",
            Self::CodeTooLong { .. } => {
                "send smaller parts, or put data into a file of the session"
            }
            Self::VariablesTooLarge { .. } => "put data into a file of the session",
            Self::BadVariable { .. } => "use an identifier of Python",
            Self::BadSessionId { .. } => "use letters, digits, `-`, `_` or `.`, up to 128 bytes",
            Self::NoSession(_) => {
                "`list_sessions` shows those that exist; running code in one makes it"
            }
            Self::SessionExists(_) => "delete it first, or leave the id out",
            Self::NoExecution(_) => {
                "the latest outputs are kept in memory, within KEPT_OUTPUT_MB; run the code again"
            }
            Self::Busy { .. } => "try again in a moment, or raise MAX_KERNELS and MAX_QUEUE",
            Self::SessionQuota { .. } => "delete a session that is not needed",
            Self::DataFolder { .. } => "--data-dir names another, which the server can write to",
            Self::Forbidden { .. } => "`woma keys create NAME --scope …` makes a key that has it",
            Self::NoPolicy { .. } => {
                "a key or a session names it: POLICY_FILE must have it, or name another"
            }
            Self::BadPath { .. } => "use a name, or a path below the working directory",
            Self::NoFile(_) | Self::NoFolder(_) => "`list_files` shows what there is",
            Self::IsFolder(_) => "name a file in it; over REST, `?archive=zip` fetches it whole",
            Self::FileTooLarge => {
                "SANDBOX_FILE_MAX_MB sets the limit of uploads and downloads, MAX_FILE_SIZE_MB that \
                 of files from elsewhere"
            }
            Self::ArchiveTooLarge { .. } => "fetch one of its folders, or files one by one",
            Self::NoRoom { holder, .. } => holder.hint(),
            Self::TooManyFiles { .. } => "delete files that are not needed",
            Self::DiskFull => "delete files and sessions, or give the data folder a larger disk",
            Self::BadFileId(_) => "use the whole address that a reply has given",
            Self::NoDownload(_) => "check the address, or make the file again",
            Self::Expired => "make the file again, or fetch it from its session",
            Self::UploadOffset { .. } => "send the part that begins there",
            Self::TooManyUploads { .. } => "finish them, or delete those that are not needed",
            Self::Fetch(error) => error.hint(),
            Self::Sandbox(woma_sandbox::Error::Build { step, reason }) => {
                return woma_sandbox::doctor::hint(step, reason);
            }
            Self::Sandbox(woma_sandbox::Error::Python { .. }) => {
                "`woma env info` shows the environment; `woma env create` makes one"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn code_of_fetch(error: &FetchError) -> Code {
    match error {
        FetchError::BadUrl(_) | FetchError::Scheme(_) | FetchError::Credentials => {
            Code::InvalidArgument
        }
        FetchError::Port(_)
        | FetchError::HostNotAllowed(_)
        | FetchError::InnerName(_)
        | FetchError::AddressRefused { .. } => Code::Forbidden,
        FetchError::TooLarge { .. } => Code::TooLarge,
        FetchError::Busy { .. } => Code::Busy,
        FetchError::Io(_) => Code::Unavailable,
        _ => Code::FetchFailed,
    }
}
