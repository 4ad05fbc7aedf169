//! Checkpoints on request, and notebooks.

use serde_json::json;
use tracing::Instrument as _;

use super::Service;
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{Revival, SessionId};
use crate::session::checkpoint::Checkpointed;
use crate::session::notebook::{self, Notebook};

impl Service {
    /// Saves a session's variables now. Waits for its turn, and for a checkpoint that is on its way.
    pub async fn checkpoint_session(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Checkpointed, Error> {
        caller.may_execute()?;
        self.sessions.recall(caller, id).await?;
        let session = self.sessions.find(caller, id)?;
        let admission = self.executor.admissions.admit(&caller.id)?;
        // On a task of its own: a client that hangs up leaves nothing half done.
        let (service, caller, id) = (self.clone(), caller.clone(), id.clone());
        let saved = async move {
            let saved = session.save_now().await;
            drop(admission);
            let saved = saved?;
            service.note(
                &caller,
                "checkpoint_session",
                Some(&id),
                &json!({ "bytes": saved.bytes }),
            );
            Ok(saved)
        };
        let saved = tokio::spawn(saved.in_current_span());
        let saved = saved.await.unwrap_or(Err(Error::Lost))?;
        Ok(Checkpointed { saved: saved.saved, skipped: saved.skipped, bytes: saved.bytes })
    }

    /// Takes a session back to its last checkpoint: variables set since are gone. A session that
    /// cannot be taken back stays as it is.
    pub async fn restore_session(&self, caller: &Caller, id: &SessionId) -> Result<Revival, Error> {
        caller.may_execute()?;
        self.sessions.recall(caller, id).await?;
        let session = self.sessions.find(caller, id)?;
        let rules = match session.rules.clone() {
            Some(rules) => rules,
            None => self.shared.settings.policies.of(caller)?,
        };
        let admission = self.executor.admissions.admit(&caller.id)?;
        let (service, caller, id) = (self.clone(), caller.clone(), id.clone());
        let taken = async move {
            let taken = service.executor.restore(&caller, &session, rules.guard()).await;
            drop(admission);
            service.sessions.make_room();
            let revival = taken?;
            service.note(&caller, "restore_session", Some(&id), &json!({}));
            Ok(revival)
        };
        let taken = tokio::spawn(taken.in_current_span());
        taken.await.unwrap_or(Err(Error::Lost))
    }

    /// A session as a Jupyter notebook: what was run in it, with outputs and pictures.
    pub async fn notebook(&self, caller: &Caller, id: &SessionId) -> Result<Notebook, Error> {
        caller.may_read()?;
        self.sessions.recall(caller, id).await?;
        let session = self.sessions.find(caller, id)?;
        let Some(home) = &session.home else { return Err(Error::NoSession(id.clone())) };
        let python = self.executor.facts_of(&session)?.version.to_string();
        let notebook = notebook::of_session(home, &python).await?;
        self.note(caller, "export_notebook", Some(id), &json!({}));
        Ok(notebook)
    }
}
