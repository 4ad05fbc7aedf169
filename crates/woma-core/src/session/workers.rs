//! Cells that work for a caller without being a session: one warm cell for the queries of each
//! caller. They count among the caller's kernels, are not listed, have no variables to save, and
//! are the first to go when kernels or memory are short.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use woma_sandbox::sync::lock;
use woma_sandbox::workspace::Folder;

use super::state::Kernel;
use crate::model::caller::CallerId;
use crate::workspace::changes::Passing;

/// The working cells of all callers.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<BTreeMap<CallerId, Arc<Worker>>>);

/// The place of one caller's working cell.
#[derive(Debug)]
pub(crate) struct Worker {
    turn: Arc<tokio::sync::Mutex<Option<WorkerKernel>>>,
    used: Mutex<Instant>,
}

/// A working cell.
#[derive(Debug)]
pub(crate) struct WorkerKernel {
    pub(crate) kernel: Kernel,
    /// Its working directory.
    pub(crate) folder: Arc<Folder>,
    /// Folder of the host that it shows as `/datasets`.
    pub(crate) shown: PathBuf,
    /// Removes the working directory; after the kernel.
    pub(crate) passing: Passing,
    pub(crate) runs: u32,
}

impl Worker {
    fn new() -> Self {
        Self { turn: Arc::default(), used: Mutex::new(Instant::now()) }
    }

    /// Waits for the turn: one request at a time.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<Option<WorkerKernel>> {
        Arc::clone(&self.turn).lock_owned().await
    }

    pub(crate) fn mark_used(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Ends its cell if it is idle, and was for so long; says whether there was one.
    fn stop_if_idle(&self, longer_than: Duration) -> bool {
        let Ok(mut turn) = self.turn.try_lock() else { return false };
        lock(&self.used).elapsed() >= longer_than && turn.take().is_some()
    }
}

impl Workers {
    pub(crate) fn of(&self, owner: &CallerId) -> Arc<Worker> {
        let mut workers = lock(&self.0);
        Arc::clone(workers.entry(owner.clone()).or_insert_with(|| Arc::new(Worker::new())))
    }

    /// Ends the idle cell of one caller, for another kernel.
    pub(super) fn stop_of(&self, owner: &CallerId) -> bool {
        let worker = lock(&self.0).get(owner).cloned();
        worker.is_some_and(|worker| worker.stop_if_idle(Duration::ZERO))
    }

    /// Ends cells that were idle for so long, and forgets their callers; says how many there were.
    pub(crate) fn stop_idle(&self, longer_than: Duration) -> usize {
        let workers: Vec<_> = lock(&self.0).values().cloned().collect();
        let stopped = workers.iter().filter(|worker| worker.stop_if_idle(longer_than)).count();
        drop(workers);
        let is_needed = |worker: &Arc<Worker>| {
            Arc::strong_count(worker) > 1 || worker.turn.try_lock().is_ok_and(|turn| turn.is_some())
        };
        lock(&self.0).retain(|_, worker| is_needed(worker));
        stopped
    }
}
