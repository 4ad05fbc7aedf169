//! Keys of servers that share a database: what one of them makes or revokes, the others learn.
//!
//! A key never changes but by being revoked, and that is never undone. So two lists are brought
//! together by taking all of both, with whatever either says is revoked; no order of events and no
//! failure half way leads anywhere else. Requests are checked against the file alone, whether or not
//! the database is there.

use std::sync::Arc;
use std::time::Duration;

use super::file::Stored;
use super::{Error, KEYS_MAX, Key, KeyRing, is_hex};
use crate::Service;
use crate::store::{KeyRow, Store};
use crate::vault::VaultSettings;

/// How long a change on another server may go unseen, while the database is there.
const SHARE_INTERVAL: Duration = Duration::from_secs(1);

impl KeyRing {
    /// Learns the keys of the servers that share the database of these settings, once; for a server
    /// that is about to start, and has no keys of its own yet.
    pub async fn learn(self: &Arc<Self>, settings: &VaultSettings) -> Result<(), Error> {
        let store = Store::open(settings.store()).await?;
        share(self, &store).await
    }

    /// How many keys there are and how many are revoked.
    fn mark(&self) -> Result<(u64, u64), Error> {
        let keys = self.keys(false)?;
        let revoked = keys.iter().filter(|stored| stored.key.revoked_at.is_some()).count();
        Ok((keys.len() as u64, revoked as u64))
    }

    fn adopt(&self, theirs: &[Stored]) -> Result<(), Error> {
        let left_out = self.change(|keys| {
            let mut left_out = 0;
            for stored in theirs {
                if let Some(ours) = keys.iter_mut().find(|ours| ours.key.id == stored.key.id) {
                    ours.key.revoked_at = ours.key.revoked_at.or(stored.key.revoked_at);
                } else if keys.len() < KEYS_MAX {
                    keys.push(stored.clone());
                } else {
                    left_out += 1;
                }
            }
            Ok(left_out)
        })?;
        // After the others: what is revoked elsewhere is revoked here, whatever else there is.
        if left_out > 0 { Err(Error::TooMany) } else { Ok(()) }
    }
}

impl Service {
    /// From here on, keys are those of all servers that share the database. Without one, nothing
    /// happens.
    pub fn share_keys(&self, ring: Arc<KeyRing>) {
        let Some(vault) = &self.shared.vault else { return };
        if vault.settings.database_url.is_some() {
            let (store, stop) = (vault.store.clone(), self.shared.stop.clone());
            tokio::spawn(stop.run_until_cancelled_owned(keep_sharing(ring, store)));
        }
    }
}

async fn keep_sharing(ring: Arc<KeyRing>, store: Store) {
    let mut shared = None;
    loop {
        // A database that is away is told of by the server's health.
        let theirs = store.keys_mark().await.ok();
        let marks = theirs.zip(ring.mark().ok());
        if marks.is_some() && marks != shared {
            match share(&ring, &store).await {
                // As they were before: what has come since is seen by the next look.
                Ok(()) => shared = marks,
                Err(error) => tracing::warn!(%error, "Keys are not shared with other servers"),
            }
        }
        tokio::time::sleep(SHARE_INTERVAL).await;
    }
}

/// Afterwards both have all keys.
async fn share(ring: &Arc<KeyRing>, store: &Store) -> Result<(), Error> {
    let theirs = store.keys().await?;
    let ours = ring.keys(true)?;
    for stored in ours.iter().filter(|stored| is_news(stored, &theirs)) {
        store.put_key(&row_of(stored)?).await?;
    }
    let news: Vec<Stored> =
        theirs.iter().filter_map(stored_of).filter(|stored| is_newer(stored, &ours)).collect();
    if !news.is_empty() {
        let ring = Arc::clone(ring);
        let adopted = tokio::task::spawn_blocking(move || ring.adopt(&news)).await;
        adopted.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    }
    Ok(())
}

/// Whether the database does not know what our file says.
fn is_news(ours: &Stored, theirs: &[KeyRow]) -> bool {
    let theirs = theirs.iter().find(|row| row.id == ours.key.id);
    theirs.is_none_or(|row| row.revoked_at.is_none() && ours.key.revoked_at.is_some())
}

/// Whether our file does not know what the database says.
fn is_newer(theirs: &Stored, ours: &[Stored]) -> bool {
    match ours.iter().find(|stored| stored.key.id == theirs.key.id) {
        None => true,
        Some(ours) => ours.key.revoked_at.is_none() && theirs.key.revoked_at.is_some(),
    }
}

fn row_of(stored: &Stored) -> Result<KeyRow, Error> {
    let Stored { key, sha256 } = stored;
    let about = serde_json::to_string(&Key { revoked_at: None, ..key.clone() });
    Ok(KeyRow {
        id: key.id.clone(),
        sha256: sha256.clone(),
        about: about.map_err(|error| crate::store::StoreError::Internal(error.to_string()))?,
        created_at: key.created_at,
        revoked_at: key.revoked_at,
    })
}

/// What is no key of ours is left alone: a newer server may know what it is.
fn stored_of(row: &KeyRow) -> Option<Stored> {
    let key: Result<Key, _> = serde_json::from_str(&row.about);
    match key {
        Ok(key) if key.id == row.id && super::is_id(&key.id) && is_hex(&row.sha256, 32) => {
            let key = Key { revoked_at: row.revoked_at, ..key };
            Some(Stored { key, sha256: row.sha256.clone() })
        }
        _ => {
            tracing::error!(id = row.id, "A key of the database cannot be understood");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::share;
    use crate::caller::{Quota, Scopes};
    use crate::keys::{KeyRing, NewKey};
    use crate::store::{KeyRow, Store, StoreConfig};

    fn wanted(name: &str) -> NewKey {
        NewKey {
            name: name.to_owned(),
            scopes: Scopes::all(),
            quota: Quota { storage_bytes: Some(1), ..Quota::default() },
            policy: None,
            expires_at: None,
        }
    }

    #[tokio::test]
    async fn what_one_makes_or_revokes_the_other_learns() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let store = Store::open(StoreConfig::Sqlite { file }).await.unwrap();
        let ring = |name: &str| Arc::new(KeyRing::open(folder.path().join(name)).unwrap());
        let (here, there) = (ring("here.json"), ring("there.json"));
        // Both make one before they have ever met, with the same name.
        let (_, first) = here.create(wanted("a")).unwrap();
        let (_, second) = there.create(wanted("a")).unwrap();
        let row = KeyRow {
            id: "000000000000".to_owned(),
            sha256: "no digest".to_owned(),
            about: "{\"new\": true}".to_owned(),
            created_at: jiff::Timestamp::now(),
            revoked_at: None,
        };
        store.put_key(&row).await.unwrap();
        for ring in [&here, &there, &here] {
            share(ring, &store).await.unwrap();
        }
        for ring in [&here, &there] {
            assert_eq!(ring.list().unwrap().len(), 2);
            for key in [&first, &second] {
                let caller = ring.authenticate(key.expose()).unwrap().unwrap();
                assert_eq!((caller.name.as_str(), caller.quota.storage_bytes), ("a", Some(1)));
            }
        }
        there.revoke(first.expose()).unwrap();
        // It is not brought back by a server that has not heard of it.
        for ring in [&here, &there, &here, &there] {
            share(ring, &store).await.unwrap();
        }
        for ring in [&here, &there] {
            assert!(ring.authenticate(first.expose()).unwrap().is_none());
            assert!(ring.authenticate(second.expose()).unwrap().is_some());
        }
        assert_eq!(store.keys_mark().await.unwrap(), (3, 1));
    }
}
