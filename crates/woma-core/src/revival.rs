//! Variables that outlive their kernel: saved while a session is idle and before it is ended, brought
//! back when it is wanted again.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::io::{ReaderStream, StreamReader};
use woma_sandbox::protocol::{Missing, Saved};
use woma_sandbox::{CheckpointLimits, Checkpointing, Guard, Restore};

use crate::caller::{Caller, CallerId};
use crate::lock::lock;
use crate::model::{Revival, SessionId};
use crate::quota::StorageLimit;
use crate::service::{Shared, may_execute};
use crate::session::{Home, Kernel, Session, Slot};
use crate::store::{CheckpointRow, StoreError};
use crate::{Error, Service};

/// A session that has been idle for this long is saved.
const SETTLED: Duration = Duration::from_secs(2);
/// One that is never idle for so long is saved between two runs.
const UNSAVED_MAX: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(500);
/// What saving may take; half of it goes to finding out what can be saved.
const SAVE_MAX: Duration = Duration::from_secs(30);
/// The same for a kernel that is to end: somebody may wait for its place.
const LAST_SAVE_MAX: Duration = Duration::from_secs(8);
/// Sessions that are saved at once.
const SAVED_AT_ONCE: usize = 4;
/// What bringing back may take.
const RESTORE_MAX: Duration = Duration::from_secs(20);
/// What the store gets to say whether there is anything to bring back.
const LOOKUP_MAX: Duration = Duration::from_millis(500);
/// A store that could not take down a checkpoint is asked again.
const RECORD_AGAIN: Duration = Duration::from_secs(2);
/// Saving takes a quarter of the time at most, for each owner.
const REST: u32 = 3;
const PIPE_BYTES: usize = 1024 * 1024;
const READ_BYTES: usize = 256 * 1024;

/// What is remembered of a checkpoint besides its bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Summary {
    skipped: Vec<Missing>,
    executions: u64,
}

impl Home {
    fn limits(&self, wall: Duration) -> Option<CheckpointLimits> {
        let bytes_max = self.vault.settings.checkpoint_bytes_max;
        let limits = CheckpointLimits { bytes_max, variable_bytes_max: bytes_max, wall };
        (bytes_max > 0).then_some(limits)
    }
}

impl Home {
    /// Counts what it is larger by than the one before.
    async fn takes_checkpoint(&self, more: u64) -> bool {
        match self.vault.grant(&self.owner, self.storage, more).await {
            Ok(grant) => {
                // Its row follows, sooner or later; nobody else gets this room.
                if let Some(grant) = grant {
                    grant.stored();
                }
                true
            }
            Err(error) => !matches!(error, Error::NoRoom { .. }),
        }
    }
}

impl Session {
    /// What a checkpoint may have, and the size of the one whose place it takes; that is only asked
    /// for where it matters. A store that does not answer keeps nobody from saving.
    async fn room_for_checkpoint(&self, home: &Home, wanted: u64) -> (u64, u64) {
        let left = home.vault.room_to_keep(&home.owner, home.storage, wanted).await;
        let left = left.unwrap_or(u64::MAX);
        let known = lock(&self.saved).as_ref().map(|row| row.size_bytes);
        let before = match known {
            None if left < wanted => {
                let row = self.checkpoint(home).await.ok().flatten();
                row.map_or(0, |row| row.size_bytes)
            }
            known => known.unwrap_or(0),
        };
        (left.saturating_add(before), before)
    }

    /// There is no room for its variables: the next reply says so, and why.
    fn refuse(&self, home: &Home) -> String {
        let refusal = home.storage.map(StorageLimit::refusal);
        let hint = refusal.as_ref().and_then(Error::hint).unwrap_or_default();
        let why = refusal.map(|error| error.to_string()).unwrap_or_default();
        let text = format!("{why} ({hint})");
        self.mark_refused(format!("the session's variables are not saved: {text}"));
        text
    }

    /// Begins to save the variables; the turn is needed only until this returns.
    async fn begin_saving(&self, kernel: &mut Kernel, wall: Duration) -> Option<Checkpointing> {
        let limits = self.home.as_ref()?.limits(wall)?;
        match kernel.cell.start_checkpoint(limits).await {
            Ok(saving) => Some(saving),
            Err(error) => {
                tracing::warn!(%error, session = %self.id, "Variables could not be saved");
                None
            }
        }
    }

    /// Brings what was begun to its end: from here on the variables can be brought back, by this
    /// server at least.
    async fn save(&self, saving: Checkpointing) -> Option<(Saved, CheckpointRow)> {
        let home = self.home.as_ref()?;
        match Box::pin(self.write(home, saving)).await {
            Ok((saved, row)) => {
                self.mark_accepted();
                *lock(&self.saved) = Some(row.clone());
                Some((saved, row))
            }
            Err(error) => {
                tracing::warn!(error, session = %self.id, "Variables could not be saved");
                None
            }
        }
    }

    async fn write(
        &self,
        home: &Home,
        saving: Checkpointing,
    ) -> Result<(Saved, CheckpointRow), String> {
        let (mut sink, source) = tokio::io::duplex(PIPE_BYTES);
        let bytes_max = home.vault.settings.checkpoint_bytes_max.saturating_mul(2);
        let (room, before) = self.room_for_checkpoint(home, bytes_max).await;
        let bytes_max = bytes_max.min(room);
        let source = ReaderStream::with_capacity(source, READ_BYTES);
        let stored = home.vault.blobs.put_stream(Box::pin(source), bytes_max);
        let written = async move {
            let saved = saving.write_to(&mut sink).await;
            drop(sink);
            saved
        };
        let (saved, stored) = tokio::join!(written, stored);
        let (digest, size_bytes) = match stored {
            Err(StoreError::TooLarge { limit_bytes }) if limit_bytes == room => {
                return Err(self.refuse(home));
            }
            other => other.map_err(|error| error.to_string())?,
        };
        let saved = saved.map_err(|error| error.to_string())?;
        if !home.takes_checkpoint(size_bytes.saturating_sub(before)).await {
            return Err(self.refuse(home));
        }
        let summary =
            Summary { skipped: saved.skipped.clone(), executions: self.execution_count() };
        let row = CheckpointRow {
            owner: home.owner.as_str().to_owned(),
            session_id: self.id.as_str().to_owned(),
            digest,
            size_bytes,
            created_at: Timestamp::now(),
            summary: serde_json::to_string(&summary).map_err(|error| error.to_string())?,
        };
        Ok((saved, row))
    }

    /// Has the next server know of a checkpoint too, and says whether it does already. A store that
    /// is away is asked again, for as long as there is no later checkpoint.
    async fn record(self: Arc<Self>, row: CheckpointRow, making: OwnedMutexGuard<()>) -> bool {
        let recorded = self.record_once(&row).await;
        drop(making);
        if matches!(&recorded, Err(error) if is_passing(error)) {
            tokio::spawn(self.record_later(row));
        }
        recorded.is_ok()
    }

    async fn record_later(self: Arc<Self>, row: CheckpointRow) {
        loop {
            tokio::time::sleep(RECORD_AGAIN).await;
            let making = self.saving.lock().await;
            if lock(&self.saved).as_ref() != Some(&row) {
                return;
            }
            match self.record_once(&row).await {
                Err(error) if is_passing(&error) => drop(making),
                _ => return,
            }
        }
    }

    async fn record_once(&self, row: &CheckpointRow) -> Result<(), StoreError> {
        let Some(home) = &self.home else { return Ok(()) };
        home.vault.store.put_checkpoint(row).await.inspect_err(|error| {
            tracing::warn!(%error, session = %self.id, "A checkpoint could not be written down");
        })
    }

    /// Saves the variables of a kernel that has had its last run, and ends it.
    pub(crate) async fn save_last(self: Arc<Self>, mut kernel: Kernel) {
        // One that is being made would end with the kernel, and may be all that is needed.
        let making = Arc::clone(&self.saving).lock_owned().await;
        let changes = self.changes();
        let saved = match self.is_unsaved() {
            true => match self.begin_saving(&mut kernel, LAST_SAVE_MAX).await {
                Some(saving) => self.save(saving).await,
                None => None,
            },
            false => None,
        };
        self.mark_saved(changes);
        // Somebody may wait for its place, and nobody has to wait for the store.
        drop(kernel);
        if let Some((_, row)) = saved {
            tokio::spawn(self.record(row, making));
        }
    }

    /// The latest checkpoint, from memory or from the store.
    async fn checkpoint(&self, home: &Home) -> Result<Option<CheckpointRow>, String> {
        if let Some(row) = lock(&self.saved).clone() {
            return Ok(Some(row));
        }
        let asked = home.vault.store.checkpoint(home.owner.as_str(), self.id.as_str());
        match tokio::time::timeout(LOOKUP_MAX, asked).await {
            Ok(Ok(row)) => Ok(row),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the store does not answer".to_owned()),
        }
    }

    /// There is something to go back to, so that what is there now may go.
    async fn expect_checkpoint(&self) -> Result<(), Error> {
        let none = || Error::NoCheckpoint(self.id.clone());
        let home = self.home.as_ref().ok_or_else(none)?;
        // One that is on its way is waited for.
        drop(self.saving.lock().await);
        let is_known = lock(&self.saved).is_some();
        let asked = home.vault.store.checkpoint(home.owner.as_str(), self.id.as_str());
        if is_known || asked.await?.is_some() { Ok(()) } else { Err(none()) }
    }

    /// Brings variables back into a kernel that has none. A kernel that fails at it is dead.
    pub(crate) async fn revive(
        &self,
        kernel: &mut Kernel,
        guard: Option<Arc<Guard>>,
    ) -> Option<Revival> {
        let home = self.home.as_ref()?;
        home.limits(SAVE_MAX)?;
        let row = match self.checkpoint(home).await {
            Ok(Some(row)) => row,
            Ok(None) => return None,
            Err(error) => return Some(Revival { error: Some(error), ..Revival::default() }),
        };
        let summary: Summary = serde_json::from_str(&row.summary)
            .unwrap_or(Summary { skipped: Vec::new(), executions: 0 });
        let mut revival = Revival { saved_at: Some(row.created_at), ..Revival::default() };
        let restore = Restore { wall: RESTORE_MAX, execution_count: summary.executions, guard };
        let blob = match home.vault.blobs.get(row.digest).await {
            Ok(blob) => blob,
            Err(error) => return Some(Revival { error: Some(error.to_string()), ..revival }),
        };
        let stream = blob.stream.map_err(|error| std::io::Error::other(error.to_string()));
        let mut source = StreamReader::new(stream);
        match kernel.cell.restore(&mut source, restore).await {
            Ok(restored) => {
                revival.restored = restored.restored;
                revival.missing = summary.skipped;
                revival.missing.extend(restored.failed);
                revival.error = restored.error;
            }
            Err(error) => revival.error = Some(error.to_string()),
        }
        Some(revival)
    }

    /// What was saved is of no use any more.
    pub(crate) async fn drop_checkpoint(&self) {
        *lock(&self.saved) = None;
        let Some(home) = &self.home else { return };
        let dropped = home.vault.store.delete_checkpoint(home.owner.as_str(), self.id.as_str());
        if let Err(error) = dropped.await {
            tracing::warn!(%error, session = %self.id, "A checkpoint could not be deleted");
        }
    }
}

/// What a checkpoint on request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpointed {
    pub saved: Vec<String>,
    pub skipped: Vec<Missing>,
    pub bytes: u64,
}

impl Service {
    /// Saves a session's variables now. Waits for its turn.
    pub async fn checkpoint_session(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Checkpointed, Error> {
        may_execute(caller)?;
        self.recall(caller, id).await?;
        let session = self.shared.sessions.find(caller, id)?;
        let mut slot = session.turn().await;
        let Slot { kernel: Some(kernel), .. } = &mut *slot else {
            return Err(Error::NoKernel(id.clone()));
        };
        // The turn first, as everywhere: one that is being made is waited for with it.
        let making = Arc::clone(&session.saving).lock_owned().await;
        let changes = session.changes();
        let saving = session.begin_saving(kernel, SAVE_MAX).await;
        drop(slot);
        let saved = match saving {
            Some(saving) => session.save(saving).await,
            None => None,
        };
        let Some((saved, row)) = saved else {
            let refusal = session.home.as_ref().and_then(|home| home.storage);
            let refusal = refusal.filter(|_| session.is_refused()).map(StorageLimit::refusal);
            return Err(refusal.unwrap_or_else(|| Error::NotSaved(id.clone())));
        };
        session.mark_saved(changes);
        // What is acknowledged outlives the server.
        if !session.record(row, making).await {
            return Err(Error::NotSaved(id.clone()));
        }
        self.note(caller, "checkpoint_session", Some(id), &json!({ "bytes": saved.bytes }));
        Ok(Checkpointed { saved: saved.saved, skipped: saved.skipped, bytes: saved.bytes })
    }

    /// Takes a session back to its last checkpoint: what was set since is gone.
    pub async fn restore_session(&self, caller: &Caller, id: &SessionId) -> Result<Revival, Error> {
        may_execute(caller)?;
        self.recall(caller, id).await?;
        let session = self.shared.sessions.find(caller, id)?;
        let rules = match session.rules.clone() {
            Some(rules) => rules,
            None => self.shared.settings.policies.of(caller)?,
        };
        session.expect_checkpoint().await?;
        session.interrupt();
        let mut slot = session.turn().await;
        slot.kernel = None;
        slot.lost = Some("it was taken back to its checkpoint".to_owned());
        session.end_of_ending(&mut slot).await;
        session.mark_saved(session.changes());
        let started = self.bring_up(rules.guard(), &session, &mut slot).await?;
        session.mark_live();
        drop(slot);
        self.shared.sessions.make_room();
        self.note(caller, "restore_session", Some(id), &json!({}));
        started.revival.ok_or_else(|| Error::NoCheckpoint(id.clone()))
    }
}

/// Whether it may be gone in a while.
fn is_passing(error: &StoreError) -> bool {
    error.is_retryable() || *error == StoreError::ReadOnly
}

/// Saves sessions that have come to rest: those of one owner one after the other, so that a session
/// that takes long keeps nobody else's waiting. Ends with the service.
pub(crate) async fn keep_saving(shared: Weak<Shared>) {
    let places = Arc::new(Semaphore::new(SAVED_AT_ONCE));
    let mut busy: Vec<(CallerId, JoinHandle<()>)> = Vec::new();
    loop {
        tokio::time::sleep(TICK).await;
        busy.retain(|(_, task)| !task.is_finished());
        let Some(sessions) =
            shared.upgrade().map(|shared| shared.sessions.unsaved(SETTLED, UNSAVED_MAX))
        else {
            return;
        };
        for session in sessions {
            let Some(owner) = session.home.as_ref().map(|home| home.owner.clone()) else {
                continue;
            };
            if busy.iter().all(|(other, _)| *other != owner) {
                busy.push((owner, tokio::spawn(save_and_rest(session, Arc::clone(&places)))));
            }
        }
    }
}

async fn save_and_rest(session: Arc<Session>, places: Arc<Semaphore>) {
    let Ok(place) = places.acquire().await else { return };
    let began = Instant::now();
    save_if_idle(&session, SAVE_MAX).await;
    drop((place, session));
    tokio::time::sleep(began.elapsed() * REST).await;
}

/// Saves the variables of a session that nobody uses, and returns when that is done.
pub(crate) async fn save_if_idle(session: &Arc<Session>, wall: Duration) {
    // One that is being made may be all that is needed.
    let making = Arc::clone(&session.saving).lock_owned().await;
    let Some(mut slot) = session.idle_slot() else { return };
    let changes = session.changes();
    if !session.is_unsaved() {
        return;
    }
    let Slot { kernel: Some(kernel), .. } = &mut *slot else { return };
    let saving = session.begin_saving(kernel, wall).await;
    drop(slot);
    let Some(saving) = saving else {
        // Another try would go the same way, until something has changed.
        session.mark_saved(changes);
        return;
    };
    match session.save(saving).await {
        Some((_, row)) => {
            session.mark_saved(changes);
            Arc::clone(session).record(row, making).await;
        }
        // There would be as little room the next time, until something has changed.
        None if session.is_refused() => session.mark_saved(changes),
        None => {}
    }
}
