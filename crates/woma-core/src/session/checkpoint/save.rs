//! Saving: while a session rests, before its kernel ends, and on request.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::io::ReaderStream;
use woma_sandbox::protocol::{Missing, Saved};
use woma_sandbox::{CheckpointLimits, Checkpointing};

use super::{CheckpointTracker, SAVE_MAX, Summary};
use crate::error::Error;
use crate::model::caller::CallerId;
use crate::session::state::{Home, Kernel, Session};
use crate::session::table::Sessions;
use crate::storage::db::{CheckpointRow, StoreError};
use crate::storage::outbox::Entry;
use crate::workspace::Workspaces;
use crate::workspace::quota::StorageLimit;
use woma_sandbox::sync::lock;

/// How long what was replaced stays: longer than any call, so that one that puts the same content
/// has its row by then.
const DISCARD_AFTER: Duration = Duration::from_mins(1);
/// A session that has been idle for this long is saved.
const SETTLED: Duration = Duration::from_secs(2);
/// One that is never idle for so long is saved between two runs.
const UNSAVED_MAX: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(500);
/// The same for a kernel that is to end: a call may wait for its permit.
const LAST_SAVE_MAX: Duration = Duration::from_secs(8);
/// Sessions that are saved at once.
const SAVED_AT_ONCE: usize = 4;
/// Variables that could not be saved are tried again, if the session is still idle then.
const SAVE_AGAIN: Duration = Duration::from_secs(15);
/// The same for those that there was no room for: files must be deleted first.
const ROOM_AGAIN: Duration = Duration::from_mins(1);
/// Time that the store has to report the storage in use.
const ROOM_MAX: Duration = Duration::from_millis(800);
/// Saving takes a quarter of the time at most, for each owner.
const REST: u32 = 3;
const PIPE_BYTES: usize = 1024 * 1024;
const READ_BYTES: usize = 256 * 1024;

/// Why variables were not saved.
enum NotWritten {
    /// Over the owner's storage limit, or over the reserve of the disk.
    NoRoom(Option<Error>),
    Because(String),
}

impl NotWritten {
    fn because(error: impl std::fmt::Display) -> Self {
        Self::Because(error.to_string())
    }
}

impl Home {
    /// Counts what it is larger by than the one before.
    async fn takes_checkpoint(&self, more: u64) -> bool {
        match self.workspaces.grant(&self.owner, self.storage, more).await {
            Ok(grant) => {
                // Its row follows; the room is taken from now on.
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
    /// Size limit of a checkpoint, and the size of the one that it replaces, which is only asked
    /// for where it matters. A store that does not answer does not prevent saving.
    async fn room_for_checkpoint(&self, home: &Home, wanted: u64) -> (u64, u64) {
        let asked = home.workspaces.room_to_keep(&home.owner, home.storage, wanted);
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
        let home =
            self.home.as_ref().filter(|_| self.checkpoints(|tracker| tracker.is_refused()))?;
        let is_low = home.workspaces.storage.reserve.is_low();
        let of_disk = is_low.then_some(Error::DiskReserve);
        of_disk.or_else(|| home.storage.map(StorageLimit::refusal))
    }

    /// Records that there is no room for its variables; the next reply says so, and why.
    fn refuse(&self, refusal: Option<Error>) -> String {
        let hint = refusal.as_ref().and_then(Error::hint).unwrap_or_default();
        let why = refusal.map(|error| error.to_string()).unwrap_or_default();
        let text = format!("{why} ({hint})");
        self.checkpoints(|tracker| {
            tracker.refuse(format!("the session's variables are not saved: {text}"));
        });
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
                self.checkpoints(CheckpointTracker::accept);
                let before = lock(&self.saved).replace((row.clone(), saved.clone()));
                if let Some((before, _)) = before {
                    tokio::spawn(discard_later(Arc::clone(&home.workspaces), before));
                }
                Some((saved, row))
            }
            Err(error) => {
                let error = match error {
                    NotWritten::Because(error) => {
                        self.checkpoints(CheckpointTracker::accept);
                        error
                    }
                    NotWritten::NoRoom(refusal) => self.refuse(refusal),
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
        let no_room = || NotWritten::NoRoom(home.storage.map(StorageLimit::refusal));
        let (mut sink, source) = tokio::io::duplex(PIPE_BYTES);
        let bytes_max = home.workspaces.storage.settings.checkpoint_bytes_max.saturating_mul(2);
        let (room, before) = self.room_for_checkpoint(home, bytes_max).await;
        let bytes_max = bytes_max.min(room);
        let source = ReaderStream::with_capacity(source, READ_BYTES);
        let stored = home.workspaces.storage.blobs.put_stream(Box::pin(source), bytes_max);
        let written = async move {
            let saved = saving.write_to(&mut sink).await;
            drop(sink);
            saved
        };
        let (saved, stored) = tokio::join!(written, stored);
        let (digest, size_bytes) = match stored {
            Err(StoreError::TooLarge { limit_bytes }) if limit_bytes == room => {
                return Err(no_room());
            }
            Err(StoreError::Reserve) => return Err(NotWritten::NoRoom(Some(Error::DiskReserve))),
            other => other.map_err(NotWritten::because)?,
        };
        let saved = saved.map_err(NotWritten::because)?;
        if !home.takes_checkpoint(size_bytes.saturating_sub(before)).await {
            return Err(no_room());
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

    /// Records a checkpoint, so that the next server knows it.
    fn record(&self, row: CheckpointRow) {
        let Some(home) = &self.home else { return };
        let entry = Entry::Checkpoint(Box::new(row));
        if let Err(error) = home.workspaces.storage.outbox.push(entry) {
            tracing::warn!(%error, session = %self.id, "A checkpoint could not be recorded");
        }
    }

    /// As [`Session::record`]; when this returns, the record survives loss of power too.
    async fn record_synced(&self, row: CheckpointRow) -> io::Result<()> {
        let Some(home) = &self.home else { return Ok(()) };
        let outbox = &home.workspaces.storage.outbox;
        outbox.push_synced(vec![Entry::Checkpoint(Box::new(row))]).await?;
        outbox.settle_in_time().await;
        Ok(())
    }

    /// Saves the variables of a kernel that has had its last run, and ends it.
    pub(crate) async fn save_last(self: Arc<Self>, mut kernel: Kernel) {
        // One that is being made would end with the kernel, and may be all that is needed.
        let making = self.saving.lock().await;
        let changes = self.checkpoints(|tracker| tracker.changes());
        let saved = match self.checkpoints(|tracker| tracker.is_unsaved()) {
            true => match self.begin_saving(&mut kernel, LAST_SAVE_MAX).await {
                Some(saving) => self.save(saving).await,
                None => None,
            },
            false => None,
        };
        self.checkpoints(|tracker| tracker.mark_saved(changes));
        // A call may wait for its permit, and must not wait for the store.
        let claim = kernel.claim.take();
        drop(kernel);
        if let Some((_, row)) = saved {
            self.record(row);
        }
        drop(making);
        if let (Some(home), Some(claim)) = (&self.home, claim) {
            // Another process that takes the session must find what was saved.
            let outbox = Arc::clone(&home.workspaces.storage.outbox);
            tokio::spawn(async move {
                outbox.settle_in_time().await;
                drop(claim);
            });
        }
    }

    /// A checkpoint with the variables as they are now, for a job that begins: a new one if there are
    /// changes that none has. Waits for the turn. With it, why it is not complete.
    pub(crate) async fn snapshot(self: &Arc<Self>) -> (Option<CheckpointRow>, Vec<String>) {
        let Some(home) = &self.home else { return (None, Vec::new()) };
        let mut state = self.turn().await;
        self.end_of_ending(&mut state).await;
        let making = Arc::clone(&self.saving).lock_owned().await;
        let is_unsaved = self.checkpoints(|tracker| tracker.is_unsaved());
        let mut missing = Vec::new();
        if home.limits().is_none() {
            let has_any = state.kernel.is_live();
            missing.extend(has_any.then(|| "all, because checkpoints are off".to_owned()));
            return (None, missing);
        }
        if let (true, Some(kernel)) = (is_unsaved, state.kernel.live_mut()) {
            let changes = self.checkpoints(|tracker| tracker.changes());
            let saving = self.begin_saving(kernel, SAVE_MAX).await;
            drop(state);
            let saved = match saving {
                Some(saving) => self.save(saving).await,
                None => None,
            };
            if let Some((_, row)) = saved {
                self.checkpoints(|tracker| tracker.mark_saved(changes));
                self.record(row.clone());
                drop(making);
                return (Some(row), missing);
            }
            missing.push("changes that could not be saved".to_owned());
        } else {
            drop(state);
        }
        drop(making);
        match self.checkpoint(home).await {
            Ok(row) => (row, missing),
            Err(error) => {
                missing.push(format!("all, because the checkpoint cannot be looked up: {error}"));
                (None, missing)
            }
        }
    }

    /// Saves the variables now: waits for the turn, and for a checkpoint that is on its way.
    pub(crate) async fn save_now(self: Arc<Self>) -> Result<Saved, Error> {
        // Runs go on meanwhile: the turn is wanted when there is something to do with it.
        drop(self.saving.lock().await);
        let mut state = self.turn().await;
        self.end_of_ending(&mut state).await;
        // The turn first, as everywhere: one that has begun since is waited for with it.
        let making = Arc::clone(&self.saving).lock_owned().await;
        let not_saved = || Error::NotSaved(self.id.clone());
        let (saved, row) = match state.kernel.live_mut() {
            Some(kernel) => {
                let changes = self.checkpoints(|tracker| tracker.changes());
                let saving = self.begin_saving(kernel, SAVE_MAX).await;
                drop(state);
                let saving = saving.ok_or_else(not_saved)?;
                let saved = self
                    .save(saving)
                    .await
                    .ok_or_else(|| self.refusal().unwrap_or_else(not_saved))?;
                self.checkpoints(|tracker| tracker.mark_saved(changes));
                saved
            }
            // It was saved when its kernel went, and nothing has been run since.
            None => {
                drop(state);
                let last = lock(&self.saved).clone();
                let (row, saved) = last.ok_or_else(|| Error::NoKernel(self.id.clone()))?;
                (saved, row)
            }
        };
        // What is acknowledged outlives the server and loss of power.
        let recorded = self.record_synced(row).await;
        drop(making);
        recorded.map(|()| saved).map_err(|error| {
            tracing::warn!(%error, session = %self.id, "A checkpoint could not be recorded");
            not_saved()
        })
    }
}

/// Discards a checkpoint that was replaced: frequent large checkpoints must not fill the
/// disk until the next cleaning, which takes what this leaves.
async fn discard_later(workspaces: Arc<Workspaces>, row: CheckpointRow) {
    tokio::time::sleep(DISCARD_AFTER).await;
    if let Err(error) =
        workspaces.storage.blobs.discard(&workspaces.storage.db, row.digest, row.created_at).await
    {
        tracing::debug!(%error, "A checkpoint that was replaced is left to the cleaning");
    }
}

/// Later than that, and now if that is possible.
fn after(before: Timestamp) -> Timestamp {
    let next = before.checked_add(Duration::from_micros(1)).unwrap_or(before);
    next.max(Timestamp::now())
}

/// The result of a checkpoint on request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpointed {
    pub saved: Vec<String>,
    pub skipped: Vec<Missing>,
    pub bytes: u64,
}

/// Saves sessions that have come to rest: those of one owner one after the other, so that a session
/// that takes long does not delay other owners. Ends with the service.
pub(crate) async fn keep_saving(sessions: Weak<Sessions>) {
    let places = Arc::new(Semaphore::new(SAVED_AT_ONCE));
    let mut busy: Vec<(CallerId, JoinHandle<()>)> = Vec::new();
    loop {
        tokio::time::sleep(TICK).await;
        busy.retain(|(_, task)| !task.is_finished());
        let unsaved = sessions.upgrade().map(|sessions| sessions.unsaved(SETTLED, UNSAVED_MAX));
        let Some(unsaved) = unsaved else { return };
        let mut by_owner: BTreeMap<CallerId, Vec<Arc<Session>>> = BTreeMap::new();
        for session in unsaved {
            let Some(owner) = session.home.as_ref().map(|home| home.owner.clone()) else {
                continue;
            };
            by_owner.entry(owner).or_default().push(session);
        }
        for (owner, sessions) in by_owner {
            if busy.iter().all(|(other, _)| *other != owner) {
                busy.push((owner, tokio::spawn(save_and_rest(sessions, Arc::clone(&places)))));
            }
        }
    }
}

async fn save_and_rest(sessions: Vec<Arc<Session>>, places: Arc<Semaphore>) {
    for session in sessions {
        let Ok(place) = places.acquire().await else { return };
        let began = Instant::now();
        save_if_idle(&session, SAVE_MAX).await;
        drop((place, session));
        tokio::time::sleep(began.elapsed() * REST).await;
    }
}

/// Saves the variables of an idle session, and returns when that is done.
pub(crate) async fn save_if_idle(session: &Arc<Session>, wall: Duration) {
    // One that is being made may be all that is needed. Held until the checkpoint is recorded.
    let _making = session.saving.lock().await;
    let Some(mut state) = session.idle_state() else { return };
    let changes = session.checkpoints(|tracker| tracker.changes());
    if !session.checkpoints(|tracker| tracker.is_unsaved()) {
        return;
    }
    let Some(kernel) = state.kernel.live_mut() else { return };
    let saving = session.begin_saving(kernel, wall).await;
    drop(state);
    let Some(saving) = saving else {
        // Another try would go the same way, until something has changed.
        session.checkpoints(|tracker| tracker.mark_saved(changes));
        return;
    };
    match session.save(saving).await {
        Some((_, row)) => {
            session.checkpoints(|tracker| tracker.mark_saved(changes));
            session.record(row);
        }
        None if session.checkpoints(|tracker| tracker.is_refused()) => {
            session.checkpoints(|tracker| tracker.mark_unsavable(ROOM_AGAIN));
        }
        None => session.checkpoints(|tracker| tracker.mark_unsavable(SAVE_AGAIN)),
    }
}
