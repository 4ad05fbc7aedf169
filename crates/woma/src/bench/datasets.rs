//! Datasets beside `DuckDB` in a bare process and beside `PostgreSQL`: the same file loaded, the same
//! statements. Both sides are measured in turns, so that other work on the machine affects both.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::client::{self, Connection};
use super::endpoints::named;
use super::measure::{milliseconds, row};
use super::server::{Folder, Server, ourselves};
use super::{Against, Fallible, Row};
use crate::terminal::tell;

/// All rows of this file.
pub(super) const NAMES: &[&str] = &["datasets-load", "datasets-group", "datasets-tpch"];

const SCRIPT: &str = include_str!("../../bench/datasets.py");
const TPCH_TABLES: &str = include_str!("../../bench/tpch_tables.sql");
const TPCH_QUERIES: &str = include_str!("../../bench/tpch_queries.sql");
const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"];
const GROUP: &str = "SELECT region, product, count(*) AS n, sum(amount) AS total, \
                     avg(quantity) AS mean, max(day) AS latest FROM sales GROUP BY region, product \
                     ORDER BY region, product";
/// Promised multiples of the engine's own time, and milliseconds beside it.
const LOAD_FACTOR: f64 = 1.3;
const QUERY_FACTOR: f64 = 1.5;
const QUERY_EXTRA_MS: f64 = 5.0;
/// Rows that a reply must have room for.
const ROWS: u64 = 10_000;
/// Time limit of one request to the other side.
const REPLY_MAX: Duration = Duration::from_mins(5);

pub(super) async fn all(prefix: &Path, wanted: &dyn Fn(&str) -> bool) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    if !NAMES.iter().any(|name| wanted(name)) {
        return Ok(rows);
    }
    tell("a server with datasets, and DuckDB in a process beside it");
    let (folder, beside) = (Folder::new("datasets")?, Folder::new("duckdb")?);
    let settings = ["session_pool_size=2", "disk_mb=4096", "file_max_mb=1024"];
    let mut command = ourselves("serve", prefix, &folder, &settings)?;
    command.args(["--port", "0"]);
    let server = Server::start(command).await?;
    // Both sides are measured in turns: on a machine with other work, the figures still compare.
    if let Err(error) = server.settle().await {
        tell(&format!("measured all the same: {error}"));
    }
    let mut bare = Bare::start(prefix, &beside)?;
    let mut ours =
        Ours { address: server.address, connection: Connection::open(server.address).await? };
    if wanted("datasets-load") || wanted("datasets-group") {
        bare.ask(&json!({ "do": "make" })).await?;
        ours.take(&beside.path().join("sales.csv")).await?;
        let postgres = bare.ask(&json!({ "do": "postgres-start" })).await;
        if let Err(error) = &postgres {
            tell(&format!("not compared with PostgreSQL: {error}"));
        }
        let has_postgres = postgres.is_ok();
        rows.push(named("datasets-load", load(&mut ours, &mut bare, has_postgres)).await?);
        rows.push(named("datasets-group", group(&mut ours, &mut bare, has_postgres)).await?);
    }
    if wanted("datasets-tpch") {
        tell("the tables of TPC-H at scale 0.1, by a generator of our own");
        bare.ask(&json!({ "do": "tables", "sql": TPCH_TABLES, "names": TABLES })).await?;
        for name in TABLES {
            let file = format!("{name}.parquet");
            ours.take(&beside.path().join(&file)).await?;
            ours.load(&file, name).await?;
        }
        rows.push(named("datasets-tpch", tpch(&mut ours, &mut bare)).await?);
    }
    rows.retain(|row| wanted(row.name));
    Ok(rows)
}

/// The server, through its REST interface.
struct Ours {
    address: SocketAddr,
    connection: Connection,
}

impl Ours {
    /// Puts a file into the session.
    async fn take(&mut self, path: &Path) -> Fallible<()> {
        let name =
            path.file_name().and_then(|name| name.to_str()).ok_or("a file without a name")?;
        let content = std::fs::read(path)?;
        let head = format!(
            "PUT /api/v1/sessions/bench/files/{name} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            content.len()
        );
        let request = [head.as_bytes(), &content].concat();
        self.exchange(&request).await.map(drop)
    }

    async fn load(&mut self, path: &str, name: &str) -> Fallible<f64> {
        let body = json!({
            "file_path": path, "dataset_name": name, "session_id": "bench", "timeout": 300,
        });
        self.timed("/api/v1/datasets", &body).await.map(|(seconds, _)| seconds)
    }

    async fn query(&mut self, sql: &str) -> Fallible<(f64, Value)> {
        self.timed("/api/v1/queries", &json!({ "sql": sql, "limit": ROWS })).await
    }

    async fn timed(&mut self, path: &str, body: &Value) -> Fallible<(f64, Value)> {
        let request = client::post(self.address, path, "", body);
        let started = Instant::now();
        let reply = self.exchange(&request).await?;
        Ok((started.elapsed().as_secs_f64(), serde_json::from_slice(&reply)?))
    }

    async fn exchange(&mut self, request: &[u8]) -> Fallible<Vec<u8>> {
        let answer = self.connection.exchange(request).await?;
        match answer.status {
            200 | 201 => Ok(answer.body),
            status => Err(format!("{status}: {}", String::from_utf8_lossy(&answer.body)).into()),
        }
    }
}

/// `DuckDB` in a process of the environment's Python; it ends with its input.
struct Bare {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

#[derive(Deserialize)]
struct BareReply {
    seconds: Option<f64>,
    error: Option<String>,
}

impl Bare {
    fn start(prefix: &Path, folder: &Folder) -> Fallible<Self> {
        let mut command = Command::new(prefix.join("bin/python"));
        command.args(["-I", "-c", SCRIPT]).current_dir(folder.path()).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("the process has no standard input")?;
        let output = child.stdout.take().ok_or("the process has no standard output")?;
        Ok(Self { input, output: BufReader::new(output).lines(), _child: child })
    }

    /// Sends a request; returns the seconds that the work took.
    async fn ask(&mut self, request: &Value) -> Fallible<f64> {
        self.input.write_all(format!("{request}\n").as_bytes()).await?;
        let line = timeout(REPLY_MAX, self.output.next_line()).await??;
        let reply: BareReply = serde_json::from_str(&line.ok_or("the process has ended")?)?;
        match (reply.seconds, reply.error) {
            (Some(seconds), None) => Ok(seconds),
            (_, error) => Err(error.unwrap_or_else(|| "an empty reply".to_owned()).into()),
        }
    }

    async fn query(&mut self, sql: &str) -> Fallible<f64> {
        self.ask(&json!({ "do": "sql", "sql": sql })).await
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn against(peer: &'static str, value: f64, ours: f64) -> Against {
    Against { peer, value, ratio: value / ours }
}

/// 1.5 million rows of CSV.
async fn load(ours: &mut Ours, bare: &mut Bare, has_postgres: bool) -> Fallible<Row> {
    const TIMES: usize = 5;
    let (mut values, mut theirs, mut postgres) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        theirs.push(bare.ask(&json!({ "do": "load" })).await? * 1e3);
        values.push(ours.load("sales.csv", "sales").await? * 1e3);
        if has_postgres {
            postgres.push(bare.ask(&json!({ "do": "postgres-load" })).await? * 1e3);
        }
    }
    let theirs = median(theirs);
    let what = "1.5 million rows of CSV loaded; promised: 1.3 × DuckDB in a bare process";
    let mut row = row("datasets-load", what, "ms", theirs * LOAD_FACTOR, values);
    row.against.push(against("duckdb", theirs, row.p50));
    if has_postgres {
        row.against.push(against("postgresql", median(postgres), row.p50));
    }
    Ok(row)
}

/// A warm aggregate over them.
async fn group(ours: &mut Ours, bare: &mut Bare, has_postgres: bool) -> Fallible<Row> {
    const TIMES: usize = 30;
    bare.ask(&json!({ "do": "view" })).await?;
    let (mut values, mut theirs, mut postgres) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..TIMES + 3 {
        let bare_time = bare.query(GROUP).await? * 1e3;
        let (time, reply) = ours.query(GROUP).await?;
        if reply["row_count"] != 1_000 {
            return Err(format!("unexpected groups: {}", reply["row_count"]).into());
        }
        // The first ones are a warm-up.
        if number >= 3 {
            theirs.push(bare_time);
            values.push(time * 1e3);
        }
        if has_postgres && number % 10 == 0 {
            let asked = json!({ "do": "postgres-sql", "sql": GROUP });
            postgres.push(bare.ask(&asked).await? * 1e3);
        }
    }
    let theirs = median(theirs);
    let what = "1.5 million rows grouped, warm; promised: 1.5 × DuckDB in a bare process + 5 ms";
    let promise = theirs.mul_add(QUERY_FACTOR, QUERY_EXTRA_MS);
    let mut row = row("datasets-group", what, "ms", promise, values);
    row.against.push(against("duckdb", theirs, row.p50));
    if has_postgres {
        row.against.push(against("postgresql", median(postgres), row.p50));
    }
    Ok(row)
}

/// The 22 queries of TPC-H: the worst of them, as a part of its promised time.
async fn tpch(ours: &mut Ours, bare: &mut Bare) -> Fallible<Row> {
    const TIMES: usize = 7;
    let mut parts = Vec::new();
    for (number, sql) in (1..).zip(tpch_queries()) {
        let (mut values, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..=TIMES {
            theirs.push(bare.query(sql).await? * 1e3);
            let started = Instant::now();
            ours.query(sql).await.map_err(|error| format!("query {number}: {error}"))?;
            values.push(milliseconds(started.elapsed()));
        }
        // The first one is a warm-up.
        let (value, their) = (median(values.split_off(1)), median(theirs.split_off(1)));
        let promise = their.mul_add(QUERY_FACTOR, QUERY_EXTRA_MS);
        tell(&format!("TPC-H {number:>2}: {value:>7.1} ms, DuckDB {their:>7.1} ms"));
        parts.push(value / promise);
    }
    let worst = parts.into_iter().fold(0.0, f64::max);
    let what =
        "the worst of the 22 queries of TPC-H at scale 0.1, as a part of 1.5 × DuckDB + 5 ms";
    let mut row = row("datasets-tpch", what, "times", 1.0, vec![worst]);
    row.p99 = None;
    Ok(row)
}

/// The queries, which lines with their numbers separate.
fn tpch_queries() -> Vec<&'static str> {
    let mut queries = Vec::new();
    let mut rest = TPCH_QUERIES;
    for number in 1.. {
        let Some((_, query)) = rest.split_once(&format!("-- {number}\n")) else { break };
        rest = query;
        let end = query.find(&format!("-- {}\n", number + 1)).unwrap_or(query.len());
        queries.extend(query.get(..end).map(str::trim));
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::tpch_queries;

    #[test]
    fn there_are_22_queries() {
        let queries = tpch_queries();
        assert_eq!(queries.len(), 22);
        assert!(queries.iter().all(|sql| !sql.is_empty() && !sql.contains("-- ")));
        assert!(queries[0].contains("sum_disc_price") && queries[21].contains("cntrycode"));
    }
}
