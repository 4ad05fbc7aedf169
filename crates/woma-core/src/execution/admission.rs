//! Admission: limits the calls that run or wait, in all and for each caller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::model::caller::CallerId;
use woma_sandbox::sync::lock;

const RETRY_AFTER: Duration = Duration::from_secs(1);
/// One caller may have all places but this part of them: another one always finds some.
const RESERVED_PART: usize = 8;

#[derive(Debug)]
pub(crate) struct Admissions {
    running_max: usize,
    queue_max: usize,
    places: Arc<Semaphore>,
    by_caller: Arc<Mutex<BTreeMap<CallerId, usize>>>,
}

/// A place; it is given back by dropping it.
#[derive(Debug)]
pub(crate) struct Admission {
    caller: CallerId,
    by_caller: Arc<Mutex<BTreeMap<CallerId, usize>>>,
    _place: OwnedSemaphorePermit,
}

impl Admissions {
    pub(crate) fn new(running_max: usize, queue_max: usize) -> Self {
        let places = Arc::new(Semaphore::new(running_max + queue_max));
        Self { running_max, queue_max, places, by_caller: Arc::default() }
    }

    fn total(&self) -> usize {
        self.running_max + self.queue_max
    }

    /// A place, or a refusal, at once.
    pub(crate) fn admit(&self, caller: &CallerId) -> Result<Admission, Error> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            if self.places.is_closed() {
                return Error::ShuttingDown;
            }
            let (running, waiting) = (self.running_max, self.queue_max);
            busy(format!("{running} calls run and {waiting} wait already"))
        })?;
        let mut by_caller = lock(&self.by_caller);
        let mine = by_caller.get(caller).copied().unwrap_or(0);
        let mine_max = self.total() - self.total() / RESERVED_PART;
        if mine >= mine_max {
            return Err(busy(format!("{mine} calls of this caller run or wait already")));
        }
        by_caller.insert(caller.clone(), mine + 1);
        let (caller, by_caller) = (caller.clone(), Arc::clone(&self.by_caller));
        Ok(Admission { caller, by_caller, _place: place })
    }

    /// Calls that run or wait.
    pub(crate) fn taken(&self) -> usize {
        self.total().saturating_sub(self.places.available_permits())
    }

    /// Admits nothing more.
    pub(crate) fn close(&self) {
        self.places.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.places.is_closed()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut by_caller = lock(&self.by_caller);
        if let Some(count) = by_caller.get_mut(&self.caller) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                by_caller.remove(&self.caller);
            }
        }
    }
}

fn busy(what: String) -> Error {
    Error::Busy { what, retry_after: RETRY_AFTER }
}

#[cfg(test)]
mod tests {
    use super::Admissions;
    use crate::error::Code;
    use crate::model::caller::CallerId;

    #[test]
    fn one_caller_never_has_every_place() {
        let admissions = Admissions::new(8, 8);
        let (alice, bob) = (CallerId::new("alice"), CallerId::new("bob"));
        let mut hers: Vec<_> = (0..14).map(|_| admissions.admit(&alice).unwrap()).collect();
        assert_eq!(admissions.admit(&alice).unwrap_err().code(), Code::Busy);
        let his: Vec<_> = (0..2).map(|_| admissions.admit(&bob).unwrap()).collect();
        assert_eq!(admissions.taken(), 16);
        assert_eq!(admissions.admit(&bob).unwrap_err().code(), Code::Busy, "all are taken");
        hers.pop();
        assert!(admissions.admit(&alice).is_ok(), "a place that is given back can be had again");
        drop((hers, his));
        assert_eq!(admissions.taken(), 0);
        assert!(super::lock(&admissions.by_caller).is_empty(), "nobody is remembered");
    }

    #[test]
    fn a_closed_door_admits_nobody() {
        let admissions = Admissions::new(1, 0);
        admissions.close();
        let refused = admissions.admit(&CallerId::new("alice")).unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(admissions.is_closed() && !Admissions::new(1, 0).is_closed());
    }

    #[test]
    fn as_many_run_and_wait_as_the_settings_say() {
        let admissions = Admissions::new(3, 2);
        let alice = CallerId::new("alice");
        let places: Vec<_> = (0..5).map(|_| admissions.admit(&alice).unwrap()).collect();
        assert_eq!(admissions.taken(), 5);
        let refused = admissions.admit(&alice).unwrap_err();
        assert!(refused.to_string().contains("3 calls run and 2 wait already"), "{refused}");
        drop(places);
    }
}
