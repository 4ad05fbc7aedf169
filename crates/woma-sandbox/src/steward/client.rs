//! The server's connection to a steward: starts the process, exchanges messages, ends it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::ROLE;
use super::control::{Order, Report, Setup, TreeOrder, TreeReport};
use crate::rung::Rung;
use crate::{channel, keeper, sys};

/// Longest line logged from the standard error of steward and zygotes, in bytes.
const LOG_LINE_BYTES_MAX: u64 = 8 * 1024;
/// Time to wait for the last line on standard error after a zygote died.
const LAST_LINE_TIME_MAX: Duration = Duration::from_millis(300);

/// A running steward. Dropping it ends the steward and with it every room.
#[derive(Debug)]
pub(crate) struct Client {
    control: Socket,
    trees: Mutex<Socket>,
    last_stderr_line: watch::Receiver<String>,
    /// `None` for a steward started by the keeper, which ends when its sockets close.
    _process: Option<Child>,
}

impl Client {
    pub(crate) fn spawn(program: &Path, setup: &Setup) -> io::Result<Self> {
        let (control, their_control) = channel::pair()?;
        let (trees, their_trees) = channel::pair()?;
        let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let process = match keeper::of_this_process() {
            Some(keeper) => {
                keeper.steward([
                    their_control.as_fd(),
                    their_trees.as_fd(),
                    their_stderr.as_fd(),
                ])?;
                None
            }
            None => Some(start((program, setup.rung), their_control, their_trees, their_stderr)?),
        };
        channel::send(&control, setup, &[])?;
        let (sender, last_stderr_line) = watch::channel(String::new());
        rustix::io::ioctl_fionbio(&stderr, true)?;
        tokio::spawn(log(pipe::Receiver::from_owned_fd(stderr)?, sender));
        let trees = Mutex::new(Socket::new(trees)?);
        Ok(Self { control: Socket::new(control)?, trees, last_stderr_line, _process: process })
    }

    /// Last line that a zygote wrote to standard error: for a Python that does not start, the
    /// reason. It may arrive shortly after the report of the death.
    pub(crate) async fn last_stderr_line(&self) -> Option<String> {
        let mut words = self.last_stderr_line.clone();
        let spoken = timeout(LAST_LINE_TIME_MAX, words.wait_for(|line| !line.is_empty())).await;
        spoken.ok()?.ok().map(|line| line.clone())
    }

    /// Next report of the steward; `None` when it has ended.
    pub(crate) async fn next(&self) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
        self.control.receive().await
    }

    pub(crate) async fn order(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(order).map_err(io::Error::other)?;
        self.control.send(&text, fds).await
    }

    /// Detached mount of a host folder. `process`: a process of the room, for its id mapping.
    pub(crate) async fn tree(
        &self,
        order: &TreeOrder,
        process: Option<BorrowedFd<'_>>,
    ) -> io::Result<OwnedFd> {
        let fds: Vec<_> = process.into_iter().collect();
        let socket = self.trees.lock().await;
        let text = serde_json::to_vec(order).map_err(io::Error::other)?;
        socket.send(&text, &fds).await?;
        match socket.receive().await? {
            Some((TreeReport::Tree, mut fds)) => {
                fds.pop().ok_or_else(|| io::Error::other("the launcher sent no descriptor"))
            }
            Some((TreeReport::Refused { step, reason }, _)) => {
                Err(io::Error::other(format!("{step}: {reason}")))
            }
            None => Err(io::Error::other("the launcher has ended")),
        }
    }
}

fn start(
    (program, rung): (&Path, Rung),
    control: OwnedFd,
    trees: OwnedFd,
    stderr: OwnedFd,
) -> io::Result<Child> {
    Command::new(program)
        .arg(ROLE)
        .env_clear()
        .stdin(Stdio::from(control))
        .stdout(Stdio::from(trees))
        .stderr(Stdio::from(stderr))
        // Without namespaces, it has folders to remove; it ends when its socket closes.
        .kill_on_drop(!rung.is_shared())
        // Ctrl-C in a terminal is for the server, which lets running code finish.
        .process_group(0)
        .spawn()
}

/// Non-blocking message socket.
#[derive(Debug)]
pub(crate) struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(sys::watch_fd(fd)?))
    }

    pub(crate) async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut guard = self.0.writable().await?;
            match guard.try_io(|inner| channel::send_bytes(inner.get_ref().as_fd(), bytes, fds)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Sends a message, or fails if the other side is behind.
    pub(crate) fn send_now(&self, message: &impl serde::Serialize) -> io::Result<()> {
        channel::send(self.0.get_ref().as_fd(), message, &[])
    }

    pub(crate) async fn receive<M: serde::de::DeserializeOwned>(
        &self,
    ) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        loop {
            let mut guard = self.0.readable().await?;
            match guard.try_io(|inner| channel::receive(inner.get_ref().as_fd())) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    pub(crate) async fn receive_bytes(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Vec<OwnedFd>)> {
        loop {
            let mut guard = self.0.readable().await?;
            let got = guard.try_io(|inner| channel::receive_bytes(inner.get_ref().as_fd(), buffer));
            match got {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }
}

/// Logs the standard error of steward and zygotes, line by line.
pub(crate) async fn log(stderr: pipe::Receiver, sender: watch::Sender<String>) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(LOG_LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                tracing::warn!(target: "woma_sandbox::steward", "{line}");
                sender.send_replace(line);
            }
        }
    }
}
