//! A step that failed: which one, and what the kernel said. Building a jail is a list of steps, and
//! the operator needs to know at which one it ended.

use std::io;

/// `step: reason`, and nothing else: the steps of the jail have no other way to fail.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(crate) struct Failure {
    pub(crate) step: String,
    pub(crate) source: io::Error,
}

/// Names the step that a result belongs to.
pub(crate) fn step<T, E: Into<io::Error>>(
    name: impl Into<String>,
    result: Result<T, E>,
) -> Result<T, Failure> {
    result.map_err(|source| Failure { step: name.into(), source: source.into() })
}
