//! The words of this room: an environment, how to make one, and how far that has come.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Error, Package};

/// Told of each step while an environment is made.
pub type Report<'a> = dyn FnMut(Progress) + 'a;

/// Three numbers, as in 3.12.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version(pub u8, pub u8, pub u8);

/// An interpreter with packages, and all that a sandbox must know to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// What to execute, spelled so that Python finds its packages.
    pub python: PathBuf,
    /// Where the packages are.
    pub prefix: PathBuf,
    /// Where the interpreter and its standard library are.
    pub base_prefix: PathBuf,
    /// The interpreter's version.
    pub version: Version,
    /// The folders to show, read-only and each at its own path, beside `/usr` and its links.
    pub mounts: Vec<PathBuf>,
    /// The folders that hold installed packages.
    pub package_folders: Vec<PathBuf>,
    /// What we remember of an environment that we made; none for one that the operator named.
    pub managed: Option<Managed>,
}

/// The record of an environment that we made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Managed {
    /// Its folder in the data directory.
    pub name: String,
    /// SHA-256 of the lock it was made from.
    pub lock_digest: String,
    /// Seconds since 1970.
    pub created_unix: u64,
    /// How many packages were installed.
    pub packages: usize,
    /// The installer that made it.
    pub uv_version: String,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its folder in the data directory.
    pub name: String,
    /// None when it is broken: its record is unreadable or its interpreter gone.
    pub environment: Option<Environment>,
    /// A default environment that no start will choose any more.
    pub stale: bool,
}

/// An environment with what it takes some reading to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Where it is and what it needs.
    pub environment: Environment,
    /// What is installed.
    pub packages: Vec<Package>,
    /// The room it takes.
    pub bytes_on_disk: u64,
}

/// How an environment is to be made.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// The interpreter to build on: a path, or a name on the search path. None: the first suitable.
    pub python: Option<PathBuf>,
    /// A folder of wheels to install from, instead of an index.
    pub wheelhouse: Option<PathBuf>,
    /// The operator's `PATH`.
    pub search_path: OsString,
    /// Interpreters to prefer over those on the search path.
    pub system_pythons: Vec<PathBuf>,
}

/// One step of making an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Interpreters are being tried.
    LookingForPython,
    /// This one it is.
    Found {
        /// The real file of the interpreter.
        python: PathBuf,
        /// Its version.
        version: Version,
    },
    /// Another process makes the same thing; we wait for it.
    WaitingForOther,
    /// The installer is being fetched.
    InstallingUv,
    /// An empty environment is being made.
    CreatingVenv,
    /// Packages are being installed; the installer's latest line, or nothing yet.
    Installing(String),
    /// Python is compiling every module.
    CompilingBytecode,
    /// It is there.
    Done {
        /// From the first step to the last.
        took: Duration,
    },
}

impl CreateOptions {
    /// The first suitable interpreter, the system's own before others; packages from the index.
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

    /// The wheelhouse, spelled so that it holds from any folder.
    pub(super) fn wheelhouse_checked(&self) -> Result<Option<PathBuf>, Error> {
        let Some(named) = &self.wheelhouse else { return Ok(None) };
        let path = std::path::absolute(named).ok().filter(|path| path.is_dir());
        path.map(Some).ok_or_else(|| Error::Wheelhouse(named.clone()))
    }
}

impl Version {
    /// The folder of a standard library, `python3.12`: what a series shares.
    pub(super) fn library(self) -> String {
        format!("python{}.{}", self.0, self.1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.0, self.1, self.2)
    }
}
