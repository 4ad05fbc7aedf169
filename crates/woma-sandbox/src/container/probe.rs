//! A trial of each runtime, for `woma doctor`: a real session in a container, and one run in it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Runtime, RuntimeChoice};
use crate::Error;
use crate::sandbox::Sandbox;
use crate::spec::{Config, Environment, Event, Outcome, Run, Spec};
use crate::steward::control::Tier;

/// Result of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    pub runtime: &'static str,
    pub works: bool,
    /// How fast it is, or why it does not work.
    pub detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Opens a session with every runtime, one after another.
pub async fn try_all(steward: &Path, environment: Environment) -> Vec<Trial> {
    let mut config = Config::new(environment);
    config.steward = steward.to_owned();
    config.preload = Tier::Base;
    config.containers = Some(RuntimeChoice::Auto);
    let sandbox = match Sandbox::start(config).await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            let failed = |runtime: &Runtime| Trial::failed(*runtime, &error);
            return Runtime::ALL.iter().map(failed).collect();
        }
    };
    let mut trials = Vec::new();
    for runtime in Runtime::ALL {
        trials.push(match attempt(&sandbox, runtime).await {
            Ok(took) => Trial {
                runtime: runtime.name(),
                works: true,
                detail: format!("a session in a container answered after {took:.1?}"),
                fix: None,
            },
            Err(error) => Trial::failed(runtime, &error),
        });
    }
    trials
}

impl Trial {
    fn failed(runtime: Runtime, error: &Error) -> Self {
        let (detail, fix) = match error {
            Error::Container { reason, fix } => (reason.clone(), Some(fix.clone())),
            other => (other.to_string(), None),
        };
        Self { runtime: runtime.name(), works: false, detail, fix }
    }
}

async fn attempt(sandbox: &Sandbox, runtime: Runtime) -> Result<Duration, Error> {
    let began = Instant::now();
    let spec = Spec { container: true, ..Spec::default() };
    let mut cell = sandbox.shared.open_with(runtime, &spec).await?;
    let mut said = Vec::new();
    let run = Run::new("print(6 * 7)");
    let exit = cell
        .run(&run, &mut |event| {
            if let Event::Output { bytes, .. } = event {
                said.extend(bytes);
            }
        })
        .await;
    let took = began.elapsed();
    cell.close().await?;
    if exit.outcome == Outcome::Completed && said == b"42\n" {
        return Ok(took);
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    let reason = format!("a run ended as {}, with {said:?}", exit.outcome.name());
    Err(super::client::broken(runtime, &reason))
}
