//! Permits that callers share: how many of them one caller may have, and who is next when one is free.
//! Every pool of the server is one of these. Calls nothing above `model`.
//!
//! A caller's *fair share* is the number of places divided by the callers that have one or wait for
//! one. One caller never has all of them. Who waits is served in turns: callers below their fair
//! share first, one place for each in a round, and the calls of one caller in the order of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::model::caller::CallerId;
use woma_sandbox::sync::lock;

/// One caller may have all places but this part of them, and but one at least.
const RESERVED_PART: usize = 8;

/// The most of `places` that one of several callers may have: seven eighths, and one less than all.
pub const fn most_of(places: usize) -> usize {
    match places {
        0 | 1 => places,
        2..RESERVED_PART => places - 1,
        _ => places - places / RESERVED_PART,
    }
}

/// An identity that has a share.
pub trait Sharer: Clone + Ord + fmt::Debug {
    /// Whether there is no other one: it may have everything.
    fn is_alone(&self) -> bool;
}

impl Sharer for CallerId {
    /// A server without keys has one caller, and keeps nothing for others.
    fn is_alone(&self) -> bool {
        self.is_local()
    }
}

/// A client before it is known who it is.
impl Sharer for IpAddr {
    fn is_alone(&self) -> bool {
        false
    }
}

/// The server stops: the pool gives out nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server is shutting down")]
pub struct Closed;

/// A pool of equal places.
#[derive(Debug)]
pub struct Shares<K: Sharer = CallerId> {
    places: usize,
    /// Calls that wait, to be looked at without the lock.
    starved: AtomicUsize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    taken: usize,
    is_closed: bool,
    next_id: u64,
    accounts: BTreeMap<K, Account>,
    /// Callers that wait, in the order in which they are served.
    round: VecDeque<K>,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            taken: 0,
            is_closed: false,
            next_id: 0,
            accounts: BTreeMap::new(),
            round: VecDeque::new(),
        }
    }
}

#[derive(Debug, Default)]
struct Account {
    held: usize,
    /// Of those that are held: on their way back, as soon as something is written down.
    leaving: usize,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Account {
    /// Permits that it will have for longer than a moment.
    fn kept(&self) -> usize {
        self.held.saturating_sub(self.leaving)
    }
}

/// A place; it is given back by dropping it.
#[derive(Debug)]
pub struct Permit<K: Sharer = CallerId> {
    shares: Arc<Shares<K>>,
    owner: K,
    is_leaving: bool,
}

/// A call in the line. Dropping it gives up its turn, and the place if that has come meanwhile.
struct Waiting<K: Sharer> {
    shares: Arc<Shares<K>>,
    owner: K,
    id: u64,
    turn: oneshot::Receiver<()>,
    is_over: bool,
}

/// A caller waits for a permit that another caller has to give up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage<K = CallerId> {
    pub(crate) of: K,
    /// Callers whose places may be taken, in the order of preference.
    pub(crate) from: Vec<K>,
}

/// How full a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    pub taken: usize,
    pub waiting: usize,
    pub places: usize,
}

impl<K: Sharer> Shares<K> {
    pub fn new(places: usize) -> Self {
        Self { places, starved: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// The most that one caller may have.
    pub fn most(&self, owner: &K) -> usize {
        if owner.is_alone() { self.places } else { most_of(self.places) }
    }

    pub fn places(&self) -> usize {
        self.places
    }

    /// A place, if there is one now.
    pub fn take(self: &Arc<Self>, owner: &K) -> Option<Permit<K>> {
        let mut state = lock(&self.state);
        let account = state.accounts.get(owner);
        let (held, waits) = account.map_or((0, false), |it| (it.held, !it.waiting.is_empty()));
        if state.is_closed || waits || state.taken >= self.places || held >= self.most(owner) {
            return None;
        }
        state.taken += 1;
        state.accounts.entry(owner.clone()).or_default().held += 1;
        drop(state);
        Some(Permit { shares: Arc::clone(self), owner: owner.clone(), is_leaving: false })
    }

    /// A place now, or when it is this caller's turn.
    pub async fn acquire(self: &Arc<Self>, owner: &K) -> Result<Permit<K>, Closed> {
        match self.take(owner) {
            Some(permit) => Ok(permit),
            None => self.wait(owner, || {}).await,
        }
    }

    /// A place, when it is this caller's turn. `make_room` is called once the call is in the line.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        owner: &K,
        make_room: impl FnOnce(),
    ) -> Result<Permit<K>, Closed> {
        let mut waiting = self.line_up(owner)?;
        make_room();
        (&mut waiting.turn).await.map_err(|_| Closed)?;
        waiting.is_over = true;
        Ok(Permit { shares: Arc::clone(self), owner: owner.clone(), is_leaving: false })
    }

    fn line_up(self: &Arc<Self>, owner: &K) -> Result<Waiting<K>, Closed> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Closed);
        }
        let (sender, turn) = oneshot::channel();
        let id = state.next_id;
        state.next_id += 1;
        let account = state.accounts.entry(owner.clone()).or_default();
        account.waiting.push_back((id, sender));
        if account.waiting.len() == 1 {
            state.round.push_back(owner.clone());
        }
        self.starved.fetch_add(1, Ordering::Relaxed);
        // One may have come back since the caller looked.
        self.serve(&mut state);
        drop(state);
        Ok(Waiting { shares: Arc::clone(self), owner: owner.clone(), id, turn, is_over: false })
    }

    /// Gives free places to those who wait.
    fn serve(&self, state: &mut State<K>) {
        while state.taken < self.places {
            let Some(at) = self.next(state) else { return };
            let Some(owner) = state.round.remove(at) else { return };
            let Some(account) = state.accounts.get_mut(&owner) else { continue };
            if let Some((_, sender)) = account.waiting.pop_front() {
                self.starved.fetch_sub(1, Ordering::Relaxed);
                // Who gives up does so under the lock, and is not in the line any more.
                if sender.send(()).is_ok() {
                    account.held += 1;
                    state.taken += 1;
                }
            }
            if !account.waiting.is_empty() {
                state.round.push_back(owner);
            }
        }
    }

    /// Position in the round-robin of the caller whose turn it is.
    fn next(&self, state: &State<K>) -> Option<usize> {
        let active = state.active();
        let held = |owner: &K| state.accounts.get(owner).map_or(0, |it| it.held);
        let may = |owner: &K| held(owner) < self.most(owner);
        let is_below = |owner: &K| held(owner) * active < self.places;
        let below = state.round.iter().position(|owner| may(owner) && is_below(owner));
        below.or_else(|| state.round.iter().position(may))
    }

    fn give_back(&self, owner: &K, was_leaving: bool) {
        let mut state = lock(&self.state);
        state.taken = state.taken.saturating_sub(1);
        if let Some(account) = state.accounts.get_mut(owner) {
            account.held = account.held.saturating_sub(1);
            account.leaving = account.leaving.saturating_sub(usize::from(was_leaving));
        }
        state.forget(owner);
        self.serve(&mut state);
    }

    /// Whether any call waits.
    pub(crate) fn is_short(&self) -> bool {
        self.starved.load(Ordering::Relaxed) > 0
    }

    /// Callers that wait for more permits than are free or about to be, and the callers from whom each
    /// of them may take one. A caller's own permits are taken first, unless it has less than its fair
    /// share and another caller has more than that.
    pub(crate) fn shortages(&self) -> Vec<Shortage<K>> {
        let state = lock(&self.state);
        let mut coming = self.places.saturating_sub(state.taken) + state.leaving();
        let mut shortages = Vec::new();
        for owner in &state.round {
            let Some(account) = state.accounts.get(owner) else { continue };
            let room = self.most(owner).saturating_sub(account.kept());
            let wanted = account.waiting.len();
            let served = wanted.min(room).min(coming);
            coming -= served;
            if served == wanted {
                continue;
            }
            let own = vec![owner.clone()];
            let from =
                if served < room { self.sources(&state, owner, account.kept()) } else { own };
            shortages.push(Shortage { of: owner.clone(), from });
        }
        shortages
    }

    /// Callers whose places may be taken for this one, which holds `kept` places already.
    fn sources(&self, state: &State<K>, owner: &K, kept: usize) -> Vec<K> {
        let active = state.active();
        let is_below = kept * active < self.places;
        let others = state.accounts.iter().filter(|(other, _)| *other != owner);
        let others = others.map(|(other, account)| (account.kept(), other));
        // More than a fair share, and more than who asks.
        let mut others: Vec<_> =
            others.filter(|(theirs, _)| theirs * active > self.places && *theirs > kept).collect();
        others.sort_by(|one, other| other.cmp(one));
        // Not from one who would have to take it back at once.
        let is_gain = |theirs: usize| kept == 0 || theirs > kept + 1;
        let first = others.iter().filter(|(theirs, _)| is_below && is_gain(*theirs));
        let last = others.iter().filter(|(theirs, _)| !(is_below && is_gain(*theirs)));
        let first = first.map(|(_, other)| (*other).clone());
        let last = last.map(|(_, other)| (*other).clone());
        first.chain([owner.clone()]).chain(last).collect()
    }

    pub fn taken(&self) -> usize {
        lock(&self.state).taken
    }

    pub fn usage(&self) -> PoolUse {
        let waiting = self.starved.load(Ordering::Relaxed);
        PoolUse { taken: self.taken(), waiting, places: self.places }
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    /// Those that are on their way back.
    pub(crate) fn leaving(&self) -> usize {
        lock(&self.state).leaving()
    }

    /// Closes the pool: calls that wait are refused.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.round.clear();
        for account in state.accounts.values_mut() {
            account.waiting.clear();
        }
        self.starved.store(0, Ordering::Relaxed);
    }
}

impl<K: Sharer> State<K> {
    /// Callers that have a place or wait for one.
    fn active(&self) -> usize {
        self.accounts.len().max(1)
    }

    fn leaving(&self) -> usize {
        self.accounts.values().map(|account| account.leaving).sum()
    }

    fn forget(&mut self, owner: &K) {
        let is_done = |account: &Account| account.held == 0 && account.waiting.is_empty();
        if self.accounts.get(owner).is_some_and(is_done) {
            self.accounts.remove(owner);
        }
    }
}

impl<K: Sharer> Permit<K> {
    /// It comes back soon: no other has to be taken.
    pub(crate) fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            let mut state = lock(&self.shares.state);
            if let Some(account) = state.accounts.get_mut(&self.owner) {
                account.leaving += 1;
            }
        }
    }
}

impl<K: Sharer> Drop for Permit<K> {
    fn drop(&mut self) {
        self.shares.give_back(&self.owner, self.is_leaving);
    }
}

impl<K: Sharer> Drop for Waiting<K> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = lock(&self.shares.state);
        if self.turn.try_recv().is_ok() {
            drop(state);
            self.shares.give_back(&self.owner, false);
            return;
        }
        if let Some(account) = state.accounts.get_mut(&self.owner) {
            let before = account.waiting.len();
            account.waiting.retain(|(id, _)| *id != self.id);
            let gone = before - account.waiting.len();
            self.shares.starved.fetch_sub(gone, Ordering::Relaxed);
            if account.waiting.is_empty() {
                state.round.retain(|owner| *owner != self.owner);
            }
        }
        state.forget(&self.owner);
    }
}

#[cfg(test)]
mod tests;
