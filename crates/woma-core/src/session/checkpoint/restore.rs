//! Bringing back: into a kernel that takes the place of a lost one, or on request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use tokio_util::io::StreamReader;
use woma_sandbox::protocol::Restored;
use woma_sandbox::{Cell, Guard, Restore};

use super::{CheckpointTracker, Summary};
use crate::error::Error;
use crate::model::Revival;
use crate::session::state::{Home, Kernel, Session};
use crate::storage::claims::Claim;
use crate::storage::db::CheckpointRow;
use woma_sandbox::sync::lock;

/// Longest wait for a checkpoint whose kernel has ended.
const SAVING_MAX: Duration = Duration::from_secs(2);
/// Time limit of a restore.
const RESTORE_MAX: Duration = Duration::from_secs(20);

impl Session {
    /// Time of the checkpoint that the next kernel will be restored from, if it has variables. One
    /// that is being made is waited for, within reason.
    pub(crate) async fn restorable_since(&self) -> Option<Timestamp> {
        let home = self.home.as_ref()?;
        home.limits()?;
        if tokio::time::timeout(SAVING_MAX, self.saving.lock()).await.is_err() {
            tracing::debug!(session = %self.id, "A checkpoint takes long to be made");
        }
        if let Some((row, saved)) = &*lock(&self.saved) {
            return (!saved.saved.is_empty()).then_some(row.created_at);
        }
        match self.checkpoint(home).await {
            Ok(row) => row.map(|row| row.created_at),
            Err(error) => {
                tracing::warn!(error, session = %self.id, "The checkpoint cannot be looked up");
                None
            }
        }
    }

    /// The latest checkpoint, from memory or from the store. In a database that servers share there may
    /// be a later one than is known here: another server has had the session.
    pub(super) async fn checkpoint(&self, home: &Home) -> Result<Option<CheckpointRow>, String> {
        let known = lock(&self.saved).as_ref().map(|(row, _)| row.clone());
        let store = &home.workspaces.storage.db;
        let asked = store.checkpoint(home.owner.as_str(), self.id.as_str());
        let Some(known) = known else {
            return store.in_any_case(asked).await.map_err(|error| error.to_string());
        };
        if !store.is_shared() {
            return Ok(Some(known));
        }
        let found = store.in_time_unless_away(asked).await.ok().flatten();
        Ok(Some(found.filter(|row| row.created_at > known.created_at).unwrap_or(known)))
    }

    /// Forgets what this process remembers of the session if another one has had it since: then the
    /// store knows what became of it. Returns whether that is so.
    pub(crate) async fn follow(&self, claim: Option<&Claim>) -> bool {
        let Some(home) = self.home.as_ref().filter(|_| claim.is_some_and(|it| it.was_elsewhere))
        else {
            return false;
        };
        // That process may have been killed before the store had its last checkpoint.
        home.workspaces.storage.outbox.take_over_now().await;
        *lock(&self.saved) = None;
        self.checkpoints(CheckpointTracker::forget_own);
        true
    }

    /// The checkpoint to restore. One that is being made is waited for.
    pub(crate) async fn expect_checkpoint(&self) -> Result<(&Home, CheckpointRow), Error> {
        let none = || Error::NoCheckpoint(self.id.clone());
        let home = self.home.as_ref().ok_or_else(none)?;
        drop(self.saving.lock().await);
        let known = lock(&self.saved).clone();
        let row = match known {
            Some((row, _)) => Some(row),
            None => {
                home.workspaces.storage.db.checkpoint(home.owner.as_str(), self.id.as_str()).await?
            }
        };
        Ok((home, row.ok_or_else(none)?))
    }

    /// Brings variables back into a kernel that has none. A kernel that fails at it is dead.
    pub(crate) async fn revive(
        &self,
        kernel: &mut Kernel,
        guard: Option<Arc<Guard>>,
    ) -> Option<Revival> {
        let home = self.home.as_ref()?;
        home.limits()?;
        let row = match self.checkpoint(home).await {
            Ok(Some(row)) => row,
            Ok(None) => return None,
            Err(error) => return Some(Revival { error: Some(error), ..Revival::default() }),
        };
        match self.bring_back(home, &mut kernel.cell, &row, guard).await {
            // There was nothing to bring back, and so there is nothing to say.
            Ok(revival) if revival == Revival::of(&row) => None,
            Ok(revival) => Some(revival),
            Err(error) => Some(Revival { error: Some(error), ..Revival::of(&row) }),
        }
    }

    /// Brings the variables of a checkpoint into a cell in which nothing has been run. One that fails
    /// at it is dead.
    pub(crate) async fn bring_back(
        &self,
        home: &Home,
        cell: &mut Cell,
        row: &CheckpointRow,
        guard: Option<Arc<Guard>>,
    ) -> Result<Revival, String> {
        let summary: Summary = serde_json::from_str(&row.summary)
            .unwrap_or(Summary { skipped: Vec::new(), executions: 0 });
        let restore = Restore { wall: RESTORE_MAX, execution_count: summary.executions, guard };
        let blob = home
            .workspaces
            .storage
            .blobs
            .get(row.digest)
            .await
            .map_err(|error| error.to_string())?;
        let stream = blob.stream.map_err(|error| std::io::Error::other(error.to_string()));
        let mut source = StreamReader::new(stream);
        let restored = cell.restore(&mut source, restore).await;
        let Restored { restored, failed, error } = restored.map_err(|error| error.to_string())?;
        let missing = summary.skipped.into_iter().chain(failed).collect();
        Ok(Revival { restored, missing, error, ..Revival::of(row) })
    }
}

impl Revival {
    /// Of a checkpoint of which nothing is known yet.
    fn of(row: &CheckpointRow) -> Self {
        Self { saved_at: Some(row.created_at), ..Self::default() }
    }
}
