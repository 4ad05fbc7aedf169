//! Between runs: what threads and processes that a run left behind do to a workspace on disk.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::cell::Lodging;
use crate::limits::cgroup::Group;
use crate::limits::watchdog;
use crate::room::{Killer, Room};
use crate::sandbox::lock;
use crate::workspace::{self, Allowance, Contents};

/// How often it is asked whether anything is going on.
const TICK: Duration = Duration::from_millis(500);
/// A look that takes long, because there is much to look at, comes less often.
const REST: u32 = 5;

/// Ends a room whose workspace grows over what it may hold while nothing is run in it. One task for
/// the life of a cell: runs are short and many, and each has a watch of its own.
#[derive(Debug)]
pub(crate) struct Vigil {
    post: Arc<Mutex<Post>>,
    task: JoinHandle<()>,
}

/// What cell and task tell each other.
#[derive(Debug)]
struct Post {
    /// What the folder may hold; `None` while somebody else watches.
    allowance: Option<Allowance>,
    /// How often it was told: a look that began before is no look at this.
    told: u64,
}

impl Vigil {
    /// `has_ended` is set before the room is ended.
    pub(crate) fn begin(room: &Room, folder: &Lodging, has_ended: &Arc<AtomicBool>) -> Self {
        let watched = Watched {
            group: room.group.clone(),
            roots: [room.init_pid, room.kernel_pid],
            path: folder.path.clone(),
        };
        let post = Post { allowance: Some(folder.allowance), told: 0 };
        let post = Arc::new(Mutex::new(post));
        let watching = watch(watched, Arc::clone(&post), room.killer(), Arc::clone(has_ended));
        Self { post, task: tokio::spawn(watching) }
    }

    /// Has it watch for growth beyond this, or not at all. When this returns, nothing is ended by
    /// what it was told before.
    pub(crate) fn tell(&self, allowance: Option<Allowance>) {
        let mut post = lock(&self.post);
        post.allowance = allowance;
        post.told += 1;
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Clone)]
struct Watched {
    group: Option<Arc<Group>>,
    roots: [u32; 2],
    path: PathBuf,
}

async fn watch(
    watched: Watched,
    post: Arc<Mutex<Post>>,
    killer: Killer,
    has_ended: Arc<AtomicBool>,
) {
    let mut cpu_seen = None;
    let mut pause = TICK;
    loop {
        tokio::time::sleep(pause).await;
        let (told, allowance) = {
            let post = lock(&post);
            (post.told, post.allowance)
        };
        let Some(allowance) = allowance else { continue };
        let (about, counted_max) = (watched.clone(), allowance.counted_max());
        let looked = tokio::task::spawn_blocking(move || look(&about, cpu_seen, counted_max)).await;
        let Ok((cpu, found, took)) = looked else { return };
        cpu_seen = Some(cpu);
        pause = TICK.max(took * REST);
        let Some(found) = found else { continue };
        let mut post = lock(&post);
        if post.told != told {
            // A run has come or gone since; what it did is judged by others, or by the next look.
            cpu_seen = None;
            continue;
        }
        let Some(allowance) = &mut post.allowance else { continue };
        allowance.see(found);
        if allowance.is_spent() {
            let bytes = found.bytes;
            tracing::warn!(bytes, "a workspace grew over its limit between two runs; it ends");
            has_ended.store(true, Ordering::Relaxed);
            killer.kill();
            return;
        }
    }
}

/// Who takes no processor time writes nothing: then there is nothing to look at.
fn look(
    watched: &Watched,
    cpu_seen: Option<Duration>,
    counted_max: u64,
) -> (Duration, Option<Contents>, Duration) {
    let started = std::time::Instant::now();
    let cpu = match &watched.group {
        Some(group) => group.cpu(),
        None => watchdog::cpu(&watchdog::descendants(&watched.roots)),
    };
    let is_busy = cpu_seen != Some(cpu);
    let found = is_busy.then(|| workspace::measure(&watched.path, counted_max).ok()).flatten();
    (cpu, found, started.elapsed())
}
