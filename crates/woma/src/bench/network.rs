//! Cost of the network of sessions: the same program in a session and outside of one, against the
//! same host on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use serde_json::{Value, json};
use tokio::process::Command;

use super::client::{self, Connection};
use super::endpoints::{named, start};
use super::measure::row;
use super::server::Folder;
use super::{Against, Fallible, Row};
use crate::terminal::tell;

/// All rows of this file.
pub(super) const NAMES: &[&str] =
    &["network-http", "network-tunnel", "network-secret", "network-request"];

/// Program of all rows: it prints one number. The arguments are set before it.
const PROGRAM: &str = include_str!("../../bench/network.py");
/// Ports of the host, as sessions see them: for HTTP, for HTTP with a secret, for a protocol of its own.
const HTTP: u16 = 80;
const SECRET: u16 = 81;
const OTHER: u16 = 9_000;
/// Times that each row is measured.
const ROUNDS: usize = 5;

pub(super) async fn all(prefix: &Path, wanted: &dyn Fn(&str) -> bool) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    if !NAMES.iter().any(|name| wanted(name)) {
        return Ok(rows);
    }
    tell("a server whose sessions have a network");
    let host = host()?;
    let folder = Folder::new("network")?;
    let rules = format!("network=bench.test:{HTTP}+{SECRET}+{OTHER}");
    let place = |port: u16| format!("bench.test:{port}={host}");
    let placed = format!("network_hosts={}", [HTTP, SECRET, OTHER].map(place).join(","));
    let secrets = folder.path().join("secrets.toml");
    let text =
        format!("[KEY]\nvalue = 'a-value-of-the-benchmark'\nhosts = ['bench.test:{SECRET}']\n");
    std::fs::write(&secrets, text)?;
    let secrets = format!("secrets_file={}", secrets.display());
    let settings = [rules.as_str(), &placed, &secrets, "network_session_bytes=0"];
    let server = start(prefix, &folder, &settings).await?;
    let measured = Measured { prefix, host, server: server.address };
    for (name, what, way) in [
        ("network-http", "megabytes a second to a session, by plain HTTP", ("http", HTTP, 500.0)),
        (
            "network-tunnel",
            "megabytes a second to a session, by another protocol",
            ("raw", OTHER, 500.0),
        ),
        (
            "network-secret",
            "the same by plain HTTP, from a host that a secret is bound to",
            ("http", SECRET, 200.0),
        ),
    ] {
        if wanted(name) {
            rows.push(named(name, measured.throughput(name, what, way)).await?);
        }
    }
    if wanted("network-request") {
        rows.push(named("network-request", measured.request()).await?);
    }
    Ok(rows)
}

struct Measured<'a> {
    prefix: &'a Path,
    host: SocketAddr,
    server: SocketAddr,
}

impl Measured<'_> {
    async fn throughput(
        &self,
        name: &'static str,
        what: &'static str,
        (mode, port, least): (&str, u16, f64),
    ) -> Fallible<Row> {
        let (inside, outside) = self.both(mode, port).await?;
        let direct = row(name, what, "MB/s", 0.0, outside).p50;
        let measured = row(name, what, "MB/s", least, inside);
        let ratio = measured.p50 / direct;
        let against = vec![Against { peer: "a direct connection", value: direct, ratio }];
        Ok(Row { at_least: true, p99: None, against, ..measured })
    }

    async fn request(&self) -> Fallible<Row> {
        let what = "a request on a connection that is open; promised 1 ms more than a direct one";
        let (inside, outside) = self.both("requests", HTTP).await?;
        let direct = row("network-request", what, "ms", 0.0, outside).p50;
        let measured = row("network-request", what, "ms", direct + 1.0, inside);
        let ratio = direct / measured.p50;
        let against = vec![Against { peer: "a direct connection", value: direct, ratio }];
        Ok(Row { p99: None, against, ..measured })
    }

    /// Figures of the program in a session, and of the same program on the host, in turns.
    async fn both(&self, mode: &str, port: u16) -> Fallible<(Vec<f64>, Vec<f64>)> {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        let program = |host: &str, port: u16| {
            format!("HOST, PORT, MODE = {}, {port}, {}\n{PROGRAM}", json!(host), json!(mode))
        };
        let mut connection = Connection::open(self.server).await?;
        let body = json!({ "code": program("bench.test", port), "session_id": "bench" });
        let request = client::post(self.server, "/api/v1/execute_sync", "", &body);
        let python = self.prefix.join("bin/python");
        let ip = self.host.ip().to_string();
        for _ in 0..ROUNDS {
            let answer = connection.exchange(&request).await?;
            let reply: Value = serde_json::from_slice(&answer.body)?;
            let figure = reply["data"]["stdout"].as_str().and_then(|text| text.trim().parse().ok());
            inside.push(figure.ok_or_else(|| format!("the session failed: {reply}"))?);
            let mut direct = Command::new(&python);
            direct.args(["-I", "-c", &program(&ip, self.host.port())]);
            let output = direct.output().await?;
            outside.push(String::from_utf8(output.stdout)?.trim().parse()?);
        }
        Ok((inside, outside))
    }
}

/// A host on threads of its own: HTTP, where `/N` has N bytes, and after a byte 1 and a number as
/// much without any head.
fn host() -> Fallible<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(move || {
                // A client that has gone ends its thread.
                serve(socket).unwrap_or_default();
            });
        }
    });
    Ok(address)
}

fn serve(socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let block = vec![b'x'; 1 << 20];
    let mut writer = socket.try_clone()?;
    let mut reader = BufReader::new(socket);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let is_plain = line.starts_with('\u{1}');
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        // `GET /N HTTP/1.1`: the digits of the version follow those of the path.
        let digits =
            if is_plain { digits.as_str() } else { digits.strip_suffix("11").unwrap_or("0") };
        let mut left: usize = digits.parse().unwrap_or_default();
        if !is_plain {
            while line.trim() != "" {
                line.clear();
                reader.read_line(&mut line)?;
            }
            write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n")?;
        }
        while left > 0 {
            let part = left.min(block.len());
            writer.write_all(block.get(..part).unwrap_or_default())?;
            left -= part;
        }
        writer.flush()?;
        if is_plain {
            // The other side closes when it has everything.
            return reader.read_to_end(&mut Vec::new()).map(drop);
        }
    }
}
