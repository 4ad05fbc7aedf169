//! `woma doctor`: what is enforced on this machine.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use woma_core::Service;
use woma_sandbox::doctor::{Examination, Isolation, LayerState};

use crate::config::Data;
use crate::terminal::{fail, print, tell};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Status 0 when sessions are contained here, 1 when none would be started.
pub(crate) fn main(data: &Data, options: &Options) -> ExitCode {
    // A broken environment is one of the things that a doctor must be able to report.
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
    let found = runtime.block_on(woma_sandbox::doctor::examine(steward, environment));
    if options.json {
        match serde_json::to_string_pretty(&found) {
            Ok(text) => print(&format!("{text}\n")),
            Err(error) => return fail(&error, None),
        }
    } else {
        print(&table(&found));
    }
    match found.isolation {
        Isolation::Full => ExitCode::SUCCESS,
        Isolation::None => ExitCode::FAILURE,
    }
}

fn table(found: &Examination) -> String {
    let verdict = match found.isolation {
        Isolation::Full => "full: every wall stands",
        Isolation::None => "none: sessions would not be contained, so none are started",
    };
    let mut text = format!("isolation    {verdict}\n");
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
    text
}
