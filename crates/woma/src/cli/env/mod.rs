//! `woma env`: Python environments of sessions.

mod freeze;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use woma_core::environments::{self, Contents, CreateOptions, Environment, Error, Listed};

use crate::config::Data;
use crate::config::flags::DataOptions;
use crate::config::templates::{self, Template, TemplateOrigin};
use crate::terminal::{Progress, fail, print};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an environment, by its template if there is one; without a name, the default one
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
    /// Print a lock of what a session has, with hashes: its environment and its own packages
    Freeze(freeze::Options),
    /// Print the lock file of the default environment, or of the installer
    Lock {
        /// Print the installer's lock file, for building a wheelhouse
        #[arg(long)]
        uv: bool,
    },
}

impl Command {
    /// Runs a command that reads the whole configuration; no other is.
    pub(super) fn configured(&self, data: &DataOptions) -> Option<ExitCode> {
        match self {
            Self::Freeze(options) => Some(freeze::main(data, options)),
            _ => None,
        }
    }
}

pub(crate) fn main(data: &Data, command: Command) -> ExitCode {
    match answer(data, command) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&*error, None),
    }
}

fn answer(data: &Data, command: Command) -> Result<String, Box<dyn std::error::Error>> {
    match command {
        Command::Create { name, requirements, python, wheelhouse } => {
            let mut options = data.create_options();
            options.python = python;
            options.wheelhouse = wheelhouse;
            create(data, name, requirements, options)
        }
        // Needs the whole configuration; dispatched before this.
        Command::Freeze(_) => Ok(String::new()),
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
        Command::Info { name, json } => Ok(info(data, &name, json)?),
        Command::Lock { uv: true } => Ok(environments::UV_LOCK.to_owned()),
        Command::Lock { uv: false } => Ok(environments::DEFAULT_LOCK.to_owned()),
    }
}

/// Creates an environment as its template says; what the command line says goes before that.
fn create(
    data: &Data,
    name: Option<String>,
    requirements: Option<PathBuf>,
    mut options: CreateOptions,
) -> Result<String, Box<dyn std::error::Error>> {
    let environments = data.environments()?;
    let mut progress = Progress::new();
    let mut report = |step| progress.show(step);
    let Some(name) = name.filter(|name| name != "default") else {
        let made = environments.ensure_default(&options, &mut report)?;
        return Ok(format!("{}\n", made.prefix.display()));
    };
    let template = templates::read(&data.templates)?.remove(&name);
    let contents = match (requirements, template.map(|template| template.origin)) {
        (Some(path), _) => Contents::Lock(path),
        (None, None) => Contents::Default,
        (None, Some(TemplateOrigin::Made { python, contents })) => {
            options.python = options.python.or(python);
            contents
        }
        (None, Some(TemplateOrigin::Default)) => {
            return Ok(format!("`{name}` uses the default environment: nothing to make\n"));
        }
        (None, Some(TemplateOrigin::Existing(other))) => {
            return Ok(format!("`{name}` uses the environment {other}: nothing to make\n"));
        }
    };
    let made = environments.create(&name, &contents, &options, &mut report)?;
    Ok(format!("{}\n", made.prefix.display()))
}

fn list(data: &Data, json: bool) -> Result<String, Box<dyn std::error::Error>> {
    let listed = data.environments()?.list()?;
    let templates = templates::read(&data.templates)?;
    if json {
        return Ok(json_list(&listed, &templates));
    }
    let mut text = String::new();
    for template in templates.values() {
        let about = match &template.origin {
            TemplateOrigin::Default => "a template with the default environment".to_owned(),
            TemplateOrigin::Existing(other) => format!("a template with the environment {other}"),
            TemplateOrigin::Made { .. } if listed.iter().any(|it| it.name == template.name) => {
                continue;
            }
            TemplateOrigin::Made { .. } => {
                format!("a template, not made: `woma env create {}` makes it", template.name)
            }
        };
        writeln!(text, "{:<32} {about}", template.name).unwrap_or_default();
    }
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

/// Environments, with the path of the template that some have; templates without an environment of
/// their own are entries too.
fn json_list(listed: &[Listed], templates: &BTreeMap<String, Template>) -> String {
    let path = |name: &str| templates.get(name).map(|template| template.path.clone());
    let alone =
        templates.values().filter(|template| !listed.iter().any(|it| it.name == template.name));
    let alone = alone.map(|template| {
        json!({"name": template.name, "environment": null, "stale": false, "template": template.path})
    });
    let made = listed.iter().map(|entry| {
        let Listed { name, environment, stale } = entry;
        let mut told = json!({"name": name, "environment": environment, "stale": stale});
        if let Some(path) = path(name) {
            told["template"] = json!(path);
        }
        told
    });
    to_json(&made.chain(alone).collect::<Vec<_>>())
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
