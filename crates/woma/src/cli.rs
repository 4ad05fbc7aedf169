//! The command line: what can be asked for, and who answers it.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::Data;
use crate::config::flags::SettingOptions;
use crate::terminal::{fail, print};
use crate::{
    audit, bench, check, config, doctor, env, keys, openapi, run, serve, stdio, telemetry,
};

/// A Python that AI agents can be trusted with: live, sandboxed sessions in milliseconds.
///
/// Without a command, and with standard input not a terminal, MCP is spoken on standard input and
/// output, as clients that start their servers themselves expect.
#[derive(Debug, Parser)]
#[command(name = "woma", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) data: DataOptions,
    /// Serve over HTTP instead of standard input and output, as `woma serve` does
    #[arg(long)]
    sse: bool,
    /// Speak MCP on standard input and output, as `woma stdio` does
    #[arg(long, conflicts_with = "sse")]
    stdio: bool,
    #[command(flatten)]
    settings: SettingOptions,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DataOptions {
    /// Where environments and files are kept [default: `$WOMA_DATA_DIR`, else /var/lib/woma for root
    /// and ~/.local/share/woma for everybody else]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// A Python environment to use instead of the default one: a name that `woma env list` shows,
    /// or the path of a virtual environment, a prefix or an interpreter
    #[arg(long, global = true, value_name = "PATH|NAME")]
    pub(crate) env: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP and REST over HTTP
    Serve(serve::Options),
    /// Speak MCP on standard input and output
    Stdio(stdio::Options),
    /// Run Python code in a sandbox; output is streamed, the exit status is the program's
    Run(run::Options),
    /// Check Python code against the server's rules without running it
    Check(check::Options),
    /// Tell which walls stand on this machine, which do not, and how to get them
    Doctor(doctor::Options),
    /// Make, list, inspect and remove Python environments
    #[command(subcommand)]
    Env(env::Command),
    /// Make, list and revoke the keys that clients of the server present
    #[command(subcommand)]
    Keys(keys::Command),
    /// Tell who did what on this machine's server
    Audit(audit::Options),
    /// Show the configuration, its reference, and an example
    #[command(subcommand)]
    Config(config::Command),
    /// Measure the promised numbers on this machine
    Bench(bench::Options),
    /// Print the OpenAPI document of the REST routes
    #[command(hide = true)]
    Openapi,
}

pub(crate) fn dispatch(cli: Cli) -> ExitCode {
    let Cli { data: options, sse, stdio, settings, command } = cli;
    let command = match command {
        Some(command) => command,
        None if sse => Command::Serve(serve::Options { settings, ..serve::Options::default() }),
        None if stdio || settings.print_config || !std::io::stdin().is_terminal() => {
            Command::Stdio(stdio::Options { settings })
        }
        None => {
            print(&Cli::command().render_help().to_string());
            return ExitCode::from(2);
        }
    };
    // These read the whole configuration, which says how to log.
    match &command {
        Command::Serve(given) => return serve::main(&options, given),
        Command::Stdio(given) => return stdio::main(&options, given),
        Command::Config(given) => return config::main(&options, given),
        Command::Check(given) => return check::main(&options, given),
        Command::Audit(given) => return audit::main(&options, given),
        Command::Openapi => {
            print(&openapi::text());
            return ExitCode::SUCCESS;
        }
        _ => telemetry::start_quietly(),
    }
    let data = match Data::new(&options) {
        Ok(data) => data,
        Err(error) => return fail(&*error, None),
    };
    match command {
        Command::Run(options) => run::main(&data, &options),
        Command::Doctor(options) => doctor::main(&data, &options),
        Command::Env(command) => env::main(&data, command),
        Command::Keys(command) => keys::main(&data, command),
        Command::Bench(options) => bench::main(&data, &options),
        Command::Serve(_)
        | Command::Stdio(_)
        | Command::Check(_)
        | Command::Audit(_)
        | Command::Config(_)
        | Command::Openapi => ExitCode::FAILURE,
    }
}
