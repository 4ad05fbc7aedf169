//! Data types: an environment, options to create one, and progress.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Error, Package};

/// Callback for each step of a creation.
pub type Report<'a> = dyn FnMut(Progress) + 'a;

/// Version of Python, such as 3.12.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version(pub u8, pub u8, pub u8);

/// Interpreter with packages, and everything a sandbox needs to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// Interpreter to execute, by the path from which Python finds its packages.
    pub python: PathBuf,
    /// Root of the environment.
    pub prefix: PathBuf,
    /// Root of the interpreter and its standard library.
    pub base_prefix: PathBuf,
    /// The interpreter's version.
    pub version: Version,
    /// Folders to mount read-only at the same path, besides `/usr` and its links.
    pub mounts: Vec<PathBuf>,
    /// Folders of installed packages.
    pub package_folders: Vec<PathBuf>,
    /// The installer, for sessions that install packages.
    pub installer: Option<PathBuf>,
    /// Record of an environment that Woma created; `None` for one that the operator named.
    pub managed: Option<Managed>,
}

/// Record of an environment that Woma created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Managed {
    /// Its folder in the data directory.
    pub name: String,
    /// SHA-256 of its lock.
    pub lock_digest: String,
    /// Creation time in seconds since 1970.
    pub created_unix: u64,
    /// Number of installed packages.
    pub packages: usize,
    /// Version of the installer.
    pub uv_version: String,
}

/// Entry of a list of environments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its folder in the data directory.
    pub name: String,
    /// `None` if it is broken: its record is unreadable or its interpreter is missing.
    pub environment: Option<Environment>,
    /// Whether it is a default environment of another lock.
    pub stale: bool,
}

/// Environment with details that are read from the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Info {
    /// The environment.
    pub environment: Environment,
    /// Installed packages.
    pub packages: Vec<Package>,
    /// Disk usage.
    pub bytes_on_disk: u64,
}

/// Contents of an environment to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// Those of the default environment.
    Default,
    /// A lock of the operator: requirements, each with its hashes.
    Lock(PathBuf),
    /// Requirements that are locked now, with IPython, which the kernel needs.
    Packages(Vec<String>),
}

/// Options to create an environment.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Interpreter: a path or a name on the search path. `None` selects the first suitable one.
    pub python: Option<PathBuf>,
    /// Folder of wheels to install from instead of an index.
    pub wheelhouse: Option<PathBuf>,
    /// The operator's `PATH`.
    pub search_path: OsString,
    /// Interpreters to prefer over those on the search path.
    pub system_pythons: Vec<PathBuf>,
}

/// Step of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Interpreters are probed.
    LookingForPython,
    /// An interpreter was selected.
    Found {
        /// Resolved path of the interpreter.
        python: PathBuf,
        /// Its version.
        version: Version,
    },
    /// Another process creates or removes the same environment.
    WaitingForOther,
    /// The installer is downloaded.
    InstallingUv,
    /// Requirements are locked.
    Locking,
    /// The empty environment is created.
    CreatingVenv,
    /// Packages are installed; the latest line of the installer, empty at first.
    Installing(String),
    /// Modules are compiled to bytecode.
    CompilingBytecode,
    /// The environment is ready.
    Done {
        /// Duration of the creation.
        took: Duration,
    },
}

impl CreateOptions {
    /// Defaults: the first suitable interpreter, the system's first; packages from the index.
    pub fn new(search_path: impl Into<OsString>) -> Self {
        Self {
            python: None,
            wheelhouse: None,
            search_path: search_path.into(),
            system_pythons: ["/usr/bin/python3", "/usr/local/bin/python3"]
                .map(PathBuf::from)
                .into(),
        }
    }

    /// Absolute path of the wheelhouse.
    pub(super) fn wheelhouse_checked(&self) -> Result<Option<PathBuf>, Error> {
        let Some(named) = &self.wheelhouse else { return Ok(None) };
        let path = std::path::absolute(named).ok().filter(|path| path.is_dir());
        path.map(Some).ok_or_else(|| Error::Wheelhouse(named.clone()))
    }
}

impl Version {
    /// Name of the folder of the standard library, such as `python3.12`.
    pub(super) fn library(self) -> String {
        format!("python{}.{}", self.0, self.1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.0, self.1, self.2)
    }
}
