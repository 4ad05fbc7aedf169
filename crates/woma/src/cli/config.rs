//! `woma config`: the settings in force, their reference, and an example file.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::{Config, document, show};
use crate::terminal::{fail, print, tell};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print every setting with its value and origin; secrets are not printed
    Show(Box<ShowOptions>),
    /// Print the reference of all settings, in Markdown
    Reference,
    /// Print an example `.env` with every variable and its default
    Example,
}

#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    /// Print JSON: times in seconds, sizes in bytes
    #[arg(long)]
    json: bool,
    /// Also print settings that are unset or without effect
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    pub(super) settings: SettingOptions,
}

pub(crate) fn main(data: &DataOptions, command: &Command) -> ExitCode {
    match command {
        Command::Show(options) => match Config::load(&options.settings.flags(data)) {
            Ok(config) => {
                config.warnings.iter().for_each(|warning| tell(&format!("woma: {warning}")));
                print(&show::show(&config, options.json, options.all));
                ExitCode::SUCCESS
            }
            Err(problems) => fail(&problems, Some("`woma config reference` lists the settings")),
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
