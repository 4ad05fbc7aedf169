//! `woma bench`: the promised numbers, measured here and now.

use std::process::ExitCode;

use clap::Args;

use crate::config::Data;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(_data: &Data, _options: &Options) -> ExitCode {
    ExitCode::SUCCESS
}
