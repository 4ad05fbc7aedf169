//! Words after an error: what to write instead, where that is known.
//!
//! The words are data (`data/hints.toml`), and every entry carries the error that it is for. A hint
//! changes nothing: it is read by whoever wrote the code.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// What is known of an error that ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorFacts<'a> {
    /// The class, with or without its module; empty where a run had no error, but warnings.
    pub name: &'a str,
    pub message: &'a str,
    /// The line of the program that raised it.
    pub line: Option<&'a str>,
    pub traceback: &'a [String],
    pub stderr: &'a str,
}

/// One or two sentences that help, if there are any.
pub fn hint(error: &ErrorFacts<'_>) -> Option<String> {
    let class = error.name.rsplit('.').next().unwrap_or_default();
    let of_table = TABLES.hints.iter().find_map(|entry| entry.answer(class, error));
    of_table.or_else(|| match class {
        "NameError" => missing_import(error),
        "ModuleNotFoundError" | "ImportError" => missing_module(error.message),
        _ => None,
    })
}

/// The distribution that brings a module, where the two have different names.
pub fn distribution(module: &str) -> Option<&'static str> {
    let mut name = module;
    loop {
        if let Some(distribution) = TABLES.distributions.get(name) {
            return Some(distribution.as_str());
        }
        name = name.rsplit_once('.')?.0;
    }
}

/// What a star may stand for: a name, not a text.
const CAPTURE_BYTES_MAX: usize = 120;

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::read);

#[derive(Debug, Default)]
struct Tables {
    hints: Vec<Entry>,
    imports: BTreeMap<String, String>,
    distributions: BTreeMap<String, String>,
    modules: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hints {
    imports: BTreeMap<String, String>,
    hint: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Distributions {
    /// Names that are often written wrong; each is its own distribution.
    modules: Vec<String>,
    distributions: BTreeMap<String, String>,
}

impl Tables {
    /// The files are part of the program; a test reads them, so that here nothing can be wrong.
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

/// One row of the table. All that it names must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Class names without their modules; none for any.
    #[serde(default)]
    when: Vec<String>,
    /// Patterns of which one must be in the message; `*` is anything, and `{1}` in the hint is it.
    #[serde(default)]
    message: Vec<String>,
    /// Texts of which one must be in the line.
    #[serde(default)]
    line: Vec<String>,
    /// Texts of which one must be in the traceback.
    #[serde(default)]
    traceback: Vec<String>,
    /// Texts of which one must be in what was written to stderr.
    #[serde(default)]
    stderr: Vec<String>,
    hint: String,
    /// An error that this row is for; the test of the row.
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

impl Entry {
    fn answer(&self, class: &str, error: &ErrorFacts<'_>) -> Option<String> {
        let is_class = self.when.is_empty() || self.when.iter().any(|name| name == class);
        let line = error.line.unwrap_or_default();
        let is_here = is_class
            && has_any(&self.line, |text| line.contains(text))
            && has_any(&self.stderr, |text| error.stderr.contains(text))
            && has_any(&self.traceback, |text| {
                error.traceback.iter().any(|line| line.contains(text))
            });
        if !is_here {
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

/// What the stars of a pattern stand for, if it is somewhere in the text. Stars take the least.
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

/// A well-known name that was used without its import.
fn missing_import(error: &ErrorFacts<'_>) -> Option<String> {
    let name = captures("name '*' is not defined", error.message)?.first().copied()?;
    let import = TABLES.imports.get(name)?;
    // A variable may have the name of a module; only what is used like one is one.
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

/// The distribution of a module, or the module that was meant.
fn missing_module(message: &str) -> Option<String> {
    let module = captures("No module named '*'", message)?.first().copied()?;
    // With a module that is there, only what is below it is missing: no package brings that.
    if let Some(distribution) = TABLES.distributions.get(module) {
        return Some(format!(
            "The module `{module}` comes with the package `{distribution}`, which is not installed."
        ));
    }
    let known = TABLES.modules.iter().chain(TABLES.distributions.keys());
    let near = known.map(String::as_str).find(|known| is_near(module, known))?;
    Some(format!("There is no module `{module}`; `{near}` has almost that name."))
}

/// Whether two names differ by one letter: missing, added, another one, or swapped with its neighbour.
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
    fn the_files_are_read() {
        let hints = toml::from_str::<Hints>(include_str!("data/hints.toml"));
        assert!(hints.is_ok(), "{hints:?}");
        let names = toml::from_str::<Distributions>(include_str!("data/distributions.toml"));
        assert!(names.is_ok(), "{names:?}");
        assert!(TABLES.hints.len() > 100 && TABLES.distributions.len() >= 120);
    }

    #[test]
    fn every_row_is_reached_by_its_example() {
        for (row, entry) in TABLES.hints.iter().enumerate() {
            let traceback = [entry.example.traceback.clone()];
            let error = ErrorFacts {
                name: &entry.example.name,
                message: &entry.example.message,
                line: entry.example.line.as_deref(),
                traceback: &traceback,
                stderr: &entry.example.stderr,
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
    fn names_that_were_not_imported_are_known() {
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
    fn modules_lead_to_their_distributions() {
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
    fn errors_without_a_word_have_none() {
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
    fn stars_take_the_least() {
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
