//! Health of the service. Nothing here waits for the database or a disk.

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use woma_sandbox::Rung;
use woma_sandbox::doctor::Examination;
use woma_sandbox::workspace::DiskSpace;

use super::{Service, Shared};
use crate::shares::PoolUse;
use crate::storage::db::StoreHealth;
use crate::workspace::Workspaces;
use woma_sandbox::sync::lock;

/// How often the store is asked how it is.
const STORE_TICK: Duration = Duration::from_millis(500);

/// How the service is.
#[derive(Debug, Clone)]
pub struct Health {
    /// Nothing is wrong that an operator should look at.
    pub is_well: bool,
    pub is_shutting_down: bool,
    pub uptime: Duration,
    pub started_at: Timestamp,
    /// The walls one by one, once they have been looked at; sessions are contained before that.
    pub isolation: Option<Examination>,
    /// The rung of isolation, and the step and the reason for which a higher one was refused.
    pub rung: (Rung, Option<(String, String)>),
    /// The mechanism that holds sessions to their limits, and why it is not a cgroup.
    pub limits_held_by: (&'static str, Option<String>),
    pub sandbox: woma_sandbox::Health,
    pub sessions: usize,
    pub kernels: usize,
    pub kernels_max: usize,
    pub cells: usize,
    pub pooled: usize,
    pub running_or_queued: usize,
    pub queued: usize,
    pub queue_max: usize,
    /// Of all sessions, where a cgroup counts it.
    pub memory_bytes: Option<u64>,
    /// The most that it may be.
    pub memory_bytes_max: Option<u64>,
    /// Of the data folder or of the sessions' files, whichever is lower; none where nothing is kept.
    pub disk: Option<DiskSpace>,
}

impl Service {
    /// How full the pools are that callers share, by name.
    pub fn pools(&self) -> Vec<(&'static str, PoolUse)> {
        let mut pools = vec![("calls", self.executor.admissions.usage())];
        pools.extend(self.sessions.pools());
        pools.push(("jobs", self.executor.jobs.usage()));
        pools.push(("webhooks", self.executor.jobs.webhook_usage()));
        pools.push(("ports", self.shared.ports.usage()));
        pools.push(("network_connections", self.executor.egress.usage()));
        pools.extend(self.workspaces.iter().flat_map(|workspaces| workspaces.pools()));
        pools
    }

    pub fn health(&self) -> Health {
        let Self { executor, sessions, shared, .. } = self;
        let sandbox = executor.sandbox.health();
        let running_or_queued = executor.admissions.taken();
        let is_shutting_down = executor.admissions.is_closed();
        let zygote_ready = sandbox.tiers.values().any(woma_sandbox::TierHealth::is_ready);
        Health {
            is_well: sandbox.broken.is_none() && zygote_ready && !is_shutting_down,
            is_shutting_down,
            uptime: shared.started.elapsed(),
            started_at: shared.started_at,
            isolation: shared.isolation.get().cloned(),
            rung: {
                let (rung, why) = executor.sandbox.rung();
                (rung, why.cloned())
            },
            limits_held_by: executor.sandbox.limits_held_by(),
            sandbox,
            sessions: sessions.count(),
            kernels: sessions.kernels(),
            kernels_max: shared.settings.kernels_max,
            cells: executor.sandbox.live_cells() + executor.environments.cells(),
            pooled: executor.sandbox.pooled_cells(),
            running_or_queued,
            queued: running_or_queued.saturating_sub(sessions.running()),
            queue_max: shared.settings.queue_max,
            memory_bytes: executor.sandbox.memory_bytes(),
            memory_bytes_max: shared.settings.memory_bytes_all,
            disk: *lock(&shared.disk),
        }
    }

    /// How the store was a moment ago; none where nothing is kept.
    pub fn store_health(&self) -> Option<StoreHealth> {
        lock(&self.shared.store_health).clone()
    }

    /// Records that are not in the store yet.
    pub fn unrecorded(&self) -> usize {
        let waiting = self.workspaces.as_ref().map_or(0, |kept| kept.storage.outbox.waiting());
        usize::try_from(waiting).unwrap_or(usize::MAX)
    }
}

/// Asks the database and the disks at intervals, so that a request for the health waits for neither.
pub(super) async fn watch_store(shared: Weak<Shared>, workspaces: Weak<Workspaces>) {
    loop {
        tokio::time::sleep(STORE_TICK).await;
        let Some((shared, workspaces)) = shared.upgrade().zip(workspaces.upgrade()) else { return };
        let found = workspaces.storage.db.health().await;
        *lock(&shared.store_health) = Some(found);
        *lock(&shared.disk) = disk_space(workspaces).await;
    }
}

/// Free space of the disks. Writers learn of it through the reserve.
pub(super) async fn disk_space(workspaces: Arc<Workspaces>) -> Option<DiskSpace> {
    // A disk that hangs must not hold up more than this.
    let looked = tokio::task::spawn_blocking(move || {
        let data = workspaces.storage.reserve.look();
        match workspaces.storage.sessions_reserve.look() {
            Ok(sessions) if sessions.is_low() => Ok(sessions),
            _ => data,
        }
    });
    match looked.await {
        Ok(Ok(space)) => Some(space),
        Ok(Err(error)) => {
            tracing::warn!(%error, "The free space of the data folder is not known");
            None
        }
        Err(_) => None,
    }
}
