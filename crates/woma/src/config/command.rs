//! `woma config`: what is set, where it comes from, and what could be.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::flags::SettingOptions;
use super::layers::Resolved;
use super::setting::Effect;
use super::{Config, document};
use crate::cli::DataOptions;
use crate::terminal::{fail, print, tell};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print every setting with its value and where it comes from; secrets are not printed
    Show(Box<ShowOptions>),
    /// Print the reference of all settings, in Markdown
    Reference,
    /// Print a file `.env` that names every variable, with its default
    Example,
}

#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    /// Print JSON: times in seconds, sizes in bytes
    #[arg(long)]
    json: bool,
    /// Print also what is unset and has no effect
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    settings: SettingOptions,
}

pub(crate) fn main(data: &DataOptions, command: &Command) -> ExitCode {
    match command {
        Command::Show(options) => match Config::load(&options.settings.flags(data)) {
            Ok(config) => {
                config.warnings.iter().for_each(|warning| tell(&format!("woma: {warning}")));
                print(&show(&config, options.json, options.all));
                ExitCode::SUCCESS
            }
            Err(problems) => fail(&problems, Some("`woma config reference` tells what can be set")),
        },
        Command::Reference => {
            print(&document::reference());
            ExitCode::SUCCESS
        }
        Command::Example => {
            print(&document::example());
            ExitCode::SUCCESS
        }
    }
}

/// The configuration for people, or for programs.
pub(crate) fn show(config: &Config, json: bool, all: bool) -> String {
    // A default that changes nothing is noise.
    let is_wanted =
        |one: &&Resolved| all || one.setting.effect == Effect::Now || one.origin.layer() > 0;
    let wanted: Vec<&Resolved> = config.origins().iter().filter(is_wanted).collect();
    if json { as_json(config, &wanted) } else { as_table(&wanted) }
}

fn as_table(wanted: &[&Resolved]) -> String {
    let width = |column: fn(&Resolved) -> String| {
        wanted.iter().map(|one| column(one).chars().count()).max().unwrap_or_default().min(40)
    };
    let (names, values) = (width(|one| one.setting.name.to_owned()), width(|one| one.value.show()));
    let mut text = String::new();
    for one in wanted {
        let (name, value) = (one.setting.name, one.value.show());
        let note = one.setting.effect.note().map(|note| format!("  ({note})")).unwrap_or_default();
        // Writing to a String cannot fail.
        writeln!(text, "{name:<names$}  {value:<values$}  {}{note}", one.origin)
            .unwrap_or_default();
    }
    text
}

fn as_json(config: &Config, wanted: &[&Resolved]) -> String {
    let settings: Vec<serde_json::Value> = wanted
        .iter()
        .map(|one| {
            json!({
                "name": one.setting.name,
                "variable": one.setting.variable,
                "value": one.value.json(),
                "origin": one.origin.to_string(),
                "secret": one.setting.kind.is_secret(),
                "effect": match one.setting.effect {
                    Effect::Now => "now",
                    Effect::Later => "later",
                    Effect::Never => "never",
                },
            })
        })
        .collect();
    let whole = json!({ "settings": settings, "warnings": config.warnings });
    format!("{whole:#}\n")
}
