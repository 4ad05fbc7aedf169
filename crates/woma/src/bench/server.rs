//! Measured servers: child processes without the operator's settings, killed after the measurement.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use super::Fallible;
use super::client::Reply;
use crate::terminal::tell;

/// Time limit for a server to print its address.
const START_MAX: Duration = Duration::from_secs(30);
const START_STEP: Duration = Duration::from_millis(5);
/// Bytes of the log that are searched for the address.
const LOG_BYTES_READ: usize = 64 * 1024;
/// Time limit for a started server to become idle.
const SETTLE_MAX: Duration = Duration::from_secs(40);
const SETTLE_STEP: Duration = Duration::from_millis(200);
/// Time limit for one line of the pipes.
const LINE_MAX: Duration = Duration::from_secs(15);
const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// This program as a child process, with a clean environment, in an empty folder.
pub(super) fn ourselves(
    role: &str,
    environment: &Path,
    folder: &Folder,
    settings: &[&str],
) -> Fallible<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(role).arg("--env").arg(environment).arg("--data-dir").arg(&folder.0);
    for setting in settings {
        command.args(["--set", setting]);
    }
    command.env_clear().current_dir(&folder.0);
    Ok(command)
}

/// An empty folder for one child.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Fallible<Self> {
        let folder = std::env::temp_dir().join(format!("woma-bench-{name}-{}", std::process::id()));
        // Not `create_dir_all`: an existing folder belongs to another process.
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Folder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tell(&format!("{} stays behind: {error}", self.0.display()));
        }
    }
}

/// A listening server; killed on drop.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pid: u32,
    _child: Child,
}

impl Server {
    /// Starts it, and waits for the line with its address.
    pub(super) async fn start(mut command: Command) -> Fallible<Self> {
        // A file, not a pipe: waking up for every log line would slow the client, which shares the
        // processors with the server.
        let log = log()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
        let mut child = command.kill_on_drop(true).spawn()?;
        let pid = child.id().ok_or("the server has ended")?;
        let address = timeout(START_MAX, announced(&log, &mut child)).await;
        let address =
            address.map_err(|_| format!("a server did not start within {START_MAX:?}"))??;
        Ok(Self { address, pid, _child: child })
    }

    /// Waits until the server and its children are idle: preparation after the start would distort
    /// the figures.
    pub(super) async fn settle(&self) -> Fallible<()> {
        settle(self.pid).await
    }

    /// Resident memory of the server's own process, in MiB.
    pub(super) fn resident_mib(&self) -> Fallible<f64> {
        self.memory_mib("VmRSS:")
    }

    /// Peak resident memory since [`Server::forget_peak`].
    pub(super) fn peak_mib(&self) -> Fallible<f64> {
        self.memory_mib("VmHWM:")
    }

    pub(super) fn forget_peak(&self) -> Fallible<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5")?)
    }

    fn memory_mib(&self, row: &str) -> Fallible<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(row))
            .ok_or("a line is missing in /proc")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }
}

/// Unlinked file, removed when its last descriptor is closed.
fn log() -> Fallible<File> {
    let path = std::env::temp_dir().join(format!("woma-bench-log-{}", std::process::id()));
    let file = File::options().read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Address in the log of a listening server.
async fn announced(log: &File, child: &mut Child) -> Fallible<SocketAddr> {
    let mut start = vec![0; LOG_BYTES_READ];
    loop {
        let is_over = child.try_wait()?.is_some();
        let length = log.read_at(&mut start, 0)?;
        let said = String::from_utf8_lossy(start.get(..length).unwrap_or_default());
        let mut whole = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let found = whole.find_map(|line| line.split_once("listening on http://"));
        if let Some((_, address)) = found {
            return Ok(address.trim().parse()?);
        }
        if is_over {
            let last = said.lines().last().unwrap_or_default();
            return Err(format!("a server ended at its start: {last}").into());
        }
        sleep(START_STEP).await;
    }
}

async fn settle(pid: u32) -> Fallible<()> {
    /// Consecutive idle looks.
    const QUIET_STEPS: u32 = 4;
    let settled = timeout(SETTLE_MAX, async {
        let (mut quiet, mut before) = (0, ticks_of_tree(pid)?);
        while quiet < QUIET_STEPS {
            sleep(SETTLE_STEP).await;
            let now = ticks_of_tree(pid)?;
            // The wait itself may cost one tick.
            quiet = if now.saturating_sub(before) <= 1 { quiet + 1 } else { 0 };
            before = now;
        }
        Ok(())
    });
    settled.await.map_err(|_| format!("a server did not become idle within {SETTLE_MAX:?}"))?
}

/// Processor time of a process and its descendants.
fn ticks_of_tree(root: u32) -> Fallible<u64> {
    let mut processes = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // The process may have ended meanwhile.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        processes.extend(parse_stat(&stat).map(|known| (pid, known)));
    }
    if !processes.contains_key(&root) {
        return Err("the server has ended".into());
    }
    let is_below = |pid: &u32| {
        let mut at = *pid;
        // A tree that changes while it is read could contain a cycle.
        for _ in 0..64 {
            match processes.get(&at) {
                _ if at == root => return true,
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
        false
    };
    Ok(processes.iter().filter(|(pid, _)| is_below(pid)).map(|(_, (_, ticks))| ticks).sum())
}

/// Parent, and processor time in ticks. The process name before them may contain any character.
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |at: usize| rest.split_whitespace().nth(at);
    let (user, system): (u64, u64) = (field(11)?.parse().ok()?, field(12)?.parse().ok()?);
    Some((field(1)?.parse().ok()?, user + system))
}

/// A server on standard input and output, after its handshake; killed on drop.
#[derive(Debug)]
pub(super) struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    next_id: u64,
    pid: u32,
    _child: Child,
}

impl Pipes {
    pub(super) async fn start(mut command: Command) -> Fallible<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn()?;
        let pid = child.id().ok_or("the server has ended")?;
        let input = child.stdin.take().ok_or("the server has no standard input")?;
        let output = child.stdout.take().ok_or("the server has no standard output")?;
        let output = BufReader::with_capacity(64 * 1024, output);
        let mut pipes = Self { input, output, line: Vec::new(), next_id: 1, pid, _child: child };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "woma-bench", "version": "0"},
        });
        let request = pipes.request("initialize", &params);
        timeout(START_MAX, pipes.exchange(&request)).await??;
        let known = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        timeout(LINE_MAX, pipes.input.write_all(format!("{known}\n").as_bytes())).await??;
        Ok(pipes)
    }

    pub(super) async fn settle(&self) -> Fallible<()> {
        settle(self.pid).await
    }

    pub(super) fn print_one(&mut self) -> Vec<u8> {
        let arguments = json!({"code": "print(1)", "session_id": "warm"});
        self.request("tools/call", &json!({"name": "execute_code", "arguments": arguments}))
    }

    fn request(&mut self, method: &str, params: &Value) -> Vec<u8> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        format!("{request}\n").into_bytes()
    }

    /// Sends a line and returns the line of the reply.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> Fallible<()> {
        let answered = timeout(LINE_MAX, async {
            self.input.write_all(request).await?;
            self.line.clear();
            let mut limited = (&mut self.output).take(LINE_BYTES_MAX);
            limited.read_until(b'\n', &mut self.line).await
        });
        match answered.await {
            Ok(Ok(_)) if self.line.ends_with(b"\n") => Ok(()),
            Ok(Ok(_)) => Err("the server closed its output".into()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(format!("no reply within {LINE_MAX:?}").into()),
        }
    }

    /// The last reply, parsed.
    pub(super) fn reply(&self) -> Fallible<Reply> {
        Reply::of_rpc(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_process_names_with_brackets() {
        let stat = "7 (a) 9 (b) S 3 7 7 0 -1 0 0 0 0 0 12 30 0 0 20 0 1 0";
        assert_eq!(parse_stat(stat), Some((3, 42)));
        assert_eq!(parse_stat("nothing"), None);
    }

    #[test]
    fn counts_the_time_of_this_process() {
        assert!(ticks_of_tree(std::process::id()).is_ok());
        assert!(ticks_of_tree(u32::MAX).is_err());
    }

    #[test]
    fn a_folder_goes_with_its_owner() {
        let folder = Folder::new("test").unwrap();
        let path = folder.0.clone();
        assert!(path.is_dir());
        assert!(Folder::new("test").is_err());
        drop(folder);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_server_that_ends_at_its_start_says_why() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo no room >&2"]);
        let error = Server::start(command).await.unwrap_err();
        assert!(error.to_string().contains("no room"), "{error}");
    }
}
