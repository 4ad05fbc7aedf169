//! The queue of a session: runs have their turn in the order of their arrival.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::{Session, Slot};
use crate::Error;
use crate::lock::lock;

/// A session that is about to have a run: meanwhile it is neither forgotten nor ended.
#[derive(Debug)]
pub(crate) struct Seat(pub(crate) Arc<Session>);

/// A place in a session's queue, taken; it is given up by dropping it.
pub(crate) struct Place {
    seat: Seat,
    turn: Pin<Box<dyn Future<Output = OwnedMutexGuard<Slot>> + Send>>,
    ready: Option<OwnedMutexGuard<Slot>>,
    has_begun: bool,
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
