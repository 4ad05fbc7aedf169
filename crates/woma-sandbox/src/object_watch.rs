//! Accounting of kernel objects that no cgroup counts: file locks, open files, sockets.
//!
//! Each takes memory of the host that is charged to no cgroup, or a slot in a table shared by the
//! host. One task checks the sessions that used CPU time since its last check. If a session exceeds
//! its limits, its run is stopped; without a run, the session is ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::allocator;
use crate::limits::cgroup::Group;
use crate::limits::{Limits, objects, watchdog};
use crate::room_handles::{Killer, RoomHandles};
use crate::sandbox::Shared;
use crate::spec::KernelObject;
use crate::sync::lock;

/// Interval of checks. A program can take about 20 000 locks in that time, which is 4 MiB.
const TICK: Duration = Duration::from_millis(100);

/// Idle time, in ticks, after which free memory is returned to the system.
const QUIET_TICKS: u32 = 10;

/// The watched sessions.
#[derive(Debug, Default)]
pub(crate) struct ObjectWatch {
    sessions: Mutex<BTreeMap<u64, Weak<SessionObjects>>>,
    /// Notified when a session is added.
    grown: Notify,
}

/// Kernel objects of one session.
#[derive(Debug)]
pub(crate) struct SessionObjects {
    group: Option<Arc<Group>>,
    roots: [u32; 2],
    limits: [(KernelObject, u64); 4],
    killer: Killer,
    /// True during a run, which is then stopped instead of the session.
    is_running: AtomicBool,
    excess: Mutex<Option<KernelObject>>,
    found: Notify,
    last_cpu: Mutex<Option<Duration>>,
}

impl ObjectWatch {
    pub(crate) fn add(&self, id: u64, room: &RoomHandles, limits: &Limits) -> Arc<SessionObjects> {
        let session = Arc::new(SessionObjects {
            group: room.group.clone(),
            roots: [room.init_pid, room.kernel_pid],
            limits: [
                (KernelObject::Socket, limits.sockets),
                (KernelObject::OpenFile, limits.open_files_total),
                (KernelObject::FileLock, limits.file_locks),
                (KernelObject::Process, limits.processes),
            ],
            killer: room.killer(),
            is_running: AtomicBool::new(false),
            excess: Mutex::default(),
            found: Notify::new(),
            last_cpu: Mutex::default(),
        });
        lock(&self.sessions).insert(id, Arc::downgrade(&session));
        self.grown.notify_one();
        session
    }

    /// Sessions that still exist.
    fn living(&self) -> Vec<Arc<SessionObjects>> {
        let mut session = lock(&self.sessions);
        session.retain(|_, one| one.strong_count() > 0);
        session.values().filter_map(Weak::upgrade).collect()
    }
}

impl SessionObjects {
    /// Called when a run begins and when it has ended.
    pub(crate) fn set_running(&self, is_running: bool) {
        if is_running {
            *lock(&self.excess) = None;
        }
        self.is_running.store(is_running, Ordering::Release);
    }

    /// Returns when the run in progress must be stopped.
    pub(crate) async fn exceeded(&self) -> KernelObject {
        loop {
            let found = self.found.notified();
            if let Some(what) = self.excess() {
                return what;
            }
            found.await;
        }
    }

    /// Kind of object that exceeded its limit, if the session was stopped or ended for that.
    pub(crate) fn excess(&self) -> Option<KernelObject> {
        *lock(&self.excess)
    }

    pub(crate) fn limit(&self, what: KernelObject) -> u64 {
        self.limits.iter().find(|(of, _)| *of == what).map_or(0, |(_, limit)| *limit)
    }

    /// CPU time of the session at the latest check that read it; `None` before the first one, and
    /// without a cgroup.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        *lock(&self.last_cpu)
    }

    /// Whether the session used CPU time since the last check; otherwise it created no objects.
    fn is_busy(&self) -> bool {
        let Some(group) = &self.group else { return true };
        let cpu = group.cpu();
        lock(&self.last_cpu).replace(cpu) != Some(cpu)
    }

    fn check_limits(&self, locks: &objects::Locks) {
        let pids = match &self.group {
            Some(group) => group.pids(),
            None => watchdog::descendants(&self.roots),
        };
        let [_, kernel] = self.roots;
        let is_shared = watchdog::SHARED.load(Ordering::Relaxed);
        let over = self.limits.iter().find(|(what, limit)| {
            let found = match what {
                // Sessions without a network namespace have no sockets but pairs.
                KernelObject::Socket if is_shared => objects::socket_pairs(&pids, *limit),
                KernelObject::Socket => objects::sockets(kernel),
                // In a room, the kernel counts them.
                KernelObject::Process if !is_shared => 0,
                KernelObject::Process => watchdog::threads(&pids),
                KernelObject::OpenFile => objects::open_files(&pids, *limit),
                KernelObject::FileLock => locks.of(&pids),
            };
            found > *limit
        });
        let Some((what, limit)) = over else { return };
        *lock(&self.excess) = Some(*what);
        if self.is_running.load(Ordering::Acquire) {
            self.found.notify_waiters();
        } else {
            tracing::warn!(?what, limit, "a session holds too many kernel objects; ending it");
            self.killer.kill();
        }
    }
}

/// Checks sessions until the sandbox is dropped.
pub(crate) async fn watch(shared: Weak<Shared>) {
    let mut last_cpu = None;
    let mut quiet_ticks: u32 = 0;
    loop {
        tokio::time::sleep(TICK).await;
        let Some(shared) = shared.upgrade() else { return };
        let living = shared.object_watch.living();
        // Of all sessions together: on a quiet machine nothing else is read.
        let cpu = shared.cgroups.cpu();
        if living.is_empty() || cpu.is_some() && cpu == last_cpu {
            quiet_ticks = quiet_ticks.saturating_add(1);
            if quiet_ticks == QUIET_TICKS {
                allocator::give_back();
            }
            if living.is_empty() && quiet_ticks >= QUIET_TICKS {
                let object_watch = Arc::clone(&shared.object_watch);
                drop(shared);
                object_watch.grown.notified().await;
            }
            continue;
        }
        quiet_ticks = 0;
        last_cpu = cpu;
        drop(shared);
        if tokio::task::spawn_blocking(move || check_sessions(&living)).await.is_err() {
            tracing::error!("cannot count kernel objects");
        }
    }
}

fn check_sessions(living: &[Arc<SessionObjects>]) {
    let busy: Vec<_> = living.iter().filter(|session| session.is_busy()).collect();
    if busy.is_empty() {
        return;
    }
    let locks = objects::Locks::read();
    for session in busy {
        session.check_limits(&locks);
    }
}
