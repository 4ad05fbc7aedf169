//! The command line: arguments, and one file for each subcommand. Calls `server`, `bench`, `http`
//! (the OpenAPI document) and everything below; no other room may know it.

mod audit;
mod check;
mod config;
mod doctor;
mod env;
mod import;
mod jobs;
mod keys;
mod pages;
mod remote;
mod run;

use std::error::Error;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::{CommandFactory, Parser, Subcommand};

use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::{Data, is_colour_wanted};
use crate::server::{serve, stdio, telemetry};
use crate::terminal::{fail, print};
use crate::{bench, http};

/// Exit status of an invalid command line.
const BAD_USAGE: u8 = 2;

/// A Python that AI agents can be trusted with: live, sandboxed sessions in milliseconds.
///
/// Without a command, and if standard input is not a terminal, it serves MCP on standard input and
/// output, as clients that start their own servers expect.
#[derive(Debug, Parser)]
#[command(name = "woma", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) data: DataOptions,
    /// Serve over HTTP instead of standard input and output, as `woma serve` does
    #[arg(long)]
    sse: bool,
    /// Serve MCP on standard input and output, as `woma stdio` does
    #[arg(long, conflicts_with = "sse")]
    stdio: bool,
    #[command(flatten)]
    settings: SettingOptions,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP and REST over HTTP
    Serve(serve::Options),
    /// Serve MCP on standard input and output
    Stdio(stdio::Options),
    /// Run Python code in a sandbox; output is streamed, the exit status is the program's
    Run(run::Options),
    /// Check Python code against the server's rules without running it
    Check(check::Options),
    /// Show which isolation layers this machine enforces, and how to enable the others
    Doctor(doctor::Options),
    /// Create, list, inspect and remove Python environments
    #[command(subcommand)]
    Env(env::Command),
    /// Create, list and revoke the API keys of the server, or of one elsewhere
    Keys(Box<keys::Options>),
    /// Show the audit trail of this machine's server
    Audit(Box<audit::Options>),
    /// List, show, cancel, submit and await jobs of this machine's server, or of one elsewhere
    Jobs(Box<jobs::Options>),
    /// List, show and delete sessions of a server
    Sessions(Box<remote::sessions::Options>),
    /// List, upload, download and delete files of a server's sessions
    Files(Box<remote::files::Options>),
    /// Take over sessions, files and download links of an earlier system
    #[command(subcommand)]
    Import(import::Command),
    /// Show the configuration, its reference, and an example
    #[command(subcommand)]
    Config(config::Command),
    /// Measure the promised numbers on this machine
    Bench(bench::Options),
    /// Print the completions of a shell, such as `woma completions bash`
    Completions(pages::Completions),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(pages::Man),
    /// Print the OpenAPI document of the REST routes
    #[command(hide = true)]
    Openapi,
}

impl Command {
    /// Adds the options that were given before the command. A command that does not use them
    /// refuses them: a key or a preset must not be dropped in silence.
    fn take_earlier(
        &mut self,
        earlier: SettingOptions,
        sse: bool,
        stdio: bool,
    ) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Serve(_) if stdio => return Err(other_transport("--stdio", "woma serve")),
            Self::Stdio(_) if sse => return Err(other_transport("--sse", "woma stdio")),
            Self::Serve(_) | Self::Stdio(_) => {}
            _ if sse => return Err(not_a_server("--sse")),
            _ if stdio => return Err(not_a_server("--stdio")),
            _ => {}
        }
        let settings = match self {
            Self::Serve(options) => &mut options.settings,
            Self::Stdio(options) => &mut options.settings,
            Self::Check(options) => &mut options.settings,
            Self::Import(import::Command::PowerInterpreter(options)) => &mut options.settings,
            Self::Audit(options) => options.settings_mut(),
            Self::Jobs(options) => &mut options.settings,
            Self::Env(env::Command::Freeze(options)) => &mut options.settings,
            Self::Config(config::Command::Show(options)) => &mut options.settings,
            _ => {
                return match earlier.first() {
                    Some(spelled) => Err(not_a_server(&spelled)),
                    None => Ok(()),
                };
            }
        };
        *settings = earlier.followed_by(std::mem::take(settings))?;
        Ok(())
    }
}

fn other_transport(flag: &str, command: &str) -> Box<dyn Error> {
    format!("{flag} contradicts `{command}`: leave one of them out").into()
}

fn not_a_server(flag: &str) -> Box<dyn Error> {
    format!("{flag} has no effect on this command: leave it out (`woma help` lists the commands)")
        .into()
}

/// Prints the help or the version that was asked for, or says why the arguments are invalid.
pub(crate) fn help_or_refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        error.exit();
    }
    print_styled(&error.render());
    ExitCode::SUCCESS
}

/// Prints text in colours at a terminal, unless `NO_COLOR` is set.
fn print_styled(text: &StyledStr) {
    let is_coloured = std::io::stdout().is_terminal() && is_colour_wanted();
    print(&if is_coloured { text.ansi().to_string() } else { text.to_string() });
}

pub(crate) fn dispatch(cli: Cli) -> ExitCode {
    let Cli { data: data_options, sse, stdio, settings, command } = cli;
    let command = match command {
        Some(mut command) => match command.take_earlier(settings, sse, stdio) {
            Ok(()) => command,
            Err(error) => return fail(&*error, None),
        },
        None if sse => Command::Serve(serve::Options { settings, ..serve::Options::default() }),
        None if stdio || settings.print_config || !std::io::stdin().is_terminal() => {
            Command::Stdio(stdio::Options { settings })
        }
        None => {
            print_styled(&Cli::command().render_help());
            return ExitCode::from(BAD_USAGE);
        }
    };
    // These read the whole configuration, which includes logging.
    match &command {
        Command::Serve(options) => return serve::main(&data_options, options),
        Command::Stdio(options) => return stdio::main(&data_options, options),
        Command::Config(command) => return config::main(&data_options, command),
        Command::Check(options) => return check::main(&data_options, options),
        Command::Audit(options) => return audit::main(&data_options, options),
        Command::Jobs(options) => return jobs::main(&data_options, options),
        Command::Sessions(options) => return remote::sessions::main(&data_options, options),
        Command::Files(options) => return remote::files::main(&data_options, options),
        Command::Import(command) => return import::main(&data_options, command),
        Command::Completions(options) => return pages::completions(options),
        Command::Man(options) => return pages::man(options),
        Command::Openapi => {
            print(&http::openapi::text());
            return ExitCode::SUCCESS;
        }
        Command::Keys(options) => match options.elsewhere(&data_options) {
            Ok(None) => telemetry::start_quietly(),
            Ok(Some(client)) => return keys::on(&client, &options.command),
            Err(error) => return fail(&error, None),
        },
        Command::Env(command) => match command.configured(&data_options) {
            Some(code) => return code,
            None => telemetry::start_quietly(),
        },
        _ => telemetry::start_quietly(),
    }
    let data = match Data::new(&data_options) {
        Ok(data) => data,
        Err(error) => return fail(&*error, None),
    };
    match command {
        Command::Run(options) => run::main(&data, &options),
        Command::Doctor(options) => doctor::main(&data, &data_options, &options),
        Command::Env(command) => env::main(&data, command),
        Command::Keys(options) => keys::main(&data, options.command),
        Command::Bench(options) => bench::main(&data, &options),
        Command::Serve(_)
        | Command::Stdio(_)
        | Command::Check(_)
        | Command::Audit(_)
        | Command::Jobs(_)
        | Command::Sessions(_)
        | Command::Files(_)
        | Command::Import(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Openapi => ExitCode::FAILURE,
    }
}
