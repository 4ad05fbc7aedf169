//! Sessions: who owns them, and which of them have a kernel.
//!
//! A session outlives its kernel: when that is evicted, expires or dies, the next run starts another
//! one and says why the variables are gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::caller::{Caller, CallerId};
use crate::lock::lock;
use crate::model::{SessionChoice, SessionId, SessionInfo};
use crate::session::{Home, Label, Seat, Session};
use crate::vault::Vault;
use crate::{Error, metrics};

/// The name of the session that a caller gets without asking for one.
pub(crate) const DEFAULT: &str = "default";
/// How long a session without a kernel is remembered.
const REMEMBERED: Duration = Duration::from_hours(24);
/// Second kernels at a time, beyond those that may be alive at once.
const BESIDE_MAX: usize = 2;
const RETRY_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) kernels_max: usize,
    pub(crate) sessions_max: usize,
    /// A kernel goes after this long without a run.
    pub(crate) idle: Duration,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    rules: Rules,
    vault: Option<Arc<Vault>>,
    table: Mutex<BTreeMap<(CallerId, SessionId), Arc<Session>>>,
    kernels: Arc<Semaphore>,
    /// Sessions that may have a second kernel for a moment, in which their variables come back.
    beside: Semaphore,
    /// Runs that wait until a kernel may be started.
    starved: AtomicUsize,
    /// Runs that have a kernel.
    running: AtomicUsize,
    metrics: Arc<metrics::Metrics>,
}

impl Sessions {
    pub(crate) fn new(
        rules: Rules,
        vault: Option<Arc<Vault>>,
        metrics: Arc<metrics::Metrics>,
    ) -> Self {
        let kernels = Arc::new(Semaphore::new(rules.kernels_max));
        let (table, starved, running) = Default::default();
        let beside = Semaphore::new(BESIDE_MAX);
        Self { rules, vault, table, kernels, beside, starved, running, metrics }
    }

    /// The session of a run, and whether it is new; `None` for one that ends with the run.
    pub(crate) fn choose(
        &self,
        caller: &Caller,
        choice: &SessionChoice,
    ) -> Result<Option<(Seat, bool)>, Error> {
        let id = match choice {
            SessionChoice::Ephemeral => return Ok(None),
            SessionChoice::Named(id) => id.clone(),
            SessionChoice::Default => SessionId::parse(DEFAULT)?,
            SessionChoice::New => SessionId::mint(),
        };
        let mut table = lock(&self.table);
        if let Some(session) = table.get(&(caller.id.clone(), id.clone())) {
            return Ok(Some((session.seat(), false)));
        }
        let session = self.insert(&mut table, caller, id, Label::default())?;
        Ok(Some((session.seat(), true)))
    }

    /// A new session; its id is minted here unless it is given.
    pub(crate) fn create(
        &self,
        caller: &Caller,
        id: Option<SessionId>,
        label: Label,
    ) -> Result<Arc<Session>, Error> {
        let id = id.unwrap_or_else(SessionId::mint);
        let mut table = lock(&self.table);
        if table.contains_key(&(caller.id.clone(), id.clone())) {
            return Err(Error::SessionExists(id));
        }
        self.insert(&mut table, caller, id, label)
    }

    fn insert(
        &self,
        table: &mut BTreeMap<(CallerId, SessionId), Arc<Session>>,
        caller: &Caller,
        id: SessionId,
        label: Label,
    ) -> Result<Arc<Session>, Error> {
        if let Some(limit) = caller.quota.sessions {
            let owned = table.keys().filter(|(owner, _)| *owner == caller.id).count();
            if owned >= usize::try_from(limit).unwrap_or(usize::MAX)
                && !forget_one(table, Some(&caller.id))
            {
                return Err(Error::SessionQuota { limit });
            }
        }
        // What the caller itself left goes before what others did.
        if table.len() >= self.rules.sessions_max
            && !forget_one(table, Some(&caller.id))
            && !forget_one(table, None)
        {
            let what = format!("{} sessions are in use", self.rules.sessions_max);
            return Err(Error::Busy { what, retry_after: RETRY_AFTER });
        }
        let home = self.vault.as_ref().map(|vault| Home {
            folder: vault.folder(&caller.id, &id),
            untold: AtomicU64::new(0),
            owner: caller.id.clone(),
            storage: vault.storage_of(caller),
            vault: Arc::clone(vault),
        });
        let session = Arc::new(Session::new(id.clone(), Label { home, ..label }));
        table.insert((caller.id.clone(), id), Arc::clone(&session));
        Ok(session)
    }

    pub(crate) fn knows(&self, caller: &Caller, id: &SessionId) -> bool {
        self.knows_of(&caller.id, id)
    }

    pub(crate) fn knows_of(&self, owner: &CallerId, id: &SessionId) -> bool {
        lock(&self.table).contains_key(&(owner.clone(), id.clone()))
    }

    /// Puts a session back that was known before, unless somebody else just did.
    pub(crate) fn revive(&self, caller: &Caller, id: SessionId, label: Label) -> Result<(), Error> {
        let mut table = lock(&self.table);
        if !table.contains_key(&(caller.id.clone(), id.clone())) {
            self.insert(&mut table, caller, id, label)?;
        }
        Ok(())
    }

    pub(crate) fn find(&self, caller: &Caller, id: &SessionId) -> Result<Arc<Session>, Error> {
        let table = lock(&self.table);
        let found = table.get(&(caller.id.clone(), id.clone()));
        found.cloned().ok_or_else(|| Error::NoSession(id.clone()))
    }

    pub(crate) fn list(&self, caller: &Caller) -> Vec<SessionInfo> {
        let mine: Vec<_> = {
            let table = lock(&self.table);
            let mine = table.iter().filter(|((owner, _), _)| *owner == caller.id);
            let mine = mine.filter(|(_, session)| !session.is_deleted());
            mine.map(|(_, session)| Arc::clone(session)).collect()
        };
        mine.iter().map(|session| self.info(session)).collect()
    }

    pub(crate) fn info(&self, session: &Session) -> SessionInfo {
        session.info(self.rules.idle)
    }

    /// Ends a session: who waits for its turn is told, who asks for it later gets a new one. It keeps
    /// its place in the table until nothing of it is left, for a new one would have its folder.
    pub(crate) async fn delete(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let session = self.find(caller, id)?;
        if !session.mark_deleted() {
            // Somebody else is about to.
            session.gone.cancelled().await;
            return Err(Error::NoSession(id.clone()));
        }
        session.empty().await;
        lock(&self.table).remove(&(caller.id.clone(), id.clone()));
        session.gone.cancel();
        Ok(())
    }

    /// Waits until a session that is being deleted is gone.
    pub(crate) async fn until_gone(&self, caller: &Caller, id: &SessionId) {
        let leaving = self.leaving(caller, id);
        if let Some(session) = leaving {
            session.gone.cancelled().await;
        }
    }

    /// A session that is being deleted.
    pub(crate) fn leaving(&self, caller: &Caller, id: &SessionId) -> Option<Arc<Session>> {
        let table = lock(&self.table);
        let found = table.get(&(caller.id.clone(), id.clone()));
        found.filter(|session| session.is_deleted()).cloned()
    }

    /// Ends a session's kernel; the next run starts with nothing.
    pub(crate) async fn reset(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let session = self.find(caller, id)?;
        session.empty().await;
        session.forget_count();
        Ok(())
    }

    /// Leave to start a kernel: at once, by evicting the oldest idle one, or when one ends.
    pub(crate) async fn kernel_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(permit) = Arc::clone(&self.kernels).try_acquire_owned() {
            return Ok(permit);
        }
        let waiting = Counted::one_of(&self.starved);
        self.evict_oldest_idle();
        let permit = Arc::clone(&self.kernels).acquire_owned().await;
        drop(waiting);
        permit.map_err(|_| Error::ShuttingDown)
    }

    /// Leave to start a second kernel for a session that has one.
    pub(crate) async fn second_kernel(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.beside.acquire().await.map_err(|_| Error::ShuttingDown)
    }

    /// To be called when a run has ended: somebody may wait for the kernel that is idle now.
    pub(crate) fn make_room(&self) {
        if self.starved.load(Ordering::Relaxed) > 0 {
            self.evict_oldest_idle();
        }
    }

    fn evict_oldest_idle(&self) {
        let mut idle: Vec<_> = {
            let table = lock(&self.table);
            let idle = table.values().filter_map(|session| {
                session.idle_since().map(|since| (since, Arc::clone(session)))
            });
            idle.collect()
        };
        idle.sort_by_key(|(since, _)| *since);
        let reason = format!("evicted: {} kernels may live at once", self.rules.kernels_max);
        // One that got busy meanwhile is left alone, and the next oldest goes.
        if idle.iter().any(|(_, session)| session.bury_if_idle(&reason)) {
            self.metrics.kernels_evicted.inc();
        }
    }

    /// Ends kernels that nobody used for long, forgets sessions that nobody asked for in a day.
    pub(crate) fn expire(&self, now: Instant) {
        let sessions: Vec<_> = lock(&self.table).values().cloned().collect();
        let reason = format!("idle for {} seconds", self.rules.idle.as_secs());
        for session in sessions {
            let is_old = session
                .idle_since()
                .is_some_and(|since| now.saturating_duration_since(since) >= self.rules.idle);
            if is_old && session.bury_if_idle(&reason) {
                self.metrics.kernels_expired.inc();
                tracing::info!(id = %session.id, "Session {} {reason}", session.id);
            }
        }
        lock(&self.table).retain(|_, session| {
            let since = session.forgettable_since();
            since.is_none_or(|since| now.saturating_duration_since(since) < REMEMBERED)
        });
    }

    /// Sessions that have come to rest with variables that no checkpoint has.
    pub(crate) fn unsaved(&self, settled: Duration, unsaved_max: Duration) -> Vec<Arc<Session>> {
        let table = lock(&self.table);
        let unsaved = table.values().filter(|session| session.wants_saving(settled, unsaved_max));
        unsaved.cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.table).values().cloned().collect()
    }

    /// Ends every kernel that is idle; no other will be started.
    pub(crate) fn close(&self) {
        self.kernels.close();
        self.beside.close();
        let sessions: Vec<_> = lock(&self.table).values().cloned().collect();
        for session in sessions {
            session.bury_if_idle("the server was shut down");
        }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.table).len()
    }

    /// To be held while code runs.
    pub(crate) fn count_run(&self) -> Counted<'_> {
        Counted::one_of(&self.running)
    }

    /// How many runs there are, not counting those that wait.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many kernels are alive, or about to be.
    pub(crate) fn kernels(&self) -> usize {
        self.rules.kernels_max.saturating_sub(self.kernels.available_permits())
    }
}

/// Drops the session that has been without a kernel longest; sessions with one are not forgotten.
fn forget_one(
    table: &mut BTreeMap<(CallerId, SessionId), Arc<Session>>,
    owner: Option<&CallerId>,
) -> bool {
    let dead = table.iter().filter(|((of, _), _)| owner.is_none_or(|owner| of == owner));
    let dead = dead
        .filter_map(|(key, session)| session.forgettable_since().map(|since| (since, key.clone())));
    let Some((_, key)) = dead.min_by_key(|(used, _)| *used) else { return false };
    table.remove(&key).is_some()
}

/// One of those that are counted, for as long as this is held.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn one_of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
