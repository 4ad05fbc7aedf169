//! The shell: one binary, several roles. The steward's role is answered before anything else, while
//! this process has one thread and no runtime.

mod arguments;
mod audit;
mod bench;
mod check;
mod cli;
mod config;
mod doctor;
mod doors;
mod env;
mod error;
mod files;
mod history;
mod http;
mod keys;
mod mcp;
mod openapi;
mod policies;
mod request;
mod run;
mod serve;
mod start;
mod stdio;
mod telemetry;
mod terminal;
mod units;
mod validation;
mod wire;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|role| role == woma_sandbox::steward::ROLE) {
        return woma_sandbox::steward::main();
    }
    cli::dispatch(cli::Cli::parse())
}
