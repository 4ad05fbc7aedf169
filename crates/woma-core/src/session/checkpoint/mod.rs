//! Variables that outlive their kernel: saved while a session is idle and before it is ended, brought
//! back when it is wanted again.

mod restore;
mod save;
mod tracker;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use woma_sandbox::CheckpointLimits;
use woma_sandbox::protocol::Missing;

pub use self::save::Checkpointed;
pub(crate) use self::save::{keep_saving, save_if_idle};
pub(crate) use self::tracker::{CheckpointTracker, LostCode};
use crate::session::known::deletion;
use crate::session::state::{Home, Session};
use crate::storage::db::Deletion;
use crate::storage::outbox::Entry;
use woma_sandbox::sync::lock;

/// Default time limit of saving; half of it goes to finding out what can be saved.
const SAVE_MAX: Duration = Duration::from_secs(30);

/// Metadata of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct Summary {
    skipped: Vec<Missing>,
    executions: u64,
}

impl Home {
    /// Nothing where variables are not saved at all.
    fn limits(&self) -> Option<CheckpointLimits> {
        let bytes_max = self.workspaces.storage.settings.checkpoint_bytes_max;
        let limits = CheckpointLimits { bytes_max, variable_bytes_max: bytes_max, wall: SAVE_MAX };
        (bytes_max > 0).then_some(limits)
    }
}

impl Session {
    /// Drops the checkpoint. To be called while nothing is being saved.
    pub(crate) fn drop_checkpoint(&self) {
        *lock(&self.saved) = None;
        self.checkpoints(CheckpointTracker::forget_changes);
        let Some(home) = &self.home else { return };
        let what = if self.is_deleted() { Deletion::Session } else { Deletion::Checkpoint };
        // Again: a checkpoint may have been recorded since the deletion was.
        let entry = Entry::Deletion(deletion(&home.owner, &self.id, what));
        if let Err(error) = home.workspaces.storage.outbox.push(entry) {
            tracing::error!(%error, session = %self.id, "A checkpoint could not be deleted");
        }
    }
}
