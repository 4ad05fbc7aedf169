//! What can go wrong with a request, as opposed to what happens to the code in it.

use crate::environments;

/// What a caller would act on; each surface has its own status for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request itself is wrong.
    Invalid,
    /// The machine or its set-up cannot do it; the operator must act.
    Unavailable,
    /// Our own fault.
    Internal,
}

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
    pub fn code(&self) -> Code {
        match self {
            Self::EmptyCode
            | Self::CodeTooLong { .. }
            | Self::Sandbox(woma_sandbox::Error::Workspace { .. }) => Code::Invalid,
            Self::Environment(_)
            | Self::Sandbox(
                woma_sandbox::Error::Build { .. } | woma_sandbox::Error::Python { .. },
            ) => Code::Unavailable,
            Self::Sandbox(_) => Code::Internal,
        }
    }

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
