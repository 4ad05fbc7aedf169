//! Growth: how the cost of something grows with its size, and that it is no worse than linear. Each
//! curve is a row whose figure is the exponent at its upper end: 1 is linear, 2 is quadratic.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{self, Connection};
use super::endpoints::start;
use super::measure::{milliseconds, row};
use super::plot::{self, Curve};
use super::server::Folder;
use super::{Fallible, Row};
use crate::terminal::tell;

/// All rows of this file, which are measured if `--only` or a word names them: they take minutes.
pub(super) const NAMES: &[&str] =
    &["curve-sessions", "curve-output", "curve-files", "curve-executions", "curve-history"];

/// Sizes of each curve.
const SESSIONS: &[u32] = &[1, 3, 10, 30, 100, 300, 1_000];
const OUTPUT_BYTES: &[u32] = &[1_000, 10_000, 100_000, 1_000_000, 3_000_000, 10_000_000];
const FILES: &[u32] = &[1, 10, 100, 300, 1_000, 3_000, 10_000];
const EXECUTIONS: &[u32] = &[100, 300, 1_000, 3_000, 10_000, 30_000, 100_000];
/// Calls of which the median is a point of a curve.
const CALLS: usize = 15;
/// Points at the upper end that give the exponent: below, the constant part of a cost prevails.
const UPPER: usize = 3;
/// Time for one curve; a hundred thousand executions take a minute on a quiet machine.
const CURVE_TIME_MAX: Duration = Duration::from_secs(1_800);
/// Linear, and what a measurement varies by.
const EXPONENT_MAX: f64 = 1.15;

pub(super) async fn all(
    prefix: &Path,
    plots: Option<&Path>,
    wanted: &dyn Fn(&str) -> bool,
) -> Fallible<Vec<Row>> {
    let mut curves = Vec::new();
    if wanted("curve-sessions") {
        tell("growth: sessions");
        curves.push(in_time("curve-sessions", sessions(prefix)).await?);
    }
    if wanted("curve-output") || wanted("curve-files") {
        tell("growth: outputs and files");
        let folder = Folder::new("curves")?;
        let server = start(prefix, &folder, &["session_pool_size=0"]).await?;
        if wanted("curve-output") {
            curves.push(in_time("curve-output", output(server.address)).await?);
        }
        if wanted("curve-files") {
            curves.push(in_time("curve-files", files(server.address)).await?);
        }
    }
    if wanted("curve-executions") || wanted("curve-history") {
        tell("growth: executions");
        let stored = in_time("curve-executions", executions(prefix)).await?;
        curves.extend(stored.into_iter().filter(|(curve, _)| wanted(curve.name)));
    }
    if let Some(folder) = plots {
        std::fs::create_dir_all(folder)?;
        for (curve, _) in &curves {
            let file = folder.join(format!("{}.svg", curve.name));
            std::fs::write(&file, plot::svg(curve))?;
            tell(&format!("{} is written", file.display()));
        }
    }
    Ok(curves.into_iter().map(|(_, row)| row).collect())
}

/// The result, or an error with the name of the row.
async fn in_time<T>(name: &str, measuring: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    match tokio::time::timeout(CURVE_TIME_MAX, measuring).await {
        Ok(measured) => measured.map_err(|error| format!("{name}: {error}").into()),
        Err(_) => Err(format!("{name} cannot be measured: it took over {CURVE_TIME_MAX:?}").into()),
    }
}

/// A curve and its row.
fn grown(
    name: &'static str,
    what: &'static str,
    size: &'static str,
    points: Vec<(f64, f64)>,
) -> (Curve, Row) {
    let exponent = exponent(&points);
    let row = Row { p99: None, ..row(name, what, "exponent", EXPONENT_MAX, vec![exponent]) };
    (Curve { name, what, size, points, exponent }, row)
}

/// Least squares of the logarithms of the last points.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let upper = points.get(points.len().saturating_sub(UPPER)..).unwrap_or_default();
    let logarithms: Vec<(f64, f64)> = upper.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = f64::from(u32::try_from(logarithms.len()).unwrap_or(1));
    let mean_x = logarithms.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logarithms.iter().map(|(_, y)| y).sum::<f64>() / count;
    let over: f64 = logarithms.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = logarithms.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    over / under
}

async fn run(
    connection: &mut Connection,
    server: SocketAddr,
    session: &str,
    code: &str,
) -> Fallible<()> {
    let body = json!({ "code": code, "session_id": session });
    let answer = connection.exchange(&client::post(server, "/execute", "", &body)).await?;
    let reply: serde_json::Value = serde_json::from_slice(&answer.body)?;
    match reply["success"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(format!("a run failed: {reply}").into()),
    }
}

/// The median time of a few calls, in milliseconds.
async fn median(
    connection: &mut Connection,
    server: SocketAddr,
    session: &str,
    code: &str,
) -> Fallible<f64> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        run(connection, server, session, code).await?;
        times.push(milliseconds(began.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(CALLS / 2).copied().unwrap_or_default())
}

/// Time until so many sessions are there, each with a kernel that has run something.
async fn sessions(prefix: &Path) -> Fallible<(Curve, Row)> {
    let folder = Folder::new("curves")?;
    let settings = ["session_pool_size=0", "max_kernels=1000", "max_sessions=2000"];
    let server = start(prefix, &folder, &settings).await?;
    let mut connection = Connection::open(server.address).await?;
    run(&mut connection, server.address, "first", "print(1)").await?;
    let (mut points, mut made, mut took) = (Vec::new(), 0, 0.0);
    for size in SESSIONS {
        let began = Instant::now();
        while made < *size && made < 990 {
            run(&mut connection, server.address, &format!("s{made}"), "print(1)").await?;
            made += 1;
        }
        took += milliseconds(began.elapsed());
        points.push((f64::from(made), took));
    }
    Ok(grown("curve-sessions", "sessions made one after the other, all alive", "sessions", points))
}

async fn output(server: SocketAddr) -> Fallible<(Curve, Row)> {
    let mut connection = Connection::open(server).await?;
    let mut points = Vec::new();
    for bytes in OUTPUT_BYTES {
        let code = format!("print('y' * {bytes})");
        points.push((f64::from(*bytes), median(&mut connection, server, "output", &code).await?));
    }
    Ok(grown("curve-output", "a run that prints", "bytes", points))
}

async fn files(server: SocketAddr) -> Fallible<(Curve, Row)> {
    let mut connection = Connection::open(server).await?;
    let (mut points, mut made) = (Vec::new(), 0);
    for count in FILES {
        let code =
            format!("for n in range({made}, {count}): open(f'{{n}}.dat', 'w').write(str(n))");
        run(&mut connection, server, "files", &code).await?;
        made = *count;
        points
            .push((f64::from(*count), median(&mut connection, server, "files", "print(1)").await?));
    }
    Ok(grown("curve-files", "a run in a folder of files", "files", points))
}

/// Time until so many executions are stored, and of a page of the history then.
async fn executions(prefix: &Path) -> Fallible<[(Curve, Row); 2]> {
    let folder = Folder::new("curves")?;
    let server = start(prefix, &folder, &[]).await?;
    let mut connection = Connection::open(server.address).await?;
    let page = client::get(server.address, "/api/v1/executions?limit=100");
    let (mut stored, mut pages, mut took, mut made) = (Vec::new(), Vec::new(), 0.0, 0);
    for count in EXECUTIONS {
        let began = Instant::now();
        while made < *count {
            run(&mut connection, server.address, "stored", "1").await?;
            made += 1;
        }
        took += milliseconds(began.elapsed());
        stored.push((f64::from(*count), took));
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let began = Instant::now();
            let (status, _) = connection.fetch(&page).await?;
            if status != 200 {
                return Err(format!("the history has status {status}").into());
            }
            times.push(milliseconds(began.elapsed()));
        }
        times.sort_by(f64::total_cmp);
        pages.push((f64::from(*count), times.get(CALLS / 2).copied().unwrap_or_default()));
    }
    Ok([
        grown("curve-executions", "runs one after the other, all stored", "executions", stored),
        grown("curve-history", "a page of the history of so many", "executions", pages),
    ])
}

#[cfg(test)]
mod tests {
    use super::exponent;

    #[test]
    fn the_exponent_is_that_of_the_upper_end() {
        let of = |cost: fn(f64) -> f64| {
            let sizes = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];
            exponent(&sizes.map(|size| (size, cost(size))))
        };
        assert!((of(|size| 3.0 * size) - 1.0).abs() < 1e-9);
        assert!((of(|size| size * size) - 2.0).abs() < 1e-9);
        assert!(of(|_| 5.0).abs() < 1e-9);
        // A constant part does not hide what prevails in the end.
        assert!(of(|size| 50.0 + size * size / 100.0) > 1.5);
    }
}
