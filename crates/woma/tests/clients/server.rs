//! The server under test: started on first use, stopped at the end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(15);
/// Of the servers that have one.
pub(crate) const KEY: &str = "a-key-that-is-only-for-tests";
const READY: &str = "listening on http://";

/// The plain one, the one with the tools that the conformance suite calls, and those with a key.
#[derive(Default)]
pub(crate) struct Servers {
    plain: OnceCell<Server>,
    conformance: OnceCell<Server>,
    keyed: OnceCell<Server>,
    service: OnceCell<Server>,
}

impl Servers {
    pub(crate) async fn plain(&self) -> &Server {
        self.plain.get_or_init(|| Server::start(&[])).await
    }

    pub(crate) async fn conformance(&self) -> &Server {
        self.conformance.get_or_init(|| Server::start(&["--conformance"])).await
    }

    /// Its runs end early: what is sent to it is not meant to do anything.
    pub(crate) async fn keyed(&self) -> &Server {
        let arguments = ["--api-key", KEY, "--max-execution-time", "5"];
        self.keyed.get_or_init(|| Server::start(&arguments)).await
    }

    /// With the defaults of an older system, and with a key.
    pub(crate) async fn service(&self) -> &Server {
        let arguments = ["--preset", "sandbox-service", "--api-key", KEY];
        self.service.get_or_init(|| Server::start(&arguments)).await
    }

    pub(crate) async fn stop(self) -> Result<(), String> {
        let servers = [self.plain, self.conformance, self.keyed, self.service];
        for server in servers.into_iter().filter_map(OnceCell::into_inner) {
            server.stop().await?;
        }
        Ok(())
    }
}

pub(crate) struct Server {
    child: Child,
    /// Without a slash at its end.
    pub(crate) url: String,
    log: Arc<Mutex<String>>,
    _data: TempDir,
}

impl Server {
    async fn start(extra: &[&str]) -> Self {
        let data = data_dir();
        let mut child = Command::new(env!("CARGO_BIN_EXE_woma"))
            .args(global_arguments(data.path()))
            .args(["serve", "--host", "127.0.0.1", "--port", "0"])
            .args(extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (ready, listening) = oneshot::channel();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        tokio::spawn({
            let log = Arc::clone(&log);
            async move {
                let mut ready = Some(ready);
                // Read to its end, for a full pipe would stop the server.
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(url) = listening_url(&line)
                        && let Some(ready) = ready.take()
                    {
                        drop(ready.send(url));
                    }
                    let mut log = log.lock().unwrap();
                    log.push_str(&line);
                    log.push('\n');
                }
            }
        });
        let listening = timeout(START, listening).await;
        let Ok(Ok(url)) = listening else {
            panic!("the server did not say `{READY}…`: {}", log.lock().unwrap());
        };
        Self { child, url, log, _data: data }
    }

    async fn stop(mut self) -> Result<(), String> {
        let Some(pid) = self.child.id() else {
            return Err(format!("the server ended by itself: {}", self.log.lock().unwrap()));
        };
        // The shell's own `kill`, which is there wherever a shell is.
        let killed =
            Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid.to_string()]).status();
        killed.await.map_err(|error| format!("SIGTERM cannot be sent: {error}"))?;
        match timeout(STOP, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            ended => {
                let log = self.log.lock().unwrap();
                Err(format!("the server did not end well upon SIGTERM: {ended:?}\n{log}"))
            }
        }
    }
}

fn listening_url(line: &str) -> Option<String> {
    let at = line.find(READY)? + READY.len();
    let host: String = line[at..]
        .chars()
        .take_while(|letter| letter.is_ascii_digit() || ".:".contains(*letter))
        .collect();
    Some(format!("http://{host}"))
}

/// The command line by which a client starts the server on standard input and output.
pub(crate) fn stdio_command(data: &Path) -> Vec<String> {
    let mut command = bare_command(data);
    command.push("stdio".to_owned());
    command
}

/// The same without a word for it, as in most configuration files.
pub(crate) fn bare_command(data: &Path) -> Vec<String> {
    let mut command = vec![env!("CARGO_BIN_EXE_woma").to_owned()];
    command.extend(global_arguments(data));
    command
}

fn global_arguments(data: &Path) -> [String; 4] {
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    ["--data-dir".to_owned(), path(data), "--env".to_owned(), path(&setting("WOMA_TEST_ENV"))]
}

/// A server's own data, so that several can run at once.
pub(crate) fn data_dir() -> TempDir {
    tempfile::Builder::new().prefix("woma-clients-").tempdir().unwrap()
}

pub(crate) fn setting(name: &str) -> PathBuf {
    let set = std::env::var_os(name);
    assert!(set.is_some(), "{name} must be set; `make test` fetches what is needed and sets it");
    set.map(PathBuf::from).unwrap_or_default()
}
