//! Taking a session back to its checkpoint, on request.

use std::sync::Arc;
use std::time::Duration;

use woma_sandbox::{Guard, Spec, Workspace};

use super::Executor;
use super::environments::Opening;
use crate::error::Error;
use crate::model::Revival;
use crate::model::caller::Caller;
use crate::session::state::{Kernel, KernelState, Session};
use crate::workspace::changes::Files;

impl Executor {
    /// The variables come back in a cell beside the one that there is, which ends when all is well.
    pub(crate) async fn restore(
        &self,
        caller: &Caller,
        session: &Session,
        guard: Option<Arc<Guard>>,
    ) -> Result<Revival, Error> {
        // Nothing is stopped for a checkpoint that there is not.
        session.expect_checkpoint().await?;
        // Before the turn: waiting for a permit must not block the session.
        let beside = self.in_time(self.sessions.second_kernel(&caller.id)).await?;
        session.interrupt();
        let mut state = session.turn().await;
        session.end_of_ending(&mut state).await;
        if session.is_deleted() {
            return Err(Error::SessionDeleted(session.id.clone()));
        }
        let claim = session.claim()?;
        session.follow(claim.as_ref()).await;
        let (home, row) = session.expect_checkpoint().await?;
        let failed = |reason| Error::NotRestored { session: session.id.clone(), reason };
        if state.files.is_none() {
            let limit = self.settings.limits.workspace();
            state.files = Some(Files::open(&home.folder, limit, None).await?);
        }
        let allowance = state.files.as_ref().map(|files| files.allowance);
        // A session that has a kernel keeps its place, and has a second one for a moment; another one
        // has to wait for a place.
        let permit = match state.kernel.is_live() {
            true => None,
            false => Some(self.in_time(self.sessions.kernel_permit(&caller.id)).await?),
        };
        let folder = Workspace::Folder(home.folder.clone());
        let Opening { sandbox, spec } = self.opening(&*self.facts_of(session)?, folder).await?;
        let name = Some(session.id.as_str().to_owned());
        let spec = Spec { name, allowance, container: session.in_container, ..spec };
        let mut cell = sandbox.open(&spec).await?;
        let is_open = guard.is_none();
        // Before the variables, which may need them; the first kernel goes on with its own.
        let folders = cell.folders();
        session.packages.tell(self.show_packages(&caller.id, session, &folders).await);
        let revival = session.bring_back(home, &mut cell, &row, guard).await.map_err(failed)?;
        if let Some(reason) = revival.error {
            return Err(failed(reason));
        }
        let old = state.kernel.take_live().map(|Kernel { cell, permit, .. }| (cell, permit));
        let (old, kept) = old.unzip();
        let Some(permit) = permit.or(kept) else { return Err(Error::Lost) };
        let mut kernel = Kernel { claim, ..Kernel::new(cell, permit, sandbox) };
        session.packages.tell(self.furnish(&caller.id, session, &mut kernel, is_open).await);
        state.kernel = KernelState::Live(Box::new(kernel));
        session.checkpoints(|tracker| tracker.mark_saved(tracker.changes()));
        session.mark_live();
        drop((state, beside));
        if let Some(old) = old
            && let Err(error) = old.close().await
        {
            tracing::warn!(%error, "The end of a session's kernel could not be awaited");
        }
        Ok(revival)
    }

    /// Waits for a place, no longer than a run could take.
    async fn in_time<T>(&self, place: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.settings.timeout_max;
        tokio::time::timeout(limit, place).await.unwrap_or_else(|_| {
            let what = format!("this call has waited {} seconds", limit.as_secs());
            Err(Error::Busy { what, retry_after: Duration::from_secs(1) })
        })
    }
}
