//! Measurements through the service's own interface, without a server.

use std::error::Error;
use std::time::{Duration, Instant};

use woma_core::environments::Environment;
use woma_core::{Limits, Service, Settings, Tier};
use woma_sandbox::{Cell, Event, Outcome as RunOutcome, Run, Sandbox, Spec};

use super::Row;
use crate::terminal::tell;

const STACK: &str = "import numpy, pandas, matplotlib.pyplot as plt";
const CHART: &str = "plt.plot(range(1000)); plt.show()";
/// Cost of the chart without woma: the same figure and settings, without a kernel.
const BARE_CHART: &str = "
import io, time, matplotlib.figure, matplotlib.backends.backend_agg as agg
def bare():
    figure = matplotlib.figure.Figure()
    agg.FigureCanvasAgg(figure)
    figure.add_subplot().plot(range(1000))
    figure.savefig(io.BytesIO(), format='png', dpi=150, bbox_inches='tight')
bare()
times = []
for _ in range(10):
    started = time.perf_counter()
    bare()
    times.append((time.perf_counter() - started) * 1e3)
print(sorted(times)[5])
";
const HEAVY: &str = "import sklearn, seaborn, statsmodels.api, plotly.express";

/// All rows of this file.
pub(super) const NAMES: &[&str] = &[
    "new",
    "new-light",
    "burst",
    "warm",
    "throughput",
    "churn",
    "churn-stack",
    "chart",
    "memory",
    "many",
    "new-full",
    "new-pooled",
    "imports",
];

type Outcome<T> = Result<T, Box<dyn Error>>;

pub(super) async fn all(
    environment: &Environment,
    wanted: &dyn Fn(&str) -> bool,
) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    if NAMES.iter().any(|name| wanted(name)) {
        in_cells(environment, wanted, &mut rows).await?;
    }
    Ok(rows)
}

async fn in_cells(
    environment: &Environment,
    wanted: &dyn Fn(&str) -> bool,
    rows: &mut Vec<Row>,
) -> Outcome<()> {
    let base = start(environment, Tier::Base, 0).await?;
    if wanted("new") {
        tell("opening cells, base tier");
        rows.push(new(base.sandbox(), Tier::Base).await?);
    }
    if wanted("burst") {
        rows.push(burst(base.sandbox()).await?);
    }
    if wanted("warm") {
        rows.push(warm(base.sandbox()).await?);
    }
    if wanted("throughput") {
        tell("sixteen cells at once");
        rows.push(throughput(base.sandbox()).await?);
    }
    if wanted("churn") || wanted("churn-stack") {
        tell("cells for one program each, four at once");
        tell(&format!("python -c: {:.0} programs a second", bare_programs(environment).await?));
    }
    if wanted("new-light") {
        until_light(base.sandbox()).await?;
        rows.push(new(base.sandbox(), Tier::Light).await?);
    }
    if wanted("churn") {
        until_light(base.sandbox()).await?;
        rows.push(churn(base.sandbox(), Tier::Light).await?);
    }
    if wanted("churn-stack") {
        rows.push(churn(base.sandbox(), Tier::Base).await?);
    }
    if wanted("chart") {
        rows.push(chart(base.sandbox()).await?);
    }
    if wanted("memory") {
        tell("a hundred cells");
        rows.push(memory(base.sandbox()).await?);
    }
    if wanted("many") {
        tell("five hundred cells");
        rows.push(many(base.sandbox()).await?);
    }
    drop(base);
    if wanted("new-full") || wanted("new-pooled") || wanted("imports") {
        tell("importing everything");
        let full = start(environment, Tier::Full, 4).await?;
        full.sandbox().ready(Tier::Full).await?;
        if wanted("new-full") {
            rows.push(new(full.sandbox(), Tier::Full).await?);
        }
        if wanted("new-pooled") {
            rows.push(pooled(full.sandbox()).await?);
        }
        if wanted("imports") {
            rows.push(imports(full.sandbox()).await?);
        }
    }
    Ok(())
}

async fn start(environment: &Environment, preload: Tier, pool: usize) -> Outcome<Service> {
    let environment = environment.clone();
    let settings =
        Settings { limits: Limits::default(), pool, preload, ..Settings::new(environment) };
    Ok(Service::start(settings).await?)
}

/// Runs code that must complete; returns its output.
async fn run(cell: &mut Cell, source: &str) -> Outcome<String> {
    let mut text = Vec::new();
    let exit = cell
        .run(&Run::new(source), &mut |event| {
            if let Event::Output { bytes, .. } = event {
                text.extend_from_slice(&bytes);
            }
        })
        .await;
    if exit.outcome != RunOutcome::Completed {
        return Err(format!("`{source}` ended as {:?}", exit.outcome).into());
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn print_one(cell: &mut Cell) -> Outcome<()> {
    match run(cell, "print(1)").await?.as_str() {
        "1\n" => Ok(()),
        other => Err(format!("print(1) printed {other:?}").into()),
    }
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(super) fn row(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    promise: f64,
    mut values: Vec<f64>,
) -> Row {
    values.sort_by(f64::total_cmp);
    let at = |share: usize| values.get((values.len().saturating_sub(1)) * share / 100).copied();
    let (p50, p99) = (at(50).unwrap_or(f64::NAN), at(99));
    let (at_least, against) = (false, Vec::new());
    Row { name, what, unit, p50, p99, promise, at_least, against }
}

/// Pause between two sessions of a measurement: preparation in idle time is part of the design;
/// `burst` measures without it.
pub(super) const PAUSE: Duration = Duration::from_millis(60);

/// Time from the request to the first result, in a new session.
async fn new(sandbox: &Sandbox, tier: Tier) -> Outcome<Row> {
    const TIMES: usize = 100;
    let limits = Limits { wall: Duration::from_secs(59), ..Limits::default() };
    let spec = Spec { tier: Some(tier), limits, ..Spec::default() };
    let mut values = Vec::new();
    for _ in 0..TIMES {
        tokio::time::sleep(PAUSE).await;
        let started = Instant::now();
        let mut cell = sandbox.open(&spec).await?;
        print_one(&mut cell).await?;
        values.push(milliseconds(started.elapsed()));
        cell.close().await?;
    }
    let (name, what, promise) = match tier {
        Tier::Light => ("new-light", "new cell → print(1), no library ready", 5.0),
        Tier::Base => ("new", "new cell → print(1), numpy, pandas, matplotlib ready", 5.0),
        Tier::Full => ("new-full", "the same with everything preloaded", 9.0),
    };
    Ok(row(name, what, "ms", promise, values))
}

/// Time of sixteen concurrent requests, more than were prepared for, until the last result.
async fn burst(sandbox: &Sandbox) -> Outcome<Row> {
    const CELLS: usize = 16;
    let mut values = Vec::new();
    for _ in 0..5 {
        tokio::time::sleep(PAUSE).await;
        let started = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..CELLS {
            let sandbox = sandbox.clone();
            tasks.push(tokio::spawn(async move {
                let mut cell = sandbox.open(&Spec::default()).await.ok()?;
                print_one(&mut cell).await.ok()?;
                Some(cell)
            }));
        }
        let mut cells = Vec::new();
        for task in tasks {
            cells.push(task.await?.ok_or("a cell of the burst failed")?);
        }
        values.push(milliseconds(started.elapsed()));
        for cell in cells {
            cell.close().await?;
        }
    }
    Ok(row("burst", "sixteen new cells at once → all have printed", "ms", 150.0, values))
}

async fn pooled(sandbox: &Sandbox) -> Outcome<Row> {
    const TIMES: usize = 100;
    let mut values = Vec::new();
    for _ in 0..TIMES {
        until_pooled(sandbox).await;
        let started = Instant::now();
        let mut cell = sandbox.open(&Spec::default()).await?;
        print_one(&mut cell).await?;
        values.push(milliseconds(started.elapsed()));
        cell.close().await?;
    }
    Ok(row("new-pooled", "new cell from the pool → print(1)", "ms", 1.0, values))
}

async fn until_pooled(sandbox: &Sandbox) {
    while sandbox.pooled_cells() < 4 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(PAUSE / 2).await;
}

async fn warm(sandbox: &Sandbox) -> Outcome<Row> {
    const TIMES: usize = 2_000;
    let mut cell = sandbox.open(&Spec::default()).await?;
    print_one(&mut cell).await?;
    let mut values = Vec::new();
    for _ in 0..TIMES {
        let started = Instant::now();
        print_one(&mut cell).await?;
        values.push(milliseconds(started.elapsed()));
    }
    Ok(row("warm", "print(1) in a session that exists", "ms", 0.25, values))
}

async fn throughput(sandbox: &Sandbox) -> Outcome<Row> {
    const CELLS: usize = 16;
    const FOR: Duration = Duration::from_secs(2);
    let mut cells = Vec::new();
    for _ in 0..CELLS {
        let mut cell = sandbox.open(&Spec::default()).await?;
        print_one(&mut cell).await?;
        cells.push(cell);
    }
    let started = Instant::now();
    let mut tasks = Vec::new();
    for mut cell in cells {
        tasks.push(tokio::spawn(async move {
            let mut runs = 0_u32;
            while started.elapsed() < FOR {
                if print_one(&mut cell).await.is_err() {
                    return None;
                }
                runs += 1;
            }
            Some(runs)
        }));
    }
    let mut runs = 0;
    for task in tasks {
        runs += task.await?.ok_or("a run failed")?;
    }
    let rate = f64::from(runs) / started.elapsed().as_secs_f64();
    let mut row =
        row("throughput", "runs of print(1) in 16 cells at once", "runs/s", 6_000.0, vec![rate]);
    (row.at_least, row.p99) = (true, None);
    Ok(row)
}

/// Programs at once in `churn`, and for how long.
const AT_ONCE: usize = 4;
const CHURN_FOR: Duration = Duration::from_secs(4);

/// The light tier is started by the first cell that asks for it.
async fn until_light(sandbox: &Sandbox) -> Outcome<()> {
    let spec = Spec { tier: Some(Tier::Light), ..Spec::default() };
    sandbox.open(&spec).await?.close().await?;
    Ok(sandbox.ready(Tier::Light).await?)
}

/// Cells that are opened, run `print(1)` and are closed, back to back.
async fn churn(sandbox: &Sandbox, tier: Tier) -> Outcome<Row> {
    let spec = Spec { tier: Some(tier), ..Spec::default() };
    let started = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..AT_ONCE {
        let (sandbox, spec) = (sandbox.clone(), spec.clone());
        tasks.push(tokio::spawn(async move {
            let mut programs = 0_u32;
            while started.elapsed() < CHURN_FOR {
                let mut cell = sandbox.open(&spec).await.ok()?;
                print_one(&mut cell).await.ok()?;
                cell.close().await.ok()?;
                programs += 1;
            }
            Some(programs)
        }));
    }
    let mut programs = 0;
    for task in tasks {
        programs += task.await?.ok_or("a program failed")?;
    }
    let rate = f64::from(programs) / started.elapsed().as_secs_f64();
    let (name, what, promise) = match tier {
        Tier::Light => ("churn", "programs with a cell each, four at once, no library", 200.0),
        _ => ("churn-stack", "the same with numpy, pandas, matplotlib ready", 100.0),
    };
    let mut row = row(name, what, "programs/s", promise, vec![rate]);
    (row.at_least, row.p99) = (true, None);
    Ok(row)
}

/// The same number of bare interpreters at once: programs a second.
async fn bare_programs(environment: &Environment) -> Outcome<f64> {
    let started = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..AT_ONCE {
        let python = environment.python.clone();
        tasks.push(tokio::spawn(async move {
            let mut programs = 0_u32;
            while started.elapsed() < CHURN_FOR {
                let mut command = tokio::process::Command::new(&python);
                let output = command.args(["-c", "print(1)"]).output().await.ok()?;
                programs += u32::from(output.stdout == b"1\n");
            }
            Some(programs)
        }));
    }
    let mut programs = 0;
    for task in tasks {
        programs += task.await?.ok_or("python did not start")?;
    }
    Ok(f64::from(programs) / started.elapsed().as_secs_f64())
}

/// Ratio of the chart's cost to the same figure drawn and encoded by hand, in the same cell.
async fn chart(sandbox: &Sandbox) -> Outcome<Row> {
    let mut cell = sandbox.open(&Spec::default()).await?;
    run(&mut cell, STACK).await?;
    run(&mut cell, CHART).await?;
    let mut values = Vec::new();
    for _ in 0..10 {
        let started = Instant::now();
        run(&mut cell, CHART).await?;
        values.push(milliseconds(started.elapsed()));
    }
    let bare: f64 = run(&mut cell, BARE_CHART).await?.trim().parse()?;
    values.sort_by(f64::total_cmp);
    tell(&format!("a chart without woma: {bare:.1} ms"));
    Ok(row(
        "chart",
        "plt.plot(range(1000)); plt.show(); promised: 1.2 × without us",
        "ms",
        bare * 1.2,
        values,
    ))
}

async fn memory(sandbox: &Sandbox) -> Outcome<Row> {
    const CELLS: usize = 100;
    let mut cells = Vec::new();
    for _ in 0..CELLS {
        let mut cell = sandbox.open(&Spec::default()).await?;
        run(&mut cell, STACK).await?;
        cells.push(cell);
    }
    let values = cells.iter().map(memory_mib).collect::<Outcome<Vec<f64>>>()?;
    Ok(row("memory", "idle session with the stack imported, of 100 (PSS)", "MiB", 4.0, values))
}

fn memory_mib(cell: &Cell) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", cell.host_pid()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

async fn many(sandbox: &Sandbox) -> Outcome<Row> {
    const CELLS: usize = 500;
    let mut cells = Vec::new();
    for _ in 0..CELLS {
        cells.push(sandbox.open(&Spec::default()).await?);
    }
    let mut answered = 0.0;
    for cell in &mut cells {
        print_one(cell).await?;
        answered += 1.0;
    }
    let mut row =
        row("many", "live cells on this machine, all answering", "cells", 500.0, vec![answered]);
    (row.at_least, row.p99) = (true, None);
    Ok(row)
}

async fn imports(sandbox: &Sandbox) -> Outcome<Row> {
    let mut values = Vec::new();
    for _ in 0..20 {
        until_pooled(sandbox).await;
        let mut cell = sandbox.open(&Spec::default()).await?;
        let started = Instant::now();
        run(&mut cell, HEAVY).await?;
        values.push(milliseconds(started.elapsed()));
        cell.close().await?;
    }
    Ok(row("imports", HEAVY, "ms", 50.0, values))
}
