//! Sessions: who owns them, and which of them have a kernel.
//!
//! A session outlives its kernel: when that is evicted, expires or dies, the next run starts another
//! one and says why the variables are gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::metrics;
use crate::model::caller::{Caller, CallerId};
use crate::model::{SessionChoice, SessionId, SessionInfo};
use crate::policy::Policies;
use crate::session::known::Lines;
use crate::session::state::{Home, Label, Session, SessionRef};
use crate::session::workers::Workers;
use crate::shares::{Permit, PoolUse, Shares, Shortage};
use crate::workspace::Workspaces;
use woma_sandbox::sync::lock;
use woma_sandbox::workspace::Contents;

/// How long a session without a kernel is remembered.
const REMEMBERED: Duration = Duration::from_hours(24);
/// Second kernels at a time, beyond those that may be alive at once: for each so many of these one,
/// within these bounds.
const BESIDE_PART: usize = 64;
const BESIDE_MIN: usize = 2;
const BESIDE_MAX: usize = 8;
/// One caller may have all sessions but this part of them.
const RESERVED_PART: usize = 8;
const RETRY_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) kernels_max: usize,
    pub(crate) running_max: usize,
    pub(crate) sessions_max: usize,
    /// A kernel goes after this long without a run.
    pub(crate) idle: Duration,
    /// Of a session's folder.
    pub(crate) workspace: Contents,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    rules: Rules,
    pub(super) policies: Policies,
    pub(super) workspaces: Option<Arc<Workspaces>>,
    /// Sessions that are being made known again.
    pub(super) recalls: Lines,
    table: Mutex<BTreeMap<(CallerId, SessionId), Arc<Session>>>,
    kernels: Arc<Shares>,
    /// Calls that run, or prepare to.
    places: Arc<Shares>,
    /// Sessions that may have a second kernel for a moment, in which their variables come back.
    beside: Arc<Shares>,
    /// Cells that work for callers without being sessions.
    pub(crate) workers: Workers,
    /// Runs that have a kernel.
    running: AtomicUsize,
    metrics: Arc<metrics::Metrics>,
}

impl Sessions {
    pub(crate) fn new(
        rules: Rules,
        policies: Policies,
        workspaces: Option<Arc<Workspaces>>,
        metrics: Arc<metrics::Metrics>,
    ) -> Self {
        let kernels = Arc::new(Shares::new(rules.kernels_max));
        let places = Arc::new(Shares::new(rules.running_max));
        let beside = (rules.kernels_max / BESIDE_PART).clamp(BESIDE_MIN, BESIDE_MAX);
        let beside = Arc::new(Shares::new(beside));
        Self {
            rules,
            policies,
            workspaces,
            recalls: Lines::default(),
            table: Mutex::default(),
            kernels,
            places,
            beside,
            workers: Workers::default(),
            running: AtomicUsize::new(0),
            metrics,
        }
    }

    /// The session of a run, and whether it is new; `None` for one that ends with the run.
    pub(crate) fn choose(
        &self,
        caller: &Caller,
        choice: &SessionChoice,
    ) -> Result<Option<(SessionRef, bool)>, Error> {
        self.choose_in(caller, choice, false)
    }

    /// As [`Sessions::choose`]; a session that was made otherwise is refused to a call for one in a
    /// container.
    pub(crate) fn choose_in(
        &self,
        caller: &Caller,
        choice: &SessionChoice,
        in_container: bool,
    ) -> Result<Option<(SessionRef, bool)>, Error> {
        let id = match choice {
            SessionChoice::Ephemeral => return Ok(None),
            SessionChoice::Named(id) => id.clone(),
            SessionChoice::Default => SessionId::shared_default(),
            SessionChoice::New => SessionId::mint(),
        };
        let mut table = lock(&self.table);
        if let Some(session) = table.get(&(caller.id.clone(), id.clone())) {
            if in_container && !session.in_container {
                return Err(Error::NotInContainer(id));
            }
            return Ok(Some((session.reference(), false)));
        }
        let label = Label { in_container, ..Label::default() };
        let session = self.insert(&mut table, caller, id, label)?;
        Ok(Some((session.reference(), true)))
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
        mut label: Label,
    ) -> Result<Arc<Session>, Error> {
        let own = label.rules.as_ref().is_some_and(|rules| rules.profile.container);
        // A session that was known before stays what it was.
        if label.past.is_none() {
            label.in_container |= own || self.policies.of(caller)?.profile.container;
        }
        if let Some(limit) = caller.quota.sessions {
            let owned = table.keys().filter(|(owner, _)| *owner == caller.id).count();
            if owned >= usize::try_from(limit).unwrap_or(usize::MAX)
                && !forget_one(table, Some(&caller.id))
            {
                return Err(Error::SessionQuota { limit });
            }
        }
        let reserved = match caller.id.is_local() {
            true => 0,
            false => self.rules.sessions_max / RESERVED_PART,
        };
        // As many as one caller may have can only be there when the table is as good as full.
        if reserved > 0 && table.len() + reserved >= self.rules.sessions_max {
            let owned = table.keys().filter(|(owner, _)| *owner == caller.id).count();
            if owned + reserved >= self.rules.sessions_max && !forget_one(table, Some(&caller.id)) {
                let what = format!("{owned} sessions of this caller are in use");
                return Err(Error::Busy { what, retry_after: RETRY_AFTER });
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
        let home = self.workspaces.as_ref().map(|workspaces| Home {
            folder: workspaces.storage.folder(&caller.id, &id),
            untold: AtomicU64::new(0),
            owner: caller.id.clone(),
            storage: workspaces.storage_of(caller),
            workspaces: Arc::clone(workspaces),
        });
        let session = Arc::new(Session::new(id.clone(), Label { home, ..label }));
        table.insert((caller.id.clone(), id), Arc::clone(&session));
        Ok(session)
    }

    pub(super) fn workspace_limit(&self) -> Contents {
        self.rules.workspace
    }

    pub(crate) fn knows(&self, caller: &Caller, id: &SessionId) -> bool {
        self.knows_of(&caller.id, id)
    }

    pub(crate) fn knows_of(&self, owner: &CallerId, id: &SessionId) -> bool {
        lock(&self.table).contains_key(&(owner.clone(), id.clone()))
    }

    /// Puts a session back into the table, unless another call just did.
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

    /// The latest used session of an owner, other than `except`, with a variable of this name.
    pub(crate) fn with_variable(
        &self,
        owner: &CallerId,
        name: &str,
        except: Option<&SessionId>,
    ) -> Option<SessionId> {
        let table = lock(&self.table);
        let others = table.iter().filter(|((of, id), _)| of == owner && Some(id) != except);
        let having = others.filter_map(|((_, id), session)| {
            session.used_with_variable(name).map(|used| (used, id))
        });
        having.max_by_key(|(used, _)| *used).map(|(_, id)| id.clone())
    }

    pub(crate) fn info(&self, session: &Session) -> SessionInfo {
        session.info(self.rules.idle)
    }

    /// Ends a session: who waits for its turn is told, who asks for it later gets a new one. It keeps
    /// its place in the table until nothing of it is left, for a new one would have its folder.
    pub(crate) async fn delete(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let session = self.find(caller, id)?;
        if !session.mark_deleted() {
            // Another call is deleting it.
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

    /// Leave to start a kernel: at once, or when one ends, which an idle one may have to.
    pub(crate) async fn kernel_permit(&self, owner: &CallerId) -> Result<Permit, Error> {
        match self.kernels.take(owner) {
            Some(place) => Ok(place),
            None => Ok(self.kernels.wait(owner, || self.make_room()).await?),
        }
    }

    /// Leave to run, among those that do at once. To be had before a kernel, and held to the end.
    pub(crate) async fn run_permit(&self, owner: &CallerId) -> Result<Permit, Error> {
        Ok(self.places.acquire(owner).await?)
    }

    /// Leave to start a second kernel for a session that has one.
    pub(crate) async fn second_kernel(&self, owner: &CallerId) -> Result<Permit, Error> {
        Ok(self.beside.acquire(owner).await?)
    }

    /// How full the pools are.
    pub(crate) fn pools(&self) -> [(&'static str, PoolUse); 3] {
        [
            ("kernels", self.kernels.usage()),
            ("running", self.places.usage()),
            ("second_kernels", self.beside.usage()),
        ]
    }

    /// To be called when a run has ended: a call may wait for the kernel that is idle now.
    pub(crate) fn make_room(&self) {
        if !self.kernels.is_short() {
            return;
        }
        let shortages = self.kernels.shortages();
        if shortages.is_empty() {
            return;
        }
        let mut idle = self.idle();
        idle.sort_by_key(|(since, ..)| *since);
        for shortage in &shortages {
            self.evict_for(shortage, &idle);
        }
    }

    /// Idle kernels, since when, and their owners.
    pub(crate) fn idle(&self) -> Vec<(Instant, CallerId, Arc<Session>)> {
        let table = lock(&self.table);
        let idle = table.iter().filter_map(|((owner, _), session)| {
            Some((session.idle_since()?, owner.clone(), Arc::clone(session)))
        });
        idle.collect()
    }

    /// Ends one idle kernel, the one that was not used for longest of those that may be taken.
    fn evict_for(&self, shortage: &Shortage, idle: &[(Instant, CallerId, Arc<Session>)]) {
        let Shortage { of, from } = shortage;
        for source in from {
            let (max, most) = (self.rules.kernels_max, self.kernels.most(of));
            let (label, why) = match (source == of, most < max) {
                (true, false) => ("own", String::new()),
                (true, true) => ("own", format!(", {most} of them one caller's")),
                (false, _) => ("share", ", and another caller had less than its share".to_owned()),
            };
            let reason = format!("evicted: {max} kernels may live at once{why}");
            if self.workers.stop_of(source) {
                self.metrics.evict(label);
                return;
            }
            // One that got busy meanwhile is left alone, and the next oldest goes.
            let mut theirs = idle.iter().filter(|(_, owner, _)| owner == source);
            if theirs.any(|(.., session)| session.stop_if_idle(&reason)) {
                self.metrics.evict(label);
                return;
            }
        }
    }

    /// Stops kernels that were idle for long; drops sessions from memory that were unused for a day.
    pub(crate) fn expire(&self, now: Instant) {
        let sessions: Vec<_> = lock(&self.table).values().cloned().collect();
        let reason = format!("idle for {} seconds", self.rules.idle.as_secs());
        for session in sessions {
            let is_old = session
                .idle_since()
                .is_some_and(|since| now.saturating_duration_since(since) >= self.rules.idle);
            if is_old && session.stop_if_idle(&reason) {
                self.metrics.kernels_expired.inc();
                tracing::info!(id = %session.id, "Session {} {reason}", session.id);
            }
        }
        self.workers.stop_idle(self.rules.idle);
        self.make_room();
        lock(&self.table).retain(|_, session| {
            let since = session.forgettable_since();
            since.is_none_or(|since| now.saturating_duration_since(since) < REMEMBERED)
        });
    }

    /// Sessions that were without a call for longer than their own lifetime.
    pub(crate) fn outlived(&self, now: Instant) -> Vec<(CallerId, SessionId)> {
        let table = lock(&self.table);
        let over = table.iter().filter(|(_, session)| session.has_outlived(now));
        over.map(|(key, _)| key.clone()).collect()
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
        self.places.close();
        self.beside.close();
        self.workers.stop_idle(Duration::ZERO);
        let sessions: Vec<_> = lock(&self.table).values().cloned().collect();
        for session in sessions {
            session.stop_if_idle("the server was shut down");
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

    /// How many kernels are being saved, and end then.
    pub(crate) fn kernels_leaving(&self) -> usize {
        self.kernels.leaving()
    }

    /// How many kernels are alive, or about to be.
    pub(crate) fn kernels(&self) -> usize {
        self.kernels.taken()
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
mod tests;
