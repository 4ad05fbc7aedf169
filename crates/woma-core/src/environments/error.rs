//! What can go wrong with an environment: one sentence each, and where there is one, the way out.

use std::io;
use std::path::PathBuf;

use super::Version;

/// Why an environment could not be made, found, inspected or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name could escape its folder, or would read badly in one.
    #[error(
        "`{0}` cannot name an environment: begin with a-z or 0-9 and use at most 64 of \
         a-z, 0-9, `.`, `_` and `-`"
    )]
    Name(String),
    /// `default` and `default-…` belong to the environment that Woma makes by itself.
    #[error("`{0}` is a name that Woma keeps for its default environment")]
    ReservedName(String),
    /// `create` never replaces what is there.
    #[error("environment `{0}` already exists")]
    Exists(String),
    /// No environment of that name is in the data directory.
    #[error("there is no environment `{0}`")]
    Unknown(String),
    /// Another process creates or removes it at this moment.
    #[error("environment `{0}` is being created or removed by another process")]
    Busy(String),
    /// Its record is unreadable, or its interpreter is gone.
    #[error("environment `{0}` is broken: `woma env remove {0}` and create it again")]
    Broken(String),
    /// Nothing can be kept there.
    #[error("the data directory `{path}` cannot be written")]
    DataDirectory {
        /// The folder that refused.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No interpreter at all, or none that fits.
    #[error(
        "no CPython 3.10 to 3.14 was found (tried {tried}): install `python3` or name one with \
         `--python`"
    )]
    NoPython {
        /// Each candidate and why it was passed over.
        tried: String,
    },
    /// The interpreter or environment the operator named is not there.
    #[error("`{0}` does not exist")]
    Missing(PathBuf),
    /// A folder without an interpreter in it.
    #[error("`{0}` is not a Python environment: it has no `bin/python`")]
    NotAnEnvironment(PathBuf),
    /// The usual end of a virtual environment whose interpreter was uninstalled.
    #[error("`{link}` points at a Python that is gone: create the environment again")]
    Dangling {
        /// The link that leads nowhere.
        link: PathBuf,
    },
    /// It is there, but it is no working Python.
    #[error("`{python}` does not start as Python: {reason}")]
    NotStarting {
        /// What was run.
        python: PathBuf,
        /// The last thing it said, or why it could not be run.
        reason: String,
    },
    /// A Python, but not one we can use.
    #[error("`{python}` is {implementation} {version}; Woma needs CPython 3.10 or newer")]
    Unsupported {
        /// What was run.
        python: PathBuf,
        /// `CPython`, `PyPy`, …
        implementation: String,
        /// The version it reports.
        version: Version,
    },
    /// The kernel is built on that shell.
    #[error(
        "IPython is not installed in `{prefix}`: `uv pip install --python {python} ipython` adds it"
    )]
    NoIpython {
        /// The environment.
        prefix: PathBuf,
        /// Its interpreter.
        python: PathBuf,
    },
    /// Neither the installer nor a way to fetch it.
    #[error(
        "`uv` is not installed and no Python here has pip to fetch it: \
         install `uv` or `python3-pip`"
    )]
    NoUv,
    /// A child process of ours ended badly.
    #[error("{doing} failed: {reason}")]
    Step {
        /// Which step, as the subject of a sentence.
        doing: &'static str,
        /// What the program said.
        reason: String,
    },
    /// `--wheelhouse` must name a folder.
    #[error("the wheelhouse `{0}` is not a directory")]
    Wheelhouse(PathBuf),
    /// A lock of the operator's own that cannot be read.
    #[error("the requirements `{path}` cannot be read")]
    Requirements {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file system refused in the middle of something.
    #[error("cannot {doing} `{path}`")]
    Io {
        /// A verb: `rename`, `read`, …
        doing: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: names the deed and the path that the kernel's own message leaves out.
    pub(super) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
