//! The caller's end of an execution in progress.

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::model::{Execution, ExecutionId, RunEvent};

/// An execution that was admitted. It goes on by itself; dropping this before its end interrupts it.
#[derive(Debug)]
pub struct Running {
    pub(super) id: ExecutionId,
    pub(super) events: Option<mpsc::UnboundedReceiver<RunEvent>>,
    pub(super) end: oneshot::Receiver<Result<Execution, Error>>,
    pub(super) stop: CancellationToken,
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

    /// Stops the code as its user would; the end is still to be awaited.
    pub fn interrupt(&self) {
        self.stop.cancel();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
