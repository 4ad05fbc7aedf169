//! `woma env`: Python environments of sessions.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use woma_core::environments::{self, Environment, Error};

use crate::config::Data;
use crate::terminal::{Progress, fail, print};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an environment; without a name, the default one
    Create {
        /// Its name: a-z, 0-9, `.`, `_` and `-`
        name: Option<String>,
        /// A lock file of your own (requirements with hashes, IPython among them)
        #[arg(long, value_name = "FILE", requires = "name")]
        requirements: Option<PathBuf>,
        /// The CPython (3.10 or newer) to build on
        #[arg(long, value_name = "PATH|NAME")]
        python: Option<PathBuf>,
        /// Install from this folder of wheels, without the network
        #[arg(long, value_name = "DIR")]
        wheelhouse: Option<PathBuf>,
    },
    /// List the environments
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an environment
    Remove {
        /// Its name
        #[arg(required_unless_present = "stale")]
        name: Option<String>,
        /// Remove the default environments of earlier versions
        #[arg(long)]
        stale: bool,
    },
    /// Show an environment: Python, size, packages
    Info {
        /// Its name, or a path
        #[arg(default_value = "default")]
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the lock file of the default environment, or of the installer
    Lock {
        /// Print the installer's lock file, for building a wheelhouse
        #[arg(long)]
        uv: bool,
    },
}

pub(crate) fn main(data: &Data, command: Command) -> ExitCode {
    match answer(data, command) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, None),
    }
}

fn answer(data: &Data, command: Command) -> Result<String, Error> {
    match command {
        Command::Create { name, requirements, python, wheelhouse } => {
            let environments = data.environments()?;
            let mut options = data.create_options();
            options.python = python;
            options.wheelhouse = wheelhouse;
            let mut progress = Progress::new();
            let mut report = |step| progress.show(step);
            let made = match name.filter(|name| name != "default") {
                Some(name) => {
                    environments.create(&name, requirements.as_deref(), &options, &mut report)?
                }
                None => environments.ensure_default(&options, &mut report)?,
            };
            Ok(format!("{}\n", made.prefix.display()))
        }
        Command::List { json } => list(data, json),
        Command::Remove { name, stale } => {
            let environments = data.environments()?;
            let mut removed = if stale { environments.remove_stale()? } else { Vec::new() };
            if let Some(name) = name {
                environments.remove(&name)?;
                removed.push(name);
            }
            Ok(removed.iter().fold(String::new(), |text, name| text + "removed " + name + "\n"))
        }
        Command::Info { name, json } => info(data, &name, json),
        Command::Lock { uv: true } => Ok(environments::UV_LOCK.to_owned()),
        Command::Lock { uv: false } => Ok(environments::DEFAULT_LOCK.to_owned()),
    }
}

fn list(data: &Data, json: bool) -> Result<String, Error> {
    let listed = data.environments()?.list()?;
    if json {
        return Ok(to_json(&listed));
    }
    let mut text = String::new();
    for entry in listed {
        let about = match &entry.environment {
            Some(environment) => describe(environment),
            None => "broken: remove it and create it again".to_owned(),
        };
        let stale = if entry.stale { " (of an earlier version)" } else { "" };
        writeln!(text, "{:<32} {about}{stale}", entry.name).unwrap_or_default();
    }
    Ok(text)
}

fn describe(environment: &Environment) -> String {
    let packages = match &environment.managed {
        Some(managed) => format!(", {} packages", managed.packages),
        None => String::new(),
    };
    format!("Python {}{packages}", environment.version)
}

fn info(data: &Data, name: &str, json: bool) -> Result<String, Error> {
    let found = data.environments()?.info(name)?;
    if json {
        return Ok(to_json(&found));
    }
    let mebibytes = found.bytes_on_disk / (1024 * 1024);
    let environment = &found.environment;
    let mut text = format!(
        "folder    {}\npython    {} ({})\nsize      {mebibytes} MiB\npackages  {}\n",
        environment.prefix.display(),
        environment.version,
        environment.base_prefix.display(),
        found.packages.len(),
    );
    for package in &found.packages {
        writeln!(text, "  {} {}", package.name, package.version).unwrap_or_default();
    }
    Ok(text)
}

fn to_json(value: &impl serde::Serialize) -> String {
    match serde_json::to_string_pretty(value) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": \"{error}\"}}\n"),
    }
}
