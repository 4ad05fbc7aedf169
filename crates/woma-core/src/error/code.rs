//! Codes of errors, when to try again, and hints.

use std::time::Duration;

use super::Error;
use crate::access::keys;
use crate::model::{DatasetProblem, PackageProblem};
use crate::net::egress::BadNetwork;
use crate::net::fetch::FetchError;
use crate::net::secrets::{BadSecret, NotTaken};
use crate::storage::db::StoreError;

/// Error code by which a caller can act; surfaces translate it to their own.
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
    /// The server's disk is full, or below its reserve.
    InsufficientStorage,
    /// The time limit of the request ended it.
    TimedOut,
    /// Another server that was asked on behalf of the caller failed.
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
            Self::InsufficientStorage => "insufficient_storage",
            Self::TimedOut => "timed_out",
            Self::FetchFailed => "fetch_failed",
            Self::Internal => "internal",
        }
    }
}

impl Error {
    #[expect(clippy::too_many_lines, reason = "a table: one row for each error")]
    pub fn code(&self) -> Code {
        match self {
            Self::EmptyCode
            | Self::BadVariable { .. }
            | Self::BadSessionId(_)
            | Self::NoPolicy { .. }
            | Self::NoEnvironment { .. }
            | Self::BadHeader(_)
            | Self::OtherPython { .. }
            | Self::NoContainers
            | Self::NotInContainer(_)
            | Self::BadNetwork(_)
            | Self::BadSecrets(NotTaken::Bad(_) | NotTaken::Twice(_) | NotTaken::TooMany(_))
            | Self::BadPath { .. }
            | Self::NotPlain(_)
            | Self::BrokenOff(_)
            | Self::BadFileId(_)
            | Self::BadLabel(_)
            | Self::TooManyLabels { .. }
            | Self::Lifetime { .. }
            | Self::BadJob(_)
            | Self::LabelTooLong { .. } => Code::InvalidArgument,
            Self::CodeTooLong { .. }
            | Self::VariablesTooLarge { .. }
            | Self::StdinTooLarge { .. }
            | Self::FileTooLarge
            | Self::UploadTooLong
            | Self::ArchiveTooLarge { .. }
            | Self::Store(StoreError::TooLarge { .. }) => Code::TooLarge,
            Self::NoSession(_)
            | Self::SessionDeleted(_)
            | Self::NoExecution(_)
            | Self::NoFile { .. }
            | Self::NoFolder(_)
            | Self::NoDownload(_)
            | Self::NoUpload(_)
            | Self::NoPicture(..)
            | Self::NoCheckpoint(_)
            | Self::NoJob(_)
            | Self::NoSchedule(_)
            | Self::PortsOff
            | Self::NoServer { .. }
            | Self::Store(StoreError::NotFound) => Code::NotFound,
            Self::Expired => Code::Gone,
            Self::OpenServer
            | Self::SessionExists(_)
            | Self::SessionElsewhere { .. }
            | Self::IsFolder(_)
            | Self::InTheWay(_)
            | Self::UploadOffset { .. }
            | Self::UploadBusy
            | Self::SessionLeased { .. }
            | Self::KeyReused
            | Self::NoKernel(_)
            | Self::NotRestored { .. }
            | Self::Store(StoreError::Conflict) => Code::Conflict,
            Self::Key(error) => code_of_key(error),
            Self::Dataset(error) => code_of_dataset(error.problem),
            Self::Package(error) => code_of_package(error.problem),
            Self::Fetch(error) => code_of_fetch(error),
            Self::Busy { .. }
            | Self::PoolBusy { .. }
            | Self::PortsBusy { .. }
            | Self::QueueFull { .. }
            | Self::Sandbox(woma_sandbox::Error::Descriptors(_)) => Code::Busy,
            Self::GivenUp => Code::Cancelled,
            Self::RateLimited { .. } | Self::InstallsLimited { .. } => Code::RateLimited,
            Self::SessionQuota { .. }
            | Self::NoRoom { .. }
            | Self::TooManyFiles { .. }
            | Self::TooManySchedules { .. }
            | Self::BadSecrets(NotTaken::NoPlace(_))
            | Self::TooManyUploads { .. } => Code::QuotaExceeded,
            Self::Forbidden(_) | Self::NetworkBeyond { .. } | Self::KeyGone => Code::Forbidden,
            Self::DiskFull
            | Self::DiskReserve
            | Self::NotExported(_)
            | Self::Store(StoreError::NoSpace | StoreError::Reserve) => Code::InsufficientStorage,
            Self::ShuttingDown
            | Self::KeepsNoFiles
            | Self::NoJobs
            | Self::EnvironmentNotMade { .. }
            | Self::Store(_)
            | Self::Folder(_)
            | Self::NotSaved(_)
            | Self::Open(_)
            | Self::Network(_)
            | Self::Sandbox(
                woma_sandbox::Error::ShutDown
                | woma_sandbox::Error::Build { .. }
                | woma_sandbox::Error::Container { .. },
            ) => Code::Unavailable,
            Self::Lost | Self::BadJobResult(_) | Self::Environment(_) | Self::Sandbox(_) => {
                Code::Internal
            }
        }
    }

    /// An environment that nobody has named; `near` resembles it.
    pub fn no_environment(name: &str, near: Option<String>, known: &[String]) -> Self {
        let known = std::iter::once("default").chain(known.iter().map(String::as_str));
        Self::NoEnvironment {
            name: name.chars().take(64).collect(),
            near: near.into_iter().collect(),
            known: known.collect::<Vec<_>>().join(", "),
        }
    }

    /// When it is worth another try.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. }
            | Self::RateLimited { retry_after, .. }
            | Self::InstallsLimited { retry_after, .. } => Some(*retry_after),
            Self::PoolBusy { .. } | Self::Sandbox(woma_sandbox::Error::Descriptors(_)) => {
                Some(Duration::from_secs(1))
            }
            Self::QueueFull { .. } => Some(Duration::from_secs(10)),
            Self::SessionLeased { left, .. } => Some(*left),
            Self::ShuttingDown | Self::Fetch(FetchError::Busy { .. }) => {
                Some(Duration::from_secs(5))
            }
            _ => None,
        }
    }

    /// The way out, where there is one that the message does not name already.
    #[expect(clippy::too_many_lines, reason = "a table: one row for each error")]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::EmptyCode => "send the Python code to run in `code`",
            Self::CodeTooLong { .. } => {
                "send smaller parts, or put data into a file of the session"
            }
            Self::VariablesTooLarge { .. } | Self::StdinTooLarge { .. } => {
                "put data into a file of the session"
            }
            Self::BadVariable { .. } => "use an identifier of Python",
            Self::BadSessionId(_) => "use letters, digits, `-`, `_` or `.`, up to 128 bytes",
            Self::NoSession(_) => {
                "`list_sessions` shows those that exist; running code in one makes it"
            }
            Self::SessionLeased { .. } => {
                "use another session, send calls of one session to one server, or try again when \
                 the other server has stopped"
            }
            Self::SessionExists(_) => "delete it first, or leave the id out",
            Self::SessionElsewhere { .. } => {
                "leave `session_id` out, or name another; that process lets go of the session when it \
                 ends, or after KERNEL_TIMEOUT without a run"
            }
            Self::NoExecution(_) => {
                "the latest outputs are kept in memory, within KEPT_OUTPUT_MB; run the code again"
            }
            Self::Busy { .. } => {
                "try again in a moment, or raise MAX_RUNNING, MAX_KERNELS and MAX_QUEUE"
            }
            Self::PoolBusy { .. } => "try again when one of them has ended",
            Self::NoJobs => "jobs need a data folder, and MAX_CONCURRENT_JOBS of 1 or more",
            Self::NoJob(_) => {
                "`list_jobs` shows those that exist; ended ones are kept for JOB_CLEANUP_HOURS"
            }
            Self::KeyReused => "use a new key for another job",
            Self::QueueFull { .. } => {
                "try again when some have ended, cancel jobs that are not needed, or raise \
                 MAX_QUEUED_JOBS"
            }
            Self::NoSchedule(_) => "`list_jobs` with `schedules` shows those that exist",
            Self::TooManySchedules { .. } => "delete a schedule that is not needed",
            Self::SessionQuota { .. } => "delete a session that is not needed",
            Self::Open(_) => "--data-dir names another, which the server can write to",
            Self::Forbidden(_) => "`woma keys create NAME --scope …` makes a key that has it",
            Self::BadLabel(_) => "use 1 to 64 letters, digits, `-`, `_`, `.` or `/`",
            Self::Lifetime { .. } => "SESSION_TTL_HOURS sets the longest lifetime",
            Self::PortsOff => "the operator turns it on with PORTS=true",
            Self::NoServer { .. } => {
                "start one that goes on after the call, by subprocess.Popen or in a thread, at a port \
                 from 1024 on"
            }
            Self::PortsBusy { .. } => "close connections that are not used",
            Self::BadNetwork(_) => BadNetwork::HINT,
            Self::BadSecrets(NotTaken::NoPlace(_)) => "delete sessions, or take secrets from some",
            Self::BadSecrets(_) => BadSecret::HINT,
            Self::NetworkBeyond { .. } => {
                "the operator sets the most: NETWORK for all callers, `woma keys create --network` for \
                 one key, `network` of a policy"
            }
            Self::OpenServer => "create the first key with `woma keys create NAME`",
            Self::OtherPython { .. } => {
                "a session keeps the environment that it was created in; `get_sandbox_info` tells which \
                 there are"
            }
            Self::NoEnvironment { .. } => {
                "`get_sandbox_info` describes them; the operator adds one with a template in \
                 ENVIRONMENTS_DIR"
            }
            Self::EnvironmentNotMade { .. } => {
                "the operator makes it with `woma env create NAME` and starts the server again"
            }
            Self::NoPolicy { .. } => {
                "a key or a session names it: POLICY_FILE must have it, or name another"
            }
            Self::BadPath { .. } => "use a name, or a path below the working directory",
            Self::NoFile { .. } | Self::NoFolder(_) => "`list_files` shows what there is",
            Self::IsFolder(_) => "name a file in it; over REST, `?archive=zip` fetches it whole",
            Self::FileTooLarge => {
                "SANDBOX_FILE_MAX_MB sets the limit of uploads and downloads, MAX_FILE_SIZE_MB that \
                 of files from elsewhere"
            }
            Self::ArchiveTooLarge { .. } => "fetch one of its folders, or files one by one",
            Self::NoRoom { holder, .. } => holder.hint(),
            Self::TooManyFiles { .. } => "delete files that are not needed",
            Self::DiskFull => "delete files and sessions, or give the data folder a larger disk",
            Self::DiskReserve | Self::Store(StoreError::Reserve) => {
                "delete files and sessions, give the data folder a larger disk, or lower \
                 MIN_FREE_DISK"
            }
            Self::BadFileId(_) => "use the whole address that a reply has given",
            Self::NoDownload(_) => "check the address, or make the file again",
            Self::Expired => "make the file again, or fetch it from its session",
            Self::UploadOffset { .. } => "send the part that begins there",
            Self::TooManyUploads { .. } => "finish them, or delete those that are not needed",
            Self::Dataset(error) => return error.hint.clone(),
            Self::Package(error) => return error.hint.clone(),
            Self::InstallsLimited { .. } => "name several packages in one request",
            Self::Fetch(error) => error.hint(),
            Self::Sandbox(woma_sandbox::Error::Build { step, reason }) => {
                return woma_sandbox::doctor::hint(step, reason);
            }
            Self::Sandbox(woma_sandbox::Error::Descriptors(_)) => {
                "raise its limit of open files (`ulimit -n`, `LimitNOFILE=`), or lower \
                 MAX_CONNECTIONS and MAX_KERNELS"
            }
            Self::Sandbox(woma_sandbox::Error::Container { fix, .. }) => return Some(fix.clone()),
            Self::NoContainers => {
                "omit it: every session is isolated by the kernel; or have the operator set \
                 SANDBOX_ENABLE_CONTAINER_MODE=true"
            }
            Self::NotInContainer(_) => {
                "name another session, or none: a new one is opened in a container"
            }
            Self::Sandbox(woma_sandbox::Error::Python { .. }) => {
                "`woma env info` shows the environment; `woma env create` makes one"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn code_of_key(error: &keys::Error) -> Code {
    match error {
        keys::Error::Name { .. } | keys::Error::NoScope | keys::Error::ExpiryPassed => {
            Code::InvalidArgument
        }
        keys::Error::NameTaken(_) | keys::Error::AlreadyRevoked(_) => Code::Conflict,
        keys::Error::Unknown(_) => Code::NotFound,
        keys::Error::TooMany => Code::QuotaExceeded,
        keys::Error::Damaged { .. } | keys::Error::Store(_) => Code::Unavailable,
        keys::Error::Io { .. } | keys::Error::Random(_) | keys::Error::NotTold => Code::Internal,
    }
}

fn code_of_dataset(problem: DatasetProblem) -> Code {
    match problem {
        DatasetProblem::BadName
        | DatasetProblem::BadSql
        | DatasetProblem::NotReadOnly
        | DatasetProblem::BadFile
        | DatasetProblem::Unsupported
        | DatasetProblem::Empty => Code::InvalidArgument,
        DatasetProblem::Unknown => Code::NotFound,
        DatasetProblem::TooLarge | DatasetProblem::OutOfMemory => Code::TooLarge,
        DatasetProblem::TooMany => Code::QuotaExceeded,
        DatasetProblem::TimedOut => Code::TimedOut,
        DatasetProblem::Engine => Code::Unavailable,
    }
}

fn code_of_package(problem: PackageProblem) -> Code {
    match problem {
        PackageProblem::BadName | PackageProblem::NoSolution => Code::InvalidArgument,
        PackageProblem::Blocked => Code::Forbidden,
        PackageProblem::TooMany => Code::QuotaExceeded,
        PackageProblem::TooLarge => Code::TooLarge,
        PackageProblem::TimedOut => Code::TimedOut,
        PackageProblem::Index => Code::FetchFailed,
        PackageProblem::Off | PackageProblem::Installer => Code::Unavailable,
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
