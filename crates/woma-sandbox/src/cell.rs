//! One contained kernel: run code, stream its events, interrupt it, kill it at the deadline.
//!
//! Everything that the kernel sends is hostile input. The deadline, the byte counts and the
//! decision how a run ended are made here, outside of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::container::Runtime;
use crate::disk_watch::DiskWatch;
use crate::limits::deleted::{DeletedFiles, Depth};
use crate::limits::memory_reserve::{data_bytes_max, soft_bytes};
use crate::limits::{Limits, Usage, watchdog};
use crate::log::Log;
use crate::memory_pressure::{self, PressureState};
use crate::object_watch::SessionObjects;
use crate::open::SessionIds;
use crate::protocol::OwnMemory;
use crate::room_handles::RoomHandles;
use crate::run;
use crate::sandbox::ActiveSteward;
use crate::spec::{Event, Exit, Interruption, KernelObject, Outcome, Run, State};
use crate::steward::control::Tier;
use crate::wire::FrameReader;
use crate::workspace::{self, Allowance, Contents, Reserve};

/// A session's kernel. Dropping it kills everything in its room.
#[derive(Debug)]
pub struct Cell {
    id: u64,
    tier: Tier,
    pub(crate) ids: SessionIds,
    pub(crate) room: RoomHandles,
    /// Its kernel objects, as counted by the object watch.
    pub(crate) objects: Arc<SessionObjects>,
    pub(crate) frames: FrameReader,
    pub(crate) log: Log,
    pub(crate) limits: Limits,
    pub(crate) exit: Option<oneshot::Receiver<i32>>,
    pub(crate) folder: Option<MountedWorkspace>,
    /// Folder that is shown as `/datasets`.
    pub(crate) datasets: Option<PathBuf>,
    /// Listener of the service that every room has.
    pub(crate) service: Option<UnixListener>,
    /// Runtime of its container, if it is in one.
    pub(crate) runtime: Option<Runtime>,
    /// Folder that is shown as `/packages`.
    pub(crate) packages: Arc<tokio::sync::Mutex<Option<PathBuf>>>,
    /// Watches the folder between runs.
    disk_watch: Option<DiskWatch>,
    /// Reason why the disk watch ended the session.
    overrun: Arc<OnceLock<Interruption>>,
    pub(crate) runs: u32,
    /// Out-of-memory kills of earlier runs.
    pub(crate) earlier_kills: u64,
    pub(crate) memory_pressure: PressureState,
    /// Hard limit of the kernel's data segment; never raised.
    pub(crate) data_bytes_max: Option<u64>,
    pub(crate) life: Life,
    /// The latest checkpoint; no longer in progress once its holder is gone.
    pub(crate) checkpoint: Option<Weak<()>>,
    interrupt: Arc<Notify>,
    live: Arc<AtomicUsize>,
    /// The steward of its sandbox, which mounts folders.
    pub(crate) steward: ActiveSteward,
}

/// A workspace on disk that is mounted in a room.
#[derive(Debug, Clone)]
pub(crate) struct MountedWorkspace {
    pub(crate) path: PathBuf,
    /// Temporary files of a session without mounts, which count as well.
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) allowance: Allowance,
    /// True if code has run since the folder was last measured.
    pub(crate) is_stale: bool,
    /// True if the last run was stopped for deleted files. They are counted before the next run,
    /// so that it may hold what there is, and has the time to close it.
    pub(crate) was_stopped_for_deleted: bool,
    /// Deleted files that the room still holds open.
    pub(crate) deleted: Arc<DeletedFiles>,
    /// Free-space reserve of its disk.
    pub(crate) reserve: Option<Arc<Reserve>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Idle,
    /// A run has begun. If its future was dropped, the state of the kernel is unknown.
    Running,
    Dead,
}

/// Parts that a cell is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: u64,
    pub(crate) tier: Tier,
    pub(crate) ids: SessionIds,
    pub(crate) room: RoomHandles,
    pub(crate) objects: Arc<SessionObjects>,
    pub(crate) frames: FrameReader,
    pub(crate) log: pipe::Receiver,
    pub(crate) limits: Limits,
    pub(crate) exit: oneshot::Receiver<i32>,
    pub(crate) live: Arc<AtomicUsize>,
    pub(crate) steward: ActiveSteward,
}

/// Interrupts the current run of a cell, from another task.
#[derive(Debug, Clone)]
pub struct Interrupter(Arc<Notify>);

impl Interrupter {
    /// Sends SIGINT now; the room is killed if the run does not end. Does nothing between runs.
    pub fn interrupt(&self) {
        self.0.notify_waiters();
    }
}

impl Cell {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { id, tier, ids, room, objects, frames, log, limits, exit, live, steward } =
            parts;
        live.fetch_add(1, Ordering::Relaxed);
        let (log, exit, interrupt) = (Log::new(log), Some(exit), Arc::default());
        let (life, folder, runs, earlier_kills) = (Life::Idle, None, 0, 0);
        let data_bytes_max = room.group.is_none().then(|| data_bytes_max(limits.memory_bytes));
        Self {
            id,
            tier,
            ids,
            room,
            objects,
            frames,
            log,
            limits,
            exit,
            folder,
            datasets: None,
            service: None,
            runtime: None,
            packages: Arc::default(),
            disk_watch: None,
            overrun: Arc::default(),
            runs,
            earlier_kills,
            memory_pressure: PressureState::default(),
            data_bytes_max,
            life,
            checkpoint: None,
            interrupt,
            live,
            steward,
        }
    }

    /// The listener of the service that every room has, if [`Config::service`] names one; dropped,
    /// connections to it are refused.
    ///
    /// [`Config::service`]: crate::Config::service
    pub fn take_service(&mut self) -> Option<UnixListener> {
        self.service.take()
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Runtime of its container; `None` for a cell of the steward.
    pub fn runtime(&self) -> Option<Runtime> {
        self.runtime
    }

    /// Waits until it is reported how the kernel ended; false if it is not.
    pub(crate) async fn has_reported_exit(&mut self, time_max: Duration) -> bool {
        let Some(mut exit) = self.exit.take() else { return false };
        match timeout(time_max, &mut exit).await {
            Ok(Ok(status)) => {
                // For whoever decides what it means.
                let (sender, receiver) = oneshot::channel();
                self.exit = Some(receiver);
                sender.send(status).is_ok()
            }
            // It ended without a report.
            Ok(Err(_)) => false,
            Err(_) => {
                self.exit = Some(exit);
                false
            }
        }
    }

    /// Whether the session has a kernel of its own, in which nothing can be mounted or made later.
    pub(crate) fn has_own_kernel(&self) -> bool {
        self.runtime.is_some_and(Runtime::has_own_kernel)
    }

    pub fn tier(&self) -> Tier {
        self.tier
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets the allowance of the workspace on disk, measured by the caller after a run. Without
    /// this call the folder is measured before the next run.
    pub fn allow(&mut self, allowance: Allowance) {
        if let Some(folder) = &mut self.folder {
            folder.allowance = allowance;
            folder.is_stale = false;
        }
        self.update_disk_watch();
    }

    /// Current allowance, including deleted files that are still open.
    pub fn allowance(&self) -> Option<Allowance> {
        let folder = self.folder.as_ref()?;
        Some(self.disk_watch.as_ref().and_then(DiskWatch::allowance).unwrap_or(folder.allowance))
    }

    /// Reason for which the session was ended between runs, because of processes left behind by a
    /// run.
    pub fn overrun(&self) -> Option<Interruption> {
        self.overrun.get().copied()
    }

    /// Kernel objects of which the session had too many when it was ended between runs.
    pub fn ended_for(&self) -> Option<KernelObject> {
        self.objects.excess()
    }

    /// Called before code runs outside of a run: restored variables may execute anything.
    pub(crate) fn expect_writing(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.is_stale = true;
        }
        self.update_disk_watch();
    }

    fn update_disk_watch(&mut self) {
        let Some(folder) = &self.folder else { return };
        match (&self.disk_watch, self.life) {
            (Some(disk_watch), Life::Idle) => disk_watch.set_allowance(Some(folder.allowance)),
            (None, Life::Idle) => {
                self.disk_watch =
                    Some(DiskWatch::begin(&self.room, &self.objects, folder, &self.overrun));
            }
            (_, Life::Running | Life::Dead) => self.disk_watch = None,
        }
    }

    /// Process id of the kernel on the host, for diagnostics.
    pub fn host_pid(&self) -> u32 {
        self.room.kernel_pid
    }

    pub fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::clone(&self.interrupt))
    }

    /// True while the next run would find the variables of the last one.
    pub fn is_alive(&self) -> bool {
        // A pidfd becomes readable when its process dies; this only asks the async runtime.
        let mut context = Context::from_waker(Waker::noop());
        self.life == Life::Idle && self.room.kernel.poll_read_ready(&mut context).is_pending()
    }

    /// Runs code to its end and reports events on the way. One run at a time. If the future is
    /// dropped, the cell can only be dropped too, so run it on a task of its own.
    pub async fn run(&mut self, run: &Run, on_event: &mut (dyn FnMut(Event) + Send)) -> Exit {
        if self.life != Life::Idle {
            self.kill();
            return Exit::never_started("its kernel has ended");
        }
        self.life = Life::Running;
        if let (Some(disk_watch), Some(folder)) = (&self.disk_watch, &mut self.folder) {
            folder.allowance = disk_watch.allowance().unwrap_or(folder.allowance);
            disk_watch.set_allowance(None);
        }
        if self.checkpoint.take_if(|checkpoint| checkpoint.strong_count() == 0).is_some() {
            // Kills in the checkpoint's processes are not charged to this run.
            self.earlier_kills = self.usage().out_of_memory_kills;
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
                _ => format!("cannot lower its memory limit: {error}"),
            };
            return Exit { state: State::Preserved, ..Exit::never_started(&reason) };
        }
        let own = wanted.map(|limit_bytes| OwnMemory {
            limit_bytes,
            less_bytes: soft_bytes(memory_bytes).saturating_sub(soft_bytes(limit_bytes)),
        });
        self.memory_pressure.begin_run();
        let interrupt = Arc::clone(&self.interrupt);
        let mut exit = match self.enter_folder().await {
            None => {
                self.objects.set_running(true);
                let exit = run::run(self, run, own, &interrupt, on_event).await;
                self.objects.set_running(false);
                exit
            }
            Some(why) => Exit::of_full_workspace(why),
        };
        if let Some(folder) = &mut self.folder {
            folder.was_stopped_for_deleted =
                matches!(exit.outcome, Outcome::Interrupted(Interruption::DeletedFiles { .. }));
        }
        if wanted.is_some()
            && exit.state == State::Preserved
            && let Err(error) = self.raise_memory(memory_bytes)
        {
            tracing::warn!(%error, "cannot restore a session's memory limit; ending the session");
            self.kill();
            exit.state = State::Lost;
        }
        if exit.state == State::Preserved {
            memory_pressure::settle(self).await;
        }
        self.life = match exit.state {
            State::Preserved => Life::Idle,
            State::Lost => Life::Dead,
        };
        self.update_disk_watch();
        exit
    }

    /// Returns why the folder allows no other run. Measures it only if that is due.
    async fn enter_folder(&mut self) -> Option<Interruption> {
        let folder = self.folder.as_mut()?;
        let is_low = folder.reserve.as_ref().is_some_and(|reserve| reserve.is_low());
        folder.allowance.hold(is_low, folder.allowance.found());
        let is_spent = folder.allowance.is_spent();
        let is_due = folder.deleted.is_due() || is_spent || folder.was_stopped_for_deleted;
        folder.is_stale |= is_spent;
        if folder.is_stale || is_due {
            folder.measure(&self.room, is_due).await;
        }
        folder.is_stale = true;
        folder.deleted.mark_dirty();
        folder.allowance.spent().map(Interruption::from)
    }

    /// Whether a checkpoint is being written.
    pub(crate) fn is_saving(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.strong_count() > 0)
    }

    fn raise_memory(&mut self, bytes: u64) -> io::Result<()> {
        if let Some(group) = &self.room.group {
            group.set_soft_limit(bytes)?;
        }
        self.limits.memory_bytes = bytes;
        Ok(())
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
        self.memory_pressure.is_lifted = false;
        self.limits.memory_bytes = bytes;
        Ok(())
    }

    /// Takes the output written outside of runs since the last call, by threads and processes that
    /// a run left behind. Bounded; the oldest bytes are dropped first.
    pub fn take_log(&mut self) -> Vec<u8> {
        self.log.take()
    }

    /// Resources that the session has used since it was opened.
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

    /// Memory that ending the session would free; 0 without a cgroup.
    pub fn memory_bytes(&self) -> u64 {
        self.room.group.as_ref().map_or(0, |group| group.memory_bytes())
    }

    /// Ends the session and returns when all its processes are gone. Dropping does the same without
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

impl MountedWorkspace {
    pub(crate) fn new(
        path: PathBuf,
        allowance: Allowance,
        room: &RoomHandles,
        reserve: Option<Arc<Reserve>>,
    ) -> Self {
        let roots = [room.init_pid, room.kernel_pid];
        let deleted = Arc::new(DeletedFiles::new(roots, room.is_shared().then(|| path.clone())));
        Self {
            path,
            scratch: None,
            allowance,
            is_stale: false,
            was_stopped_for_deleted: false,
            deleted,
            reserve,
        }
    }

    /// Measures the folder. Only processes that earlier runs left behind can change it meanwhile.
    async fn measure(&mut self, room: &RoomHandles, with_deleted: bool) {
        let (path, counted_max) = (self.path.clone(), self.allowance.counted_max());
        let scratch = self.scratch.clone();
        let (group, deleted) = (room.group.clone(), Arc::clone(&self.deleted));
        let roots = [room.init_pid, room.kernel_pid];
        let known = (!self.is_stale).then(|| self.allowance.folder());
        let looked = tokio::task::spawn_blocking(move || {
            let measure = || measure_both(&path, scratch.as_deref(), counted_max);
            let found = known.map_or_else(measure, Ok)?;
            let deleted = with_deleted.then(|| {
                let cpu = watchdog::cpu_of(group.as_deref(), &roots);
                let found = deleted.measure(cpu, Depth::OpenAndMapped);
                deleted.mark_clean();
                found
            });
            Ok::<(Contents, Option<Contents>), io::Error>((found, deleted))
        });
        match looked.await {
            Ok(Ok((found, Some(deleted)))) => self.allowance.see_all(found, deleted),
            Ok(Ok((found, None))) => self.allowance.see(found),
            Ok(Err(error)) => tracing::warn!(%error, "cannot measure a workspace"),
            Err(error) => tracing::warn!(%error, "cannot measure a workspace: the task failed"),
        }
    }
}

/// Contents of a workspace and of the folder of its temporary files, if that is on disk too.
pub(crate) fn measure_both(
    path: &Path,
    scratch: Option<&Path>,
    counted_max: u64,
) -> io::Result<Contents> {
    let found = workspace::measure(path, counted_max)?;
    let Some(scratch) = scratch else { return Ok(found) };
    let Contents { bytes, files } = workspace::measure(scratch, counted_max)?;
    let bytes = found.bytes.saturating_add(bytes);
    Ok(Contents { bytes, files: found.files.saturating_add(files) })
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}
