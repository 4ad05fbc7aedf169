//! What can go wrong with a request, as opposed to what happens to the code in it.

use crate::environments;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the code is empty")]
    EmptyCode,
    #[error("the code has {bytes} bytes; the limit is {limit_bytes}")]
    CodeTooLong { bytes: usize, limit_bytes: usize },
    #[error(transparent)]
    Environment(#[from] environments::Error),
    #[error(transparent)]
    Sandbox(#[from] woma_sandbox::Error),
}

impl Error {
    /// The way out, where there is one that the message does not name already.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::CodeTooLong { .. } => {
                Some("send smaller parts, or put data into a file of the session".to_owned())
            }
            Self::Sandbox(woma_sandbox::Error::Build { step, reason }) => {
                woma_sandbox::doctor::hint(step, reason)
            }
            Self::Sandbox(woma_sandbox::Error::Python { .. }) => Some(
                "`woma env info` shows the environment; `woma env create` makes one".to_owned(),
            ),
            _ => None,
        }
    }
}
