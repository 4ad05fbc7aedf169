//! Watches a workspace on disk between runs, when threads and processes left behind by a run may
//! write.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::cell::{MountedWorkspace, measure_both};
use crate::limits::cgroup::Group;
use crate::limits::deleted::{DeletedFiles, Depth};
use crate::limits::watchdog;
use crate::object_watch::SessionObjects;
use crate::room_handles::{Killer, RoomHandles};
use crate::spec::Interruption;
use crate::sync::lock;
use crate::workspace::{Allowance, Contents, Reserve};

/// Interval at which activity is checked.
const TICK: Duration = Duration::from_millis(500);
/// Pause after a measurement, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 5;
/// Measurements at once, of all sessions: each has a thread.
const MEASURED_AT_ONCE: usize = 16;

static MEASURING: Semaphore = Semaphore::const_new(MEASURED_AT_ONCE);

/// Ends a room whose workspace outgrows its allowance between runs. One task for the life of a
/// cell: runs are short and many, and have a watch of their own.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    state: Arc<Mutex<WatchState>>,
    task: JoinHandle<()>,
}

/// State shared by the cell and the task.
#[derive(Debug)]
struct WatchState {
    /// Allowance of the folder; `None` while a run watches it.
    allowance: Option<Allowance>,
    /// Incremented by each change: a measurement that began before it does not count.
    version: u64,
}

impl DiskWatch {
    /// `overrun` is set before the room is killed.
    pub(crate) fn begin(
        room: &RoomHandles,
        objects: &Arc<SessionObjects>,
        folder: &MountedWorkspace,
        overrun: &Arc<OnceLock<Interruption>>,
    ) -> Self {
        let watched = Watched {
            group: room.group.clone(),
            roots: [room.init_pid, room.kernel_pid],
            objects: Arc::clone(objects),
            path: folder.path.clone(),
            scratch: folder.scratch.clone(),
            deleted: Arc::clone(&folder.deleted),
            reserve: folder.reserve.clone(),
        };
        let state = WatchState { allowance: Some(folder.allowance), version: 0 };
        let state = Arc::new(Mutex::new(state));
        let watching = watch(watched, Arc::clone(&state), room.killer(), Arc::clone(overrun));
        Self { state, task: tokio::spawn(watching) }
    }

    /// Sets the allowance, or pauses the watch. After this returns, no earlier allowance can end
    /// the room.
    pub(crate) fn set_allowance(&self, allowance: Option<Allowance>) {
        let mut state = lock(&self.state);
        state.allowance = allowance;
        state.version += 1;
    }
}

impl DiskWatch {
    /// The allowance, updated by every measurement since it was set; `None` while paused.
    pub(crate) fn allowance(&self) -> Option<Allowance> {
        lock(&self.state).allowance
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Clone)]
struct Watched {
    group: Option<Arc<Group>>,
    roots: [u32; 2],
    objects: Arc<SessionObjects>,
    path: PathBuf,
    scratch: Option<PathBuf>,
    deleted: Arc<DeletedFiles>,
    reserve: Option<Arc<Reserve>>,
}

/// A measurement: the folder, deleted files that are open, whether the disk is below its reserve.
#[derive(Debug, Clone, Copy)]
struct Measured {
    folder: Contents,
    deleted: Contents,
    is_low: bool,
}

async fn watch(
    watched: Watched,
    state: Arc<Mutex<WatchState>>,
    killer: Killer,
    overrun: Arc<OnceLock<Interruption>>,
) {
    let mut last_cpu = None;
    let mut pause = TICK;
    loop {
        tokio::time::sleep(pause).await;
        let (version, allowance) = {
            let state = lock(&state);
            (state.version, state.allowance)
        };
        let Some(allowance) = allowance else { continue };
        // An idle session takes no thread, of which hundreds would otherwise stay alive.
        if last_cpu.is_some() && watched.objects.processor_time() == last_cpu {
            continue;
        }
        let Ok(_turn) = MEASURING.acquire().await else { return };
        let (about, counted_max) = (watched.clone(), allowance.counted_max());
        let measured =
            tokio::task::spawn_blocking(move || measure(&about, last_cpu, counted_max)).await;
        let Ok((cpu, found, took)) = measured else { return };
        last_cpu = Some(cpu);
        pause = TICK.max(took * PAUSE_FACTOR);
        let Some(found) = found else { continue };
        let mut state = lock(&state);
        if state.version != version {
            // A run has begun or ended since; the run's own watch or the next measurement decides.
            last_cpu = None;
            continue;
        }
        let Some(allowance) = &mut state.allowance else { continue };
        watched.deleted.mark_clean();
        let before = allowance.found();
        allowance.hold(found.is_low, before);
        allowance.see_all(found.folder, found.deleted);
        let now = allowance.found();
        // A folder that a run left over its limit is reported by the next run; only growth ends it.
        let has_grown = now.bytes > before.bytes || now.files > before.files;
        if let Some(excess) = allowance.spent().filter(|_| has_grown) {
            let why = Interruption::from(excess);
            tracing::warn!(
                ?found,
                ?why,
                "a workspace grew too large between two runs; ending the session"
            );
            // Not set elsewhere.
            overrun.get_or_init(|| why);
            killer.kill();
            return;
        }
    }
}

/// Measures the folder, unless the session has used no CPU time and so has written nothing.
fn measure(
    watched: &Watched,
    last_cpu: Option<Duration>,
    counted_max: u64,
) -> (Duration, Option<Measured>, Duration) {
    let started = std::time::Instant::now();
    let cpu = watchdog::cpu_of(watched.group.as_deref(), &watched.roots);
    let is_busy = last_cpu != Some(cpu);
    let folder = is_busy
        .then(|| measure_both(&watched.path, watched.scratch.as_deref(), counted_max).ok())
        .flatten();
    let found = folder.map(|folder| Measured {
        folder,
        deleted: watched.deleted.measure(cpu, Depth::OpenAndMapped),
        is_low: watched.reserve.as_ref().is_some_and(|reserve| reserve.is_low_now()),
    });
    (cpu, found, started.elapsed())
}
