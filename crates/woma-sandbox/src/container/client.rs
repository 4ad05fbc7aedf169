//! The server's connection to the launcher of containers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex as AsyncMutex, oneshot, watch};
use tokio::time::timeout;

use super::control::{LauncherOrder, LauncherReport, LauncherSetup, Start};
use super::{ROLE, Runtime, RuntimeChoice};
use crate::steward::client::{Socket, log};
use crate::steward::control::Setup;
use crate::sync::lock;
use crate::{Error, channel, keeper};

/// Longest time that the launcher may take to build what all containers show.
const READY_TIME_MAX: Duration = Duration::from_secs(20);

/// A container that was started, as the launcher reports it: its first process, the session's host
/// id if it is not the server's.
type Started = Result<(OwnedFd, Option<u32>), Error>;

/// The containers of a sandbox: their runtime, and its launcher once there was a first container.
#[derive(Debug)]
pub(crate) struct Containers {
    choice: RuntimeChoice,
    /// The runtime that was chosen; `None` before the first container.
    pub(super) chosen: AsyncMutex<Option<Runtime>>,
    launcher: AsyncMutex<Option<Arc<Launcher>>>,
}

impl Containers {
    pub(crate) fn new(choice: RuntimeChoice) -> Self {
        Self { choice, chosen: AsyncMutex::default(), launcher: AsyncMutex::default() }
    }

    pub(super) fn candidates(&self) -> &'static [Runtime] {
        self.choice.candidates()
    }

    /// The launcher for a runtime; started where there is none, or none that lives.
    pub(super) async fn launcher(
        &self,
        program: &Path,
        runtime: Runtime,
        shown: &Setup,
    ) -> Result<Arc<Launcher>, Error> {
        let mut launcher = self.launcher.lock().await;
        if let Some(running) = launcher.as_ref()
            && running.runtime == runtime
            && running.is_alive()
        {
            return Ok(Arc::clone(running));
        }
        // The one that is replaced ends when its last container does.
        *launcher = None;
        let started = Launcher::start(program, runtime, shown).await?;
        *launcher = Some(Arc::clone(&started));
        Ok(started)
    }
}

/// A running launcher. Dropping it ends the launcher and with it every container.
#[derive(Debug)]
pub(crate) struct Launcher {
    runtime: Runtime,
    control: Socket,
    /// Its namespaces; a container must not be in any of them.
    pub(super) namespaces: BTreeSet<String>,
    pending: Mutex<Option<BTreeMap<u64, oneshot::Sender<Started>>>>,
    last_stderr_line: watch::Receiver<String>,
    /// `None` for a launcher started by the keeper, which ends when its socket closes.
    _process: Option<Child>,
}

impl Launcher {
    async fn start(program: &Path, runtime: Runtime, shown: &Setup) -> Result<Arc<Self>, Error> {
        let (control, theirs) = channel::pair()?;
        let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let process = match keeper::of_this_process() {
            Some(keeper) => {
                keeper.containers([theirs.as_fd(), their_stderr.as_fd()])?;
                None
            }
            None => Some(spawn(program, theirs, their_stderr)?),
        };
        let setup = LauncherSetup { runtime, shown: shown.clone() };
        channel::send(&control, &setup, &[])?;
        rustix::io::ioctl_fionbio(&stderr, true).map_err(io::Error::from)?;
        let (sender, last_stderr_line) = watch::channel(String::new());
        tokio::spawn(log(pipe::Receiver::from_owned_fd(stderr)?, sender));
        let control = Socket::new(control)?;
        let first = timeout(READY_TIME_MAX, control.receive::<LauncherReport>()).await;
        let namespaces = match first {
            Ok(Ok(Some((LauncherReport::Ready { namespaces }, _)))) => namespaces,
            Ok(Ok(Some((LauncherReport::Broken { step, reason }, _)))) => {
                return Err(broken(runtime, &format!("{step}: {reason}")));
            }
            Ok(Ok(other)) => {
                return Err(broken(runtime, &format!("the launcher has ended ({other:?})")));
            }
            Ok(Err(error)) => return Err(broken(runtime, &error.to_string())),
            Err(_) => return Err(broken(runtime, "the launcher does not answer")),
        };
        let pending = Mutex::new(Some(BTreeMap::new()));
        let launcher =
            Self { runtime, control, namespaces, pending, last_stderr_line, _process: process };
        let launcher = Arc::new(launcher);
        tokio::spawn(follow(Arc::downgrade(&launcher)));
        Ok(launcher)
    }

    fn is_alive(&self) -> bool {
        lock(&self.pending).is_some()
    }

    /// Has a container started; returns its first process.
    pub(super) async fn open(&self, start: Start, fds: &[BorrowedFd<'_>]) -> Started {
        let id = start.id;
        let (sender, receiver) = oneshot::channel();
        match lock(&self.pending).as_mut() {
            Some(pending) => drop(pending.insert(id, sender)),
            None => return Err(broken(self.runtime, "the launcher has ended")),
        }
        let text = serde_json::to_vec(&LauncherOrder::Start(Box::new(start)));
        let text = text.map_err(io::Error::other)?;
        if let Err(error) = self.control.send(&text, fds).await {
            self.take_pending(id);
            return Err(error.into());
        }
        receiver.await.unwrap_or_else(|_| Err(broken(self.runtime, "the launcher has ended")))
    }

    /// Kills everything in a container. Does not wait.
    pub(crate) fn kill(&self, id: u64) -> io::Result<()> {
        self.control.send_now(&LauncherOrder::Kill { id })
    }

    /// The last line that the runtime or a container wrote to standard error, if any did.
    pub(super) fn last_stderr_line(&self) -> String {
        self.last_stderr_line.borrow().clone()
    }

    fn take_pending(&self, id: u64) -> Option<oneshot::Sender<Started>> {
        lock(&self.pending).as_mut()?.remove(&id)
    }

    fn answer(&self, id: u64, answer: Started) {
        if let Some(waiting) = self.take_pending(id)
            && waiting.send(answer).is_err()
            && let Err(error) = self.kill(id)
        {
            tracing::warn!(%error, id, "cannot end a container whose caller is gone");
        }
    }
}

/// Handles reports of a launcher until it ends.
async fn follow(launcher: std::sync::Weak<Launcher>) {
    loop {
        let Some(strong) = launcher.upgrade() else { return };
        // Dropping the last container must end the launcher: this task does not keep it.
        let received = timeout(Duration::from_secs(1), strong.control.receive()).await;
        match received {
            Err(_waits) => {}
            Ok(Ok(Some((LauncherReport::Started { id, uid }, mut fds)))) => {
                let none = || broken(strong.runtime, "the launcher sent no descriptor");
                strong.answer(id, fds.pop().ok_or_else(none).map(|init| (init, uid)));
            }
            Ok(Ok(Some((LauncherReport::Failed { id, step, reason }, _)))) => {
                let failed = broken(strong.runtime, &format!("{step}: {reason}"));
                strong.answer(id, Err(failed));
            }
            Ok(Ok(Some((LauncherReport::Ready { .. } | LauncherReport::Broken { .. }, _)))) => {}
            Ok(Ok(None) | Err(_)) => {
                tracing::warn!(
                    "sessions in containers have lost their helper process; starting another with the next one"
                );
                // Their callers learn of it by the end of their channels.
                lock(&strong.pending).take();
                return;
            }
        }
    }
}

/// A runtime that is installed and does not work.
pub(super) fn broken(runtime: Runtime, reason: &str) -> Error {
    Error::Container {
        reason: format!("the runtime `{}` failed: {reason}", runtime.name()),
        fix: "`woma doctor` tries every runtime and says which one works; name it in \
              CONTAINER_RUNTIME"
            .to_owned(),
    }
}

fn spawn(program: &Path, control: OwnedFd, stderr: OwnedFd) -> io::Result<Child> {
    Command::new(program)
        .arg(ROLE)
        .env_clear()
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::from(stderr))
        // It ends its containers when its socket closes, and is not killed before that.
        .process_group(0)
        .spawn()
}
