//! One session: whose turn it is in it, its kernel, and what can be told of it meanwhile.

mod queue;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use woma_sandbox::Cell;
use woma_sandbox::protocol::{Note, Saved};

pub(crate) use self::queue::{Place, Seat};
use crate::caller::CallerId;
use crate::files::Files;
use crate::lock::lock;
use crate::memory::drop_label;
use crate::model::{ExecutionId, SessionId, SessionInfo};
use crate::policy::Rules;
use crate::quota::StorageLimit;
use crate::store::CheckpointRow;
use crate::transcript::Transcript;
use crate::vault::{Vault, closed_folder, remove_folder};

/// Bytes that a session's log keeps.
const LOG_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    name: String,
    description: String,
    created_at: Timestamp,
    /// Its own, within its owner's.
    pub(crate) rules: Option<Arc<Rules>>,
    /// Where it lives on, if it outlives its kernel.
    pub(crate) home: Option<Home>,
    /// The latest checkpoint of this server's making, and what is in it.
    pub(crate) saved: Mutex<Option<(CheckpointRow, Saved)>>,
    /// Held while a checkpoint is made, from its first byte to its row.
    pub(crate) saving: Arc<tokio::sync::Mutex<()>>,
    /// Cancelled when it was deleted and nothing of it is left.
    pub(crate) gone: CancellationToken,
    turn: Arc<tokio::sync::Mutex<Slot>>,
    seen: Mutex<Seen>,
}

/// Where a session lives on.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) vault: Arc<Vault>,
    pub(crate) owner: CallerId,
    /// What that one may store.
    pub(crate) storage: Option<StorageLimit>,
    /// Its files.
    pub(crate) folder: PathBuf,
    /// Runs that its notebook could not take, and has not said so yet.
    pub(crate) untold: AtomicU64,
}

/// What its owner says about a new session.
#[derive(Debug, Default)]
pub(crate) struct Label {
    pub(crate) name: Option<String>,
    pub(crate) description: String,
    pub(crate) rules: Option<Arc<Rules>>,
    pub(crate) home: Option<Home>,
    /// Of one that was known before: how many runs it had, and why its variables are gone.
    pub(crate) past: Option<(u64, String)>,
}

/// What belongs to whoever has the turn.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) kernel: Option<Kernel>,
    /// Its folder, where it has one that outlives the kernel.
    pub(crate) files: Option<Files>,
    /// Why there is none, if there was one.
    pub(crate) lost: Option<String>,
    /// How many charts have a number, once that is known.
    pub(crate) charts: Option<usize>,
    /// The last words of a kernel that is being ended.
    pub(crate) ending: Option<JoinHandle<()>>,
}

/// A live cell, and its place among those that may be alive at once.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) cell: Cell,
    pub(crate) permit: OwnedSemaphorePermit,
    /// Processor time that earlier runs took.
    pub(crate) cpu_seen: Duration,
    pub(crate) transcript: Transcript,
}

impl Kernel {
    pub(crate) fn new(cell: Cell, permit: OwnedSemaphorePermit) -> Self {
        Self { cell, permit, cpu_seen: Duration::ZERO, transcript: Transcript::default() }
    }
}

/// What can be told of a session while somebody else has its turn.
#[derive(Debug)]
struct Seen {
    used: Instant,
    used_at: Timestamp,
    executions: u64,
    /// Runs that have the turn or wait for it.
    pending: usize,
    is_live: bool,
    is_deleted: bool,
    /// Runs that may have changed variables, and how many of them the latest checkpoint knows.
    changes: u64,
    changes_saved: u64,
    /// Of the first change that no checkpoint has.
    changed: Instant,
    /// When what could not be saved may be tried again.
    retry: Option<Instant>,
    /// Somebody wants it emptied: the run that goes on is the last with these variables.
    is_to_be_emptied: bool,
    /// Stops the run that has the turn.
    current: Option<CancellationToken>,
    /// What threads and processes wrote after their run had ended; the latest.
    log: Vec<u8>,
    /// Why variables are gone, told to a client that did not wait for it.
    unheard: Option<String>,
    /// Why the latest checkpoint was refused, if it was, and whether a reply has said so.
    refused: Option<(String, bool)>,
}

impl Home {
    /// Has the folder disappear at once, and gives where it is until it is removed: who is killed
    /// meanwhile, or cannot remove all of it, leaves nothing that would be taken for the session's.
    fn set_aside(&self) -> PathBuf {
        let aside = self.vault.passing_folder(&ExecutionId::mint());
        let made = aside.parent().map_or(Ok(()), closed_folder);
        match made.and_then(|()| std::fs::rename(&self.folder, &aside)) {
            Ok(()) => aside,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "The folder of an ended session stays in its place");
                }
                self.folder.clone()
            }
        }
    }
}

impl Session {
    pub(crate) fn new(id: SessionId, label: Label) -> Self {
        let Label { name, description, rules, home, past } = label;
        let (executions, lost) = past.map_or((0, None), |(count, why)| (count, Some(why)));
        let name = name.unwrap_or_else(|| id.to_string());
        let now = Timestamp::now();
        let seen = Seen {
            used: Instant::now(),
            used_at: now,
            executions,
            pending: 0,
            is_live: false,
            is_deleted: false,
            changes: 0,
            changes_saved: 0,
            changed: Instant::now(),
            retry: None,
            is_to_be_emptied: false,
            current: None,
            log: Vec::new(),
            unheard: None,
            refused: None,
        };
        let slot = Slot { lost, ..Slot::default() };
        let (turn, seen) = (Arc::new(tokio::sync::Mutex::new(slot)), Mutex::new(seen));
        Self {
            id,
            name,
            description,
            created_at: now,
            rules,
            home,
            saved: Mutex::default(),
            saving: Arc::default(),
            gone: CancellationToken::new(),
            turn,
            seen,
        }
    }

    /// To be called while the table is locked, so that it cannot be forgotten meanwhile.
    pub(crate) fn seat(self: &Arc<Self>) -> Seat {
        lock(&self.seen).pending += 1;
        Seat(Arc::clone(self))
    }

    /// As its owner sees it; `idle` is how long its kernel may be without a run.
    pub(crate) fn info(&self, idle: Duration) -> SessionInfo {
        let seen = lock(&self.seen);
        let expires_in = idle.saturating_sub(seen.used.elapsed());
        SessionInfo {
            id: self.id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            created_at: self.created_at,
            last_activity: seen.used_at,
            is_busy: seen.pending > 0,
            is_live: seen.is_live,
            execution_count: seen.executions,
            policy: self.rules.as_ref().map(|rules| rules.profile.name.clone()),
            expires_in: (seen.is_live && seen.pending == 0).then_some(expires_in),
        }
    }

    /// Since when it can be forgotten: it has no kernel, and nobody is about to run in it.
    pub(crate) fn forgettable_since(&self) -> Option<Instant> {
        let seen = lock(&self.seen);
        (!seen.is_live && seen.pending == 0 && !seen.is_deleted).then_some(seen.used)
    }

    /// Whoever waits for its turn is told. False if it is marked already.
    pub(crate) fn mark_deleted(&self) -> bool {
        !std::mem::replace(&mut lock(&self.seen).is_deleted, true)
    }

    pub(crate) fn is_deleted(&self) -> bool {
        lock(&self.seen).is_deleted
    }

    pub(crate) fn forget_count(&self) {
        lock(&self.seen).executions = 0;
    }

    pub(crate) fn interrupt(&self) -> bool {
        let current = lock(&self.seen).current.clone();
        current.inspect(CancellationToken::cancel).is_some()
    }

    /// What was written outside of any run, as far as it is known while a run goes on.
    pub(crate) fn log(&self) -> String {
        if let Ok(mut slot) = self.turn.try_lock()
            && let Some(kernel) = &mut slot.kernel
        {
            self.add_log(&kernel.cell.take_log());
        }
        String::from_utf8_lossy(&lock(&self.seen).log).into_owned()
    }

    /// Whether it is to be emptied, which is up to whoever asks first.
    pub(crate) fn takes_emptying(&self) -> bool {
        std::mem::take(&mut lock(&self.seen).is_to_be_emptied)
    }

    /// Why the run that has the turn was stopped, if it was together with its session.
    pub(crate) fn end_of_all(&self) -> Option<&'static str> {
        let seen = lock(&self.seen);
        match (seen.is_deleted, seen.is_to_be_emptied) {
            (true, _) => Some("the session was deleted"),
            (false, true) => Some("the session was reset"),
            (false, false) => None,
        }
    }

    /// The reply that said why variables are gone was read by nobody.
    pub(crate) fn remember_loss(&self, reason: String) {
        lock(&self.seen).unheard = Some(reason);
    }

    /// A checkpoint was refused.
    pub(crate) fn mark_refused(&self, why: String) {
        let mut seen = lock(&self.seen);
        // Said once, until there is another reason.
        if seen.refused.as_ref().is_none_or(|(said, _)| *said != why) {
            seen.refused = Some((why, false));
        }
    }

    /// A checkpoint was made.
    pub(crate) fn mark_accepted(&self) {
        lock(&self.seen).refused = None;
    }

    pub(crate) fn is_refused(&self) -> bool {
        lock(&self.seen).refused.is_some()
    }

    /// Why variables are not saved, for one reply.
    pub(crate) fn tell_refusal(&self) -> Option<Note> {
        let mut seen = lock(&self.seen);
        let (why, is_told) = seen.refused.as_mut()?;
        let text = (!std::mem::replace(is_told, true)).then(|| why.clone())?;
        Some(Note { code: "checkpoint_refused".to_owned(), text, subject: None, line: None })
    }

    pub(crate) fn recall_loss(&self) -> Option<String> {
        lock(&self.seen).unheard.take()
    }

    pub(crate) fn add_log(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut seen = lock(&self.seen);
        seen.log.extend_from_slice(bytes);
        let excess = seen.log.len().saturating_sub(LOG_BYTES_MAX);
        seen.log.drain(..excess);
    }

    /// Takes the folder as it is now for how the last run left it. A run that goes on meanwhile
    /// looks at the end itself.
    pub(crate) async fn look_away(&self) {
        let Ok(mut slot) = self.turn.try_lock() else { return };
        let Slot { files: Some(files), kernel, .. } = &mut *slot else { return };
        let cell = kernel.as_mut().map(|kernel| &mut kernel.cell);
        if let Err(error) = files.look(cell).await {
            tracing::debug!(%error, "A session's folder could not be looked at");
        }
    }

    /// Stops what runs, and ends the kernel once its turn has come round.
    pub(crate) async fn empty(&self) {
        lock(&self.seen).is_to_be_emptied = true;
        self.interrupt();
        let mut slot = self.turn.lock().await;
        if !self.takes_emptying() {
            // A run that was in the queue before us has done it, and begun anew.
            return;
        }
        slot.lost = None;
        let kernel = slot.kernel.take();
        lock(&self.seen).is_live = false;
        if let Some(Kernel { cell, permit, .. }) = kernel {
            if let Err(error) = cell.close().await {
                tracing::warn!(%error, "The end of a session's kernel could not be awaited");
            }
            drop(permit);
        }
        self.clear_folder(&mut slot).await;
    }

    /// Takes away its files. To be called with the turn, and without a kernel.
    pub(crate) async fn clear_folder(&self, slot: &mut Slot) {
        slot.files = None;
        if let Some(ending) = slot.ending.take() {
            // Nobody wants what it would save.
            ending.abort();
            if ending.await.is_err() {
                tracing::debug!(session = %self.id, "The variables of an emptied session go unsaved");
            }
        }
        // A checkpoint that is being made would come after the one that is dropped.
        let saving = self.saving.lock().await;
        self.drop_checkpoint().await;
        drop(saving);
        let Some(home) = &self.home else { return };
        home.drop_transcript();
        if self.is_deleted() {
            drop_label(&home.folder);
        }
        if remove_folder(home.set_aside()).await.is_err() {
            tracing::warn!(session = %self.id, "The end of a session's folder was not awaited");
        }
    }

    /// Since when there is a kernel that nobody uses.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let seen = lock(&self.seen);
        (seen.is_live && seen.pending == 0).then_some(seen.used)
    }

    /// Ends a kernel that nobody uses; variables that are not saved yet are saved first.
    pub(crate) fn bury_if_idle(self: &Arc<Self>, reason: &str) -> bool {
        let Ok(mut slot) = self.turn.try_lock() else { return false };
        lock(&self.seen).is_live = false;
        let Some(kernel) = slot.kernel.take() else { return false };
        slot.lost = Some(reason.to_owned());
        if self.is_unsaved() && self.home.is_some() {
            slot.ending = Some(tokio::spawn(Arc::clone(self).save_last(kernel)));
        }
        true
    }

    /// Waits for the turn, as a run does.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<Slot> {
        Arc::clone(&self.turn).lock_owned().await
    }

    pub(crate) fn mark_live(&self) {
        let mut seen = lock(&self.seen);
        seen.is_live = true;
        (seen.used, seen.used_at) = (Instant::now(), Timestamp::now());
    }

    /// Waits for the last words of a kernel that is being ended.
    pub(crate) async fn end_of_ending(&self, slot: &mut Slot) {
        // Not taken out before it has come: who waits may give up.
        if let Some(ending) = &mut slot.ending {
            if ending.await.is_err() {
                tracing::warn!(session = %self.id, "The end of a kernel was not orderly");
            }
            slot.ending = None;
        }
    }

    /// Waits until what is being saved is written down, unless somebody has the turn.
    pub(crate) async fn until_saved(&self) {
        if let Ok(mut slot) = self.turn.try_lock() {
            self.end_of_ending(&mut slot).await;
            drop(self.saving.lock().await);
        }
    }

    /// The turn, if nobody has it or waits for it.
    pub(crate) fn idle_slot(&self) -> Option<OwnedMutexGuard<Slot>> {
        let slot = Arc::clone(&self.turn).try_lock_owned().ok()?;
        (lock(&self.seen).pending == 0).then_some(slot)
    }

    pub(crate) fn execution_count(&self) -> u64 {
        lock(&self.seen).executions
    }

    /// A run may have changed variables.
    pub(crate) fn mark_changed(&self) {
        let mut seen = lock(&self.seen);
        if seen.changes == seen.changes_saved {
            seen.changed = Instant::now();
        }
        seen.changes += 1;
    }

    pub(crate) fn changes(&self) -> u64 {
        lock(&self.seen).changes
    }

    /// A checkpoint has the variables as they were after so many changes.
    pub(crate) fn mark_saved(&self, changes: u64) {
        let mut seen = lock(&self.seen);
        seen.changes_saved = seen.changes_saved.max(changes);
        seen.changed = Instant::now();
        seen.retry = None;
    }

    /// It could not be saved, and is left alone for a while: each try costs a fork.
    pub(crate) fn mark_unsavable(&self, pause: Duration) {
        lock(&self.seen).retry = Instant::now().checked_add(pause);
    }

    pub(crate) fn is_unsaved(&self) -> bool {
        let seen = lock(&self.seen);
        seen.changes > seen.changes_saved
    }

    /// Whether it has been idle for long enough to be saved, or unsaved for too long.
    pub(crate) fn wants_saving(&self, settled: Duration, unsaved_max: Duration) -> bool {
        let is_unsaved = self.is_unsaved();
        let seen = lock(&self.seen);
        let is_due = seen.used.elapsed() >= settled || seen.changed.elapsed() >= unsaved_max;
        let is_due = is_due && seen.retry.is_none_or(|retry| Instant::now() >= retry);
        is_unsaved && seen.is_live && seen.pending == 0 && is_due
    }
}
