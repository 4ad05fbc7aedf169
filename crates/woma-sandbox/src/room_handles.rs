//! The server's handles of a room: interrupt it, kill its processes, end it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::container::Launcher;
use crate::limits::cgroup::{Group, REMOVAL_PAUSES_MS};
use crate::rung::Rung;
use crate::steward::client::Socket;
use crate::steward::commands::{
    COMMAND_DATA_LIMIT, COMMAND_DATASETS, COMMAND_INTERRUPT, COMMAND_KILL_CHILDREN,
    COMMAND_KILL_LARGEST, COMMAND_LOWER_DATA_LIMIT, COMMAND_MEMORY_ERROR, COMMAND_PACKAGES,
    COMMAND_PREPARE, COMMAND_SEAL, COMMAND_SWEEP, COMMAND_WORKSPACE,
};
use crate::sys;

/// Longest time that init may take to reply.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Handles of a room. Dropping them kills everything in it.
#[derive(Debug)]
pub(crate) struct RoomHandles {
    commands: Arc<Commands>,
    init: Arc<OwnedFd>,
    pub(crate) kernel: Arc<AsyncFd<OwnedFd>>,
    /// Pids in this process's pid namespace.
    pub(crate) init_pid: u32,
    pub(crate) kernel_pid: u32,
    pub(crate) group: Option<Arc<Group>>,
    cleanups: mpsc::UnboundedSender<Cleanup>,
    rung: Rung,
}

/// Init's command socket.
#[derive(Debug)]
pub(crate) struct Commands {
    socket: Mutex<Socket>,
    killer: Killer,
}

/// Kills a room by pidfd, so that a reused pid cannot be hit.
#[derive(Debug, Clone)]
pub(crate) struct Killer {
    init: Arc<OwnedFd>,
    pid: u32,
    /// Without a pid namespace: the minder's socket and the kernel.
    shared: Option<(Arc<OwnedFd>, Arc<AsyncFd<OwnedFd>>)>,
    container: Option<ContainerKiller>,
}

/// Kills a container whose processes belong to another user than the server.
#[derive(Debug, Clone)]
pub(crate) struct ContainerKiller {
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) id: u64,
}

impl Killer {
    /// Kills the room. All its processes are dead or dying when this returns.
    pub(crate) fn kill(&self) {
        let killed = match &self.shared {
            None => pidfd_send_signal(self.init.as_fd(), Signal::KILL),
            // The minder ends the session when its socket closes; the kernel does not wait for it.
            Some((commands, kernel)) => {
                if let Err(error) = shutdown(commands, Shutdown::Both) {
                    tracing::debug!(%error, "the socket of a minder is closed already");
                }
                pidfd_send_signal(kernel.get_ref().as_fd(), Signal::KILL)
            }
        };
        match killed {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                let killed = match &self.container {
                    Some(container) => container.launcher.kill(container.id),
                    None => Err(error.into()),
                };
                if let Err(error) = killed {
                    tracing::error!(%error, pid = self.pid, "cannot kill the processes of a session");
                }
            }
        }
    }
}

/// Maker of a room.
enum Kind {
    Room(Rung),
    Container(ContainerKiller),
}

/// Remaining work for a room that was killed.
#[derive(Debug)]
pub(crate) struct Cleanup {
    pub(crate) init: Arc<OwnedFd>,
    pub(crate) group: Option<Arc<Group>>,
}

impl RoomHandles {
    pub(crate) fn new(
        fds: Vec<OwnedFd>,
        group: Option<Group>,
        cleanups: mpsc::UnboundedSender<Cleanup>,
        rung: Rung,
    ) -> io::Result<Self> {
        let [commands, init, kernel] = <[OwnedFd; 3]>::try_from(fds).map_err(|fds| {
            io::Error::other(format!("expected 3 descriptors, got {}", fds.len()))
        })?;
        Self::of([commands, init, kernel], group, cleanups, Kind::Room(rung))
    }

    /// As [`Self::new`], of a container.
    pub(crate) fn contained(
        commands: OwnedFd,
        [init, kernel]: [OwnedFd; 2],
        group: Option<Group>,
        cleanups: mpsc::UnboundedSender<Cleanup>,
        killer: ContainerKiller,
    ) -> io::Result<Self> {
        Self::of([commands, init, kernel], group, cleanups, Kind::Container(killer))
    }

    fn of(
        [commands, init, kernel]: [OwnedFd; 3],
        group: Option<Group>,
        cleanups: mpsc::UnboundedSender<Cleanup>,
        kind: Kind,
    ) -> io::Result<Self> {
        let (rung, container) = match kind {
            Kind::Room(rung) => (rung, None),
            Kind::Container(killer) => (Rung::Rooms, Some(killer)),
        };
        let init_pid = pid_of(&init)?;
        let kernel_pid = pid_of(&kernel)?;
        let group = group.map(Arc::new);
        let (init, kernel) = (Arc::new(init), Arc::new(sys::watch_fd(kernel)?));
        let shared = match rung.is_shared() {
            true => Some((Arc::new(commands.try_clone()?), Arc::clone(&kernel))),
            false => None,
        };
        let killer = Killer { init: Arc::clone(&init), pid: init_pid, shared, container };
        let commands = Arc::new(Commands { socket: Mutex::new(Socket::new(commands)?), killer });
        Ok(Self { commands, init, kernel, init_pid, kernel_pid, group, cleanups, rung })
    }

    /// Kills the room. All its processes are dead or dying when this returns.
    pub(crate) fn kill(&self) {
        self.killer().kill();
    }

    /// Whether the session is in the server's namespaces.
    pub(crate) fn is_shared(&self) -> bool {
        self.rung.is_shared()
    }

    /// Init's command socket, which outlives the room but not its use.
    pub(crate) fn commands(&self) -> &Arc<Commands> {
        &self.commands
    }

    /// Handle that can only kill the room.
    pub(crate) fn killer(&self) -> Killer {
        self.commands.killer.clone()
    }

    /// Returns when every process of the room is dead.
    pub(crate) async fn wait_for_death(&self) -> io::Result<()> {
        wait_for_death(&self.init).await
    }

    /// Sends SIGINT to the kernel and its foreground processes.
    pub(crate) async fn interrupt(&self) -> io::Result<()> {
        self.commands.command(COMMAND_INTERRUPT, None).await.map(|_| ())
    }

    /// Kills every process but the kernel; true if they are all gone.
    pub(crate) async fn sweep(&self) -> io::Result<bool> {
        Ok(self.commands.command(COMMAND_SWEEP, None).await?.0 == 0)
    }

    /// Kills the child with the most memory; false if no child has more than the kernel.
    pub(crate) async fn kill_largest_child(&self) -> io::Result<bool> {
        Ok(self.commands.command(COMMAND_KILL_LARGEST, None).await?.0 > 0)
    }

    /// Raises a `MemoryError` in the kernel's code.
    pub(crate) async fn raise_memory_error(&self) -> io::Result<()> {
        self.commands.command(COMMAND_MEMORY_ERROR, None).await.map(|_| ())
    }

    /// Kills every current process but the kernel; returns their number.
    pub(crate) async fn kill_children(&self) -> io::Result<u64> {
        Ok(self.commands.command(COMMAND_KILL_CHILDREN, None).await?.0)
    }

    /// Sets the kernel's soft data limit, used or not, and optionally the hard one. Does not raise
    /// the soft limit unless `may_raise`.
    pub(crate) async fn limit_data(
        &self,
        bytes: u64,
        bytes_max: Option<u64>,
        may_raise: bool,
    ) -> io::Result<()> {
        let mut command =
            vec![if may_raise { COMMAND_DATA_LIMIT } else { COMMAND_LOWER_DATA_LIMIT }];
        command.extend_from_slice(bytes.to_string().as_bytes());
        if let Some(most) = bytes_max {
            command.extend_from_slice(format!(" {most}").as_bytes());
        }
        self.commands.command(&command, None).await.map(|_| ())
    }

    /// Makes init invisible to the kernel that has entered.
    pub(crate) async fn seal(&self) -> io::Result<()> {
        self.commands.command(COMMAND_SEAL, None).await.map(|_| ())
    }

    /// Mounts a folder as the workspace, and links it under the session's name.
    pub(crate) async fn attach_workspace(
        &self,
        tree: Option<&OwnedFd>,
        name: &str,
    ) -> io::Result<()> {
        let mut command = vec![COMMAND_WORKSPACE];
        command.extend_from_slice(name.as_bytes());
        self.commands.command(&command, tree).await.map(|_| ())
    }

    /// Mounts a folder as the workspace, and prepares the link of a future session's name: returns
    /// a folder that is writable through the descriptor only. `None` if the room shows no names.
    pub(crate) async fn prepare(&self, tree: Option<&OwnedFd>) -> io::Result<Option<OwnedFd>> {
        let (_, mut fds) = self.commands.command(COMMAND_PREPARE, tree).await?;
        Ok(fds.pop())
    }

    /// Shows a folder as the datasets of the session's caller.
    pub(crate) async fn attach_datasets(&self, tree: &OwnedFd) -> io::Result<()> {
        self.commands.command(COMMAND_DATASETS, Some(tree)).await.map(|_| ())
    }
}

impl Commands {
    /// Shows a folder as the packages of the session.
    pub(crate) async fn attach_packages(&self, tree: &OwnedFd) -> io::Result<()> {
        self.command(COMMAND_PACKAGES, Some(tree)).await.map(|_| ())
    }

    /// Has init execute a command; returns its count and descriptors.
    pub(crate) async fn command(
        &self,
        command: &[u8],
        fd: Option<&OwnedFd>,
    ) -> io::Result<(u64, Vec<OwnedFd>)> {
        let socket = self.socket.lock().await;
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        let mut buffer = [0; 256];
        let exchange = async {
            socket.send(command, &fds).await?;
            socket.receive_bytes(&mut buffer).await
        };
        let Ok(answered) = timeout(ANSWER_TIME_MAX, exchange).await else {
            // A late reply would be taken for the reply to the next command.
            self.killer.kill();
            return Err(io::Error::other("init does not answer"));
        };
        let (length, fds) = answered?;
        let answer = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
        if let Some(code) = answer.strip_prefix("errno ").and_then(|code| code.parse().ok()) {
            return Err(io::Error::from_raw_os_error(code));
        }
        let count = answer.strip_prefix("ok ").and_then(|count| count.parse().ok());
        let count = count.ok_or_else(|| io::Error::other(format!("init: {answer}")))?;
        Ok((count, fds))
    }
}

impl Drop for RoomHandles {
    fn drop(&mut self) {
        self.kill();
        let cleanup = Cleanup { init: Arc::clone(&self.init), group: self.group.take() };
        // Fails only after the sandbox was dropped; the next start then removes the cgroup.
        if self.cleanups.send(cleanup).is_err() {
            tracing::debug!("a room was dropped after its sandbox");
        }
    }
}

/// Pid behind a pidfd, in this process's pid namespace.
pub(crate) fn pid_of(pidfd: &OwnedFd) -> io::Result<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid = pid.and_then(|pid| pid.trim().parse().ok());
    pid.ok_or_else(|| io::Error::other("the process has ended"))
}

/// Waits until each killed room is empty, then removes its cgroup.
pub(crate) async fn run_cleanups(mut cleanups: mpsc::UnboundedReceiver<Cleanup>) {
    while let Some(cleanup) = cleanups.recv().await {
        tokio::spawn(async move {
            if let Err(error) = wait_for_death(&cleanup.init).await {
                tracing::error!(%error, "cannot wait for the processes of a session to end");
            }
            let Some(group) = cleanup.group else { return };
            // The last process leaves its group a moment after its death is visible.
            for wait_ms in REMOVAL_PAUSES_MS {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                // Takes a while if the session has read much from disk.
                let removed = Arc::clone(&group);
                match tokio::task::spawn_blocking(move || removed.remove()).await {
                    Ok(true) => return,
                    Ok(false) => {}
                    // The program ends at this moment; the next one removes what is left.
                    Err(error) if error.is_cancelled() => return,
                    Err(error) => {
                        tracing::error!(%error, "cannot remove a cgroup: the task failed");
                    }
                }
            }
            tracing::warn!(?group, "cannot remove a cgroup");
        });
    }
}

async fn wait_for_death(init: &OwnedFd) -> io::Result<()> {
    let watch = sys::watch_fd(init.try_clone()?)?;
    watch.readable().await.map(|_| ())
}
