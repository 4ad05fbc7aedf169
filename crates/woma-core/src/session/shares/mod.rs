//! Permits that callers share: how many of them one caller may have, and who is next when one is free.
//!
//! A caller's *fair share* is the number of places divided by the callers that have one or wait for
//! one. One caller never has all of them. Who waits is served in turns: callers below their fair
//! share first, one place for each in a round, and the calls of one caller in the order of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::error::Error;
use crate::model::caller::CallerId;
use woma_sandbox::sync::lock;

/// One caller may have all places but this part of them, and but one at least.
const RESERVED_PART: usize = 8;

#[derive(Debug)]
pub(crate) struct Shares {
    places: usize,
    /// Calls that wait, to be looked at without the lock.
    starved: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    is_closed: bool,
    next_id: u64,
    accounts: BTreeMap<CallerId, Account>,
    /// Callers that wait, in the order in which they are served.
    round: VecDeque<CallerId>,
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
pub(crate) struct Permit {
    shares: Arc<Shares>,
    owner: CallerId,
    is_leaving: bool,
}

/// A call in the line. Dropping it gives up its turn, and the place if that has come meanwhile.
struct Waiting {
    shares: Arc<Shares>,
    owner: CallerId,
    id: u64,
    turn: oneshot::Receiver<()>,
    is_over: bool,
}

/// A caller waits for a permit that another caller has to give up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) of: CallerId,
    /// Callers whose places may be taken, in the order of preference.
    pub(crate) from: Vec<CallerId>,
}

impl Shares {
    pub(crate) fn new(places: usize) -> Self {
        Self { places, starved: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// The most that one caller may have. A server without keys has one caller, and keeps no permit
    /// for others.
    pub(crate) fn most(&self, owner: &CallerId) -> usize {
        match self.places {
            0 | 1 => self.places,
            _ if owner.is_local() => self.places,
            places => places - (places / RESERVED_PART).max(1),
        }
    }

    /// A place, if there is one now.
    pub(crate) fn take(self: &Arc<Self>, owner: &CallerId) -> Option<Permit> {
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

    /// A place, when it is this caller's turn. `make_room` is called once the call is in the line.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        owner: &CallerId,
        make_room: impl FnOnce(),
    ) -> Result<Permit, Error> {
        let mut waiting = self.line_up(owner)?;
        make_room();
        (&mut waiting.turn).await.map_err(|_| Error::ShuttingDown)?;
        waiting.is_over = true;
        Ok(Permit { shares: Arc::clone(self), owner: owner.clone(), is_leaving: false })
    }

    fn line_up(self: &Arc<Self>, owner: &CallerId) -> Result<Waiting, Error> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Error::ShuttingDown);
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
    fn serve(&self, state: &mut State) {
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
    fn next(&self, state: &State) -> Option<usize> {
        let active = state.active();
        let held = |owner: &CallerId| state.accounts.get(owner).map_or(0, |it| it.held);
        let may = |owner: &CallerId| held(owner) < self.most(owner);
        let is_below = |owner: &CallerId| held(owner) * active < self.places;
        let below = state.round.iter().position(|owner| may(owner) && is_below(owner));
        below.or_else(|| state.round.iter().position(may))
    }

    fn give_back(&self, owner: &CallerId, was_leaving: bool) {
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
    pub(crate) fn shortages(&self) -> Vec<Shortage> {
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
    fn sources(&self, state: &State, owner: &CallerId, kept: usize) -> Vec<CallerId> {
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

    pub(crate) fn taken(&self) -> usize {
        lock(&self.state).taken
    }

    /// Those that are on their way back.
    pub(crate) fn leaving(&self) -> usize {
        lock(&self.state).leaving()
    }

    /// Closes the pool: calls that wait are refused.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.round.clear();
        for account in state.accounts.values_mut() {
            account.waiting.clear();
        }
        self.starved.store(0, Ordering::Relaxed);
    }
}

impl State {
    /// Callers that have a place or wait for one.
    fn active(&self) -> usize {
        self.accounts.len().max(1)
    }

    fn leaving(&self) -> usize {
        self.accounts.values().map(|account| account.leaving).sum()
    }

    fn forget(&mut self, owner: &CallerId) {
        let is_done = |account: &Account| account.held == 0 && account.waiting.is_empty();
        if self.accounts.get(owner).is_some_and(is_done) {
            self.accounts.remove(owner);
        }
    }
}

impl Permit {
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

impl Drop for Permit {
    fn drop(&mut self) {
        self.shares.give_back(&self.owner, self.is_leaving);
    }
}

impl Drop for Waiting {
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
