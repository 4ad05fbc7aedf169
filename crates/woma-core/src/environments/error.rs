//! Errors of environments: one sentence each, with the remedy if one is known.

use std::io;
use std::path::PathBuf;

use super::Version;

/// Failure to create, find, inspect or remove an environment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name could escape its folder.
    #[error(
        "`{0}` cannot name an environment: begin with a-z or 0-9 and use at most 64 of \
         a-z, 0-9, `.`, `_` and `-`"
    )]
    Name(String),
    /// `default` and `default-…` are reserved for the default environment.
    #[error("`{0}` is reserved for the default environment: choose another name")]
    ReservedName(String),
    /// `create` never replaces an environment.
    #[error("environment `{0}` already exists")]
    Exists(String),
    /// The data directory has no environment of that name.
    #[error("there is no environment `{0}`")]
    Unknown(String),
    /// Another process creates or removes it.
    #[error("environment `{0}` is being created or removed by another process")]
    Busy(String),
    /// Its record is unreadable, or its interpreter is missing.
    #[error(
        "environment `{0}` is broken: remove it with `woma env remove {0}` and create it again"
    )]
    Broken(String),
    /// The data directory is not writable.
    #[error("the data directory `{path}` cannot be written")]
    DataDirectory {
        /// The folder.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// No suitable interpreter.
    #[error(
        "no CPython 3.10 to 3.14 was found (tried {tried}): install `python3` or name one with \
         `--python`"
    )]
    NoPython {
        /// Each candidate with the reason of its rejection.
        tried: String,
    },
    /// The interpreter or environment that the operator named does not exist.
    #[error("`{0}` does not exist")]
    Missing(PathBuf),
    /// A folder without an interpreter.
    #[error("`{0}` is not a Python environment: it has no `bin/python`")]
    NotAnEnvironment(PathBuf),
    /// A virtual environment whose interpreter was uninstalled.
    #[error("`{link}` links to a Python that no longer exists: create the environment again")]
    Dangling {
        /// The dangling link.
        link: PathBuf,
    },
    /// The file exists but is not a working Python.
    #[error("`{python}` does not start as Python: {reason}")]
    NotStarting {
        /// The program that was run.
        python: PathBuf,
        /// Its last line of output, or the reason why it could not be run.
        reason: String,
    },
    /// A Python that is not supported.
    #[error("`{python}` is {implementation} {version}; Woma needs CPython 3.10 or newer")]
    Unsupported {
        /// The program that was run.
        python: PathBuf,
        /// `CPython`, `PyPy`, …
        implementation: String,
        /// The version it reports.
        version: Version,
    },
    /// The kernel needs IPython.
    #[error(
        "IPython is not installed in `{prefix}`: `uv pip install --python {python} ipython` adds it"
    )]
    NoIpython {
        /// The environment.
        prefix: PathBuf,
        /// Its interpreter.
        python: PathBuf,
    },
    /// The installer is missing and cannot be downloaded.
    #[error(
        "`uv` is not installed and no Python here has pip to download it: \
         install `uv` or `python3-pip`"
    )]
    NoUv,
    /// A child process failed.
    #[error("{doing} failed: {reason}")]
    Step {
        /// The step, as the subject of a sentence.
        doing: &'static str,
        /// Error message of the program.
        reason: String,
    },
    /// `--wheelhouse` must name a folder.
    #[error("the wheelhouse `{0}` is not a directory")]
    Wheelhouse(PathBuf),
    /// The operator's lock cannot be read.
    #[error("the requirements `{path}` cannot be read")]
    Requirements {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// A file operation failed.
    #[error("cannot {doing} `{path}`")]
    Io {
        /// A verb: `rename`, `read`, …
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: adds the operation and the path, which an I/O error does not contain.
    pub(super) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
