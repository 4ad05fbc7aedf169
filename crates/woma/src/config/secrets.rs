//! The file of the operator's secrets: read once, with the configuration, while root can still read
//! what others must not.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use woma_core::{NewSecret, OperatorSecrets};

/// Longest file of secrets, and longest file of one value.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;
const VALUE_BYTES_MAX: u64 = 8 * 1024;

/// One secret. Its name is that of its table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    value: Option<String>,
    file: Option<PathBuf>,
    variable: Option<String>,
    hosts: Vec<String>,
    #[serde(default)]
    places: Vec<String>,
    callers: Option<Vec<String>>,
}

/// Sources of values: the folder of relative paths, and the environment.
pub(super) struct Place<'a> {
    pub(super) directory: &'a Path,
    pub(super) environment: &'a [(OsString, OsString)],
}

/// Reads the text of the file. No message has a value or a line of the text.
pub(super) fn read(text: &str, place: &Place<'_>) -> Result<OperatorSecrets, String> {
    let written: BTreeMap<String, Written> = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(text, span.start));
        format!("line {line}: {}", shape_of(&error))
    })?;
    let mut secrets = Vec::new();
    for (name, one) in written {
        let value = place.value(&one).map_err(|reason| format!("`{name}`: {reason}"))?;
        let Written { hosts, places, callers, .. } = one;
        secrets.push((NewSecret { name, value, hosts, places }, callers));
    }
    OperatorSecrets::new(secrets).map_err(|error| error.to_string())
}

/// The fault in the shape of a file. Messages of the parser may repeat what it has read.
fn shape_of(error: &toml::de::Error) -> &'static str {
    let message = error.message();
    if message.starts_with("unknown field") {
        "this field is not one of value, file, variable, hosts, places, callers"
    } else if message.starts_with("missing field") {
        "a secret needs `hosts`"
    } else {
        "this is not a table of secrets: each is [NAME] with value, file or variable, and hosts"
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

impl Place<'_> {
    fn value(&self, one: &Written) -> Result<String, String> {
        match (&one.value, &one.file, &one.variable) {
            (Some(value), None, None) => Ok(value.clone()),
            (None, Some(file), None) => {
                let path = self.directory.join(file);
                let read = super::layers::read_bounded(&path, VALUE_BYTES_MAX);
                let text = read.map_err(|error| format!("{}: {error}", path.display()))?;
                Ok(text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r').to_owned())
            }
            (None, None, Some(name)) => {
                let found = self.environment.iter().find(|(known, _)| known == name.as_str());
                let value = found.and_then(|(_, value)| value.to_str());
                value.map(str::to_owned).ok_or_else(|| format!("the variable {name} is not set"))
            }
            _ => Err("give it one of value, file and variable".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(text: &str) -> Result<OperatorSecrets, String> {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("token"), "from-a-file\n").unwrap();
        let environment = [("TOKEN".into(), "from-a-variable".into())];
        read(text, &Place { directory: folder.path(), environment: &environment })
    }

    #[test]
    fn a_value_has_one_source() {
        for source in ["value = 'in-the-text'", "file = 'token'", "variable = 'TOKEN'"] {
            let text = format!("[KEY]\n{source}\nhosts = ['a.test']\ncallers = ['team']\n");
            tried(&text).unwrap();
        }
        for (source, part) in [
            ("", "one of value"),
            ("value = 'in-the-text'\nfile = 'token'", "one of value"),
            ("file = 'absent'", "absent: No such file"),
            ("variable = 'ABSENT'", "ABSENT is not set"),
            ("value = 'short'", "8 to 4096 bytes"),
        ] {
            let error = tried(&format!("[KEY]\n{source}\nhosts = ['a.test']\n")).unwrap_err();
            assert!(error.contains("KEY") && error.contains(part), "{source}: {error}");
        }
    }

    #[test]
    fn no_message_repeats_the_text() {
        for (text, part) in [
            ("KEY = 'a-secret-value'", "line 1: this is not a table"),
            ("[KEY]\nvalue = 'a-secret-value'", "needs `hosts`"),
            ("[KEY]\nvalue = 'a-secret-value'\nhosts = 'a.test'", "line 3"),
            ("[KEY]\nvalues = 'a-secret-value'\nhosts = []", "not one of"),
            ("[KEY]\nvalue = 'a-secret-value\nhosts = []", "line 2"),
            ("[KEY]\nhosts = []\na-secret-value = 1", "not one of"),
        ] {
            let error = tried(text).unwrap_err();
            assert!(error.contains(part) && !error.contains("secret-value"), "{text}: {error}");
        }
    }
}
