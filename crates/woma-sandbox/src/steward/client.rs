//! The server's end of a steward: starts the process, speaks with it, ends it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::ROLE;
use super::control::{Order, Report, Setup, TreeOrder, TreeReport};
use crate::{channel, sys};

/// Longest line of a steward's or zygote's own messages that is logged, in bytes.
const LOG_LINE_BYTES_MAX: u64 = 8 * 1024;
/// How long the reason for a death may come after its news.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_millis(300);

/// A running steward. Dropping it ends the steward and with it every room.
#[derive(Debug)]
pub(crate) struct Client {
    control: Socket,
    trees: Mutex<Socket>,
    last_words: watch::Receiver<String>,
    _process: Child,
}

impl Client {
    pub(crate) fn spawn(program: &Path, setup: &Setup) -> io::Result<Self> {
        let (control, their_control) = channel::pair()?;
        let (trees, their_trees) = channel::pair()?;
        let mut process = Command::new(program)
            .arg(ROLE)
            .env_clear()
            .stdin(Stdio::from(their_control))
            .stdout(Stdio::from(their_trees))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            // Ctrl-C in a terminal is for the server, which lets what runs come to its end.
            .process_group(0)
            .spawn()?;
        channel::send(&control, setup, &[])?;
        let (speaker, last_words) = watch::channel(String::new());
        if let Some(stderr) = process.stderr.take() {
            tokio::spawn(log(stderr, speaker));
        }
        let trees = Mutex::new(Socket::new(trees)?);
        Ok(Self { control: Socket::new(control)?, trees, last_words, _process: process })
    }

    /// The last line that a zygote wrote to standard error, which for a Python that does not start
    /// is the reason. It may come a little after the news of the death.
    pub(crate) async fn last_words(&self) -> Option<String> {
        let mut words = self.last_words.clone();
        let spoken = timeout(LAST_WORDS_TIME_MAX, words.wait_for(|line| !line.is_empty())).await;
        spoken.ok()?.ok().map(|line| line.clone())
    }

    /// The next thing that the steward says; `None` when it has ended.
    pub(crate) async fn next(&self) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
        self.control.receive().await
    }

    pub(crate) async fn order(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(order).map_err(io::Error::other)?;
        self.control.send(&text, fds).await
    }

    /// A detached mount of a folder of the host.
    pub(crate) async fn tree(
        &self,
        order: &TreeOrder,
        user_namespace: Option<&OwnedFd>,
    ) -> io::Result<OwnedFd> {
        let fds: Vec<_> = user_namespace.iter().map(|fd| fd.as_fd()).collect();
        let socket = self.trees.lock().await;
        let text = serde_json::to_vec(order).map_err(io::Error::other)?;
        socket.send(&text, &fds).await?;
        match socket.receive().await? {
            Some((TreeReport::Tree, mut fds)) => {
                fds.pop().ok_or_else(|| io::Error::other("the launcher sent no folder"))
            }
            Some((TreeReport::Refused { step, reason }, _)) => {
                Err(io::Error::other(format!("{step}: {reason}")))
            }
            None => Err(io::Error::other("the launcher has ended")),
        }
    }
}

/// A message socket for a program that must not block.
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

/// Passes on what steward and zygotes write to standard error, a line at a time.
async fn log(stderr: ChildStderr, speaker: watch::Sender<String>) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(LOG_LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                tracing::warn!(target: "woma_sandbox::steward", "{line}");
                speaker.send_replace(line);
            }
        }
    }
}
