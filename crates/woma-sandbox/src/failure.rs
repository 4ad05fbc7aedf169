//! A failed step: its name and the kernel's error. Containment is built in a list of steps, and the
//! operator needs to know which one failed.

use std::io;

/// Name and cause of a failed step.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(crate) struct Failure {
    pub(crate) step: String,
    pub(crate) source: io::Error,
}

/// Attaches a step's name to the error of a result.
pub(crate) fn step<T, E: Into<io::Error>>(
    name: impl Into<String>,
    result: Result<T, E>,
) -> Result<T, Failure> {
    result.map_err(|source| Failure { step: name.into(), source: source.into() })
}
