//! `woma doctor`: the isolation that this machine enforces, and where data goes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use woma_core::{Rung, Service};
use woma_sandbox::container::{self, Trial};
use woma_sandbox::doctor::{Asker, Examination, Isolation, LayerState, examine};

use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::{Config, Data};
use crate::server::start::{self, Places};
use crate::terminal::{fail, print, tell};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the isolation that each way to run gives, as Markdown, and examine nothing
    #[arg(long, conflicts_with = "json")]
    deployments: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    found: &'a Examination,
    /// A trial of each container runtime; none without an environment.
    containers: Vec<Trial>,
    /// `None` if the settings are not valid.
    storage: Option<Places>,
}

/// Exit status 0 if sessions are contained on this machine, 1 if they would not be started.
pub(crate) fn main(data: &Data, named: &DataOptions, options: &Options) -> ExitCode {
    if options.deployments {
        print(&woma_sandbox::doctor::deployments());
        return ExitCode::SUCCESS;
    }
    // A broken environment must not keep the doctor from reporting.
    let environment = data.environment_if_made().unwrap_or_else(|error| {
        tell(&format!("woma: {error}"));
        None
    });
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, None),
    };
    let environment = environment.as_ref().map(Service::sandbox_environment);
    let steward = Path::new("/proc/self/exe");
    let folder = Some(data.folder.as_path());
    let for_containers = environment.clone();
    let found =
        runtime.block_on(examine(steward, environment, folder, Asker::Operator, Rung::Minimal));
    let containers = match for_containers {
        Some(environment) if found.isolation != Isolation::None => {
            runtime.block_on(container::try_all(steward, environment))
        }
        _ => Vec::new(),
    };
    // Nor must settings that are not valid.
    let settings = SettingOptions::default().flags(named);
    let config = Config::load_without_foreign_dot_env(&settings);
    let config = config.inspect_err(|problems| tell(&format!("woma: {problems}")));
    let report_least = config.as_ref().ok().map(|config| config.min_isolation.level());
    let storage = config.ok().as_ref().map(start::places);
    let report = Report { found: &found, containers, storage };
    let least = report_least.unwrap_or(Isolation::Strong);
    if options.json {
        match serde_json::to_string_pretty(&report) {
            Ok(text) => print(&format!("{text}\n")),
            Err(error) => return fail(&error, None),
        }
    } else {
        print(&table(&report, least));
    }
    if found.isolation >= least { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn table(Report { found, containers, storage }: &Report<'_>, least: Isolation) -> String {
    let verdict = match found.isolation {
        Isolation::Full => "full: every layer is enforced",
        Isolation::Strong => {
            "strong: every wall stands; the layers marked below are partly enforced"
        }
        Isolation::Restricted => {
            "restricted: no namespaces and mounts; Landlock, seccomp and the watchdog contain sessions"
        }
        Isolation::Minimal => {
            "minimal: as restricted, and sessions send no signals, which the kernel cannot contain"
        }
        Isolation::None => "none: sessions would not be contained, so they are not started",
    };
    let mut text = format!("isolation    {verdict}\n");
    if found.isolation < least {
        let least = least.name();
        writeln!(text, "{:<12} no: MIN_ISOLATION is {least}", "starts").unwrap_or_default();
    }
    for layer in &found.layers {
        let state = match layer.state {
            LayerState::Enforced => "enforced",
            LayerState::Partly => "partly",
            LayerState::Missing => "MISSING",
            LayerState::Unknown => "unknown",
        };
        // Writing to a String cannot fail.
        writeln!(text, "{:<12} {state:<9} {}", layer.name, layer.detail).unwrap_or_default();
        if let Some(fix) = &layer.fix {
            writeln!(text, "{:<22} → {fix}", "").unwrap_or_default();
        }
    }
    for Trial { runtime, works, detail, fix } in containers {
        let state = if *works { "works" } else { "no" };
        writeln!(text, "{runtime:<12} {state:<9} {detail}").unwrap_or_default();
        if let Some(fix) = fix {
            writeln!(text, "{:<22} → {fix}", "").unwrap_or_default();
        }
    }
    let unknown = "unknown: the settings are not valid";
    let (records, contents) = match storage {
        Some(Places { records, contents }) => (records.as_str(), contents.as_str()),
        None => (unknown, unknown),
    };
    writeln!(text, "{:<12} {records}", "records").unwrap_or_default();
    writeln!(text, "{:<12} {contents}", "contents").unwrap_or_default();
    text
}
