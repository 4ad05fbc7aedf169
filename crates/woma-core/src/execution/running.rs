//! The caller's end of an execution in progress.

use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::jobs::detach::DetachHandle;
use crate::error::Error;
use crate::model::{Execution, ExecutionId, RunEvent};

/// An execution that was admitted. It goes on by itself; dropping this before its end interrupts it,
/// unless it has become a job.
#[derive(Debug)]
pub struct Running {
    pub(super) id: ExecutionId,
    pub(super) events: Option<mpsc::UnboundedReceiver<RunEvent>>,
    pub(super) end: oneshot::Receiver<Result<Execution, Error>>,
    pub(super) stop: CancellationToken,
    /// If it may become a job.
    pub(super) detach: Option<DetachHandle>,
}

impl Running {
    pub fn execution_id(&self) -> &ExecutionId {
        &self.id
    }

    /// The next event; `None` after the last one, or if the run is not watched.
    pub async fn next(&mut self) -> Option<RunEvent> {
        self.events.as_mut()?.recv().await
    }

    /// Waits for the end.
    pub async fn finish(&mut self) -> Result<Execution, Error> {
        (&mut self.end).await.unwrap_or(Err(Error::Lost))
    }

    /// Has the run go on as a job, and returns its id. `None` if it cannot, or has just ended: the
    /// end is still to be awaited.
    pub async fn detach(&mut self) -> Option<String> {
        let (sender, answer) = oneshot::channel();
        self.detach.as_ref()?.leave.send(sender).await.ok()?;
        match answer.await.ok()? {
            Ok(row) => Some(row.id),
            Err(error) => {
                tracing::warn!(%error, id = %self.id, "A run could not become a job");
                None
            }
        }
    }

    /// Stops the code as its user would; the end is still to be awaited.
    pub fn interrupt(&self) {
        self.stop.cancel();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let detach = self.detach.as_ref();
        if !detach.is_some_and(|detach| detach.is_detached.load(Ordering::SeqCst)) {
            self.stop.cancel();
        }
    }
}
