//! `woma completions` and `woma man`: files for shells and for `man`, made from the arguments.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::terminal::{fail, print};

const PROGRAM: &str = "woma";

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell that will read the script
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder that gets the pages, one for each command; it is created
    folder: PathBuf,
}

pub(crate) fn completions(options: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), PROGRAM, &mut script);
    print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

pub(crate) fn man(options: &Man) -> ExitCode {
    match write_pages(&options.folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, None),
    }
}

fn write_pages(folder: &Path) -> Result<(), Box<dyn Error>> {
    let told = |error: io::Error| format!("cannot write pages to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(told)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(told)?;
    Ok(())
}
