//! The documentation of the settings, made from the table: a reference and an example of `.env`.

use std::fmt::Write as _;

use super::presets::{self, PRESETS};
use super::setting::{Alias, Allowed, Reading, Setting};
use super::settings::SETTINGS;

const WIDTH: usize = 98;

/// docs/reference/configuration.md.
pub(super) fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    text += &presets_section();
    for group in groups() {
        write!(text, "\n## {group}\n").unwrap_or_default();
        for setting in SETTINGS.iter().filter(|setting| setting.group == group) {
            text += &reference_entry(setting);
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Made by `woma config reference`; a test compares the two. -->

Settings come from six places. A later one wins over an earlier one:

1. defaults,
2. the preset,
3. the settings file: `--config FILE`, or `WOMA_CONFIG`, or `woma.toml` in the data folder,
4. the file `.env` in the working directory,
5. the environment,
6. flags; `--set NAME=VALUE` sets anything.

`woma config show` prints each value with the place it comes from. `woma config example` prints a
file `.env` with every variable.

- A value that cannot be used keeps the server from starting, wherever it stands. All of them are told
  at once.
- The settings file is flat TOML: `port = 8080`. A key that does not exist is refused. A relative path
  is relative to the file's folder.
- An empty variable counts as unset. Variables that are not in this list are ignored, because other
  programs have theirs in the same place, unless they begin with `WOMA_`.
- Before every variable `WOMA_` may be written: `WOMA_PORT` is `PORT` and cannot be mistaken for
  another program's. Where it is set, `PORT` is not looked at in the same place.
- Where two names of one setting are set in one place and differ, the first name in this list wins, and
  a warning says so.
- What chooses the programs that run outside of the sandbox cannot stand in `.env`: a folder that came
  from elsewhere may hold one.
- A plain number counts the unit that is told. `500ms`, `30s`, `2m`, `1h` are times; `512k`, `256m`,
  `2g` are sizes, by powers of 1024.
";

fn presets_section() -> String {
    let mut text = String::from("\n## Presets\n\n");
    text += "A preset changes defaults and the tools that are listed, nothing else. All names of tools, \
             variables and\npaths work with every preset.\n";
    for preset in PRESETS {
        write!(text, "\n### `{}`\n\n{}\n", preset.name, preset.about).unwrap_or_default();
        if !preset.values.is_empty() {
            text += "\n| setting | value |\n|---|---|\n";
        }
        for (name, value) in preset.values {
            let value = value.replace(',', ", ");
            writeln!(text, "| `{name}` | {value} |").unwrap_or_default();
        }
    }
    text
}

fn reference_entry(setting: &Setting) -> String {
    let mut text = format!("\n### `{}`\n\n{}\n\n", setting.name, wrap(&about(setting), ""));
    let variables: Vec<String> = setting.variables().map(|(name, _)| format!("`{name}`")).collect();
    let default = if setting.default.is_empty() { "none" } else { setting.default };
    let default = if setting.default.is_empty() { default.into() } else { format!("`{default}`") };
    writeln!(text, "- variable: {}", variables.join(", also ")).unwrap_or_default();
    writeln!(text, "- value: {}", setting.kind.expected()).unwrap_or_default();
    writeln!(text, "- default: {default}").unwrap_or_default();
    if let Some(note) = setting.effect.note() {
        writeln!(text, "- effect: {note}").unwrap_or_default();
    }
    match setting.allowed {
        Allowed::Everywhere => {}
        Allowed::NotInDotEnv => text += "- place: not in `.env`\n",
        Allowed::NotInFiles => text += "- place: the environment, or a flag\n",
    }
    if setting.kind.is_secret() {
        writeln!(text, "- secret: never printed").unwrap_or_default();
    }
    text
}

/// `.env.example`: every variable, commented out, with what holds without it.
pub(super) fn example() -> String {
    let mut text = String::from(
        "# Every variable that woma reads, with its default. Copy this file to `.env` in the folder that\n\
         # woma is started in, and take away the `#` before what you want to change. A variable of the\n\
         # environment wins over this file.\n\
         # Made by `woma config example`; `woma config reference` tells more.\n",
    );
    writeln!(text, "# Presets: {}.", presets::NAMES.join(", ")).unwrap_or_default();
    for group in groups() {
        let line = "-".repeat(WIDTH - group.len() - 3);
        write!(text, "\n# {group} {line}\n").unwrap_or_default();
        for setting in SETTINGS.iter().filter(|setting| setting.group == group) {
            text += &example_entry(setting);
        }
    }
    text
}

fn example_entry(setting: &Setting) -> String {
    let mut about = about(setting);
    if setting.allowed != Allowed::Everywhere {
        about += " (not in this file: in the environment, or by a flag)";
    }
    if let Some(note) = setting.effect.note() {
        about = format!("{about} ({note})");
    }
    let mut text = format!("\n{}\n", wrap(&about, "# "));
    text += &wrap(&format!("Value: {}.", setting.kind.expected()), "# ");
    writeln!(text, "\n#{}={}", setting.variable, in_quotes(setting.default)).unwrap_or_default();
    for Alias(variable, reading) in setting.aliases {
        let value = match reading {
            Reading::Same => in_quotes(setting.default),
            // An example in the alias's own unit.
            Reading::Characters => "10000".to_owned(),
            Reading::HttpsHost => String::new(),
        };
        writeln!(text, "#{variable}={value}").unwrap_or_default();
    }
    text
}

fn in_quotes(value: &str) -> String {
    if value.contains(' ') { format!("\"{value}\"") } else { value.to_owned() }
}

fn about(setting: &Setting) -> String {
    setting.about.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = SETTINGS.iter().map(|setting| setting.group).collect();
    groups.dedup();
    groups
}

fn wrap(text: &str, prefix: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let length = lines.last().map_or(0, |line| line.chars().count());
        if length > 0 && prefix.len() + length + 1 + word.chars().count() > WIDTH {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("{prefix}{line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_name_settings_that_exist() {
        for preset in PRESETS {
            for (name, value) in preset.values {
                let setting = crate::config::settings::find(name)
                    .unwrap_or_else(|| panic!("{}: {name}", preset.name));
                let read = crate::config::value::parse(setting.kind, value);
                assert!(read.is_some(), "{}: {name} = {value}", preset.name);
            }
        }
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        assert_eq!(names, presets::NAMES);
    }

    #[test]
    fn long_sentences_are_wrapped() {
        let text = wrap(&"word ".repeat(60), "# ");
        assert!(text.lines().count() > 2);
        assert!(text.lines().all(|line| line.starts_with("# ") && line.len() <= WIDTH));
    }
}
