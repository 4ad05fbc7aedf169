//! Packages of sessions: installing, removing and listing them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::Service;
use crate::error::Error;
use crate::execution::packages::ChangeContext;
use crate::model::caller::Caller;
use crate::model::{
    PackageAction, PackageChange, PackageError, PackageList, PackageProblem, PackageReport,
    SessionId, SessionPackage,
};
use crate::packages::Packages;
use crate::session::state::{Label, Session};

/// How often unused layers are looked for.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(3600);

impl Service {
    /// Changes the packages of a session, which is made if it does not exist. Dropping this stops the
    /// installation and changes nothing. `progress` learns what is downloaded.
    pub async fn change_packages(
        &self,
        caller: &Caller,
        id: &SessionId,
        change: PackageChange,
        progress: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<PackageReport, Error> {
        caller.may_execute()?;
        self.executor.package_room()?;
        let session = self.session_with_packages(caller, id).await?;
        let own =
            session.rules.clone().map_or_else(|| self.shared.settings.policies.of(caller), Ok);
        let rules = own?;
        if !rules.profile.commands {
            let name = &rules.profile.name;
            let message = format!("the rules `{name}` allow no packages of one's own");
            return Err(PackageError::new(PackageProblem::Blocked, message).into());
        }
        // On a task of its own: an installation that is complete is recorded, whoever hangs up.
        let stop = self.executor.stop.child_token();
        let _guard = stop.clone().drop_guard();
        let (service, caller) = (self.clone(), caller.clone());
        let changing =
            async move { service.change(&caller, &session, change, stop, progress).await };
        tokio::spawn(changing.in_current_span()).await.unwrap_or(Err(Error::Lost))
    }

    async fn change(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        change: PackageChange,
        stop: CancellationToken,
        progress: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<PackageReport, Error> {
        let context = ChangeContext { stop, progress };
        let report = self.executor.change_packages(&caller.id, session, &change, &context).await?;
        let changed = [&report.installed, &report.removed];
        if changed.iter().any(|packages| !packages.is_empty()) {
            self.sessions.remember_change(caller, session).await;
            let action = match change.action {
                PackageAction::Install => "install_packages",
                PackageAction::Uninstall => "uninstall_packages",
            };
            let pins = |packages: &[SessionPackage]| -> Vec<String> {
                packages.iter().map(SessionPackage::pin).collect()
            };
            let [installed, removed] = changed.map(|packages| pins(packages));
            let details = json!({"installed": installed, "removed": removed});
            self.note(caller, action, Some(&session.id), &details);
        }
        Ok(report)
    }

    /// The packages of the environment and of a session.
    pub async fn packages(&self, caller: &Caller, id: &SessionId) -> Result<PackageList, Error> {
        caller.may_read()?;
        self.sessions.recall(caller, id).await?;
        let (facts, session) = match self.sessions.find(caller, id) {
            Ok(session) => (self.executor.facts_of(&session)?, session.packages.set().packages),
            Err(_) => (Arc::clone(self.executor.environments.default_facts()), Vec::new()),
        };
        let environment = facts.distributions.present.values().cloned().collect();
        Ok(PackageList { environment, session })
    }

    async fn session_with_packages(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Arc<Session>, Error> {
        self.sessions.recall(caller, id).await?;
        match self.sessions.find(caller, id) {
            Err(Error::NoSession(id)) => {
                match self.sessions.create(caller, Some(id), Label::default()) {
                    Err(Error::SessionExists(id)) => self.sessions.find(caller, &id),
                    created => created,
                }
            }
            found => found,
        }
    }

    /// Empties a session; its packages go with its variables and files.
    pub(super) async fn empty_session(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let session = self.sessions.find(caller, id)?;
        let had_packages = !session.packages.layer().is_empty();
        self.sessions.reset(caller, id).await?;
        if had_packages {
            self.sessions.remember(caller, &session).await;
        }
        Ok(())
    }
}

/// Removes layers that no session has used for long; ends with the service.
pub(super) async fn keep_sweeping(packages: std::sync::Weak<Packages>) {
    loop {
        let Some(room) = packages.upgrade() else { return };
        let swept = tokio::task::spawn_blocking(move || room.layers.sweep(room.settings.layer_ttl));
        match swept.await.map_err(std::io::Error::other).flatten() {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "Layers of packages that were not used are removed"),
            Err(error) => tracing::warn!(%error, "Unused layers of packages could not be removed"),
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}
