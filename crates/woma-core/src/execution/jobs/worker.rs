//! The worker of a server: claims jobs for free places, and ends those of servers that died.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{JobError, Jobs, webhook};
use crate::execution::Executor;
use crate::model::caller::CallerId;
use crate::storage::db::{JobState, StoreError};

/// How often the queue is looked at: other servers, and other processes with the same data folder,
/// add to it too.
const POLL: Duration = Duration::from_secs(1);
/// How often claims of other servers are looked at.
const REAP: Duration = Duration::from_secs(2);

/// Ends with the service.
pub(crate) async fn keep_working(executor: Weak<Executor>) {
    let mut reaped = Instant::now();
    loop {
        let Some(known) = executor.upgrade() else { return };
        if known.jobs.places.is_closed() {
            return;
        }
        let wake = Arc::clone(&known.jobs.wake);
        if let Err(error) = known.fire_schedules().await {
            tracing::debug!(%error, "Schedules could not be looked at");
        }
        if let Err(error) = known.claim_jobs().await {
            tracing::debug!(%error, "The queue of jobs could not be looked at");
        }
        if let Err(error) = known.deliver_webhooks().await {
            tracing::debug!(%error, "Webhooks could not be looked at");
        }
        if reaped.elapsed() >= REAP {
            reaped = Instant::now();
            if let Err(error) = known.reap_jobs().await {
                tracing::debug!(%error, "Claims of other servers could not be looked at");
            }
        }
        drop(known);
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

impl Executor {
    /// Starts jobs as long as there are jobs and places: callers in turns, one job each.
    async fn claim_jobs(self: &Arc<Self>) -> Result<(), StoreError> {
        let Some(workspaces) = &self.workspaces else { return Ok(()) };
        let Jobs { places, .. } = &self.jobs;
        let storage = &workspaces.storage;
        while places.taken() < places.places() {
            let owners = storage.db.job_owners(&storage.process).await?;
            let mut has_started = false;
            for owner in owners {
                let Some(place) = places.take(&CallerId::new(owner.as_str())) else { continue };
                if let Some(claimed) = storage.db.claim_job(&owner, &storage.process).await? {
                    has_started = true;
                    tokio::spawn(Arc::clone(self).run_claimed(claimed, place));
                }
            }
            if !has_started {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn reap_jobs(&self) -> Result<(), StoreError> {
        let Some(workspaces) = &self.workspaces else { return Ok(()) };
        let storage = &workspaces.storage;
        let error = JobError::interrupted("The server that ran this job ended before it did");
        storage.db.give_up_webhooks(webhook::ATTEMPTS_MAX).await?;
        let reaped = storage.db.reap_jobs(&storage.process, &error.to_json()).await?;
        for (id, state) in reaped {
            match state {
                JobState::Pending => tracing::warn!(id, "A job of a server that ended runs again"),
                _ => tracing::warn!(id, "A job ended with its server"),
            }
        }
        Ok(())
    }
}
