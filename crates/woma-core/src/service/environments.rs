//! Environments that sessions can name, and locks of what sessions have installed in them.

use super::Service;
use crate::environments::{Environment, EnvironmentInfo, NamedEnvironment};
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{PackageSet, SessionId};
use crate::packages::freeze::frozen;
use crate::storage::db::Store;
use crate::storage::layout::StorageSettings;
use crate::workspace::files::blocking;

impl Service {
    /// The environments that an operator has named.
    pub fn environments(&self) -> Vec<EnvironmentInfo> {
        let environments = &self.executor.environments;
        let info = |named: &NamedEnvironment| EnvironmentInfo {
            name: named.name.clone(),
            description: named.description.clone(),
            python: named.made.as_ref().ok().map(|made| made.environment.version),
            packages: named.made.as_ref().ok().map(|made| made.packages.len()),
            policy: named.policy.clone(),
            limits: named.limits,
            unavailable: named.made.as_ref().err().cloned(),
            is_running: environments.is_running(&named.name),
        };
        environments.named().map(info).collect()
    }

    /// A lock of the packages that a session sees, with hashes.
    pub async fn freeze(&self, caller: &Caller, id: &SessionId) -> Result<String, Error> {
        caller.may_read()?;
        self.sessions.recall(caller, id).await?;
        let session = self.sessions.find(caller, id)?;
        let environment = match &session.environment {
            Some(name) => match &self.executor.environments.about(name)?.made {
                Ok(made) => made.environment.clone(),
                Err(why) => {
                    let (name, why) = (name.clone(), why.clone());
                    return Err(Error::EnvironmentNotMade { name, why });
                }
            },
            None => self.shared.settings.environment.clone(),
        };
        let set = session.packages.set();
        blocking(move || freeze(&environment, &set)).await
    }
}

/// A lock of an environment with the packages of a session.
pub fn freeze(environment: &Environment, set: &PackageSet) -> Result<String, Error> {
    let base = environment.lock_text();
    Ok(frozen(base.as_deref(), set, environment.version)?)
}

/// Name of the environment and packages of a session, from the store of a server that may run
/// meanwhile.
pub async fn stored_packages(
    settings: &StorageSettings,
    owner: &str,
    session: &SessionId,
) -> Result<(Option<String>, PackageSet), Error> {
    let db = Store::open(settings.store()).await?;
    let row = db.session(owner, session.as_str()).await?;
    let row = row.ok_or_else(|| Error::NoSession(session.clone()))?;
    let packages = row.packages.as_deref().map(serde_json::from_str).transpose();
    let packages = packages.map_err(|error| Error::Folder(std::io::Error::other(error)))?;
    Ok((row.environment, packages.unwrap_or_default()))
}
