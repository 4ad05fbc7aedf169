//! Secrets that sessions are given, and the key that their placeholders come from.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Service, Settings};
use crate::error::Error;
use crate::model::caller::{Caller, CallerId};
use crate::model::{NewSecret, SessionId};
use crate::net::egress::NetworkRules;
use crate::net::secrets::{KEY_BYTES, OF_CALLERS_MAX, Placeholders, Secret, SecretShelf};
use crate::policy::Rules;
use crate::storage::durable;
use crate::storage::layout::OpenError;
use crate::workspace::Workspaces;

/// File of the data folder with the key of placeholders. Values are in no file.
const KEY_FILE: &str = "placeholder-key";

/// The secrets of a server.
pub(super) fn shelf(
    settings: &Settings,
    workspaces: Option<&Workspaces>,
) -> Result<SecretShelf, Error> {
    let key = match workspaces {
        Some(workspaces) => {
            let folder = &workspaces.storage.settings.folder;
            stored_key(&folder.join(KEY_FILE)).map_err(|error| OpenError::DataFolder {
                folder: folder.clone(),
                reason: error.to_string(),
            })?
        }
        None => new_key()?,
    };
    let placeholders = Placeholders::new(key);
    Ok(SecretShelf::new(settings.secrets.clone(), placeholders, OF_CALLERS_MAX))
}

fn new_key() -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(key)
}

/// The key of a data folder, which is made once.
fn stored_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let read = || match std::fs::read(path) {
        Ok(bytes) => Ok(<[u8; KEY_BYTES]>::try_from(bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    if let Some(key) = read()? {
        return Ok(key);
    }
    durable::replace(path, &new_key()?)?;
    // Another process of the folder may have been later.
    read()?.ok_or_else(|| io::Error::other(format!("{} was not written", path.display())))
}

impl Service {
    /// Checks the secrets that a session asks for. The network of its caller, its policy and its own
    /// must lead to their hosts: elsewhere they would never be sent.
    pub(super) fn check_secrets(
        &self,
        caller: &Caller,
        rules: Option<&Rules>,
        network: Option<&NetworkRules>,
        wanted: Vec<NewSecret>,
    ) -> Result<Vec<Arc<Secret>>, Error> {
        let secrets = SecretShelf::check(wanted)?;
        for secret in &secrets {
            self.within_network(caller, rules, &secret.hosts)?;
            if let Some(beyond) = network.and_then(|network| secret.hosts.beyond(network)) {
                let allowed = network.map(NetworkRules::told).unwrap_or_default();
                return Err(Error::NetworkBeyond { wanted: beyond, allowed });
            }
        }
        Ok(secrets)
    }

    /// Gives a session secrets of its own, in place of those that it has.
    pub(super) fn give_secrets(
        &self,
        caller: &Caller,
        session: &SessionId,
        secrets: Vec<Arc<Secret>>,
    ) -> Result<Vec<String>, Error> {
        let names = secrets.iter().map(|secret| secret.name.clone()).collect();
        self.executor.secrets.put(&caller.id, session, secrets)?;
        Ok(names)
    }

    /// Forgets the secrets of a session that is gone.
    pub(super) fn forget_secrets(&self, owner: &CallerId, session: &SessionId) {
        self.executor.secrets.remove(owner, session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_folder_is_made_once_and_closed_to_others() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join(KEY_FILE);
        let key = stored_key(&path).unwrap();
        assert_eq!(key, stored_key(&path).unwrap());
        assert_ne!(key, [0; KEY_BYTES]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
