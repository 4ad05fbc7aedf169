//! Settings in variables: the environment of the process, and the file `.env`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::layers::{FILE_BYTES_MAX, Origin, RawSetting, is_absent, line_of, read_bounded};
use super::problem::{Problem, nearest};
use super::remote::URL_VARIABLE;
use super::setting::{Reading, Setting};
use super::settings::SETTINGS;

const NOT_READ_MAX: usize = 100;

/// The environment of the process.
pub(super) fn environment(
    variables: &[(OsString, OsString)],
    given: &mut Vec<RawSetting>,
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
pub(super) fn dot_env(
    folder: &Path,
    given: &mut Vec<RawSetting>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) {
    let path = folder.join(".env");
    let text = match read_bounded(&path, FILE_BYTES_MAX) {
        Ok(text) => text,
        // A folder named `.env` is usually a virtual environment.
        Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::IsADirectory => return,
        Err(cause) => {
            let message = format!("it cannot be read: {cause}");
            problems.push(Problem::BadFile { path, line: 1, message });
            return;
        }
    };
    let mut known = BTreeMap::new();
    let mut not_read = BTreeSet::new();
    for item in dotenvy::from_read_iter(text.trim_start_matches('\u{feff}').as_bytes()) {
        match item {
            Ok((name, value)) if is_ours(&name) => {
                let line = line_of_variable(&text, &name);
                known.insert(name, (value, line));
            }
            Err(dotenvy::Error::LineParse(told, _)) => {
                not_read.insert(told);
            }
            Ok(_) | Err(_) => {}
        }
    }
    if not_read.len() > NOT_READ_MAX {
        let message = format!("more than {NOT_READ_MAX} lines are not of the form NAME=value");
        problems.push(Problem::BadFile { path, line: 1, message });
        return;
    }
    for told in not_read {
        let bad = bad_lines(&path, &text, &told);
        bad.map_or_else(|warning| warnings.push(warning), |bad| problems.push(bad));
    }
    let origin = |variable: &str, line| {
        let variable = variable.to_owned();
        Origin::DotEnv { path: path.clone(), line, variable }
    };
    from_variables(&known, origin, given, problems);
}

/// Handles a line that cannot be parsed: an error if it names a setting of woma, else a warning.
/// The text may hold a secret and is not repeated. The parser reports a line, a value, or
/// everything after an open quote, so every candidate line is checked.
fn bad_lines(path: &Path, text: &str, told: &str) -> Result<Problem, String> {
    let names_ours = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line);
        is_ours(line.split('=').next().unwrap_or_default().trim())
    };
    let beginning = |start: usize| text[..start].rfind('\n').map_or(0, |end| end + 1);
    let found = |(start, found): &(usize, &str)| {
        text[beginning(*start)..start + found.len()].lines().any(names_ours)
    };
    let message = "this is not of the form NAME=value; a value with spaces needs quotes".to_owned();
    if let Some((start, _)) = text.match_indices(told).find(found) {
        let line = line_of(text, Some(beginning(start)));
        return Ok(Problem::BadFile { path: path.to_owned(), line, message });
    }
    let line = line_of(text, text.find(told));
    Err(format!("{}:{line} is ignored: {message}", path.display()))
}

/// Reads the variables of one layer. If the name with the prefix `WOMA_` is set, the plain name and
/// its aliases are ignored.
fn from_variables(
    known: &BTreeMap<String, (String, usize)>,
    origin: impl Fn(&str, usize) -> Origin,
    given: &mut Vec<RawSetting>,
    problems: &mut Vec<Problem>,
) {
    let read = |variable: &str| known.get(variable).filter(|(text, _)| !text.trim().is_empty());
    let mut add = |setting, variable: &str, reading: Reading| {
        let Some((text, line)) = read(variable) else { return false };
        if is_service_link(variable, text) {
            return false;
        }
        let (text, spelled) = (reading.apply(text), variable.to_owned());
        given.push(RawSetting { setting, text, spelled, origin: origin(variable, *line) });
        true
    };
    for setting in SETTINGS {
        let mut plain = setting.variables().filter(|(name, _)| !name.starts_with("WOMA_"));
        let ours = plain.find(|(name, reading)| add(setting, &format!("WOMA_{name}"), *reading));
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

/// Whether a variable belongs to woma: known, or with the prefix `WOMA_`.
fn is_ours(name: &str) -> bool {
    name.starts_with("WOMA_") || is_known(name)
}

/// Whether a variable is known, with or without the prefix `WOMA_`.
fn is_known(name: &str) -> bool {
    let exempt = ["WOMA_LOG", URL_VARIABLE].contains(&name);
    let tests = ["WOMA_TEST_", "WOMA_BENCH_"].iter().any(|prefix| name.starts_with(prefix));
    let plain = name.strip_prefix("WOMA_").unwrap_or(name);
    let mut variables = SETTINGS.iter().flat_map(Setting::variables);
    exempt || tests || variables.any(|(known, _)| known == name || known == plain)
}

/// Whether Kubernetes has set the variable for a service named `woma…`.
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

/// The last line that sets a variable, which is the one in force.
fn line_of_variable(text: &str, name: &str) -> usize {
    let sets = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("export").map_or(line, str::trim_start);
        line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let found = text.lines().enumerate().filter(|(_, line)| sets(line)).last();
    found.map_or(1, |(index, _)| index + 1)
}

fn nearest_variable(wanted: &str) -> Option<String> {
    let plain = wanted.strip_prefix("WOMA_").unwrap_or(wanted);
    let variables = SETTINGS.iter().flat_map(Setting::variables).map(|(variable, _)| variable);
    let plainly = variables.map(|variable| variable.strip_prefix("WOMA_").unwrap_or(variable));
    nearest(plain, plainly).map(|variable| format!("WOMA_{variable}"))
}
