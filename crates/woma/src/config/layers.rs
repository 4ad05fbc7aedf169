//! Layers that settings come from, and the reader of flags. Settings are text here; only their
//! names are resolved.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use woma_core::Machine;

use super::problem::{Problem, nearest};
use super::setting::{Allowed, Setting};
use super::settings::{SETTINGS, find};
use super::value::{Value, quote};

pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// External input of a configuration. Not `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    pub(crate) flags: Flags,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The working directory, for `.env`.
    pub(crate) directory: PathBuf,
    pub(crate) reads_dot_env: bool,
    pub(crate) is_root: bool,
    pub(crate) machine: Machine,
}

/// Settings from the command line.
pub(crate) type Flags = Vec<Flag>;

#[derive(Clone)]
pub(crate) struct Flag {
    /// The name of a setting.
    pub(crate) name: String,
    pub(crate) value: String,
    /// The flag as written: `--port`.
    pub(crate) spelled: String,
}

impl fmt::Debug for Flag {
    /// Without the value, which may be a secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.spelled)
    }
}

/// Origin of a value; later variants take precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    Preset(&'static str),
    File { path: PathBuf, line: usize },
    DotEnv { path: PathBuf, line: usize, variable: String },
    Environment { variable: String },
    Flag { spelled: String },
}

impl Origin {
    /// Precedence of the layer.
    pub(crate) fn layer(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Preset(_) => 1,
            Self::File { .. } => 2,
            Self::DotEnv { .. } => 3,
            Self::Environment { .. } => 4,
            Self::Flag { .. } => 5,
        }
    }

    /// Whether the operator set it.
    pub(crate) fn is_explicit(&self) -> bool {
        self.layer() > 1
    }

    pub(super) fn is_allowed(&self, allowed: Allowed) -> bool {
        match self {
            Self::DotEnv { .. } => allowed == Allowed::Everywhere,
            Self::File { .. } => allowed != Allowed::NotInFiles,
            _ => true,
        }
    }

    /// The location, for messages that already name the setting.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::DotEnv { path, line, .. } => format!("{}:{line}", path.display()),
            Self::Environment { .. } => "environment".to_owned(),
            Self::Flag { .. } => "command line".to_owned(),
            other => other.to_string(),
        }
    }

    pub(crate) fn variable(&self) -> Option<&str> {
        match self {
            Self::DotEnv { variable, .. } | Self::Environment { variable } => Some(variable),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::Preset(name) => write!(formatter, "preset {name}"),
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::DotEnv { path, line, variable } => {
                write!(formatter, "{}:{line} {variable}", path.display())
            }
            Self::Environment { variable } => write!(formatter, "environment {variable}"),
            Self::Flag { spelled } => write!(formatter, "flag {spelled}"),
        }
    }
}

/// Unparsed text of one setting. Not `Debug`: the text may be a secret.
pub(super) struct RawSetting {
    pub(super) setting: &'static Setting,
    pub(super) text: String,
    /// The name that was used.
    pub(super) spelled: String,
    pub(super) origin: Origin,
}

/// A setting with the value that won.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) setting: &'static Setting,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

pub(super) fn flags(flags: &Flags, given: &mut Vec<RawSetting>, problems: &mut Vec<Problem>) {
    for Flag { name, value, spelled } in flags {
        let origin = Origin::Flag { spelled: spelled.clone() };
        match find(name) {
            // `--api-key "$KEY"` with an empty variable must not start an open server.
            Some(setting) if value.trim().is_empty() => problems.push(Problem::BadValue {
                spelled: spelled.clone(),
                origin,
                value: "empty".to_owned(),
                expected: setting.kind.expected(),
            }),
            Some(setting) => {
                let (text, spelled) = (value.clone(), spelled.clone());
                given.push(RawSetting { setting, text, spelled, origin });
            }
            None => problems.push(Problem::UnknownFlag {
                flag: spelled.clone(),
                name: name.clone(),
                nearest: nearest_name(name),
            }),
        }
    }
}

/// Suggestion for an unknown name; names of variables count too.
pub(super) fn nearest_name(wanted: &str) -> Option<String> {
    let variable = wanted.to_ascii_uppercase();
    let by_variable =
        SETTINGS.iter().find(|setting| setting.variables().any(|(known, _)| known == variable));
    let name = by_variable.map(|setting| setting.name);
    let dashes = wanted.replace('-', "_");
    name.or_else(|| nearest(&dashes, SETTINGS.iter().map(|setting| setting.name)))
        .map(str::to_owned)
}

/// The value for a message; secrets are not repeated.
pub(super) fn tell(setting: &Setting, text: &str) -> String {
    if setting.kind.is_secret() { "not usable (it is not shown)".to_owned() } else { quote(text) }
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > bytes_max {
        let message = format!("it is larger than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// The number of the line at an offset.
pub(super) fn line_of(text: &str, offset: Option<usize>) -> usize {
    let before = text.get(..offset.unwrap_or_default()).unwrap_or_default();
    before.matches('\n').count() + 1
}
