//! Why a sandbox or a cell could not be had. What happens to code inside a cell is never an error
//! here: that is an [`Exit`](crate::Exit).

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine lacks something; `woma doctor` says what.
    #[error("the sandbox cannot be built here: {step}: {reason}")]
    Build { step: String, reason: String },
    #[error("the Python environment does not start: {reason}")]
    Python { reason: String },
    #[error("a session could not be opened: {step}: {reason}")]
    Open { step: String, reason: String },
    #[error("a session was not contained and has been ended: {what}")]
    Unproven { what: String },
    #[error("the folder {} cannot be a workspace: {reason}", path.display())]
    Workspace { path: PathBuf, reason: String },
    #[error("the sandbox has been shut down")]
    ShutDown,
    #[error("the operating system refused: {0}")]
    Io(io::Error),
}

// By hand, not by derive: the message holds the cause already, so it is no source.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
