//! Variables that outlive their kernel: saved while a session is idle and before it is ended, brought
//! back when it is wanted again.

mod restoring;
mod saving;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use woma_sandbox::CheckpointLimits;
use woma_sandbox::protocol::Missing;

pub use self::saving::Checkpointed;
pub(crate) use self::saving::{keep_saving, save_if_idle};
use crate::lock::lock;
use crate::session::{Home, Session};
use crate::store::Forgotten;

/// What saving may take, unless less is said; half of it goes to finding out what can be saved.
const SAVE_MAX: Duration = Duration::from_secs(30);

/// What is remembered of a checkpoint besides its bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Summary {
    skipped: Vec<Missing>,
    executions: u64,
}

impl Home {
    /// Nothing where variables are not saved at all.
    fn limits(&self) -> Option<CheckpointLimits> {
        let bytes_max = self.vault.settings.checkpoint_bytes_max;
        let limits = CheckpointLimits { bytes_max, variable_bytes_max: bytes_max, wall: SAVE_MAX };
        (bytes_max > 0).then_some(limits)
    }
}

impl Session {
    /// What was saved is of no use any more. To be called while nothing is being saved.
    pub(crate) async fn drop_checkpoint(&self) {
        *lock(&self.saved) = None;
        let Some(home) = &self.home else { return };
        let what = if self.is_deleted() { Forgotten::Deleted } else { Forgotten::Emptied };
        // It was marked before, and may have been settled since by a run that came in between.
        let forgotten = home.vault.store.forget(home.owner.as_str(), self.id.as_str(), what);
        if let Err(error) = forgotten.await {
            tracing::error!(%error, session = %self.id, "A checkpoint could not be deleted");
        }
    }
}
