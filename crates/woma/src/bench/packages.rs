//! Cost of packages: installing one whose file is known, and the same again in another session, beside
//! pip and uv with warm caches, all from one index on loopback.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use woma_core::environments::Environment;

use super::client::{self, Connection};
use super::endpoints::{named, start};
use super::measure::{milliseconds, row};
use super::server::{Folder, Server};
use super::{Against, Fallible, Row};
use crate::terminal::tell;

/// All rows of this file.
pub(super) const NAMES: &[&str] = &["packages-install", "packages-again"];

const INDEX: &str = include_str!("packages_index.py");
const PACKAGE: &str = "woma-bench-package";
/// Installations of each kind.
const ROUNDS: usize = 10;
const INDEX_START_MAX: Duration = Duration::from_secs(20);

pub(super) async fn all(
    environment: &Environment,
    wanted: &dyn Fn(&str) -> bool,
) -> Fallible<Vec<Row>> {
    if !NAMES.iter().any(|name| wanted(name)) {
        return Ok(Vec::new());
    }
    tell("a server with an index of packages");
    let folder = Folder::new("packages")?;
    let index = Index::start(&environment.python).await?;
    let settings = [format!("package_index_url={}", index.url), "package_rate_limit=100000".into()];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = start(&environment.prefix, &folder, &settings).await?;
    let mut rows = Vec::new();
    for (name, row) in NAMES.iter().zip(named("packages", measured(&server)).await?) {
        if wanted(name) {
            rows.push(row);
        }
    }
    let peers = peers(environment, &index.url, folder.path()).await?;
    for row in &mut rows {
        row.against.extend(peers.iter().map(|(peer, value)| Against {
            peer,
            value: *value,
            ratio: value / row.p50,
        }));
    }
    Ok(rows)
}

/// Installs with a request that was never made, whose file is known; then the same request in
/// another session.
async fn measured(server: &Server) -> Fallible<[Row; 2]> {
    let mut connection = Connection::open(server.address).await?;
    let mut install = async |session: String, requirement: &str| -> Fallible<f64> {
        let path = format!("/api/v1/sessions/{session}/packages");
        let request = client::post(server.address, &path, "", &json!({ "packages": requirement }));
        let began = Instant::now();
        let answer = connection.exchange(&request).await?;
        let took = milliseconds(began.elapsed());
        let reply: Value = serde_json::from_slice(&answer.body)?;
        match reply["installed_version"].as_str() {
            Some("1.0") => Ok(took),
            _ => Err(format!("a package was not installed: {reply}").into()),
        }
    };
    install("first".to_owned(), PACKAGE).await?;
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Solved anew: no request has said this before.
        let requirement = format!("{PACKAGE}>=0.{round}");
        fresh.push(install(format!("fresh-{round}"), &requirement).await?);
        again.push(install(format!("again-{round}"), &requirement).await?);
    }
    let fresh_what = "a package whose file is known → installed and recorded, in a new session";
    let again_what = "the same in a second session";
    Ok([
        row("packages-install", fresh_what, "ms", 300.0, fresh),
        row("packages-again", again_what, "ms", 30.0, again),
    ])
}

/// The same package, installed into a folder by pip and by uv that have it in their caches.
async fn peers(
    environment: &Environment,
    url: &str,
    folder: &Path,
) -> Fallible<Vec<(&'static str, f64)>> {
    let mut peers = Vec::new();
    let python = environment.python.as_os_str();
    if let Some(uv) = &environment.installer {
        let arguments = ["pip", "install", "--quiet", "--default-index", url, "--python"];
        let mut command = vec![uv.as_os_str()];
        command.extend(arguments.map(std::ffi::OsStr::new));
        command.push(python);
        peers.push(("uv", timed(&command, folder, "uv").await?));
    }
    let base = base_python(environment);
    let has_pip = Command::new(&base).args(["-m", "pip", "--version"]).output().await;
    if has_pip.is_ok_and(|output| output.status.success()) {
        let arguments = ["-m", "pip", "install", "--quiet", "--no-input", "--index-url", url];
        let mut command = vec![base.as_os_str()];
        command.extend(arguments.map(std::ffi::OsStr::new));
        peers.push(("pip", timed(&command, folder, "pip").await?));
    }
    Ok(peers)
}

/// The interpreter below an environment: environments have no pip.
fn base_python(environment: &Environment) -> PathBuf {
    let name = format!("bin/python{}.{}", environment.version.0, environment.version.1);
    environment.base_prefix.join(name)
}

/// Median time of a command that installs the package into a new folder, after one that filled its
/// cache.
async fn timed(command: &[&std::ffi::OsStr], folder: &Path, name: &'static str) -> Fallible<f64> {
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let mut run = Command::new(command.first().ok_or("no command")?);
        run.args(command.iter().skip(1)).arg("--target");
        run.arg(folder.join(format!("{name}-{round}"))).arg(PACKAGE);
        run.env_clear().env("HOME", folder).env("PATH", "/usr/bin:/bin");
        run.env("UV_CACHE_DIR", folder.join("uv-cache"));
        run.env("PIP_CACHE_DIR", folder.join("pip-cache"));
        run.env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env("PIP_ROOT_USER_ACTION", "ignore");
        let began = Instant::now();
        let output = run.stdin(Stdio::null()).output().await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{name} has installed nothing: {said}").into());
        }
        if round > 0 {
            times.push(milliseconds(began.elapsed()));
        }
    }
    Ok(row(name, "", "ms", 0.0, times).p50)
}

/// The index; killed when it is dropped.
struct Index {
    url: String,
    _child: Child,
}

impl Index {
    async fn start(python: &Path) -> Fallible<Self> {
        let mut command = Command::new(python);
        command.args(["-I", "-c", INDEX]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().ok_or("the index has no output")?;
        let mut line = String::new();
        let mut lines = BufReader::new(stdout);
        timeout(INDEX_START_MAX, lines.read_line(&mut line)).await??;
        let port: u16 = line.trim().parse()?;
        Ok(Self { url: format!("http://127.0.0.1:{port}/simple"), _child: child })
    }
}
