//! The settings file: flat TOML.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::layers::{Origin, RawSetting, line_of, nearest_name};
use super::problem::Problem;
use super::settings::find;
use super::value::Kind;

/// The settings file.
pub(super) fn read(
    path: &Path,
    text: &str,
    given: &mut Vec<RawSetting>,
    problems: &mut Vec<Problem>,
) {
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            // The error's own text would repeat the line, which may hold a secret.
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
        let origin = Origin::File { path: path.clone(), line };
        let spelled = name.to_owned();
        match toml_text(value.get_ref()) {
            Some(text) if text.is_empty() => {}
            Some(text) => {
                let text = relative_to(&path, setting.kind, text);
                given.push(RawSetting { setting, text, spelled, origin });
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

/// A value as text for the parser; a list as JSON, so that commas in items survive.
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

/// Resolves a path relative to the settings file, not to the working directory.
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
