//! The periodic tasks of a service: expiry, cleaning, checkpoints, records for the database. Each ends
//! with the service.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::packages::keep_sweeping;
use super::sessions::{WeakService, keep_lifetimes};
use super::{Service, expiry, health, pressure, refusals};
use crate::datasets::keep_current;
use crate::execution::environments::keep_retiring;
use crate::execution::jobs::worker;
use crate::session::checkpoint;
use crate::session::table::Sessions;
use crate::storage::db::LEASE;
use crate::workspace::Workspaces;
use woma_sandbox::sync::lock;

/// How often idle kernels are looked for.
const EXPIRY_TICK_MAX: Duration = Duration::from_secs(15);

pub(super) async fn start(service: &Service) {
    let Service { executor, sessions, workspaces, shared } = service;
    let tick = (shared.settings.idle_max / 4).clamp(Duration::from_millis(100), EXPIRY_TICK_MAX);
    tokio::spawn(expire(Arc::downgrade(sessions), tick));
    tokio::spawn(keep_lifetimes(WeakService::of(service), tick));
    tokio::spawn(pressure::keep_watch(Arc::downgrade(executor)));
    if let Some(datasets) = &executor.datasets {
        let known = Arc::downgrade(sessions);
        let is_idle = move || known.upgrade().is_none_or(|sessions| sessions.count() == 0);
        tokio::spawn(keep_current(Arc::downgrade(datasets), is_idle));
    }
    if executor.environments.named().next().is_some() {
        tokio::spawn(keep_retiring(Arc::downgrade(executor)));
    }
    if let Some(packages) = &executor.packages {
        tokio::spawn(keep_sweeping(Arc::downgrade(packages)));
    }
    if let Some(workspaces) = workspaces {
        *lock(&shared.store_health) = Some(workspaces.storage.db.health().await);
        *lock(&shared.disk) = health::disk_space(Arc::clone(workspaces)).await;
        let watched = Arc::downgrade(workspaces);
        tokio::spawn(health::watch_store(Arc::downgrade(shared), watched.clone()));
        tokio::spawn(checkpoint::keep_saving(Arc::downgrade(sessions)));
        tokio::spawn(refusals::keep_telling(Arc::downgrade(shared), watched.clone()));
        tokio::spawn(expiry::keep_clean(Arc::downgrade(executor), watched));
        if !executor.jobs.is_off() {
            tokio::spawn(worker::keep_working(Arc::downgrade(executor)));
        }
        tokio::spawn(keep_lease(Arc::downgrade(sessions), Arc::downgrade(workspaces)));
    }
}

/// Renews the lease on the sessions of this process; if the database is its own, only while it has
/// any: an idle server does not keep a disk awake. A database that is away is asked again; while it is away, no other server can delete
/// sessions either.
async fn keep_lease(sessions: Weak<Sessions>, workspaces: Weak<Workspaces>) {
    while let Some((known, held)) = sessions.upgrade().zip(workspaces.upgrade()) {
        let storage = &held.storage;
        if (known.count() > 0 || storage.db.is_shared())
            && let Err(error) = storage.db.renew_lease(&storage.process).await
        {
            tracing::debug!(%error, "The lease on this server's sessions was not renewed");
        }
        drop((known, held));
        tokio::time::sleep(LEASE / 6).await;
    }
}

async fn expire(sessions: Weak<Sessions>, tick: Duration) {
    loop {
        let Some(known) = sessions.upgrade() else { return };
        known.expire(Instant::now());
        drop(known);
        tokio::time::sleep(tick).await;
    }
}
