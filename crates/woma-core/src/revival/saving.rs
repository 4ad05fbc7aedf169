//! Saving: while a session rests, before its kernel ends, and on request.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::io::ReaderStream;
use tracing::Instrument as _;
use woma_sandbox::protocol::{Missing, Saved};
use woma_sandbox::{CheckpointLimits, Checkpointing};

use super::{SAVE_MAX, Summary};
use crate::caller::{Caller, CallerId};
use crate::lock::lock;
use crate::model::SessionId;
use crate::quota::StorageLimit;
use crate::service::{Shared, may_execute};
use crate::session::{Home, Kernel, Session, Slot};
use crate::store::{CheckpointRow, StoreError};
use crate::vault::Vault;
use crate::{Error, Service};

/// How long what was replaced stays: longer than any call, so that one that puts the same content
/// has its row by then.
const DISCARD_AFTER: Duration = Duration::from_mins(1);
/// A session that has been idle for this long is saved.
const SETTLED: Duration = Duration::from_secs(2);
/// One that is never idle for so long is saved between two runs.
const UNSAVED_MAX: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(500);
/// The same for a kernel that is to end: somebody may wait for its place.
const LAST_SAVE_MAX: Duration = Duration::from_secs(8);
/// Sessions that are saved at once.
const SAVED_AT_ONCE: usize = 4;
/// A store that could not take down a checkpoint is asked again.
const RECORD_AGAIN: Duration = Duration::from_secs(2);
/// Variables that could not be saved are tried again, if the session is still idle then.
const SAVE_AGAIN: Duration = Duration::from_secs(15);
/// The same for those that there was no room for: somebody must delete something first.
const ROOM_AGAIN: Duration = Duration::from_mins(1);
/// What the store gets to say how much room there is for them.
const ROOM_MAX: Duration = Duration::from_millis(800);
/// Saving takes a quarter of the time at most, for each owner.
const REST: u32 = 3;
const PIPE_BYTES: usize = 1024 * 1024;
const READ_BYTES: usize = 256 * 1024;

/// Why variables were not saved; `None` if there was no room for them.
struct NotWritten(Option<String>);

impl NotWritten {
    fn because(error: impl std::fmt::Display) -> Self {
        Self(Some(error.to_string()))
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
        let asked = home.vault.room_to_keep(&home.owner, home.storage, wanted);
        // The kernel is writing already, and has no more time than it was given.
        let left = tokio::time::timeout(ROOM_MAX, asked).await.ok().and_then(Result::ok);
        let left = left.unwrap_or(u64::MAX);
        let known = lock(&self.saved).as_ref().map(|(row, _)| row.size_bytes);
        let before = match known {
            None if left < wanted => {
                let row = tokio::time::timeout(ROOM_MAX, self.checkpoint(home)).await;
                row.ok().and_then(Result::ok).flatten().map_or(0, |row| row.size_bytes)
            }
            known => known.unwrap_or(0),
        };
        (left.saturating_add(before), before)
    }

    /// Why the latest checkpoint was refused, if that is what became of it.
    fn refusal(&self) -> Option<Error> {
        let storage = self.home.as_ref()?.storage?;
        self.is_refused().then(|| storage.refusal())
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
        let limits = CheckpointLimits { wall, ..self.home.as_ref()?.limits()? };
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
                let before = lock(&self.saved).replace((row.clone(), saved.clone()));
                if let Some((before, _)) = before {
                    tokio::spawn(discard_later(Arc::clone(&home.vault), before));
                }
                Some((saved, row))
            }
            Err(NotWritten(error)) => {
                let error = match error {
                    Some(error) => {
                        self.mark_accepted();
                        error
                    }
                    None => self.refuse(home),
                };
                tracing::warn!(error, session = %self.id, "Variables could not be saved");
                None
            }
        }
    }

    async fn write(
        &self,
        home: &Home,
        saving: Checkpointing,
    ) -> Result<(Saved, CheckpointRow), NotWritten> {
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
                return Err(NotWritten(None));
            }
            other => other.map_err(NotWritten::because)?,
        };
        let saved = saved.map_err(NotWritten::because)?;
        if !home.takes_checkpoint(size_bytes.saturating_sub(before)).await {
            return Err(NotWritten(None));
        }
        let summary =
            Summary { skipped: saved.skipped.clone(), executions: self.execution_count() };
        // The order of checkpoints is that of their times, also when the clock is put back.
        let earlier = lock(&self.saved).as_ref().map(|(row, _)| row.created_at);
        let row = CheckpointRow {
            owner: home.owner.as_str().to_owned(),
            session_id: self.id.as_str().to_owned(),
            digest,
            size_bytes,
            created_at: earlier.map_or_else(Timestamp::now, after),
            summary: serde_json::to_string(&summary).map_err(NotWritten::because)?,
        };
        Ok((saved, row))
    }

    /// Has the next server know of a checkpoint too, and says whether it does already. A store that
    /// is away is asked again, for as long as there is no later checkpoint.
    async fn record(self: Arc<Self>, row: CheckpointRow, making: OwnedMutexGuard<()>) -> bool {
        let recorded = self.record_once(&row).await;
        drop(making);
        if matches!(&recorded, Err(error) if error.is_passing()) {
            tokio::spawn(self.record_later(row));
        }
        recorded.is_ok()
    }

    async fn record_later(self: Arc<Self>, row: CheckpointRow) {
        loop {
            tokio::time::sleep(RECORD_AGAIN).await;
            let making = self.saving.lock().await;
            if !self.is_latest(&row) {
                return;
            }
            let Some(home) = &self.home else { return };
            // No row refers to it yet: it must not be taken for garbage. One that was, by another
            // server, takes the place of none.
            if home.vault.blobs.is_there(row.digest, row.size_bytes).await == Ok(false) {
                *lock(&self.saved) = None;
                self.mark_changed();
                return;
            }
            match self.record_once(&row).await {
                Err(error) if error.is_passing() => drop(making),
                _ => return,
            }
        }
    }

    async fn record_once(&self, row: &CheckpointRow) -> Result<(), StoreError> {
        let Some(home) = &self.home else { return Ok(()) };
        let store = &home.vault.store;
        let put = match store.put_checkpoint(row).await {
            // The clock that dated the one before was ahead of ours.
            Err(StoreError::Conflict) => {
                match store.checkpoint(&row.owner, &row.session_id).await {
                    Ok(Some(last)) => {
                        let created_at = after(last.created_at);
                        store.put_checkpoint(&CheckpointRow { created_at, ..row.clone() }).await
                    }
                    Ok(None) => store.put_checkpoint(row).await,
                    Err(error) => Err(error),
                }
            }
            put => put,
        };
        put.inspect_err(|error| {
            tracing::warn!(%error, session = %self.id, "A checkpoint could not be written down");
        })
    }

    fn is_latest(&self, row: &CheckpointRow) -> bool {
        lock(&self.saved).as_ref().is_some_and(|(last, _)| last == row)
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

    async fn save_now(self: Arc<Self>) -> Result<Saved, Error> {
        // Runs go on meanwhile: the turn is wanted when there is something to do with it.
        drop(self.saving.lock().await);
        let mut slot = self.turn().await;
        self.end_of_ending(&mut slot).await;
        // The turn first, as everywhere: one that has begun since is waited for with it.
        let making = Arc::clone(&self.saving).lock_owned().await;
        let not_saved = || Error::NotSaved(self.id.clone());
        let (saved, row) = match &mut slot.kernel {
            Some(kernel) => {
                let changes = self.changes();
                let saving = self.begin_saving(kernel, SAVE_MAX).await;
                drop(slot);
                let saving = saving.ok_or_else(not_saved)?;
                let saved = self
                    .save(saving)
                    .await
                    .ok_or_else(|| self.refusal().unwrap_or_else(not_saved))?;
                self.mark_saved(changes);
                saved
            }
            // It was saved when its kernel went, and nothing has been run since.
            None => {
                drop(slot);
                let last = lock(&self.saved).clone();
                let (row, saved) = last.ok_or_else(|| Error::NoKernel(self.id.clone()))?;
                (saved, row)
            }
        };
        // What is acknowledged outlives the server.
        if !Arc::clone(&self).record(row, making).await {
            return Err(not_saved());
        }
        Ok(saved)
    }
}

/// Takes away what a later checkpoint has replaced: whoever saves much and often must not fill the
/// disk until the next cleaning, which takes what this leaves.
async fn discard_later(vault: Arc<Vault>, row: CheckpointRow) {
    tokio::time::sleep(DISCARD_AFTER).await;
    if let Err(error) = vault.blobs.discard(&vault.store, row.digest, row.created_at).await {
        tracing::debug!(%error, "A checkpoint that was replaced is left to the cleaning");
    }
}

/// Later than that, and now if that is possible.
fn after(before: Timestamp) -> Timestamp {
    let next = before.checked_add(Duration::from_micros(1)).unwrap_or(before);
    next.max(Timestamp::now())
}

/// What a checkpoint on request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpointed {
    pub saved: Vec<String>,
    pub skipped: Vec<Missing>,
    pub bytes: u64,
}

impl Service {
    /// Saves a session's variables now. Waits for its turn, and for a checkpoint that is on its way.
    pub async fn checkpoint_session(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Checkpointed, Error> {
        may_execute(caller)?;
        self.recall(caller, id).await?;
        let session = self.shared.sessions.find(caller, id)?;
        let admission = self.shared.in_hand.admit(&caller.id)?;
        // On a task of its own: who hangs up leaves nothing half done.
        let (service, caller, id) = (self.clone(), caller.clone(), id.clone());
        let saved = async move {
            let saved = session.save_now().await;
            drop(admission);
            let saved = saved?;
            service.note(
                &caller,
                "checkpoint_session",
                Some(&id),
                &json!({ "bytes": saved.bytes }),
            );
            Ok(saved)
        };
        let saved = tokio::spawn(saved.in_current_span());
        let saved = saved.await.unwrap_or(Err(Error::Lost))?;
        Ok(Checkpointed { saved: saved.saved, skipped: saved.skipped, bytes: saved.bytes })
    }
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
        None if session.is_refused() => session.mark_unsavable(ROOM_AGAIN),
        None => session.mark_unsavable(SAVE_AGAIN),
    }
}
