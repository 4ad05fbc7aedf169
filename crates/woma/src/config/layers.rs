//! The places where settings come from, read as text. Nothing is decided here but which text was
//! meant for which setting.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::problem::{Problem, nearest};
use super::setting::{Reading, Setting};
use super::settings::{SETTINGS, find};
use super::value::{Kind, Value, quote};

/// Everything outside of the program that a configuration depends on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    pub(crate) flags: Flags,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The working directory, for `.env`.
    pub(crate) directory: PathBuf,
    pub(crate) is_root: bool,
}

/// What was said on the command line.
pub(crate) type Flags = Vec<Flag>;

#[derive(Debug, Clone)]
pub(crate) struct Flag {
    /// The name of a setting.
    pub(crate) name: String,
    pub(crate) value: String,
    /// As the flag is spelled: `--port`.
    pub(crate) spelled: String,
}

/// Where a value comes from; later variants win over earlier ones.
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
    /// The layer's place in the order of precedence.
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

    /// Whether the operator wrote it, rather than we.
    pub(crate) fn is_explicit(&self) -> bool {
        self.layer() > 1
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

/// One text that was meant for one setting.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) setting: &'static Setting,
    pub(super) text: String,
    /// The name under which it was given.
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

pub(super) fn flags(flags: &Flags, given: &mut Vec<Given>, problems: &mut Vec<Problem>) {
    for Flag { name, value, spelled } in flags {
        let origin = Origin::Flag { spelled: spelled.clone() };
        match find(name) {
            // `--api-key "$KEY"` with an empty variable must not open the server.
            Some(setting) if value.trim().is_empty() => problems.push(Problem::BadValue {
                spelled: spelled.clone(),
                origin,
                value: "empty".to_owned(),
                expected: setting.kind.expected(),
            }),
            Some(setting) => {
                let (text, spelled) = (value.clone(), spelled.clone());
                given.push(Given { setting, text, spelled, origin });
            }
            None => problems.push(Problem::UnknownFlag {
                flag: spelled.clone(),
                name: name.clone(),
                nearest: nearest_name(name),
            }),
        }
    }
}

/// The environment of the process.
pub(super) fn environment(
    variables: &[(OsString, OsString)],
    given: &mut Vec<Given>,
    problems: &mut Vec<Problem>,
) {
    let mut known = BTreeMap::new();
    for (name, value) in variables {
        let Some(name) = name.to_str() else { continue };
        match value.to_str() {
            Some(value) => {
                known.insert(name.to_owned(), (value.to_owned(), 0));
            }
            None if is_known(name) => problems.push(Problem::BadValue {
                spelled: name.to_owned(),
                origin: Origin::Environment { variable: name.to_owned() },
                value: "not UTF-8".to_owned(),
                expected: "text".to_owned(),
            }),
            None => {}
        }
    }
    let origin = |variable: &str, _| Origin::Environment { variable: variable.to_owned() };
    from_variables(&known, origin, given, problems);
}

/// The file `.env` of a folder, if it is there.
pub(super) fn dot_env(folder: &Path, given: &mut Vec<Given>, problems: &mut Vec<Problem>) {
    let path = folder.join(".env");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(cause) => {
            let variable = String::new();
            let origin = Origin::DotEnv { path: path.clone(), line: 1, variable };
            problems.push(Problem::Unreadable { path, origin, cause });
            return;
        }
    };
    let mut known = BTreeMap::new();
    for item in dotenvy::from_read_iter(text.trim_start_matches('\u{feff}').as_bytes()) {
        match item {
            Ok((name, value)) => {
                let line = line_of_variable(&text, &name);
                known.insert(name, (value, line));
            }
            // The line itself may hold a secret and is not repeated.
            Err(error) => {
                let line = match &error {
                    dotenvy::Error::LineParse(line, _) => line_of(&text, text.find(line.as_str())),
                    _ => 1,
                };
                let message = "this line is not of the form NAME=value".to_owned();
                problems.push(Problem::BadFile { path: path.clone(), line, message });
            }
        }
    }
    let origin = |variable: &str, line| {
        let variable = variable.to_owned();
        Origin::DotEnv { path: path.clone(), line, variable }
    };
    from_variables(&known, origin, given, problems);
}

/// Variables of one layer. With `WOMA_` before it, a name that other programs use too is ours
/// alone: the plain name and its aliases are then not looked at.
fn from_variables(
    known: &BTreeMap<String, (String, usize)>,
    origin: impl Fn(&str, usize) -> Origin,
    given: &mut Vec<Given>,
    problems: &mut Vec<Problem>,
) {
    let read = |variable: &str| known.get(variable).filter(|(text, _)| !text.trim().is_empty());
    let mut add = |setting, variable: &str, reading: Reading| {
        let Some((text, line)) = read(variable) else { return false };
        if is_service_link(variable, text) {
            return false;
        }
        let (text, spelled) = (reading.apply(text), variable.to_owned());
        given.push(Given { setting, text, spelled, origin: origin(variable, *line) });
        true
    };
    for setting in SETTINGS {
        let ours = setting
            .variables()
            .find(|(variable, reading)| add(setting, &format!("WOMA_{variable}"), *reading));
        if ours.is_none() {
            for (variable, reading) in setting.variables() {
                add(setting, variable, reading);
            }
        }
    }
    for (name, (text, line)) in known {
        if name.starts_with("WOMA_") && !is_known(name) && !is_service_link(name, text) {
            let nearest = nearest_variable(name);
            let origin = origin(name, *line);
            problems.push(Problem::UnknownVariable { name: name.clone(), origin, nearest });
        }
    }
}

/// Whether a variable is one of ours, `WOMA_` before it or not.
fn is_known(name: &str) -> bool {
    let exempt = name == "WOMA_LOG";
    let tests = ["WOMA_TEST_", "WOMA_BENCH_"].iter().any(|prefix| name.starts_with(prefix));
    let plain = name.strip_prefix("WOMA_").unwrap_or(name);
    let mut variables = SETTINGS.iter().flat_map(Setting::variables);
    exempt || tests || variables.any(|(variable, _)| variable == name || variable == plain)
}

/// Kubernetes tells every pod of a service called `woma…` by variables that begin like ours.
fn is_service_link(name: &str, text: &str) -> bool {
    let url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| text.starts_with(scheme));
    let of_service = name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT");
    let of_port = name.split_once("_PORT_").is_some_and(|(_, rest)| {
        let mut parts = rest.split('_');
        let number = parts.next().is_some_and(|part| part.parse::<u16>().is_ok());
        number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    });
    name.starts_with("WOMA_") && (of_service || of_port || (name.ends_with("_PORT") && url))
}

/// The settings file.
pub(super) fn file(path: &Path, text: &str, given: &mut Vec<Given>, problems: &mut Vec<Problem>) {
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            // The error's own text would repeat the line, and with it perhaps a secret.
            let line = line_of(text, error.span().map(|span| span.start));
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            problems.push(Problem::BadFile { path: path.to_owned(), line, message });
            return;
        }
    };
    for (key, value) in &table {
        let line = line_of(text, Some(key.span().start));
        let name = key.get_ref().as_ref();
        let path = path.to_owned();
        let Some(setting) = find(name) else {
            let (key, nearest) = (name.to_owned(), nearest_name(name));
            problems.push(Problem::UnknownKey { path, line, key, nearest });
            continue;
        };
        if !setting.in_file {
            let (key, variable) = (name.to_owned(), setting.variable);
            problems.push(Problem::NotInFile { path, line, key, variable });
            continue;
        }
        let origin = Origin::File { path: path.clone(), line };
        let spelled = name.to_owned();
        match toml_text(value.get_ref()) {
            Some(text) if text.is_empty() => {}
            Some(text) => {
                let text = relative_to(&path, setting.kind, text);
                given.push(Given { setting, text, spelled, origin });
            }
            None => problems.push(Problem::BadValue {
                spelled,
                origin,
                value: format!("a TOML {}", value.get_ref().type_str()),
                expected: setting.kind.expected(),
            }),
        }
    }
}

/// A value as the one parser reads it; a list in its JSON form, so that no item is cut at a comma.
fn toml_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(items) => {
            let items: Option<Vec<&str>> =
                items.iter().map(|item| item.get_ref().as_str()).collect();
            serde_json::to_string(&items?).ok()
        }
        DeValue::Integer(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// A path in the file is relative to the file's folder: the server's own folder may be any.
fn relative_to(file: &Path, kind: Kind, text: String) -> String {
    let is_path = match kind {
        Kind::Path => true,
        Kind::UrlOrPath => !text.contains("://"),
        _ => false,
    };
    match file.parent().map(|folder| folder.join(&text)) {
        Some(joined) if is_path => joined.to_str().map_or(text, str::to_owned),
        _ => text,
    }
}

fn line_of(text: &str, offset: Option<usize>) -> usize {
    let before = text.get(..offset.unwrap_or_default()).unwrap_or_default();
    before.matches('\n').count() + 1
}

/// The last line that sets a variable, because the last one counts.
fn line_of_variable(text: &str, name: &str) -> usize {
    let sets = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("export").map_or(line, str::trim_start);
        line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let found = text.lines().enumerate().filter(|(_, line)| sets(line)).last();
    found.map_or(1, |(index, _)| index + 1)
}

/// A setting's name that may have been meant; the names of variables are understood too.
fn nearest_name(wanted: &str) -> Option<String> {
    let variable = wanted.to_ascii_uppercase();
    let by_variable =
        SETTINGS.iter().find(|setting| setting.variables().any(|(known, _)| known == variable));
    let name = by_variable.map(|setting| setting.name);
    let dashes = wanted.replace('-', "_");
    name.or_else(|| nearest(&dashes, SETTINGS.iter().map(|setting| setting.name)))
        .map(str::to_owned)
}

fn nearest_variable(wanted: &str) -> Option<String> {
    let plain = wanted.strip_prefix("WOMA_").unwrap_or(wanted);
    let variables = SETTINGS.iter().flat_map(Setting::variables).map(|(variable, _)| variable);
    let plainly = variables.map(|variable| variable.strip_prefix("WOMA_").unwrap_or(variable));
    nearest(plain, plainly).map(|variable| format!("WOMA_{variable}"))
}

/// The value as a message may repeat it.
pub(super) fn tell(setting: &Setting, text: &str) -> String {
    if setting.secret { "not usable (it is not shown)".to_owned() } else { quote(text) }
}
