//! A room as the server holds it: the handles by which it is interrupted, cleaned and ended.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::limits::cgroup::Group;
use crate::steward::client::Socket;
use crate::steward::room::{
    COMMAND_INTERRUPT, COMMAND_PREPARE, COMMAND_SEAL, COMMAND_SWEEP, COMMAND_WORKSPACE,
};
use crate::sys;

/// How long init may take to answer a command.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);

/// Dropping a room kills everything in it.
#[derive(Debug)]
pub(crate) struct Room {
    commands: Mutex<Socket>,
    init: Arc<OwnedFd>,
    pub(crate) kernel: AsyncFd<OwnedFd>,
    /// Pids as this process sees them.
    pub(crate) init_pid: u32,
    pub(crate) kernel_pid: u32,
    pub(crate) group: Option<Arc<Group>>,
    graves: mpsc::UnboundedSender<Grave>,
}

/// By descriptor, so that it never meets another process.
#[derive(Debug)]
pub(crate) struct Killer {
    init: Arc<OwnedFd>,
    pid: u32,
}

impl Killer {
    /// Everything in the room is dead or dying when this returns.
    pub(crate) fn kill(&self) {
        match pidfd_send_signal(self.init.as_fd(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tracing::error!(%error, pid = self.pid, "a room cannot be killed"),
        }
    }
}

/// What is left to do for a room that was killed.
#[derive(Debug)]
pub(crate) struct Grave {
    pub(crate) init: Arc<OwnedFd>,
    pub(crate) group: Option<Arc<Group>>,
}

impl Room {
    pub(crate) fn new(
        fds: Vec<OwnedFd>,
        group: Option<Group>,
        graves: mpsc::UnboundedSender<Grave>,
    ) -> io::Result<Self> {
        let [commands, init, kernel] = <[OwnedFd; 3]>::try_from(fds)
            .map_err(|fds| io::Error::other(format!("{} descriptors and not 3", fds.len())))?;
        let init_pid = pid_of(&init)?;
        let kernel_pid = pid_of(&kernel)?;
        let group = group.map(Arc::new);
        let (init, kernel) = (Arc::new(init), sys::watch_fd(kernel)?);
        let commands = Mutex::new(Socket::new(commands)?);
        Ok(Self { commands, init, kernel, init_pid, kernel_pid, group, graves })
    }

    /// Everything in the room is dead or dying when this returns.
    pub(crate) fn kill(&self) {
        self.killer().kill();
    }

    /// Ends the room for whoever does not hold it.
    pub(crate) fn killer(&self) -> Killer {
        Killer { init: Arc::clone(&self.init), pid: self.init_pid }
    }

    /// Returns when every process of the room is dead.
    pub(crate) async fn wait_for_death(&self) -> io::Result<()> {
        wait_for_death(&self.init).await
    }

    /// SIGINT for the kernel and what it runs in the foreground.
    pub(crate) async fn interrupt(&self) -> io::Result<()> {
        self.command(COMMAND_INTERRUPT, None).await.map(|_| ())
    }

    /// Ends every process but the kernel; true if none is left.
    pub(crate) async fn sweep(&self) -> io::Result<bool> {
        Ok(self.command(COMMAND_SWEEP, None).await?.0 == 0)
    }

    /// Hides init from the kernel that has entered.
    pub(crate) async fn seal(&self) -> io::Result<()> {
        self.command(COMMAND_SEAL, None).await.map(|_| ())
    }

    /// Puts a folder in the place of the workspace, and gives it the session's name.
    pub(crate) async fn move_in(&self, tree: Option<&OwnedFd>, name: &str) -> io::Result<()> {
        let mut command = vec![COMMAND_WORKSPACE];
        command.extend_from_slice(name.as_bytes());
        self.command(&command, tree).await.map(|_| ())
    }

    /// Puts a folder in the place of the workspace, and makes a place for the name of a session to
    /// come: what is written there is seen in the room, and cannot be written from there. `None` if
    /// the room shows no names.
    pub(crate) async fn prepare(&self, tree: Option<&OwnedFd>) -> io::Result<Option<OwnedFd>> {
        let (_, mut fds) = self.command(COMMAND_PREPARE, tree).await?;
        Ok(fds.pop())
    }

    async fn command(
        &self,
        command: &[u8],
        fd: Option<&OwnedFd>,
    ) -> io::Result<(u64, Vec<OwnedFd>)> {
        let socket = self.commands.lock().await;
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        let mut buffer = [0; 256];
        let exchange = async {
            socket.send(command, &fds).await?;
            socket.receive_bytes(&mut buffer).await
        };
        let Ok(answered) = timeout(ANSWER_TIME_MAX, exchange).await else {
            // Its answer may still come, and would be taken for that to the next command.
            self.kill();
            return Err(io::Error::other("init does not answer"));
        };
        let (length, fds) = answered?;
        let answer = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
        let count = answer.strip_prefix("ok ").and_then(|count| count.parse().ok());
        let count = count.ok_or_else(|| io::Error::other(format!("init: {answer}")))?;
        Ok((count, fds))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.kill();
        let grave = Grave { init: Arc::clone(&self.init), group: self.group.take() };
        // Fails only when the sandbox itself is gone, and then the next start clears the cgroup.
        if self.graves.send(grave).is_err() {
            tracing::debug!("a room outlived its sandbox");
        }
    }
}

/// The pid behind a pidfd, as our own pid namespace sees it.
fn pid_of(pidfd: &OwnedFd) -> io::Result<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid = pid.and_then(|pid| pid.trim().parse().ok());
    pid.ok_or_else(|| io::Error::other("the process is gone"))
}

/// Waits until each killed room is empty, then deletes its cgroup.
pub(crate) async fn bury(mut graves: mpsc::UnboundedReceiver<Grave>) {
    while let Some(grave) = graves.recv().await {
        tokio::spawn(async move {
            if let Err(error) = wait_for_death(&grave.init).await {
                tracing::error!(%error, "a dying room cannot be watched");
            }
            let Some(group) = grave.group else { return };
            // The last process leaves its group a moment after it can be seen to have died.
            for wait_ms in [0, 1, 5, 20, 100, 500, 2_000] {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                if group.remove() {
                    return;
                }
            }
            tracing::warn!(?group, "a cgroup cannot be removed");
        });
    }
}

async fn wait_for_death(init: &OwnedFd) -> io::Result<()> {
    let watch = sys::watch_fd(init.try_clone()?)?;
    watch.readable().await.map(|_| ())
}
