//! The queue of a session: runs have their turn in the order of their arrival.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::state::{Session, SessionState};
use crate::error::Error;
use woma_sandbox::sync::lock;

/// A session that is about to have a run: meanwhile it is neither forgotten nor ended.
#[derive(Debug)]
pub(crate) struct SessionRef(pub(crate) Arc<Session>);

/// A ticket in a session's queue, taken; it is given up by dropping it.
pub(crate) struct QueueTicket {
    session_ref: SessionRef,
    turn: Pin<Box<dyn Future<Output = OwnedMutexGuard<SessionState>> + Send>>,
    ready: Option<OwnedMutexGuard<SessionState>>,
    has_begun: bool,
}

impl SessionRef {
    /// Takes a ticket in the queue before it returns: turns come in the order of these calls.
    pub(crate) async fn queue(self) -> QueueTicket {
        let turn = Box::pin(Arc::clone(&self.0.turn).lock_owned());
        let mut ticket = QueueTicket { session_ref: self, turn, ready: None, has_begun: false };
        // The mutex is fair from the first poll on.
        poll_fn(|context| {
            if let Poll::Ready(state) = ticket.turn.as_mut().poll(context) {
                ticket.ready = Some(state);
            }
            Poll::Ready(())
        })
        .await;
        ticket
    }
}

impl Drop for SessionRef {
    fn drop(&mut self) {
        let mut status = lock(&self.0.status);
        status.pending = status.pending.saturating_sub(1);
    }
}

impl QueueTicket {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session_ref.0
    }

    /// Waits for the turn. The state is held until it is dropped.
    pub(crate) async fn turn(&mut self) -> Result<OwnedMutexGuard<SessionState>, Error> {
        let state = match self.ready.take() {
            Some(state) => state,
            None => self.turn.as_mut().await,
        };
        if lock(&self.session().status).phase.is_deleted() {
            return Err(Error::SessionDeleted(self.session().id.clone()));
        }
        Ok(state)
    }

    /// From here on an interruption of the session stops this run.
    pub(crate) fn begin(&mut self, stop: &CancellationToken) {
        self.has_begun = true;
        let mut status = lock(&self.session().status);
        status.current = Some(stop.clone());
        status.mark_used();
    }

    /// To be called before the state is let go: what is said here is said of this run.
    pub(crate) fn end(&mut self, is_live: bool, has_run: bool) {
        self.has_begun = false;
        let mut status = lock(&self.session().status);
        status.current = None;
        status.has_kernel = is_live;
        status.executions += u64::from(has_run);
        status.mark_used();
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        if self.has_begun {
            lock(&self.session().status).current = None;
        }
    }
}
