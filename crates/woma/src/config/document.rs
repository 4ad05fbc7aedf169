//! Documentation generated from the table of settings: the reference, and an example `.env`.

use std::fmt::Write as _;

use super::presets::{self, PRESETS};
use super::setting::{Alias, Allowed, Reading, Setting};
use super::settings::SETTINGS;

const WIDTH: usize = 98;

/// Text of docs/reference/configuration.md.
pub(crate) fn reference() -> String {
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

Settings come from six layers. A later layer overrides an earlier one:

1. defaults,
2. the preset,
3. the settings file: `--config FILE`, or `WOMA_CONFIG`, or `woma.toml` in the data folder,
4. the file `.env` in the working directory,
5. the environment,
6. flags; `--set NAME=VALUE` sets any setting.

`woma config show` prints each value and the layer it comes from. `woma config example` prints a file
`.env` with every variable.

- An invalid value in any layer keeps the server from starting. All errors are reported at once.
- The settings file is flat TOML: `port = 8080`. Unknown keys are errors. A relative path is relative to
  the folder of the file.
- An empty variable counts as unset. Unknown variables are ignored, because other programs use the same
  environment; unknown variables that begin with `WOMA_` are errors.
- Every variable also works with the prefix `WOMA_`: `WOMA_PORT` is `PORT`, and cannot be mistaken for
  another program's. If it is set, `PORT` is ignored in the same layer.
- If two names of one setting are set in one layer and differ, the first name in this list wins, with a
  warning.
- Settings that choose programs outside of the sandbox are not allowed in `.env`, because a downloaded
  folder may contain that file.
- A number without a unit counts the unit that `value` names. `500ms`, `30s`, `2m` and `1h` are times;
  `512k`, `256m` and `2g` are sizes, in powers of 1024.
- `default: not set` means that there is no fixed default; the text says what applies instead, if
  anything.
";

fn presets_section() -> String {
    let mut text = String::from("\n## Presets\n\n");
    text += "A preset changes only defaults and the list of tools. All names of tools, variables and paths \
             work with\nevery preset.\n";
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
    let default = match setting.default {
        "" => "not set".to_owned(),
        default => format!("`{default}`"),
    };
    writeln!(text, "- variable: {}", variables.join(", also ")).unwrap_or_default();
    writeln!(text, "- value: {}", setting.kind.expected()).unwrap_or_default();
    writeln!(text, "- default: {default}").unwrap_or_default();
    if let Some(note) = setting.effect.note() {
        writeln!(text, "- effect: {note}").unwrap_or_default();
    }
    match setting.allowed {
        Allowed::Everywhere => {}
        Allowed::NotInDotEnv => text += "- allowed: everywhere but in `.env`\n",
        Allowed::NotInFiles => text += "- allowed: in the environment or by a flag\n",
    }
    if setting.kind.is_secret() {
        writeln!(text, "- secret: never printed").unwrap_or_default();
    }
    text
}

/// Text of `.env.example`: every variable, commented out, with its default.
pub(crate) fn example() -> String {
    let mut text = String::from(
        "# All variables of woma, with their defaults. Copy this file to `.env` in the folder in which woma\n\
         # is started, and remove the `#` before the variables that you change. Variables of the\n\
         # environment override this file.\n\
         # Made by `woma config example`; `woma config reference` prints the reference.\n",
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
        about += " (not allowed in this file: set it in the environment or by a flag)";
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
                assert!(value.is_empty() || read.is_some(), "{}: {name} = {value}", preset.name);
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
