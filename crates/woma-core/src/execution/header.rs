//! Headers of programs (PEP 723): the Python that a program needs, and packages, which are installed
//! before it runs.

use std::sync::Arc;

use woma_policy::{ScriptHeader, script_header};
use woma_sandbox::protocol::Note;

use super::Executor;
use super::packages::ChangeContext;
use super::request::Admitted;
use crate::environments::Version;
use crate::error::Error;
use crate::model::{
    Execution, PackageChange, PackageError, PackageProblem, SessionChoice, SessionId,
    SessionPackage,
};
use crate::policy::Verdict;
use crate::session::state::{Kernel, Label, Session, SessionState};

impl Executor {
    /// Reads the header of a program. A run without a session that names no environment gets the
    /// first one whose Python the program accepts; any other is refused if its Python is none.
    pub(super) fn read_header(&self, admitted: &mut Admitted) -> Result<(), Error> {
        let Some(header) = script_header(&admitted.request.source)? else { return Ok(()) };
        let ScriptHeader { dependencies, requires_python } = header;
        admitted.dependencies = dependencies;
        let Some(range) = requires_python else { return Ok(()) };
        let accepts = |Version(major, minor, patch)| range.accepts((major, minor, patch));
        if accepts(admitted.facts.version) {
            return Ok(());
        }
        let is_free = admitted.request.session == SessionChoice::Ephemeral
            && admitted.request.environment.is_none();
        let other = self.environments.with_python(accepts);
        match (is_free, other) {
            (true, Some(facts)) => {
                Self::enter(facts, admitted);
                Ok(())
            }
            (_, other) => Err(Error::OtherPython {
                wanted: range.to_string(),
                found: admitted.facts.version.to_string(),
                other: other.map(|facts| facts.name.clone().unwrap_or("default".to_owned())),
            }),
        }
    }

    /// Runs a program in its session, which then has the packages that the program needs.
    pub(super) async fn run_provided(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Arc<Session>,
        state: &mut SessionState,
    ) -> Result<Execution, Error> {
        let provided = self.provide(admitted, verdict, session).await?;
        let mut execution = self.run_with_turn(admitted, verdict, session, state).await?;
        execution.notes.extend(provided);
        Ok(execution)
    }

    /// Installs what a program needs into its session.
    pub(super) async fn provide(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Arc<Session>,
    ) -> Result<Option<Note>, Error> {
        if admitted.dependencies.is_empty() {
            return Ok(None);
        }
        if !verdict.rules.profile.commands {
            let name = &verdict.rules.profile.name;
            let message = format!("the rules `{name}` allow no packages of one's own");
            return Err(PackageError::new(PackageProblem::Blocked, message).into());
        }
        let requirements = admitted.dependencies.clone();
        let change = PackageChange { requirements, ..PackageChange::default() };
        let context = ChangeContext { stop: admitted.stop.child_token(), progress: None };
        let owner = &admitted.caller.id;
        let report = self.change_packages(owner, session, &change, &context).await?;
        if report.installed.is_empty() && report.removed.is_empty() {
            return Ok(None);
        }
        if admitted.request.session != SessionChoice::Ephemeral {
            self.sessions.remember_change(&admitted.caller, session).await;
        }
        let pins: Vec<String> = report.installed.iter().map(SessionPackage::pin).collect();
        let text = format!("installed for the header of the program: {}", pins.join(" "));
        Ok(Some(Note { code: "packages_installed".to_owned(), text, subject: None, line: None }))
    }

    /// Installs what a program without a session needs, for its run only. What is returned keeps the
    /// packages until the run has ended.
    pub(super) async fn provide_once(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        kernel: &Kernel,
    ) -> Result<Option<(Arc<Session>, Option<Note>)>, Error> {
        if admitted.dependencies.is_empty() {
            return Ok(None);
        }
        let environment = admitted.facts.name.clone();
        let label = Label { environment, ..Label::default() };
        let session = Arc::new(Session::new(SessionId::mint(), label));
        session.packages.enter(kernel.cell.folders());
        let note = self.provide(admitted, verdict, &session).await?;
        Ok(Some((session, note)))
    }
}
