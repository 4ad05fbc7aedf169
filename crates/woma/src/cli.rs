//! The command line: what can be asked for, and who answers it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Data;
use crate::terminal::fail;
use crate::{bench, config, doctor, env, keys, run, serve};

/// A Python that AI agents can be trusted with: live, sandboxed sessions in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "woma", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) data: DataOptions,
    #[command(subcommand)]
    command: Command,
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
    /// Run Python code in a sandbox; output is streamed, the exit status is the program's
    Run(run::Options),
    /// Tell which walls stand on this machine, which do not, and how to get them
    Doctor(doctor::Options),
    /// Make, list, inspect and remove Python environments
    #[command(subcommand)]
    Env(env::Command),
use crate::{bench, config, doctor, env, keys, run, serve};
    /// Measure the promised numbers on this machine
    Bench(bench::Options),
}

pub(crate) fn dispatch(cli: Cli) -> ExitCode {
    let data = match Data::new(&cli.data) {
        Ok(data) => data,
        Err(error) => return fail(&*error, None),
    };
    match cli.command {
        Command::Serve(options) => serve::main(&data, &options),
        Command::Run(options) => run::main(&data, &options),
        Command::Doctor(options) => doctor::main(&data, &options),
        Command::Env(command) => env::main(&data, command),
use crate::{bench, config, doctor, env, keys, run, serve};
        Command::Bench(options) => bench::main(&data, &options),
    }
}
