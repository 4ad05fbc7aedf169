//! What others need for the same, measured in the same run by a script of theirs and ours.

use std::error::Error;
use std::process::Command;

use serde::Deserialize;
use woma_core::environments::{self, Environment};

use super::{Against, Peer, Row};
use crate::config::Data;
use crate::env::Progress;

const LOCK: &str = include_str!("../../bench/jupyter.lock");
const SCRIPT: &str = include_str!("../../bench/jupyter.py");
const ENVIRONMENT: &str = "bench-jupyter";

#[derive(Debug, Default, Deserialize)]
pub(super) struct Peers {
    jupyter: Option<Figures>,
    subprocess: Option<Figures>,
}

#[derive(Debug, Deserialize)]
struct Figures {
    new: Percentiles,
    warm: Option<Percentiles>,
    chart: Option<Percentiles>,
    memory_mib: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Percentiles {
    p50: f64,
}

impl Peers {
    /// The peers' figures for the same thing as this row.
    pub(super) fn against(&self, row: &Row) -> Vec<Against> {
        let peers = [("jupyter", &self.jupyter), ("subprocess", &self.subprocess)];
        let figure = |figures: &Figures| match row.name {
            "new" | "new-full" | "new-pooled" => Some(figures.new.p50),
            "warm" => figures.warm.as_ref().map(|warm| warm.p50),
            "chart" => figures.chart.as_ref().map(|chart| chart.p50),
            "memory" => figures.memory_mib,
            _ => None,
        };
        let mut against = Vec::new();
        for (peer, figures) in peers {
            if let Some(value) = figures.as_ref().and_then(figure) {
                against.push(Against { peer, value, ratio: value / row.p50 });
            }
        }
        against
    }
}

pub(super) fn measure(data: &Data, wanted: &[Peer]) -> Result<Peers, Box<dyn Error>> {
    let environment = environment(data)?;
    let names = wanted.iter().map(|peer| match peer {
        Peer::Jupyter => "jupyter",
        Peer::Subprocess => "subprocess",
    });
    let output =
        Command::new(&environment.python).args(["-I", "-c", SCRIPT]).args(names).output()?;
    if !output.status.success() {
        return Err(format!("the peers: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Their environment, made on first use as ours is.
fn environment(data: &Data) -> Result<Environment, Box<dyn Error>> {
    let environments = data.environments()?;
    match environments.find(ENVIRONMENT) {
        Ok(environment) => return Ok(environment),
        Err(environments::Error::Unknown(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let lock = data.folder.join("bench-jupyter.lock");
    std::fs::write(&lock, LOCK)?;
    let mut progress = Progress::new();
    let options = data.create_options();
    let made =
        environments.create(ENVIRONMENT, Some(&lock), &options, &mut |step| progress.show(step))?;
    std::fs::remove_file(&lock)?;
    Ok(made)
}
