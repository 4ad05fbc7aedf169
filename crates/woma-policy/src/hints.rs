//! Hints after an error: what to write instead, where that is known.
//!
//! Hints are data (`data/hints.toml`), and every row has an example of its error. A hint changes
//! nothing: it is advice to the author of the code.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Facts about an error that ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorFacts<'a> {
    /// Class name, with or without its module; empty if the run had warnings but no error.
    pub name: &'a str,
    pub message: &'a str,
    /// The line of the program that raised it.
    pub line: Option<&'a str>,
    pub traceback: &'a [String],
    pub stderr: &'a str,
    /// Whether the session has a network.
    pub is_networked: bool,
}

/// Hint for an error, in one or two sentences.
pub fn hint(error: &ErrorFacts<'_>) -> Option<String> {
    let class = error.name.rsplit('.').next().unwrap_or_default();
    let of_table = TABLES.hints.iter().find_map(|entry| entry.answer(class, error));
    of_table.or_else(|| match class {
        "NameError" => missing_import(error),
        "ModuleNotFoundError" | "ImportError" => missing_module(error.message),
        _ => None,
    })
}

/// Distribution that contains a module, if its name differs.
pub fn distribution(module: &str) -> Option<&'static str> {
    let mut name = module;
    loop {
        if let Some(distribution) = TABLES.distributions.get(name) {
            return Some(distribution.as_str());
        }
        name = name.rsplit_once('.')?.0;
    }
}

/// Longest capture of a star: a name, not a text.
const CAPTURE_BYTES_MAX: usize = 120;

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::read);

#[derive(Debug, Default)]
struct Tables {
    hints: Vec<HintRow>,
    imports: BTreeMap<String, String>,
    distributions: BTreeMap<String, String>,
    modules: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hints {
    imports: BTreeMap<String, String>,
    hint: Vec<HintRow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Distributions {
    /// Names that are often misspelled; each is its own distribution.
    modules: Vec<String>,
    distributions: BTreeMap<String, String>,
}

impl Tables {
    /// The files are compiled in and checked by a test, so that reading cannot fail.
    fn read() -> Self {
        let hints: Option<Hints> = toml::from_str(include_str!("data/hints.toml")).ok();
        let names: Option<Distributions> =
            toml::from_str(include_str!("data/distributions.toml")).ok();
        let (hints, imports) = hints.map(|file| (file.hint, file.imports)).unwrap_or_default();
        let (modules, distributions) =
            names.map(|file| (file.modules, file.distributions)).unwrap_or_default();
        Self { hints, imports, distributions, modules }
    }
}

/// One row of the table. All its conditions must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HintRow {
    /// Class names without their modules; empty for any class.
    #[serde(default)]
    when: Vec<String>,
    /// Patterns, one of which must occur in the message; `*` matches anything, `{1}` in the hint is
    /// the first match.
    #[serde(default)]
    message: Vec<String>,
    /// Texts, one of which must occur in the line.
    #[serde(default)]
    line: Vec<String>,
    /// Texts, one of which must occur in the traceback.
    #[serde(default)]
    traceback: Vec<String>,
    /// Texts, one of which must occur in stderr.
    #[serde(default)]
    stderr: Vec<String>,
    /// Texts of which the error has none: with one of them it says as much as the hint.
    #[serde(default)]
    unless: Vec<String>,
    /// Whether it is for sessions without a network only.
    #[serde(default)]
    offline: bool,
    /// Whether it is for sessions with a network only.
    #[serde(default)]
    online: bool,
    hint: String,
    /// Example of an error for this row; used by the test of the table.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests"))]
    example: Example,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "read by the tests"))]
struct Example {
    #[serde(default)]
    name: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    line: Option<String>,
    #[serde(default)]
    traceback: String,
    #[serde(default)]
    stderr: String,
}

impl HintRow {
    fn answer(&self, class: &str, error: &ErrorFacts<'_>) -> Option<String> {
        let is_class = self.when.is_empty() || self.when.iter().any(|name| name == class);
        let line = error.line.unwrap_or_default();
        let is_here = is_class
            && has_any(&self.line, |text| line.contains(text))
            && has_any(&self.stderr, |text| error.stderr.contains(text))
            && has_any(&self.traceback, |text| {
                error.traceback.iter().any(|line| line.contains(text))
            });
        let is_said = |text: &String| {
            error.message.contains(text) || error.traceback.iter().any(|line| line.contains(text))
        };
        let is_elsewhere = if error.is_networked { self.offline } else { self.online };
        if !is_here || is_elsewhere || self.unless.iter().any(is_said) {
            return None;
        }
        if self.message.is_empty() {
            return Some(self.hint.clone());
        }
        let captures = self.message.iter().find_map(|pattern| captures(pattern, error.message))?;
        let mut hint = self.hint.clone();
        for (index, capture) in captures.iter().enumerate() {
            hint = hint.replace(&format!("{{{}}}", index + 1), capture);
        }
        Some(hint)
    }
}

fn has_any(texts: &[String], is_in: impl Fn(&str) -> bool) -> bool {
    texts.is_empty() || texts.iter().any(|text| is_in(text))
}

/// Captures of a pattern's stars, if it occurs in the text. Stars match as little as possible.
fn captures<'t>(pattern: &str, text: &'t str) -> Option<Vec<&'t str>> {
    let mut parts = pattern.split('*');
    let first = parts.next()?;
    let mut rest = text.get(text.find(first)? + first.len()..)?;
    let mut found = Vec::new();
    for part in parts {
        let end = match part.is_empty() {
            true => rest.find('\n').unwrap_or(rest.len()),
            false => rest.find(part)?,
        };
        found.push(rest.get(..end).filter(|found| found.len() <= CAPTURE_BYTES_MAX)?);
        rest = rest.get(end + part.len()..)?;
    }
    Some(found)
}

/// Hint for a well-known name that was used without its import.
fn missing_import(error: &ErrorFacts<'_>) -> Option<String> {
    let name = captures("name '*' is not defined", error.message)?.first().copied()?;
    let import = TABLES.imports.get(name)?;
    // A variable may have the name of a module; only a name used like a module counts.
    let is_used = |line: &str| {
        name.starts_with(char::is_uppercase)
            || line.contains(&format!("{name}."))
            || line.contains(&format!("{name}("))
            || line.contains(&format!("@{name}"))
    };
    if !error.line.is_none_or(is_used) {
        return None;
    }
    Some(format!("`{name}` was not imported: add `{import}`."))
}

/// Hint with the distribution of a missing module, or the module that was meant.
fn missing_module(message: &str) -> Option<String> {
    let module = captures("No module named '*'", message)?.first().copied()?;
    // If the parent module is installed, only a submodule is missing, which no package adds.
    if let Some(distribution) = TABLES.distributions.get(module) {
        return Some(format!(
            "The module `{module}` comes with the package `{distribution}`, which is not installed."
        ));
    }
    let known = TABLES.modules.iter().chain(TABLES.distributions.keys());
    let near = known.map(String::as_str).find(|known| is_near(module, known))?;
    Some(format!("There is no module `{module}`; `{near}` has almost that name."))
}

/// Whether two names differ by one letter: missing, added, replaced, or swapped with its neighbour.
fn is_near(written: &str, known: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (written.chars().collect(), known.chars().collect());
    if written == known || b.len() < 5 || a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    match (a, b) {
        ([first, second], [third, fourth]) => first == fourth && second == third,
        _ => a.len() <= 1 && b.len() <= 1,
    }
}

#[cfg(test)]
mod tests {
    //! Every row of the table is reached by its own example.

    use super::{Distributions, ErrorFacts, Hints, TABLES, captures, distribution, hint, is_near};

    #[test]
    fn the_data_files_parse() {
        let hints = toml::from_str::<Hints>(include_str!("data/hints.toml"));
        assert!(hints.is_ok(), "{hints:?}");
        let names = toml::from_str::<Distributions>(include_str!("data/distributions.toml"));
        assert!(names.is_ok(), "{names:?}");
        assert!(TABLES.hints.len() > 100 && TABLES.distributions.len() >= 120);
    }

    #[test]
    fn every_hint_is_given_for_its_example() {
        for (row, entry) in TABLES.hints.iter().enumerate() {
            let traceback = [entry.example.traceback.clone()];
            let error = ErrorFacts {
                name: &entry.example.name,
                message: &entry.example.message,
                line: entry.example.line.as_deref(),
                traceback: &traceback,
                stderr: &entry.example.stderr,
                is_networked: entry.online,
            };
            let class = error.name.rsplit('.').next().unwrap_or_default();
            let first = TABLES.hints.iter().position(|entry| entry.answer(class, &error).is_some());
            assert_eq!(first, Some(row), "the example of `{}`", entry.hint);
            let text = hint(&error).unwrap_or_default();
            assert!(!text.contains("{1}") && !text.contains("{2}"), "{text}");
            assert!(text.len() <= 240 && text.ends_with('.'), "{text}");
        }
    }

    fn said(name: &str, message: &str) -> String {
        hint(&ErrorFacts { name, message, ..ErrorFacts::default() }).unwrap_or_default()
    }

    #[test]
    fn only_a_session_without_a_network_is_told_that_it_has_none() {
        let message = "[Errno -2] Name or service not known";
        for (is_networked, is_told) in [(false, true), (true, false)] {
            let error =
                ErrorFacts { name: "gaierror", message, is_networked, ..ErrorFacts::default() };
            assert_eq!(hint(&error).is_some(), is_told);
        }
        let rows = TABLES.hints.iter().filter(|row| row.hint.contains("network is disabled"));
        assert!(rows.count() >= 3);
        let offline =
            |row: &super::HintRow| row.offline == row.hint.contains("network is disabled");
        assert!(TABLES.hints.iter().all(offline));
    }

    #[test]
    fn gives_no_hint_that_the_error_says_already() {
        let traceback = ["site-packages/pandas/core/indexes/base.py".to_owned()];
        let said = |message| {
            let error = ErrorFacts { name: "KeyError", message, ..ErrorFacts::default() };
            hint(&ErrorFacts { traceback: &traceback, ..error })
        };
        assert!(said("'total'").is_some());
        assert_eq!(said("'total'\nThe columns are: 'sum'"), None);
        let message = "unable to find column \"b\"; valid columns: [\"a\"]";
        let error = ErrorFacts { name: "ColumnNotFoundError", message, ..ErrorFacts::default() };
        assert_eq!(hint(&error), None);
    }

    #[test]
    fn hints_at_the_import_of_well_known_names() {
        assert_eq!(
            said("NameError", "name 'pd' is not defined"),
            "`pd` was not imported: add `import pandas as pd`."
        );
        assert_eq!(said("NameError", "name 'total' is not defined"), "");
        let of_line = |line| {
            let message = "name 'time' is not defined";
            hint(&ErrorFacts { name: "NameError", message, line, ..ErrorFacts::default() })
        };
        assert_eq!(of_line(Some("total = time * speed")), None);
        assert!(of_line(Some("begun = time.time()")).is_some());
    }

    #[test]
    fn hints_at_the_distribution_of_a_module() {
        assert_eq!(distribution("cv2"), Some("opencv-python-headless"));
        assert_eq!(distribution("google.protobuf.message"), Some("protobuf"));
        assert_eq!(distribution("pandas"), None);
        assert_eq!(
            said("ModuleNotFoundError", "No module named 'yaml'"),
            "The module `yaml` comes with the package `pyyaml`, which is not installed."
        );
        assert_eq!(
            said("ModuleNotFoundError", "No module named 'pandsa'"),
            "There is no module `pandsa`; `pandas` has almost that name."
        );
        assert_eq!(said("ModuleNotFoundError", "No module named 'my_own_thing'"), "");
        assert_eq!(said("ModuleNotFoundError", "No module named 'sklearn.thing'"), "");
    }

    #[test]
    fn gives_no_hint_for_other_errors() {
        for (name, message) in [
            ("EOFError", "EOF when reading a line"),
            ("ValueError", "that was wrong"),
            ("ZeroDivisionError", "division by zero"),
            ("KeyError", "'total'"),
            ("AttributeError", "'Thing' object has no attribute 'append'"),
            ("ConnectionError", "the user's own"),
            ("", ""),
        ] {
            assert_eq!(said(name, message), "", "{name}: {message}");
        }
    }

    #[test]
    fn stars_match_as_little_as_possible() {
        assert_eq!(captures("a '*' b '*'", "x a 'one' b 'two' c"), Some(vec!["one", "two"]));
        assert_eq!(captures("a *", "a rest\nmore"), Some(vec!["rest"]));
        assert_eq!(captures("a '*' z", "a 'one'"), None);
        assert_eq!(captures("plain", "so plain"), Some(vec![]));
    }

    #[test]
    fn near_names_differ_by_one_letter() {
        for (written, is) in [
            ("pandsa", true),
            ("panda", true),
            ("pandass", true),
            ("pindas", true),
            ("pandas", false),
            ("pnadsa", false),
            ("polars", false),
        ] {
            assert_eq!(is_near(written, "pandas"), is, "{written}");
        }
    }
}
