//! How the service is, for whoever asks: nothing here waits for anything.

use std::sync::Weak;
use std::time::Duration;

use jiff::Timestamp;
use woma_sandbox::doctor::Examination;

use crate::Service;
use crate::lock::lock;
use crate::service::Shared;
use crate::store::StoreHealth;

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
    /// Who holds sessions to their limits, and why it is not a cgroup.
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
}

impl Service {
    pub fn health(&self) -> Health {
        let shared = &self.shared;
        let sandbox = shared.sandbox.health();
        let running_or_queued = shared.in_hand.taken();
        let kernels = shared.sessions.kernels();
        let is_shutting_down = shared.in_hand.is_closed();
        let zygote_ready = sandbox.tiers.values().any(woma_sandbox::TierHealth::is_ready);
        Health {
            is_well: sandbox.broken.is_none() && zygote_ready && !is_shutting_down,
            is_shutting_down,
            uptime: shared.started.elapsed(),
            started_at: shared.started_at,
            isolation: shared.isolation.get().cloned(),
            limits_held_by: shared.sandbox.limits_held_by(),
            sandbox,
            sessions: shared.sessions.count(),
            kernels,
            kernels_max: shared.settings.kernels_max,
            cells: shared.sandbox.live_cells(),
            pooled: shared.sandbox.pooled_cells(),
            running_or_queued,
            queued: running_or_queued.saturating_sub(shared.sessions.running()),
            queue_max: shared.settings.queue_max,
            memory_bytes: shared.sandbox.memory_bytes(),
        }
    }

    /// How the store was a moment ago; none where nothing is kept.
    pub fn store_health(&self) -> Option<StoreHealth> {
        lock(&self.shared.store_health).clone()
    }

    /// Records that are not in the store yet.
    pub fn unrecorded(&self) -> usize {
        let waiting = self.shared.vault.as_ref().map_or(0, |vault| vault.journal.waiting());
        usize::try_from(waiting).unwrap_or(usize::MAX)
    }
}

/// Whoever asks for the server's health must not wait for the store. Ends with the service.
pub(crate) async fn watch_store(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(STORE_TICK).await;
        let Some(shared) = shared.upgrade() else { return };
        let Some(vault) = &shared.vault else { return };
        let found = vault.store.health().await;
        *lock(&shared.store_health) = Some(found);
    }
}
