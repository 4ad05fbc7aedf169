//! The binary and its roles. The roles of steward and keeper start first, while this process has
//! one thread and no runtime.

mod api;
mod bench;
mod cli;
mod config;
mod http;
mod mcp;
mod server;
mod terminal;
mod units;

use std::process::ExitCode;

use clap::Parser;
use woma_sandbox::container;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(role) if role == woma_sandbox::steward::ROLE => return woma_sandbox::steward::main(),
        Some(role) if role == woma_sandbox::keeper::ROLE => return woma_sandbox::keeper::main(),
        Some(role) if role == container::ROLE => return container::main(),
        Some(role) if role == container::INIT_ROLE => return container::init_main(),
        _ => {}
    }
    woma_sandbox::allocator::bound();
    let status = match cli::Cli::try_parse() {
        Ok(cli) => cli::dispatch(cli),
        Err(error) => cli::help_or_refuse(&error),
    };
    terminal::status(status)
}
