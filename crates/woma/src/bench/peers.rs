//! Peers: the same work by other systems, measured in the same run by a script.

use std::error::Error;
use std::process::Command;

use serde::Deserialize;
use woma_core::environments::{self, Contents, Environment};

use super::{Against, Peer, Row, restricted};
use crate::config::Data;
use crate::terminal::Progress;

const JUPYTER: Needs = ("bench-jupyter", include_str!("../../bench/jupyter.lock"));
const RESTRICTED: Needs = ("bench-restricted", include_str!("../../bench/restricted.lock"));
const SCRIPT: &str = include_str!("../../bench/jupyter.py");

/// An environment's name, and its lock.
type Needs = (&'static str, &'static str);

#[derive(Debug, Default, Deserialize)]
pub(super) struct Peers {
    jupyter: Option<Figures>,
    subprocess: Option<Figures>,
    #[serde(skip)]
    restricted: Option<restricted::Figures>,
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

impl Figures {
    /// Also used for rows over HTTP, though the peers run without a server: with one they would be
    /// slower.
    fn of(&self, row: &str) -> Option<f64> {
        match row {
            "new" | "new-full" | "new-pooled" | "mcp-new" | "mcp-new-pooled" => Some(self.new.p50),
            "warm" | "mcp-warm" | "rest-warm" | "stdio-warm" => {
                self.warm.as_ref().map(|warm| warm.p50)
            }
            "chart" => self.chart.as_ref().map(|chart| chart.p50),
            "memory" => self.memory_mib,
            _ => None,
        }
    }
}

impl restricted::Figures {
    fn of(&self, row: &str) -> Option<f64> {
        match row {
            "mcp-warm" | "rest-warm" => self.warm,
            "mcp-throughput" => self.calls_per_second,
            "stdio-warm" => self.stdio_warm,
            "server-rss" => self.resident_mib,
            _ => None,
        }
    }
}

impl Peers {
    /// Figures of the peers for this row.
    pub(super) fn against(&self, row: &Row) -> Vec<Against> {
        let figures = [
            ("jupyter", self.jupyter.as_ref().and_then(|figures| figures.of(row.name))),
            ("subprocess", self.subprocess.as_ref().and_then(|figures| figures.of(row.name))),
            ("restricted-python", self.restricted.as_ref().and_then(|all| all.of(row.name))),
        ];
        let mut against = Vec::new();
        for (peer, value) in figures {
            if let Some(value) = value {
                let ratio = if row.at_least { row.p50 / value } else { value / row.p50 };
                against.push(Against { peer, value, ratio });
            }
        }
        against
    }
}

pub(super) async fn measure(
    data: &Data,
    compared: &[Peer],
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Peers, Box<dyn Error>> {
    let scripted = compared.iter().filter_map(|peer| match peer {
        Peer::Jupyter => Some("jupyter"),
        Peer::Subprocess => Some("subprocess"),
        Peer::RestrictedPython => None,
    });
    let scripted: Vec<&str> = scripted.collect();
    let mut peers = Peers::default();
    if !scripted.is_empty() {
        let python = environment(data, JUPYTER)?.python;
        let output = Command::new(&python).args(["-I", "-c", SCRIPT]).args(scripted).output()?;
        if !output.status.success() {
            return Err(format!("the peers: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        peers = serde_json::from_slice(&output.stdout)?;
    }
    if compared.contains(&Peer::RestrictedPython) {
        let python = environment(data, RESTRICTED)?.python;
        let measured = restricted::measure(&python, wanted).await;
        peers.restricted = Some(measured.map_err(|error| format!("restricted-python: {error}"))?);
    }
    Ok(peers)
}

/// Environment of the peers, created on first use.
fn environment(data: &Data, (name, text): Needs) -> Result<Environment, Box<dyn Error>> {
    let environments = data.environments()?;
    match environments.find(name) {
        Ok(environment) => return Ok(environment),
        Err(environments::Error::Unknown(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let lock = data.folder.join(format!("{name}.lock"));
    std::fs::write(&lock, text)?;
    let mut progress = Progress::new();
    let options = data.create_options();
    let contents = Contents::Lock(lock.clone());
    let made = environments.create(name, &contents, &options, &mut |step| progress.show(step))?;
    std::fs::remove_file(&lock)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measure::row;

    #[test]
    fn a_ratio_says_how_many_times_better_we_are() {
        let figures = restricted::Figures {
            warm: Some(3.0),
            calls_per_second: Some(300.0),
            stdio_warm: None,
            resident_mib: None,
        };
        let peers = Peers { restricted: Some(figures), ..Peers::default() };
        let warm = row("mcp-warm", "", "ms", 0.5, vec![0.5]);
        let mut rate = row("mcp-throughput", "", "calls/s", 3_000.0, vec![3_000.0]);
        rate.at_least = true;
        let ratios = [&warm, &rate].map(|row| peers.against(row).first().map(|one| one.ratio));
        assert_eq!(ratios, [Some(6.0), Some(10.0)]);
        assert!(peers.against(&row("chart", "", "ms", 1.0, vec![1.0])).is_empty());
    }
}
