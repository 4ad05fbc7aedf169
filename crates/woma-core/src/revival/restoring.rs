//! Bringing back: into a kernel that takes the place of a lost one, or on request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use serde_json::json;
use tokio_util::io::StreamReader;
use tracing::Instrument as _;
use woma_sandbox::protocol::Restored;
use woma_sandbox::{Cell, Guard, Restore, Spec, Workspace};

use super::Summary;
use crate::caller::Caller;
use crate::files::Files;
use crate::lock::lock;
use crate::model::{Revival, SessionId};
use crate::service::may_execute;
use crate::session::{Home, Kernel, Session};
use crate::store::CheckpointRow;
use crate::{Error, Service};

/// What bringing back may take.
const RESTORE_MAX: Duration = Duration::from_secs(20);

impl Session {
    /// The latest checkpoint, from memory or from the store.
    pub(super) async fn checkpoint(&self, home: &Home) -> Result<Option<CheckpointRow>, String> {
        if let Some((row, _)) = lock(&self.saved).clone() {
            return Ok(Some(row));
        }
        let store = &home.vault.store;
        let asked = store.checkpoint(home.owner.as_str(), self.id.as_str());
        store.in_any_case(asked).await.map_err(|error| error.to_string())
    }

    /// What there is to go back to. One that is on its way is waited for.
    async fn expect_checkpoint(&self) -> Result<(&Home, CheckpointRow), Error> {
        let none = || Error::NoCheckpoint(self.id.clone());
        let home = self.home.as_ref().ok_or_else(none)?;
        drop(self.saving.lock().await);
        let known = lock(&self.saved).clone();
        let row = match known {
            Some((row, _)) => Some(row),
            None => home.vault.store.checkpoint(home.owner.as_str(), self.id.as_str()).await?,
        };
        Ok((home, row.ok_or_else(none)?))
    }

    /// Brings variables back into a kernel that has none. A kernel that fails at it is dead.
    pub(crate) async fn revive(
        &self,
        kernel: &mut Kernel,
        guard: Option<Arc<Guard>>,
    ) -> Option<Revival> {
        let home = self.home.as_ref()?;
        home.limits()?;
        let row = match self.checkpoint(home).await {
            Ok(Some(row)) => row,
            Ok(None) => return None,
            Err(error) => return Some(Revival { error: Some(error), ..Revival::default() }),
        };
        match self.bring_back(home, &mut kernel.cell, &row, guard).await {
            // There was nothing to bring back, and so there is nothing to say.
            Ok(revival) if revival == Revival::of(&row) => None,
            Ok(revival) => Some(revival),
            Err(error) => Some(Revival { error: Some(error), ..Revival::of(&row) }),
        }
    }

    /// Brings the variables of a checkpoint into a cell in which nothing has been run. One that fails
    /// at it is dead.
    async fn bring_back(
        &self,
        home: &Home,
        cell: &mut Cell,
        row: &CheckpointRow,
        guard: Option<Arc<Guard>>,
    ) -> Result<Revival, String> {
        let summary: Summary = serde_json::from_str(&row.summary)
            .unwrap_or(Summary { skipped: Vec::new(), executions: 0 });
        let restore = Restore { wall: RESTORE_MAX, execution_count: summary.executions, guard };
        let blob = home.vault.blobs.get(row.digest).await.map_err(|error| error.to_string())?;
        let stream = blob.stream.map_err(|error| std::io::Error::other(error.to_string()));
        let mut source = StreamReader::new(stream);
        let restored = cell.restore(&mut source, restore).await;
        let Restored { restored, failed, error } = restored.map_err(|error| error.to_string())?;
        let missing = summary.skipped.into_iter().chain(failed).collect();
        Ok(Revival { restored, missing, error, ..Revival::of(row) })
    }
}

impl Revival {
    /// Of a checkpoint of which nothing is known yet.
    fn of(row: &CheckpointRow) -> Self {
        Self { saved_at: Some(row.created_at), ..Self::default() }
    }
}

impl Service {
    /// Takes a session back to its last checkpoint: what was set since is gone. Where that cannot be
    /// done, the session stays as it is.
    pub async fn restore_session(&self, caller: &Caller, id: &SessionId) -> Result<Revival, Error> {
        may_execute(caller)?;
        self.recall(caller, id).await?;
        let session = self.shared.sessions.find(caller, id)?;
        let rules = match session.rules.clone() {
            Some(rules) => rules,
            None => self.shared.settings.policies.of(caller)?,
        };
        let admission = self.shared.in_hand.admit(&caller.id)?;
        let (service, caller, id) = (self.clone(), caller.clone(), id.clone());
        let taken = async move {
            let taken = service.take_back(&session, rules.guard()).await;
            drop(admission);
            service.shared.sessions.make_room();
            let revival = taken?;
            service.note(&caller, "restore_session", Some(&id), &json!({}));
            Ok(revival)
        };
        let taken = tokio::spawn(taken.in_current_span());
        taken.await.unwrap_or(Err(Error::Lost))
    }

    /// The variables come back in a cell beside the one that there is, which ends when all is well.
    async fn take_back(
        &self,
        session: &Session,
        guard: Option<Arc<Guard>>,
    ) -> Result<Revival, Error> {
        // Nothing is stopped for a checkpoint that there is not.
        session.expect_checkpoint().await?;
        // Before the turn: who waits for a place keeps nobody from the session.
        let beside = self.in_time(self.shared.sessions.second_kernel()).await?;
        session.interrupt();
        let mut slot = session.turn().await;
        session.end_of_ending(&mut slot).await;
        if session.is_deleted() {
            return Err(Error::SessionDeleted(session.id.clone()));
        }
        let (home, row) = session.expect_checkpoint().await?;
        let failed = |reason| Error::NotRestored { session: session.id.clone(), reason };
        if slot.files.is_none() {
            let limit = self.shared.settings.limits.workspace();
            slot.files = Some(Files::open(&home.folder, limit, None).await?);
        }
        let allowance = slot.files.as_ref().map(|files| files.allowance);
        // A session that has a kernel keeps its place, and has a second one for a moment; another one
        // has to wait for a place.
        let permit = match slot.kernel {
            Some(_) => None,
            None => Some(self.in_time(self.shared.sessions.kernel_permit()).await?),
        };
        let spec = Spec {
            name: Some(session.id.as_str().to_owned()),
            limits: self.shared.settings.limits.clone(),
            workspace: Workspace::Folder(home.folder.clone()),
            allowance,
            ..Spec::default()
        };
        let mut cell = self.shared.sandbox.open(&spec).await?;
        let revival = session.bring_back(home, &mut cell, &row, guard).await.map_err(failed)?;
        if let Some(reason) = revival.error {
            return Err(failed(reason));
        }
        let old = slot.kernel.take().map(|Kernel { cell, permit, .. }| (cell, permit));
        let (old, kept) = old.unzip();
        let Some(permit) = permit.or(kept) else { return Err(Error::Lost) };
        slot.kernel = Some(Kernel::new(cell, permit));
        slot.lost = None;
        session.mark_saved(session.changes());
        session.mark_live();
        drop((slot, beside));
        if let Some(old) = old
            && let Err(error) = old.close().await
        {
            tracing::warn!(%error, "The end of a session's kernel could not be awaited");
        }
        Ok(revival)
    }

    /// Waits for a place, no longer than a run could take.
    async fn in_time<T>(&self, place: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.shared.settings.timeout_max;
        tokio::time::timeout(limit, place).await.unwrap_or_else(|_| {
            let what = format!("this call has waited {} seconds", limit.as_secs());
            Err(Error::Busy { what, retry_after: Duration::from_secs(1) })
        })
    }
}
