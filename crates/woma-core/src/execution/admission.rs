//! Admission: limits the calls that run or wait, in all and for each caller.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::model::caller::CallerId;
use crate::shares::{Permit, PoolUse, Shares};

const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Admissions {
    running_max: usize,
    queue_max: usize,
    places: Arc<Shares>,
}

/// A place; it is given back by dropping it.
pub(crate) type Admission = Permit;

impl Admissions {
    pub(crate) fn new(running_max: usize, queue_max: usize) -> Self {
        let places = Arc::new(Shares::new(running_max + queue_max));
        Self { running_max, queue_max, places }
    }

    /// A place, or a refusal, at once.
    pub(crate) fn admit(&self, caller: &CallerId) -> Result<Admission, Error> {
        self.places.take(caller).ok_or_else(|| {
            let (running, waiting) = (self.running_max, self.queue_max);
            let what = match self.places.taken() < self.places.places() {
                _ if self.places.is_closed() => return Error::ShuttingDown,
                true => {
                    let most = self.places.most(caller);
                    format!("{most} calls of this caller run or wait already")
                }
                false => format!("{running} calls run and {waiting} wait already"),
            };
            Error::Busy { what, retry_after: RETRY_AFTER }
        })
    }

    /// Calls that run or wait.
    pub(crate) fn taken(&self) -> usize {
        self.places.taken()
    }

    pub(crate) fn usage(&self) -> PoolUse {
        self.places.usage()
    }

    /// Admits nothing more.
    pub(crate) fn close(&self) {
        self.places.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.places.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::Admissions;
    use crate::error::Code;
    use crate::model::caller::{Caller, CallerId};

    #[test]
    fn one_caller_never_has_every_place() {
        let admissions = Admissions::new(8, 8);
        let (alice, bob) = (CallerId::new("alice"), CallerId::new("bob"));
        let mut hers: Vec<_> = (0..14).map(|_| admissions.admit(&alice).unwrap()).collect();
        let refused = admissions.admit(&alice).unwrap_err();
        assert_eq!(refused.code(), Code::Busy);
        assert!(refused.to_string().contains("14 calls of this caller"), "{refused}");
        let his: Vec<_> = (0..2).map(|_| admissions.admit(&bob).unwrap()).collect();
        assert_eq!(admissions.taken(), 16);
        assert_eq!(admissions.admit(&bob).unwrap_err().code(), Code::Busy, "all are taken");
        hers.pop();
        assert!(admissions.admit(&alice).is_ok(), "a place that is given back can be had again");
        drop((hers, his));
        assert_eq!(admissions.taken(), 0);
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
        let local = Caller::local().id;
        let places: Vec<_> = (0..5).map(|_| admissions.admit(&local).unwrap()).collect();
        assert_eq!(admissions.taken(), 5);
        let refused = admissions.admit(&local).unwrap_err();
        assert!(refused.to_string().contains("3 calls run and 2 wait already"), "{refused}");
        drop(places);
    }
}
