//! One jailed kernel: run code in it, stream what happens, interrupt it, kill it at the deadline.
//!
//! Everything that the kernel says is hostile input. The deadline, the byte counts and the verdict
//! on how a run ended are kept here, outside.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};

use crate::limits::{Limits, Usage, watchdog};
use crate::log::Log;
use crate::open::SessionIds;
use crate::room::Room;
use crate::run;
use crate::spec::{Event, Exit, Run, State};
use crate::steward::control::Tier;
use crate::vigil::Vigil;
use crate::wire::FrameReader;
use crate::workspace::{self, Allowance};

/// A session's kernel. Dropping it kills everything in its room.
#[derive(Debug)]
pub struct Cell {
    id: u64,
    tier: Tier,
    pub(crate) ids: SessionIds,
    pub(crate) room: Room,
    pub(crate) frames: FrameReader,
    pub(crate) log: Log,
    pub(crate) limits: Limits,
    pub(crate) exit: Option<oneshot::Receiver<i32>>,
    pub(crate) folder: Option<Lodging>,
    /// Looks after the folder while nothing runs.
    vigil: Option<Vigil>,
    /// Set when it had to end the session.
    is_overrun: Arc<AtomicBool>,
    pub(crate) runs: u32,
    /// Processes that earlier runs lost for want of memory.
    pub(crate) kills_seen: u64,
    pub(crate) life: Life,
    /// The checkpoint that was begun last; it can be dropped when nobody holds it any more.
    pub(crate) checkpoint: Option<Weak<()>>,
    interrupt: Arc<Notify>,
    live: Arc<AtomicUsize>,
}

/// A workspace on disk.
#[derive(Debug, Clone)]
pub(crate) struct Lodging {
    pub(crate) path: PathBuf,
    pub(crate) allowance: Allowance,
    /// A run has been there since it was last looked at.
    pub(crate) is_stale: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Idle,
    /// A run began and its future may have been dropped: nobody knows what the kernel is doing.
    Running,
    Dead,
}

/// What a cell is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: u64,
    pub(crate) tier: Tier,
    pub(crate) ids: SessionIds,
    pub(crate) room: Room,
    pub(crate) frames: FrameReader,
    pub(crate) log: pipe::Receiver,
    pub(crate) limits: Limits,
    pub(crate) exit: oneshot::Receiver<i32>,
    pub(crate) live: Arc<AtomicUsize>,
}

/// Interrupts the run that a cell is busy with, from another task.
#[derive(Debug, Clone)]
pub struct Interrupter(Arc<Notify>);

impl Interrupter {
    /// SIGINT now, and the end of the room if that is not heeded. Between runs it does nothing.
    pub fn interrupt(&self) {
        self.0.notify_waiters();
    }
}

impl Cell {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { id, tier, ids, room, frames, log, limits, exit, live } = parts;
        live.fetch_add(1, Ordering::Relaxed);
        let (log, exit, interrupt) = (Log::new(log), Some(exit), Arc::default());
        let (life, folder, runs, kills_seen) = (Life::Idle, None, 0, 0);
        Self {
            id,
            tier,
            ids,
            room,
            frames,
            log,
            limits,
            exit,
            folder,
            vigil: None,
            is_overrun: Arc::default(),
            runs,
            kills_seen,
            life,
            checkpoint: None,
            interrupt,
            live,
        }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn tier(&self) -> Tier {
        self.tier
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the workspace on disk may hold, for whoever has looked at it after a run. What is not
    /// told is looked at before the next run begins.
    pub fn allow(&mut self, allowance: Allowance) {
        if let Some(folder) = &mut self.folder {
            folder.allowance = allowance;
            folder.is_stale = false;
        }
        self.keep_vigil();
    }

    /// Whether it has ended because what a run left behind filled its folder.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun.load(Ordering::Relaxed)
    }

    /// Code is about to run that is no run: what is brought back may do anything.
    pub(crate) fn expect_writing(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.is_stale = true;
        }
        self.keep_vigil();
    }

    fn keep_vigil(&mut self) {
        let Some(folder) = &self.folder else { return };
        match (&self.vigil, self.life) {
            (Some(vigil), Life::Idle) => vigil.tell(Some(folder.allowance)),
            (None, Life::Idle) => {
                self.vigil = Some(Vigil::begin(&self.room, folder, &self.is_overrun));
            }
            (_, Life::Running | Life::Dead) => self.vigil = None,
        }
    }

    /// The kernel's process id as the host sees it, for those who want to look.
    pub fn host_pid(&self) -> u32 {
        self.room.kernel_pid
    }

    pub fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::clone(&self.interrupt))
    }

    /// True while the next run would find the variables of the last one.
    pub fn is_alive(&self) -> bool {
        // A pidfd is readable from its process's death on; this asks nobody but the runtime.
        let mut nobody = Context::from_waker(Waker::noop());
        self.life == Life::Idle && self.room.kernel.poll_read_ready(&mut nobody).is_pending()
    }

    /// Runs code to its end and tells what happens on the way. One run at a time; a run whose future
    /// is dropped leaves a cell that can only be dropped too, so give it a task of its own.
    pub async fn run(&mut self, run: &Run, on_event: &mut (dyn FnMut(Event) + Send)) -> Exit {
        if self.life != Life::Idle {
            self.kill();
            return Exit::never_started("its kernel has ended");
        }
        self.life = Life::Running;
        if let Some(vigil) = &self.vigil {
            vigil.tell(None);
        }
        if self.checkpoint.take_if(|checkpoint| checkpoint.strong_count() == 0).is_some() {
            // What its processes lost for want of memory is not this run's loss.
            self.kills_seen = self.usage().out_of_memory_kills;
        }
        let memory_bytes = self.limits.memory_bytes;
        let wanted = run.memory_bytes.filter(|wanted| *wanted < memory_bytes);
        if let Some(wanted) = wanted
            && let Err(error) = self.limit_memory(wanted)
        {
            self.life = Life::Idle;
            let reason = match error.kind() {
                io::ErrorKind::OutOfMemory => {
                    format!("the session uses more than {} MB already", wanted / (1024 * 1024))
                }
                _ => format!("its memory could not be limited: {error}"),
            };
            return Exit { state: State::Preserved, ..Exit::never_started(&reason) };
        }
        let interrupt = Arc::clone(&self.interrupt);
        let mut exit = match self.enter_folder().await {
            true => run::run(self, run, &interrupt, on_event).await,
            false => Exit::of_full_workspace(),
        };
        if wanted.is_some()
            && exit.state == State::Preserved
            && let Err(error) = self.limit_memory(memory_bytes)
        {
            tracing::warn!(%error, "a session's memory limit could not be raised again");
            self.kill();
            exit.state = State::Lost;
        }
        self.life = match exit.state {
            State::Preserved => Life::Idle,
            State::Lost => Life::Dead,
        };
        self.keep_vigil();
        exit
    }

    /// Whether the folder lets another run begin. Looks into it only where nobody has.
    async fn enter_folder(&mut self) -> bool {
        let Some(folder) = &mut self.folder else { return true };
        if folder.is_stale || folder.allowance.is_spent() {
            folder.look().await;
        }
        folder.is_stale = true;
        !folder.allowance.is_spent()
    }

    fn limit_memory(&mut self, bytes: u64) -> io::Result<()> {
        match &self.room.group {
            Some(group) => group.set_memory(bytes)?,
            None => {
                let pids = watchdog::descendants(&[self.room.init_pid, self.room.kernel_pid]);
                if watchdog::memory_bytes(&pids, bytes) > bytes {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
            }
        }
        self.limits.memory_bytes = bytes;
        Ok(())
    }

    /// What was written outside of any run since the last call: threads and processes that a run
    /// left behind. Bounded; the oldest bytes go first.
    pub fn take_log(&mut self) -> Vec<u8> {
        self.log.take()
    }

    /// What the session has used since it was opened.
    pub fn usage(&self) -> Usage {
        match &self.room.group {
            Some(group) => group.usage(),
            None => {
                let pids = watchdog::descendants(&[self.room.init_pid, self.room.kernel_pid]);
                Usage {
                    cpu: watchdog::cpu(&pids),
                    memory_peak_bytes: watchdog::memory_bytes(&pids, u64::MAX),
                    out_of_memory_kills: 0,
                }
            }
        }
    }

    /// Ends the session and returns when nothing of it is left. Dropping does the same without
    /// waiting.
    pub async fn close(mut self) -> io::Result<()> {
        self.kill();
        self.room.wait_for_death().await
    }

    /// Ends the session now.
    pub fn kill(&mut self) {
        self.life = Life::Dead;
        self.room.kill();
    }
}

impl Lodging {
    async fn look(&mut self) {
        let (path, counted_max) = (self.path.clone(), self.allowance.counted_max());
        let looked = tokio::task::spawn_blocking(move || workspace::measure(&path, counted_max));
        match looked.await {
            Ok(Ok(found)) => self.allowance.see(found),
            Ok(Err(error)) => tracing::warn!(%error, "a workspace could not be measured"),
            Err(error) => tracing::warn!(%error, "a workspace was not measured"),
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}
