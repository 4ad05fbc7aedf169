//! Errors of a configuration, all reported at once.

use std::fmt;
use std::io;
use std::path::PathBuf;

use woma_core::text::near::edits;

use super::layers::Origin;

/// All errors that keep the server from starting.
#[derive(Debug, thiserror::Error)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return only.fmt(formatter);
        }
        write!(formatter, "{} settings are wrong:", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(formatter, "\n  {problem}"))
    }
}

/// One error. Messages name the location, and never the value of a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{spelled} ({}) is {value}: expected {expected}", origin.place())]
    BadValue { spelled: String, origin: Origin, value: String, expected: String },
    #[error("{}:{line}: there is no setting `{key}`{}", path.display(), suggest(.nearest.as_deref()))]
    UnknownKey { path: PathBuf, line: usize, key: String, nearest: Option<String> },
    #[error("{spelled} cannot be set in {}: set it in the environment or by a flag", origin.place())]
    NotHere { spelled: String, origin: Origin },
    #[error("{name} ({}) is not a setting of woma{}", origin.place(), suggest(.nearest.as_deref()))]
    UnknownVariable { name: String, origin: Origin, nearest: Option<String> },
    #[error("{flag}: there is no setting `{name}`{}", suggest(.nearest.as_deref()))]
    UnknownFlag { flag: String, name: String, nearest: Option<String> },
    #[error("{}:{line}: {message}", path.display())]
    BadFile { path: PathBuf, line: usize, message: String },
    #[error("{} ({origin}) cannot be read: {cause}", path.display())]
    Unreadable { path: PathBuf, origin: Origin, cause: io::Error },
    #[error("{} ({origin}) must hold one key in one line of visible ASCII characters", path.display())]
    BadKeyFile { path: PathBuf, origin: Origin },
    #[error("{} ({origin}): {reason}", path.display())]
    BadSecrets { path: PathBuf, origin: Origin, reason: String },
    #[error("{first} and {second} are both set in one place ({}): keep one of them", origin.place())]
    TwoKeys { first: &'static str, second: &'static str, origin: Origin },
    #[error("{first} ({}) is {value}, more than {second} allows ({cap})", origin.place())]
    AboveCap {
        first: &'static str,
        origin: Origin,
        value: String,
        second: &'static str,
        cap: String,
    },
    #[error("{first} is set without {second}: set both or neither")]
    Incomplete { first: &'static str, second: &'static str },
    #[error("{first} needs {second}, which is not set")]
    Missing { first: &'static str, second: String },
    #[error("{variable} ({}) is plain HTTP to another machine: use https://, or set {other}=true", origin.place())]
    PlainHttp { variable: &'static str, other: &'static str, origin: Origin },
    #[error("{} is not owned by root: change its owner, or name it by --config", path.display())]
    NotRoots { path: PathBuf },
    #[error("neither HOME nor WOMA_DATA_DIR is set: use --data-dir DIR")]
    NoDataFolder,
    #[error(transparent)]
    Table(#[from] WrongKind),
}

/// Inconsistent table of settings: a bug, which a test rules out.
#[derive(Debug, thiserror::Error)]
#[error("the table of settings gives `{0}` a kind that its field cannot hold")]
pub(crate) struct WrongKind(pub(crate) &'static str);

fn suggest(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// The candidate with the fewest edits, if it is close enough.
pub(super) fn nearest<'a>(
    wanted: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let allowed = (wanted.chars().count() / 3).clamp(2, 4);
    let measured = candidates.map(|candidate| (edits(wanted, candidate), candidate));
    measured.filter(|(count, _)| *count <= allowed).min().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_close_names() {
        let names = ["port", "host", "max_kernels"];
        assert_eq!(nearest("max_kernel", names.into_iter()), Some("max_kernels"));
        assert_eq!(nearest("prot", names.into_iter()), Some("port"));
        assert_eq!(nearest("hosts", names.into_iter()), Some("host"));
        assert_eq!(nearest("colour", names.into_iter()), None);
    }
}
