//! Peer: a server that runs all code in one Python process behind `RestrictedPython`, measured by
//! the same client with the same requests.

use std::path::Path;

use tokio::process::Command;

use super::Fallible;
use super::endpoints;
use super::many_sessions;
use super::measure::row;
use super::server::{Pipes, Server};

const SCRIPT: &str = include_str!("../../bench/restricted.py");
/// Calls for the peer: fewer, because each takes longer and the median is stable.
const TIMES: usize = 500;

#[derive(Debug)]
pub(super) struct Figures {
    pub(super) warm: Option<f64>,
    pub(super) calls_per_second: Option<f64>,
    pub(super) stdio_warm: Option<f64>,
    pub(super) resident_mib: Option<f64>,
}

/// Figures of the peer for the requested rows.
pub(super) async fn measure(python: &Path, wanted: &dyn Fn(&str) -> bool) -> Fallible<Figures> {
    let mut figures =
        Figures { warm: None, calls_per_second: None, stdio_warm: None, resident_mib: None };
    if ["mcp-warm", "rest-warm", "mcp-throughput", "server-rss"].into_iter().any(wanted) {
        let server = Server::start(command(python, "http")).await?;
        server.settle().await?;
        figures.warm = Some(median(endpoints::warm_calls(server.address, TIMES).await?));
        if wanted("mcp-throughput") {
            figures.calls_per_second = Some(endpoints::calls_per_second(server.address).await?);
        }
        if wanted("server-rss") {
            many_sessions::print_in_all(server.address).await?;
            figures.resident_mib = Some(server.resident_mib()?);
        }
    }
    if wanted("stdio-warm") {
        let mut pipes = Pipes::start(command(python, "stdio")).await?;
        pipes.settle().await?;
        figures.stdio_warm = Some(median(endpoints::warm_lines(&mut pipes, TIMES).await?));
    }
    Ok(figures)
}

fn command(python: &Path, transport: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-I", "-c", SCRIPT, transport]);
    command
}

fn median(values: Vec<f64>) -> f64 {
    row("", "", "", 0.0, values).p50
}
