//! Errors of starting a sandbox or opening a cell. The fate of code inside a cell is never an error
//! here but an [`Exit`](crate::Exit).

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine lacks a required feature; `woma doctor` says which.
    #[error("the sandbox cannot be built here: {step}: {reason}")]
    Build { step: String, reason: String },
    /// The server runs as root and could not switch to another user.
    #[error("root's rights cannot be given up: {step}: {reason}")]
    Rights { step: String, reason: String },
    #[error("the Python environment does not start: {reason}")]
    Python { reason: String },
    #[error("a session could not be opened: {step}: {reason}")]
    Open { step: String, reason: String },
    #[error("a session was not contained and has been ended: {what}")]
    Unproven { what: String },
    /// A session in a container cannot be opened; it is never opened in another way.
    #[error("a session in a container cannot be opened: {reason}")]
    Container { reason: String, fix: String },
    #[error("the folder {} cannot be a workspace: {reason}", path.display())]
    Workspace { path: PathBuf, reason: String },
    #[error("the sandbox has been shut down")]
    ShutDown,
    /// The server has as many open files as it may have.
    #[error("the server cannot open anything more: {0}")]
    Descriptors(io::Error),
    #[error("the operating system refused: {0}")]
    Io(io::Error),
}

/// `EMFILE` and `ENFILE`: of the process, and of the machine.
const NO_DESCRIPTORS: [i32; 2] = [24, 23];

impl Error {
    /// Whether its message names nothing of the server that callers may not know.
    pub fn is_for_callers(&self) -> bool {
        matches!(self, Self::Container { .. })
    }
}

// Not derived: the message contains the cause already, so there is no source.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) if NO_DESCRIPTORS.contains(&code) => Self::Descriptors(error),
            _ => Self::Io(error),
        }
    }
}
