//! The caller's datasets in its sessions: shown before a run, taken over after it.

use woma_sandbox::Cell;
use woma_sandbox::protocol::Note;

use super::Executor;
use crate::model::caller::{Caller, CallerId};
use crate::model::{Execution, SessionId};
use crate::workspace::changes::Files;

impl Executor {
    /// Shows the caller's datasets as `/datasets`; does nothing for a caller without any. A session
    /// without them runs all the same, and its reply says so.
    pub(super) async fn show_datasets(&self, owner: &CallerId, cell: &mut Cell) -> Option<Note> {
        let datasets = self.datasets.as_ref().filter(|datasets| datasets.has_any(owner))?;
        // Boxed: most runs do not need it, and each run's task would be of its size.
        let shown = Box::pin(async {
            let folder = datasets.folder(owner).await?;
            cell.show_datasets(&folder).await.err()
        });
        let error = shown.await?;
        tracing::warn!(error = &error as &dyn std::error::Error, "Datasets cannot be shown");
        let text =
            "the datasets could not be shown as /datasets; query_dataset has them".to_owned();
        Some(Note { code: "datasets_missing".to_owned(), text, subject: None, line: None })
    }

    /// Takes over datasets that the code of a run has registered.
    pub(super) async fn take_datasets(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        files: &Files,
        execution: &mut Execution,
    ) {
        let Some(datasets) = &self.datasets else { return };
        let taken = Box::pin(datasets.take_registered(caller, session, &files.folder)).await;
        execution.notes.extend(taken);
    }
}
