//! The kernel of a run: the one that is there, or a new one with what was saved of the last.

use std::path::Path;
use std::sync::Arc;

use woma_sandbox::protocol::Note;
use woma_sandbox::workspace::Allowance;
use woma_sandbox::{
    Exit, Guard, Interruption, KernelObject, Outcome as RunOutcome, Spec, Tier, Workspace,
};

use super::Executor;
use super::request::Admitted;
use crate::error::Error;
use crate::model::Revival;
use crate::model::caller::CallerId;
use crate::policy::Verdict;
use crate::session::state::{Kernel, KernelState, Session, SessionState};
use crate::shares::Permit;
use crate::storage::layout::closed_folder;
use crate::workspace::changes::Files;

/// Why a session that was never run here has variables.
const ELSEWHERE: &str = "another woma process has had it open";

/// How a run found its kernel.
#[derive(Debug, Default)]
pub(crate) struct Started {
    /// Why it is not the one of the run before.
    pub(super) lost: Option<String>,
    pub(crate) revival: Option<Revival>,
}

impl Executor {
    /// Starts a kernel where there is none that lives; says why an earlier one is gone, and brings
    /// back what was saved of it.
    pub(super) async fn ensure_kernel(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Session,
        state: &mut SessionState,
    ) -> Result<Started, Error> {
        if let Some(kernel) = state.kernel.live_mut().filter(|kernel| !kernel.cell.is_alive()) {
            let (overrun, objects) = (kernel.cell.overrun(), kernel.cell.ended_for());
            state.kernel = KernelState::lost(why_lost(overrun, objects));
        }
        if state.kernel.is_live() {
            return Ok(Started::default());
        }
        let birth = Box::pin(self.bring_up(&admitted.caller.id, verdict.guard(), session, state));
        let mut started = self.wait(admitted, birth).await??;
        let revival = started.revival.as_ref();
        started.lost = started.lost.map(|why| self.tell_restart(session, &why, revival));
        Ok(started)
    }

    /// Starts a kernel, with the variables that were saved of an earlier one.
    pub(crate) async fn bring_up(
        &self,
        owner: &CallerId,
        guard: Option<Arc<Guard>>,
        session: &Session,
        state: &mut SessionState,
    ) -> Result<Started, Error> {
        session.end_of_ending(state).await;
        let claim = session.claim()?;
        if session.follow(claim.as_ref()).await && state.kernel.why_lost().is_none() {
            state.kernel = KernelState::lost(ELSEWHERE);
        }
        let name = session.id.as_str().to_owned();
        let container = session.in_container;
        let spec = Spec { name: Some(name), container, ..self.spec(Workspace::Memory) };
        let (mut kernel, spec) = match &session.home {
            Some(home) => {
                // What a folder may hold does not grow because a kernel ended.
                let earlier = state.files.as_ref().map(|files| files.allowance);
                let started = self.start_in(owner, &home.folder, earlier, spec.clone());
                let (kernel, files) = started.await?;
                let workspace = Workspace::Folder(home.folder.clone());
                let spec = Spec { workspace, allowance: Some(files.allowance), ..spec };
                state.files = Some(files);
                (kernel, spec)
            }
            None => (self.start_kernel(owner, spec.clone()).await?, spec),
        };
        let is_open = guard.is_none();
        session.packages.tell(self.furnish(owner, session, &mut kernel, is_open).await);
        let lost = state.kernel.why_lost().map(str::to_owned);
        let mut started = Started { lost, revival: None };
        if started.lost.is_some() {
            started.revival = session.revive(&mut kernel, guard).await;
            if !kernel.cell.is_alive() {
                drop(kernel);
                kernel = self.start_kernel(owner, spec).await?;
                session.packages.tell(self.furnish(owner, session, &mut kernel, is_open).await);
            }
        }
        kernel.claim = claim;
        kernel.network = Arc::clone(&session.network);
        session.set_sockets(kernel.cell.sockets());
        // Who gave up meanwhile has not heard why: the next one will.
        state.kernel = KernelState::Live(Box::new(kernel));
        Ok(started)
    }

    /// Starts a kernel in a folder, which is made if it is not there. `earlier`: what it was known to
    /// be allowed before.
    pub(super) async fn start_in(
        &self,
        owner: &CallerId,
        folder: &Path,
        earlier: Option<Allowance>,
        spec: Spec,
    ) -> Result<(Kernel, Files), Error> {
        let permit = self.sessions.kernel_permit(owner).await?;
        let limit = self.settings.limits.workspace();
        let spec = Spec { workspace: Workspace::Folder(folder.to_owned()), ..spec };
        if earlier.is_none() {
            // A name for a folder that is there already: that is not worth another thread.
            folder.parent().map_or(Ok(()), closed_folder)?;
            if let Some((cell, made)) = self.sandbox.open_at_once(&spec).await {
                let kernel = Kernel::new(cell, permit);
                return Ok((kernel, Files::of_new(made, limit)));
            }
        }
        let files = Files::open(folder, limit, earlier).await?;
        let spec = Spec { allowance: Some(files.allowance), ..spec };
        Ok((self.start_with(permit, spec).await?, files))
    }

    pub(super) async fn start_kernel(&self, owner: &CallerId, spec: Spec) -> Result<Kernel, Error> {
        let permit = self.sessions.kernel_permit(owner).await?;
        self.start_with(permit, spec).await
    }

    pub(super) async fn start_with(&self, permit: Permit, spec: Spec) -> Result<Kernel, Error> {
        let sandbox = self.sandbox.clone();
        // On a task of its own: a birth that is abandoned half way costs more than one that is
        // finished for nobody.
        let born = tokio::spawn(async move {
            let cell = sandbox.open(&spec).await?;
            Ok(Kernel::new(cell, permit))
        });
        born.await.unwrap_or(Err(Error::Lost))
    }

    pub(super) fn spec(&self, workspace: Workspace) -> Spec {
        Spec { limits: self.settings.limits.clone(), workspace, ..Spec::default() }
    }

    /// For one program alone: its cell need not have more than the program imports.
    pub(super) fn spec_once(&self, workspace: Workspace, verdict: &Verdict) -> Spec {
        let tier = verdict.review.is_plain.then_some(Tier::Light);
        Spec { tier, ..self.spec(workspace) }
    }

    /// For a session of this run only.
    pub(super) fn once(
        &self,
        admitted: &Admitted,
        workspace: Workspace,
        verdict: &Verdict,
    ) -> Spec {
        let container = admitted.request.use_container || admitted.rules.profile.container;
        Spec { container, ..self.spec_once(workspace, verdict) }
    }

    /// A session that was ended for want of memory, though it had not used up its own, was ended
    /// because all of them together had reached theirs.
    pub(super) fn tell_ceiling(&self, exit: &mut Exit) -> Option<Note> {
        let ceiling = self.settings.memory_bytes_all?;
        let RunOutcome::OutOfMemory { limit_bytes } = &mut exit.outcome else { return None };
        let peak = exit.usage.as_ref()?.memory_peak_bytes;
        if peak > *limit_bytes - *limit_bytes / 8 {
            return None;
        }
        *limit_bytes = ceiling;
        let text = "all sessions together had reached their limit of memory, and this one had the \
                    most; it had not reached its own"
            .to_owned();
        Some(Note { code: "memory_of_all".to_owned(), text, subject: None, line: None })
    }
}

/// Why a kernel ended while nothing ran in it.
fn why_lost(overrun: Option<Interruption>, objects: Option<KernelObject>) -> String {
    if let (None, Some(what)) = (overrun, objects) {
        return format!("what an earlier run left running had too many {}", what.plural());
    }
    match overrun {
        None | Some(Interruption::Asked | Interruption::TooMany { .. }) => {
            "its Python ended while nothing ran in it".to_owned()
        }
        Some(Interruption::WorkspaceFull) => {
            "what an earlier run left running filled its folder, and was ended".to_owned()
        }
        Some(Interruption::DeletedFiles { bytes }) => format!(
            "what an earlier run left running filled its folder, and was ended: deleted but open \
             files hold {} MiB",
            bytes.div_ceil(1024 * 1024)
        ),
        Some(Interruption::DiskReserve) => {
            "what an earlier run left running wrote while the server's disk was below its reserve \
             (MIN_FREE_DISK), and was ended"
                .to_owned()
        }
    }
}
