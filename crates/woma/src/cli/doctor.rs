//! `woma doctor`: the isolation that this machine enforces.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use woma_core::Service;
use woma_sandbox::doctor::{Asker, Examination, Isolation, LayerState, examine};

use crate::config::Data;
use crate::terminal::{fail, print, tell};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Exit status 0 if sessions are contained on this machine, 1 if they would not be started.
pub(crate) fn main(data: &Data, options: &Options) -> ExitCode {
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
    let found = runtime.block_on(examine(steward, environment, folder, Asker::Operator));
    if options.json {
        match serde_json::to_string_pretty(&found) {
            Ok(text) => print(&format!("{text}\n")),
            Err(error) => return fail(&error, None),
        }
    } else {
        print(&table(&found));
    }
    match found.isolation {
        Isolation::Full | Isolation::Strong => ExitCode::SUCCESS,
        Isolation::None => ExitCode::FAILURE,
    }
}

fn table(found: &Examination) -> String {
    let verdict = match found.isolation {
        Isolation::Full => "full: every layer is enforced",
        Isolation::Strong => {
            "strong: every wall stands; the layers marked below are partly enforced"
        }
        Isolation::None => "none: sessions would not be contained, so they are not started",
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
