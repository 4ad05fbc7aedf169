//! Packages of sessions: requests to change them, and replies.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::SessionId;

/// The packages of a session, besides those of its environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageSet {
    /// Digest of the layer that has their files.
    pub layer: String,
    /// By name.
    pub packages: Vec<SessionPackage>,
}

/// A package of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPackage {
    pub name: String,
    pub version: String,
    /// SHA-256 of the file that it was installed from, in hexadecimal; `None` if it was built from
    /// source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Version of the environment's package that it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

impl SessionPackage {
    /// `name==version`.
    pub fn pin(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// Change of a session's packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "options of pip")]
pub struct PackageChange {
    pub action: PackageAction,
    /// Names with their versions, as for pip. Several may be in one text.
    pub requirements: Vec<String>,
    /// Installs the latest version, also of what is installed.
    pub upgrade: bool,
    /// Allows versions before a release.
    pub pre: bool,
    pub reinstall: bool,
    /// Installs no dependencies.
    pub no_deps: bool,
    /// Versions that packages must have if they are installed at all.
    pub constraints: Vec<String>,
    /// Time limit, at most the server's.
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PackageAction {
    #[default]
    Install,
    Uninstall,
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageReport {
    pub session: SessionId,
    pub installed: Vec<SessionPackage>,
    pub removed: Vec<SessionPackage>,
    /// Requirements that were met already, with the version that meets them.
    pub satisfied: Vec<(String, String)>,
    /// Names to remove that the session does not have.
    pub absent: Vec<String>,
    /// For the user.
    pub notes: Vec<String>,
    pub took: Duration,
}

/// All packages of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageList {
    pub environment: Vec<(String, String)>,
    pub session: Vec<SessionPackage>,
}

/// Failure of a change of packages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PackageError {
    pub problem: PackageProblem,
    pub message: String,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageProblem {
    /// This server installs nothing.
    Off,
    BadName,
    Blocked,
    TooMany,
    TooLarge,
    TimedOut,
    /// The installer found no solution.
    NoSolution,
    /// The index failed, or sent something else than it had announced.
    Index,
    Installer,
}

impl PackageError {
    pub(crate) fn new(problem: PackageProblem, message: impl Into<String>) -> Self {
        Self { problem, message: message.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
