//! The kernel of a run: the one that is there, or a new one with what was saved of the last.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use woma_sandbox::workspace::Allowance;
use woma_sandbox::{Guard, Spec, Workspace};

use super::admitted::Admitted;
use crate::files::Files;
use crate::model::Revival;
use crate::policy::Verdict;
use crate::session::{Kernel, Session, Slot};
use crate::vault::closed_folder;
use crate::{Error, Service};

/// How a run found its kernel.
#[derive(Debug, Default)]
pub(crate) struct Started {
    /// Why it is not the one of the run before.
    pub(super) lost: Option<String>,
    pub(crate) revival: Option<Revival>,
}

impl Service {
    /// Starts a kernel where there is none that lives; says why an earlier one is gone, and brings
    /// back what was saved of it.
    pub(super) async fn ensure_kernel(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Session,
        slot: &mut Slot,
    ) -> Result<Started, Error> {
        if let Some(kernel) = slot.kernel.take_if(|kernel| !kernel.cell.is_alive()) {
            let why = match kernel.cell.is_overrun() {
                true => "what an earlier run left running filled its folder, and was ended",
                false => "its Python ended while nothing ran in it",
            };
            slot.lost = Some(why.to_owned());
        }
        if slot.kernel.is_some() {
            return Ok(Started::default());
        }
        let birth = Box::pin(self.bring_up(verdict.guard(), session, slot));
        self.wait(admitted, birth).await?
    }

    /// Starts a kernel, with the variables that were saved of an earlier one.
    pub(crate) async fn bring_up(
        &self,
        guard: Option<Arc<Guard>>,
        session: &Session,
        slot: &mut Slot,
    ) -> Result<Started, Error> {
        session.end_of_ending(slot).await;
        let name = session.id.as_str().to_owned();
        let spec = Spec { name: Some(name), ..self.spec(Workspace::Memory) };
        let (mut kernel, spec) = match &session.home {
            Some(home) => {
                // What a folder may hold does not grow because a kernel ended.
                let earlier = slot.files.as_ref().map(|files| files.allowance);
                let (kernel, files) = self.start_in(&home.folder, earlier, spec.clone()).await?;
                let workspace = Workspace::Folder(home.folder.clone());
                let spec = Spec { workspace, allowance: Some(files.allowance), ..spec };
                slot.files = Some(files);
                (kernel, spec)
            }
            None => (self.start_kernel(spec.clone()).await?, spec),
        };
        let mut started = Started { lost: slot.lost.clone(), revival: None };
        if started.lost.is_some() {
            started.revival = session.revive(&mut kernel, guard).await;
            if !kernel.cell.is_alive() {
                drop(kernel);
                kernel = self.start_kernel(spec).await?;
            }
        }
        // Who gave up meanwhile has not heard why: the next one will.
        slot.lost = None;
        slot.kernel = Some(kernel);
        Ok(started)
    }

    /// Starts a kernel in a folder, which is made if it is not there. `earlier`: what it was known to
    /// be allowed before.
    pub(super) async fn start_in(
        &self,
        folder: &Path,
        earlier: Option<Allowance>,
        spec: Spec,
    ) -> Result<(Kernel, Files), Error> {
        let permit = self.shared.sessions.kernel_permit().await?;
        let limit = self.shared.settings.limits.workspace();
        let spec = Spec { workspace: Workspace::Folder(folder.to_owned()), ..spec };
        if earlier.is_none() {
            // A name for a folder that is there already: that is not worth another thread.
            folder.parent().map_or(Ok(()), closed_folder)?;
            if let Some((cell, made)) = self.shared.sandbox.open_at_once(&spec) {
                let kernel = Kernel::new(cell, permit);
                return Ok((kernel, Files::of_new(made, limit)));
            }
        }
        let files = Files::open(folder, limit, earlier).await?;
        let spec = Spec { allowance: Some(files.allowance), ..spec };
        Ok((self.start_with(permit, spec).await?, files))
    }

    pub(super) async fn start_kernel(&self, spec: Spec) -> Result<Kernel, Error> {
        let permit = self.shared.sessions.kernel_permit().await?;
        self.start_with(permit, spec).await
    }

    async fn start_with(&self, permit: OwnedSemaphorePermit, spec: Spec) -> Result<Kernel, Error> {
        let sandbox = self.shared.sandbox.clone();
        // On a task of its own: a birth that is abandoned half way costs more than one that is
        // finished for nobody.
        let born = tokio::spawn(async move {
            let cell = sandbox.open(&spec).await?;
            Ok(Kernel::new(cell, permit))
        });
        born.await.unwrap_or(Err(Error::Lost))
    }

    pub(super) fn spec(&self, workspace: Workspace) -> Spec {
        Spec { limits: self.shared.settings.limits.clone(), workspace, ..Spec::default() }
    }
}
