//! A session that ends with its only run.

use woma_sandbox::Workspace;

use super::Executor;
use super::request::Admitted;
use super::spine::packages_note;
use crate::error::Error;
use crate::model::Execution;
use crate::policy::Verdict;
use crate::workspace::changes::Passing;

impl Executor {
    /// A session for this run only.
    pub(super) async fn run_once(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
    ) -> Result<Execution, Error> {
        let (owner, workspaces) = (&admitted.caller.id, self.workspaces.as_ref());
        let permit = self.run_permit(admitted).await?;
        let passing =
            workspaces.map(|workspaces| Passing(workspaces.storage.ephemeral_folder(&admitted.id)));
        let (mut kernel, mut files) = match (&admitted.request.folder, &passing) {
            (None, Some(Passing(path))) => {
                let opening = self.opening_once(admitted, Workspace::Memory, verdict).await?;
                let started = self.start_in(owner, path, None, opening);
                let (kernel, files) = self.wait(admitted, started).await??;
                (kernel, Some(files))
            }
            (folder, _) => {
                let workspace = folder.clone().map_or(Workspace::Memory, Workspace::Folder);
                let opening = self.opening_once(admitted, workspace, verdict).await?;
                let started = self.start_kernel(owner, opening);
                (self.wait(admitted, started).await??, None)
            }
        };
        let is_open = verdict.guard().is_none();
        let unshown = self.furnish_once(admitted, &mut kernel, is_open).await;
        let provided = self.provide_once(admitted, verdict, &kernel).await?;
        let counted = self.sessions.count_run();
        let mut execution = self.run_in(&mut kernel, admitted, verdict).await;
        drop(counted);
        execution.notes.extend(unshown.map(packages_note));
        execution.notes.extend(provided.and_then(|(_, note)| note));
        execution.state_kept = false;
        if let Err(error) = kernel.cell.close().await {
            tracing::warn!(%error, "The end of a session could not be awaited");
        }
        drop((kernel.permit, permit));
        self.sessions.make_room();
        if let (Some(workspaces), Some(files)) = (workspaces, &mut files) {
            self.take_datasets(&admitted.caller, None, files, &mut execution).await;
            execution.files = workspaces.look(&admitted.caller, None, files, None).await;
            workspaces.keep_charts(&admitted.caller, None, 1, &mut execution).await;
        }
        drop(passing);
        Ok(execution)
    }
}
