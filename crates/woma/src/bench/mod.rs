//! `woma bench`: measures the promised numbers on this machine, with peers for comparison. Talks to
//! servers that it starts, and to the service directly; no room but `cli` may know it.

mod client;
mod curves;
mod datasets;
mod endpoints;
mod hostile_output;
mod jobs;
mod many_sessions;
mod measure;
mod neighbours;
mod network;
mod packages;
mod peers;
mod persistence;
mod plot;
mod restricted;
mod server;

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::config::Data;
use crate::server::serve::Signals;
use crate::terminal::{fail, print, tell};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also measure these peers, and print ratios
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    compare: Vec<Peer>,
    /// Only the rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The same without `--only`, such as `woma bench datasets`
    #[arg(value_name = "TEXT", conflicts_with = "only")]
    rows: Option<String>,
    /// Measure how costs grow, and write a chart of each curve to this folder
    #[arg(long, value_name = "FOLDER")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// ipykernel through `jupyter_client`
    Jupyter,
    /// One Python process per call
    Subprocess,
    /// One Python process with `RestrictedPython` for all, an MCP server
    RestrictedPython,
}

/// Result whose error can cross tasks.
type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One promised number.
#[derive(Debug, Clone, Serialize)]
struct Row {
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    p50: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<f64>,
    /// The number in docs/SPEC.md; `at_least` is its direction.
    promise: f64,
    at_least: bool,
    /// Ratio to the peer; above 1 is better.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    against: Vec<Against>,
}

#[derive(Debug, Clone, Serialize)]
struct Against {
    peer: &'static str,
    value: f64,
    ratio: f64,
}

impl Row {
    fn holds(&self) -> bool {
        if self.at_least { self.p50 >= self.promise } else { self.p50 <= self.promise }
    }
}

pub(crate) fn main(data: &Data, options: &Options) -> ExitCode {
    // One thread: handing a reply to another thread would add its wake-up time.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, None),
    };
    match runtime.block_on(until_stopped(data, options)) {
        Ok(rows) if options.json => match serde_json::to_string_pretty(&rows) {
            Ok(text) => {
                print(&format!("{text}\n"));
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error, None),
        },
        Ok(rows) => {
            print(&table(&rows));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&*error, None),
    }
}

/// Stops on a signal like on a failure, so that no server is left running.
async fn until_stopped(data: &Data, options: &Options) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut signals = Signals::new()?;
    tokio::select! {
        measured = bench(data, options) => measured,
        () = signals.next() => Err("stopped by a signal".into()),
    }
}

async fn bench(data: &Data, options: &Options) -> Result<Vec<Row>, Box<dyn Error>> {
    let environment = data.environment()?;
    let only = options.only.as_ref().or(options.rows.as_ref());
    let is_named = |name: &str| only.is_some_and(|only| name.contains(only));
    // With `--plot` alone, nothing but curves; without it, curves only by name.
    let is_usual = |_: &str| only.is_none() && options.plot.is_none();
    let wanted = |name: &str| is_usual(name) || is_named(name);
    let wanted_curve = |name: &str| is_named(name) || only.is_none() && options.plot.is_some();
    let doors = [endpoints::NAMES, neighbours::NAMES].concat();
    let others = [persistence::NAMES, datasets::NAMES, jobs::NAMES, network::NAMES].concat();
    let others = [&others, packages::NAMES].concat();
    let names = [measure::NAMES, &doors, &others].concat();
    if !names.into_iter().any(&wanted) && !curves::NAMES.iter().any(|name| wanted_curve(name)) {
        return Err("no row matches --only: `woma bench` without it shows all rows".into());
    }
    let peers = if options.compare.is_empty() {
        peers::Peers::default()
    } else {
        tell("measuring the peers");
        peers::measure(data, &options.compare, &wanted).await?
    };
    let mut rows = measure::all(&environment, &wanted).await?;
    let through_doors = endpoints::all(&environment.prefix, &wanted).await;
    rows.extend(through_doors.map_err(|error| error as Box<dyn Error>)?);
    let beside = neighbours::all(&environment.prefix, &wanted).await;
    rows.extend(beside.map_err(|error| error as Box<dyn Error>)?);
    let lasting = persistence::all(&environment.prefix, &wanted).await;
    rows.extend(lasting.map_err(|error| error as Box<dyn Error>)?);
    let tables = datasets::all(&environment.prefix, &wanted).await;
    rows.extend(tables.map_err(|error| error as Box<dyn Error>)?);
    let queued = jobs::all(&environment.prefix, &wanted).await;
    rows.extend(queued.map_err(|error| error as Box<dyn Error>)?);
    let outward = network::all(&environment.prefix, &wanted).await;
    rows.extend(outward.map_err(|error| error as Box<dyn Error>)?);
    let grown = curves::all(&environment.prefix, options.plot.as_deref(), &wanted_curve).await;
    rows.extend(grown.map_err(|error| error as Box<dyn Error>)?);
    let installed = packages::all(&environment, &wanted).await;
    rows.extend(installed.map_err(|error| error as Box<dyn Error>)?);
    for row in &mut rows {
        let peers = peers.against(row);
        row.against.extend(peers);
    }
    Ok(rows)
}

fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let p99 = row.p99.map(|p99| format!("  p99 {p99:.3}")).unwrap_or_default();
        let sign = if row.at_least { "≥" } else { "≤" };
        let verdict = if row.holds() { "ok" } else { "MISSED" };
        // Writing to a String cannot fail.
        writeln!(
            text,
            "{:<21} {:>10.3} {}{p99}  (promised {sign} {} {}: {verdict})  {}",
            row.name, row.p50, row.unit, row.promise, row.unit, row.what
        )
        .unwrap_or_default();
        for Against { peer, value, ratio } in &row.against {
            // Below ten, one decimal shows whether it is better at all.
            let digits = usize::from(*ratio < 10.0);
            writeln!(text, "{:<21} {value:>10.3} {} {peer}: {ratio:.digits$} times", "", row.unit)
                .unwrap_or_default();
        }
    }
    text
}
