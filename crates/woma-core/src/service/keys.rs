//! Management of API keys by administrators, with rows in the audit trail.

use serde_json::json;

use super::Service;
use crate::access::keys::{Error as KeyError, Key, KeyRing, NewKey, Plaintext};
use crate::error::Error;
use crate::model::caller::{Caller, Forbidden, Scope};
use crate::workspace::files::blocking;

use std::sync::Arc;

impl Service {
    /// All keys in the order of their ids, including revoked ones.
    pub async fn keys(&self, caller: &Caller, ring: &Arc<KeyRing>) -> Result<Vec<Key>, Error> {
        may_administer(caller)?;
        let ring = Arc::clone(ring);
        let mut keys = blocking(move || ring.list().map_err(Error::from)).await?;
        keys.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(keys)
    }

    /// Creates a key with no more scopes than the caller has.
    pub async fn create_key(
        &self,
        caller: &Caller,
        ring: &Arc<KeyRing>,
        wanted: NewKey,
    ) -> Result<(Key, Plaintext), Error> {
        may_administer(caller)?;
        if let Some(scope) = wanted.scopes.iter().find(|scope| !caller.scopes.allows(*scope)) {
            return Err(Forbidden { scope: scope.as_str() }.into());
        }
        // The first key closes a server that needs none, also for the program that asks.
        if caller.id.is_local() {
            return Err(Error::OpenServer);
        }
        if let Some(policy) = &wanted.policy {
            self.shared.settings.policies.of_session(caller, Some(policy), None)?;
        }
        // A key is no way to more than its maker has.
        let outer = self.executor.egress.rules_of(caller);
        let inherited = || self.shared.settings.egress.rules.as_ref().clone();
        let network = wanted.network.clone().unwrap_or_else(inherited);
        if let Some(beyond) = network.beyond(&outer) {
            return Err(Error::NetworkBeyond { wanted: beyond, allowed: outer.told() });
        }
        let ring = Arc::clone(ring);
        let (key, secret) = blocking(move || ring.create(wanted).map_err(Error::from)).await?;
        let detail = json!({ "key": key.id, "name": key.name, "scopes": key.scopes });
        self.note(caller, "create_key", None, &detail);
        Ok((key, secret))
    }

    /// Revokes a key by its id.
    pub async fn revoke_key(
        &self,
        caller: &Caller,
        ring: &Arc<KeyRing>,
        id: &str,
    ) -> Result<(), Error> {
        may_administer(caller)?;
        let (ring, id) = (Arc::clone(ring), id.to_owned());
        let revoke = move || {
            // A name would do for the ring, but not in an address.
            let is_known = ring.list()?.iter().any(|key| key.id == id);
            if !is_known {
                return Err(KeyError::Unknown(id).into());
            }
            ring.revoke(&id).map_err(Error::from)
        };
        let key = blocking(revoke).await?;
        self.note(caller, "revoke_key", None, &json!({ "key": key.id, "name": key.name }));
        Ok(())
    }
}

fn may_administer(caller: &Caller) -> Result<(), Forbidden> {
    let scope = Scope::Admin;
    if caller.scopes.allows(scope) { Ok(()) } else { Err(Forbidden { scope: scope.as_str() }) }
}
