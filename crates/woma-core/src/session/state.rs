//! One session: whose turn it is in it, its kernel, and what can be told of it meanwhile.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use woma_sandbox::RoomSockets;
use woma_sandbox::protocol::Saved;

use super::checkpoint::CheckpointTracker;
pub(crate) use super::kernel_state::{Kernel, KernelState, SessionState};
use super::packages::SessionPackages;
pub(crate) use super::queue::{QueueTicket, SessionRef};
use super::status::Status;
use crate::error::Error;
use crate::model::caller::CallerId;
use crate::model::{ExecutionId, PackageSet, SessionChange, SessionId, SessionInfo};
use crate::net::egress::{NetworkRules, SessionNetwork};
use crate::policy::Rules;
use crate::session::known::drop_label;
use crate::storage::claims::{Claim, NotClaimed};
use crate::storage::db::CheckpointRow;
use crate::storage::durable;
use crate::storage::layout::{closed_folder, remove_folder};
use crate::workspace::Workspaces;
use crate::workspace::exports::ExportOwner;
use crate::workspace::quota::StorageLimit;
use woma_sandbox::sync::lock;

/// A session. Locks are taken in this order: the turn, `saving`, then the short ones (`saved`,
/// `status`), which are never held across an await.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    told: Mutex<Told>,
    created_at: Timestamp,
    /// Its own, within its owner's.
    pub(crate) rules: Option<Arc<Rules>>,
    /// Name of its environment; `None` for the default one.
    pub(crate) environment: Option<String>,
    /// Its durable part, if it outlives its kernel.
    pub(crate) home: Option<Home>,
    pub(crate) network: Arc<SessionNetwork>,
    /// Its kernels are opened in containers.
    pub(crate) in_container: bool,
    /// Of the room of its latest kernel, for servers in it.
    sockets: Mutex<Option<RoomSockets>>,
    /// The latest checkpoint of this server's making, and what is in it.
    pub(crate) saved: Mutex<Option<(CheckpointRow, Saved)>>,
    /// Held while a checkpoint is made, from its first byte to its row.
    pub(crate) saving: Arc<tokio::sync::Mutex<()>>,
    /// Cancelled when it was deleted and nothing of it is left.
    pub(crate) gone: CancellationToken,
    pub(crate) packages: SessionPackages,
    pub(super) turn: Arc<tokio::sync::Mutex<SessionState>>,
    pub(super) status: Mutex<Status>,
}

/// Properties that the owner of a session sets.
#[derive(Debug)]
struct Told {
    name: String,
    description: String,
    labels: BTreeMap<String, String>,
    lifetime: Option<Duration>,
}

/// The durable part of a session.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) workspaces: Arc<Workspaces>,
    pub(crate) owner: CallerId,
    /// The storage limit of the owner.
    pub(crate) storage: Option<StorageLimit>,
    /// Its files.
    pub(crate) folder: PathBuf,
    /// Runs that its notebook could not take, and has not said so yet.
    pub(crate) untold: AtomicU64,
}

/// Properties of a new session.
#[derive(Debug, Default)]
pub(crate) struct Label {
    pub(crate) name: Option<String>,
    pub(crate) description: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) rules: Option<Arc<Rules>>,
    pub(crate) environment: Option<String>,
    pub(crate) network: Option<NetworkRules>,
    /// Names of the secrets that it was given.
    pub(crate) secrets: Vec<String>,
    pub(crate) in_container: bool,
    pub(crate) packages: PackageSet,
    pub(crate) home: Option<Home>,
    /// Of one that was known before: how many runs it had, and why its variables are gone.
    pub(crate) past: Option<(u64, String)>,
}

impl Home {
    /// Has the folder disappear at once, and gives where it is until it is removed: who is killed
    /// meanwhile, or cannot remove all of it, leaves nothing that would be taken for the session's.
    fn set_aside(&self) -> PathBuf {
        let aside = self.workspaces.storage.ephemeral_folder(&ExecutionId::mint());
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
        let Label { name, description, labels, lifetime, rules, environment, network, .. } = label;
        let Label { secrets, in_container, packages, home, past, .. } = label;
        let network = SessionNetwork::new(network, Some(id.clone()));
        network.set_named(secrets);
        let (executions, lost) = past.map_or((0, None), |(count, why)| (count, Some(why)));
        let name = name.unwrap_or_else(|| id.to_string());
        let now = Timestamp::now();
        let mut status = Status::new(executions, now);
        if lost.is_some() {
            status.checkpoints = CheckpointTracker::with_past();
        }
        let status = Mutex::new(status);
        let kernel = KernelState::Absent { lost };
        let state = SessionState { kernel, ..SessionState::default() };
        let turn = Arc::new(tokio::sync::Mutex::new(state));
        Self {
            network: Arc::new(network),
            id,
            told: Mutex::new(Told { name, description, labels, lifetime }),
            packages: SessionPackages::new(packages),
            created_at: now,
            rules,
            environment,
            home,
            in_container,
            sockets: Mutex::default(),
            saved: Mutex::default(),
            saving: Arc::default(),
            gone: CancellationToken::new(),
            turn,
            status,
        }
    }

    /// To be called while the table is locked, so that it cannot be forgotten meanwhile.
    pub(crate) fn reference(self: &Arc<Self>) -> SessionRef {
        lock(&self.status).pending += 1;
        SessionRef(Arc::clone(self))
    }

    /// As its owner sees it; `idle` is how long its kernel may be without a run.
    pub(crate) fn info(&self, idle: Duration) -> SessionInfo {
        let told = lock(&self.told);
        let status = lock(&self.status);
        let expires_in = idle.saturating_sub(status.used.elapsed());
        SessionInfo {
            id: self.id.clone(),
            name: told.name.clone(),
            description: told.description.clone(),
            labels: told.labels.clone(),
            lifetime: told.lifetime,
            packages: self.packages.set(),
            created_at: self.created_at,
            last_activity: status.used_at,
            is_busy: status.pending > 0,
            is_live: status.has_kernel,
            execution_count: status.executions,
            policy: self.rules.as_ref().map(|rules| rules.profile.name.clone()),
            environment: self.environment.clone(),
            network: self.network.own().map(|rules| rules.to_string()),
            secrets: self.network.named(),
            in_container: self.in_container,
            expires_in: (status.has_kernel && status.pending == 0).then_some(expires_in),
        }
    }

    /// Claims it for this process, if it has a folder that other processes can reach.
    pub(crate) fn claim(&self) -> Result<Option<Claim>, Error> {
        let Some(home) = &self.home else { return Ok(None) };
        match home.workspaces.storage.claim(&home.owner, &self.id) {
            Ok(claim) => Ok(Some(claim)),
            Err(NotClaimed::Held(pid)) => {
                Err(Error::SessionElsewhere { session: self.id.clone(), pid })
            }
            Err(NotClaimed::Io(error)) => Err(error.into()),
        }
    }

    /// Changes what its owner says of it.
    pub(crate) fn relabel(&self, change: SessionChange) {
        let SessionChange { name, description, labels, lifetime, network: _, secrets: _ } = change;
        let mut told = lock(&self.told);
        told.name = name.unwrap_or_else(|| std::mem::take(&mut told.name));
        told.description = description.unwrap_or_else(|| std::mem::take(&mut told.description));
        told.labels = labels.unwrap_or_else(|| std::mem::take(&mut told.labels));
        told.lifetime = lifetime.unwrap_or(told.lifetime);
        lock(&self.status).mark_used();
    }

    /// Whether it was without a call for longer than its own lifetime.
    pub(crate) fn has_outlived(&self, now: Instant) -> bool {
        let Some(lifetime) = lock(&self.told).lifetime else { return false };
        let status = lock(&self.status);
        status.pending == 0
            && !status.phase.is_deleted()
            && now.saturating_duration_since(status.used) >= lifetime
    }

    /// Since when it can leave memory: it has no kernel, and no call is about to run in it.
    pub(crate) fn forgettable_since(&self) -> Option<Instant> {
        let status = lock(&self.status);
        (!status.has_kernel && status.pending == 0 && !status.phase.is_deleted())
            .then_some(status.used)
    }

    /// Marks it deleted, which calls that wait for its turn are told. False if it is marked already.
    pub(crate) fn mark_deleted(&self) -> bool {
        lock(&self.status).phase.delete()
    }

    pub(crate) fn is_deleted(&self) -> bool {
        lock(&self.status).phase.is_deleted()
    }

    /// Forgets the number of runs, and the names of variables.
    pub(crate) fn forget_count(&self) {
        let mut status = lock(&self.status);
        status.executions = 0;
        status.variables.clear();
    }

    /// Remembers the names of the variables as they are after a run; the kernel's limit bounds them.
    pub(crate) fn remember_variables<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut hashes: Vec<u64> = names.map(hash_of).collect();
        hashes.sort_unstable();
        lock(&self.status).variables = hashes;
    }

    /// When it was used last, if it had a variable of this name then.
    pub(crate) fn used_with_variable(&self, name: &str) -> Option<Instant> {
        let status = lock(&self.status);
        let has_it = status.variables.binary_search(&hash_of(name)).is_ok();
        (has_it && !status.phase.is_deleted()).then_some(status.used)
    }

    pub(crate) fn interrupt(&self) -> bool {
        let current = lock(&self.status).current.clone();
        current.inspect(CancellationToken::cancel).is_some()
    }

    /// Output outside of any run, as far as it is known while a run goes on.
    pub(crate) fn log(&self) -> String {
        if let Ok(mut state) = self.turn.try_lock()
            && let Some(kernel) = state.kernel.live_mut()
        {
            self.add_log(&kernel.cell.take_log());
        }
        let mut status = lock(&self.status);
        status.log_untold = 0;
        String::from_utf8_lossy(&status.log).into_owned()
    }

    /// Output outside of any run that no reply has announced, and how many bytes it had.
    pub(crate) fn take_late_output(&self) -> (u64, String) {
        lock(&self.status).take_untold()
    }

    /// Whether it is to be emptied; the first caller has to do it.
    pub(crate) fn takes_emptying(&self) -> bool {
        lock(&self.status).phase.take_emptying()
    }

    /// Why the run that has the turn was stopped, if it was together with its session.
    pub(crate) fn end_of_all(&self) -> Option<&'static str> {
        lock(&self.status).phase.end_of_run()
    }

    /// Keeps the reason for lost variables for the next reply: this one was not read.
    pub(crate) fn remember_loss(&self, reason: String) {
        lock(&self.status).unheard = Some(reason);
    }

    /// Reads or changes the bookkeeping of checkpoints.
    pub(crate) fn checkpoints<T>(&self, act: impl FnOnce(&mut CheckpointTracker) -> T) -> T {
        act(&mut lock(&self.status).checkpoints)
    }

    pub(crate) fn recall_loss(&self) -> Option<String> {
        lock(&self.status).unheard.take()
    }

    pub(crate) fn add_log(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mask = self.network.secrets().mask.clone();
            let covered = mask.and_then(|mask| mask.bytes(bytes));
            lock(&self.status).add_log(covered.as_deref().unwrap_or(bytes));
        }
    }

    /// Takes the folder as it is now for how the last run left it. A run that goes on meanwhile
    /// looks at the end itself.
    pub(crate) async fn rebaseline(&self) {
        let Ok(mut state) = self.turn.try_lock() else { return };
        let SessionState { files: Some(files), kernel, .. } = &mut *state else { return };
        let cell = kernel.live_mut().map(|kernel| &mut kernel.cell);
        if let Err(error) = files.look(cell).await {
            tracing::debug!(%error, "A session's folder could not be looked at");
        }
    }

    /// A job has changed files and may have stored charts: the next run has to count anew, and is
    /// not told of what was the job's. A run that goes on meanwhile looks at the end itself.
    pub(crate) async fn job_has_ended(&self) {
        if let Ok(mut state) = self.turn.try_lock() {
            state.charts = None;
        }
        self.rebaseline().await;
        lock(&self.status).mark_used();
    }

    /// Stops what runs, and ends the kernel once its turn has come round.
    pub(crate) async fn empty(&self) {
        lock(&self.status).phase.ask_to_empty();
        self.interrupt();
        let mut state = self.turn.lock().await;
        if !self.takes_emptying() {
            // A run that was in the queue before us has done it, and begun anew.
            return;
        }
        let kernel = state.kernel.take_live();
        lock(&self.status).has_kernel = false;
        if let Some(Kernel { cell, permit, .. }) = kernel {
            if let Err(error) = cell.close().await {
                tracing::warn!(%error, "The end of a session's kernel could not be awaited");
            }
            drop(permit);
        }
        self.clear_folder(&mut state).await;
    }

    /// Takes away its files. To be called with the turn, and without a kernel.
    pub(crate) async fn clear_folder(&self, state: &mut SessionState) {
        state.files = None;
        self.packages.change(PackageSet::default());
        self.packages.leave();
        if let KernelState::Stopping { saving, .. } = std::mem::take(&mut state.kernel) {
            // Its variables are not wanted any more.
            saving.abort();
            if saving.await.is_err() {
                tracing::debug!(session = %self.id, "The variables of an emptied session go unsaved");
            }
        }
        // A checkpoint that is being made would come after the one that is dropped.
        let saving = self.saving.lock().await;
        self.drop_checkpoint();
        drop(saving);
        let Some(home) = &self.home else { return };
        home.drop_transcript();
        if self.is_deleted() {
            drop_label(&home.folder);
        }
        let aside = home.set_aside();
        // Files that are gone must not be back after loss of power.
        let folder = home.folder.clone();
        let synced = tokio::task::spawn_blocking(move || durable::sync_folder_of(&folder));
        if let Err(error) = synced.await.map_err(io::Error::other).flatten() {
            tracing::warn!(%error, session = %self.id, "The removal of files was not synced");
        }
        if let Some(exports) = home.workspaces.exports.clone() {
            let owner = ExportOwner::session(&self.id, &home.folder);
            if tokio::task::spawn_blocking(move || exports.remove(&owner)).await.is_err() {
                tracing::warn!(session = %self.id, "The end of a session's copies was not awaited");
            }
        }
        if remove_folder(aside).await.is_err() {
            tracing::warn!(session = %self.id, "The end of a session's folder was not awaited");
        }
    }

    /// Since when its kernel is idle.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let status = lock(&self.status);
        (status.has_kernel && status.pending == 0).then_some(status.used)
    }

    /// Memory that ending its kernel would free; known only while the session is idle.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let state = self.turn.try_lock().ok();
        state.and_then(|state| Some(state.kernel.live()?.cell.memory_bytes())).unwrap_or(0)
    }

    /// Stops an idle kernel; variables that are not saved yet are saved first.
    pub(crate) fn stop_if_idle(self: &Arc<Self>, reason: &str) -> bool {
        let Ok(mut state) = self.turn.try_lock() else { return false };
        lock(&self.status).has_kernel = false;
        let Some(mut kernel) = state.kernel.take_live() else { return false };
        kernel.permit.leave();
        state.kernel = if self.checkpoints(|tracker| tracker.is_unsaved()) && self.home.is_some() {
            let saving = tokio::spawn(Arc::clone(self).save_last(kernel));
            KernelState::Stopping { lost: reason.to_owned(), saving }
        } else {
            KernelState::lost(reason)
        };
        true
    }

    /// Waits for the turn, as a run does.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<SessionState> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Remembers the room of a new kernel, which calls beside a run reach.
    pub(crate) fn set_sockets(&self, sockets: RoomSockets) {
        *lock(&self.sockets) = Some(sockets);
    }

    /// The room of its kernel, if it has one. Whoever uses it uses the session.
    pub(crate) fn room_sockets(&self) -> Option<RoomSockets> {
        let mut status = lock(&self.status);
        if !status.has_kernel && status.pending == 0 {
            return None;
        }
        status.mark_used();
        drop(status);
        lock(&self.sockets).clone()
    }

    pub(crate) fn mark_live(&self) {
        let mut status = lock(&self.status);
        status.has_kernel = true;
        status.mark_used();
    }

    /// Waits for the last words of a kernel that is being ended.
    pub(crate) async fn end_of_ending(&self, state: &mut SessionState) {
        // Not taken out before it has ended: the caller may give up waiting.
        if let KernelState::Stopping { lost, saving } = &mut state.kernel {
            if saving.await.is_err() {
                tracing::warn!(session = %self.id, "The end of a kernel was not orderly");
            }
            state.kernel = KernelState::lost(std::mem::take(lost));
        }
    }

    /// Waits until a checkpoint in progress is recorded, unless a run has the turn.
    pub(crate) async fn until_saved(&self) {
        if let Ok(mut state) = self.turn.try_lock() {
            self.end_of_ending(&mut state).await;
            drop(self.saving.lock().await);
        }
    }

    /// The turn, if no run has it or waits for it.
    pub(crate) fn idle_state(&self) -> Option<OwnedMutexGuard<SessionState>> {
        let state = Arc::clone(&self.turn).try_lock_owned().ok()?;
        (lock(&self.status).pending == 0).then_some(state)
    }

    pub(crate) fn execution_count(&self) -> u64 {
        lock(&self.status).executions
    }

    /// Whether it has been idle for long enough to be saved, or unsaved for too long.
    pub(crate) fn wants_saving(&self, settled: Duration, unsaved_max: Duration) -> bool {
        let status = lock(&self.status);
        let is_idle = status.has_kernel && status.pending == 0;
        is_idle && status.checkpoints.is_due(status.used.elapsed(), settled, unsaved_max)
    }
}

fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
