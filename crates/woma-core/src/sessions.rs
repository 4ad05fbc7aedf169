//! Sessions: who owns them, whose turn it is in one, and which of them have a kernel.
//!
//! A session outlives its kernel: when that is evicted, expires or dies, the next run starts another
//! one and says why the variables are gone.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use woma_sandbox::Cell;

use crate::caller::{Caller, CallerId};
use crate::model::{SessionChoice, SessionId, SessionInfo};
use crate::{Error, metrics};

/// The name of the session that a caller gets without asking for one.
const DEFAULT: &str = "default";
/// Bytes that a session's log keeps.
const LOG_BYTES_MAX: usize = 32 * 1024;
/// How long a session without a kernel is remembered.
const REMEMBERED: Duration = Duration::from_hours(24);
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
    table: Mutex<BTreeMap<(CallerId, SessionId), Arc<Session>>>,
    kernels: Arc<Semaphore>,
    /// Runs that wait until a kernel may be started.
    starved: AtomicUsize,
    /// Runs that have a kernel.
    running: AtomicUsize,
    metrics: Arc<metrics::Metrics>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    name: String,
    description: String,
    created_at: Timestamp,
    turn: Arc<tokio::sync::Mutex<Slot>>,
    seen: Mutex<Seen>,
}

/// What belongs to whoever has the turn.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) kernel: Option<Kernel>,
    /// Why there is none, if there was one.
    pub(crate) lost: Option<String>,
}

/// A live cell, and its place among those that may be alive at once.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) cell: Cell,
    pub(crate) permit: OwnedSemaphorePermit,
    /// Processor time that earlier runs took.
    pub(crate) cpu_seen: Duration,
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
    /// Somebody wants it emptied: the run that goes on is the last with these variables.
    is_to_be_emptied: bool,
    /// Stops the run that has the turn.
    current: Option<CancellationToken>,
    /// What threads and processes wrote after their run had ended; the latest.
    log: Vec<u8>,
    /// Why variables are gone, told to a client that did not wait for it.
    unheard: Option<String>,
}

/// A session that is about to have a run: meanwhile it is neither forgotten nor ended.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Session>);

/// A place in a session's queue, taken; it is given up by dropping it.
pub(crate) struct Place {
    seat: Seat,
    turn: Pin<Box<dyn Future<Output = OwnedMutexGuard<Slot>> + Send>>,
    ready: Option<OwnedMutexGuard<Slot>>,
    has_begun: bool,
}

impl Sessions {
    pub(crate) fn new(rules: Rules, metrics: Arc<metrics::Metrics>) -> Self {
        let kernels = Arc::new(Semaphore::new(rules.kernels_max));
        let (table, starved, running) = Default::default();
        Self { rules, table, kernels, starved, running, metrics }
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
        let session = self.insert(&mut table, caller, id, None, String::new())?;
        Ok(Some((session.seat(), true)))
    }

    /// A new session; its id is minted here unless it is given.
    pub(crate) fn create(
        &self,
        caller: &Caller,
        id: Option<SessionId>,
        name: Option<String>,
        description: String,
    ) -> Result<Arc<Session>, Error> {
        let id = id.unwrap_or_else(SessionId::mint);
        let mut table = lock(&self.table);
        if table.contains_key(&(caller.id.clone(), id.clone())) {
            return Err(Error::SessionExists(id));
        }
        self.insert(&mut table, caller, id, name, description)
    }

    fn insert(
        &self,
        table: &mut BTreeMap<(CallerId, SessionId), Arc<Session>>,
        caller: &Caller,
        id: SessionId,
        name: Option<String>,
        description: String,
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
        let name = name.unwrap_or_else(|| id.to_string());
        let session = Arc::new(Session::new(id.clone(), name, description));
        table.insert((caller.id.clone(), id), Arc::clone(&session));
        Ok(session)
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
            mine.map(|(_, session)| Arc::clone(session)).collect()
        };
        mine.iter().map(|session| self.info(session)).collect()
    }

    pub(crate) fn info(&self, session: &Session) -> SessionInfo {
        let seen = lock(&session.seen);
        let expires_in = self.rules.idle.saturating_sub(seen.used.elapsed());
        SessionInfo {
            id: session.id.clone(),
            name: session.name.clone(),
            description: session.description.clone(),
            created_at: session.created_at,
            last_activity: seen.used_at,
            is_busy: seen.pending > 0,
            is_live: seen.is_live,
            execution_count: seen.executions,
            expires_in: (seen.is_live && seen.pending == 0).then_some(expires_in),
        }
    }

    /// Takes a session out of the table: who waits for its turn is told, who asks for it later gets
    /// a new one. Returns when nothing of it is left.
    pub(crate) async fn delete(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let session = {
            let mut table = lock(&self.table);
            let removed = table.remove(&(caller.id.clone(), id.clone()));
            removed.ok_or_else(|| Error::NoSession(id.clone()))?
        };
        lock(&session.seen).is_deleted = true;
        session.empty().await;
        Ok(())
    }

    /// Ends a session's kernel; the next run starts with nothing.
    pub(crate) async fn reset(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let session = self.find(caller, id)?;
        session.empty().await;
        lock(&session.seen).executions = 0;
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
            let seen = lock(&session.seen);
            let unused = now.saturating_duration_since(seen.used);
            seen.is_live || seen.pending > 0 || unused < REMEMBERED
        });
    }

    /// Ends every kernel that is idle; no other will be started.
    pub(crate) fn close(&self) {
        self.kernels.close();
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
    let dead = dead.filter_map(|(key, session)| {
        let seen = lock(&session.seen);
        (!seen.is_live && seen.pending == 0).then(|| (seen.used, key.clone()))
    });
    let Some((_, key)) = dead.min_by_key(|(used, _)| *used) else { return false };
    table.remove(&key).is_some()
}

impl Session {
    fn new(id: SessionId, name: String, description: String) -> Self {
        let now = Timestamp::now();
        let seen = Seen {
            used: Instant::now(),
            used_at: now,
            executions: 0,
            pending: 0,
            is_live: false,
            is_deleted: false,
            is_to_be_emptied: false,
            current: None,
            log: Vec::new(),
            unheard: None,
        };
        let (turn, seen) = (Arc::default(), Mutex::new(seen));
        Self { id, name, description, created_at: now, turn, seen }
    }

    fn seat(self: &Arc<Self>) -> Seat {
        lock(&self.seen).pending += 1;
        Seat(Arc::clone(self))
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

    /// Stops what runs, and ends the kernel once its turn has come round.
    async fn empty(&self) {
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
    }

    /// Since when there is a kernel that nobody uses.
    fn idle_since(&self) -> Option<Instant> {
        let seen = lock(&self.seen);
        (seen.is_live && seen.pending == 0).then_some(seen.used)
    }

    fn bury_if_idle(&self, reason: &str) -> bool {
        let Ok(mut slot) = self.turn.try_lock() else { return false };
        lock(&self.seen).is_live = false;
        let Some(kernel) = slot.kernel.take() else { return false };
        slot.lost = Some(reason.to_owned());
        drop(kernel);
        true
    }
}

impl Seat {
    /// Takes a place in the queue before it returns: turns come in the order of these calls.
    pub(crate) async fn queue(self) -> Place {
        let turn = Box::pin(Arc::clone(&self.0.turn).lock_owned());
        let mut place = Place { seat: self, turn, ready: None, has_begun: false };
        // The mutex is fair from the first poll on.
        poll_fn(|context| {
            if let Poll::Ready(slot) = place.turn.as_mut().poll(context) {
                place.ready = Some(slot);
            }
            Poll::Ready(())
        })
        .await;
        place
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seen = lock(&self.0.seen);
        seen.pending = seen.pending.saturating_sub(1);
    }
}

impl Place {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.seat.0
    }

    /// Waits for the turn. The slot is held until it is dropped.
    pub(crate) async fn turn(&mut self) -> Result<OwnedMutexGuard<Slot>, Error> {
        let slot = match self.ready.take() {
            Some(slot) => slot,
            None => self.turn.as_mut().await,
        };
        if lock(&self.session().seen).is_deleted {
            return Err(Error::SessionDeleted(self.session().id.clone()));
        }
        Ok(slot)
    }

    /// From here on an interruption of the session stops this run.
    pub(crate) fn begin(&mut self, stop: &CancellationToken) {
        self.has_begun = true;
        let mut seen = lock(&self.session().seen);
        seen.current = Some(stop.clone());
        (seen.used, seen.used_at) = (Instant::now(), Timestamp::now());
    }

    /// To be called before the slot is let go: what is said here is said of this run.
    pub(crate) fn end(&mut self, is_live: bool, has_run: bool) {
        self.has_begun = false;
        let mut seen = lock(&self.session().seen);
        seen.current = None;
        seen.is_live = is_live;
        seen.executions += u64::from(has_run);
        (seen.used, seen.used_at) = (Instant::now(), Timestamp::now());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.has_begun {
            lock(&self.session().seen).current = None;
        }
    }
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

/// These locks guard plain data that is never left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
