//! Synchronization of keys between servers that share a database.
//!
//! A key changes only by revocation, which is final. Two lists are therefore merged by their union,
//! with the revocations of both; the merge is idempotent and independent of order. Requests are
//! checked against the file alone, also while the database is unreachable.

use std::sync::Arc;
use std::time::Duration;

use super::file::Stored;
use super::{Error, KEYS_MAX, Key, KeyRing, is_hex};
use crate::storage::db::{KeyRow, Store};
use crate::storage::layout::StorageSettings;

/// Interval of synchronization with the database.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

impl KeyRing {
    /// Synchronizes once with the database of these settings; for a starting server that has no
    /// keys yet.
    pub async fn learn(self: &Arc<Self>, settings: &StorageSettings) -> Result<(), Error> {
        let store = Store::open(settings.store()).await?;
        sync(self, &store).await
    }

    /// Numbers of keys and of revoked keys.
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
        // Last: revocations apply even if there are too many keys.
        if left_out > 0 { Err(Error::TooMany) } else { Ok(()) }
    }
}

/// Synchronizes keys with the database until dropped.
pub(crate) async fn keep_sharing(ring: Arc<KeyRing>, store: Store) {
    let mut shared = None;
    loop {
        // The server's health reports an unreachable database.
        let theirs = store.keys_mark().await.ok();
        let marks = theirs.zip(ring.mark().ok());
        if marks.is_some() && marks != shared {
            match sync(&ring, &store).await {
                // The counts from before: later changes show at the next check.
                Ok(()) => shared = marks,
                Err(error) => {
                    tracing::warn!(%error, "Keys could not be synchronized with other servers");
                }
            }
        }
        tokio::time::sleep(SYNC_INTERVAL).await;
    }
}

/// Merges the keys of the file and of the database into both.
async fn sync(ring: &Arc<KeyRing>, store: &Store) -> Result<(), Error> {
    let theirs = store.keys().await?;
    let ours = ring.keys(true)?;
    for stored in ours.iter().filter(|stored| is_missing_in_database(stored, &theirs)) {
        store.put_key(&row_of(stored)?).await?;
    }
    let news: Vec<Stored> = theirs
        .iter()
        .filter_map(stored_of)
        .filter(|stored| is_missing_in_file(stored, &ours))
        .collect();
    if !news.is_empty() {
        let ring = Arc::clone(ring);
        let adopted = tokio::task::spawn_blocking(move || ring.adopt(&news)).await;
        adopted.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    }
    Ok(())
}

/// Whether the database lacks a key of the file, or its revocation.
fn is_missing_in_database(ours: &Stored, theirs: &[KeyRow]) -> bool {
    let theirs = theirs.iter().find(|row| row.id == ours.key.id);
    theirs.is_none_or(|row| row.revoked_at.is_none() && ours.key.revoked_at.is_some())
}

/// Whether the file lacks a key of the database, or its revocation.
fn is_missing_in_file(theirs: &Stored, ours: &[Stored]) -> bool {
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
        about: about
            .map_err(|error| crate::storage::db::StoreError::Internal(error.to_string()))?,
        created_at: key.created_at,
        revoked_at: key.revoked_at,
    })
}

/// Key of a row; an invalid row is skipped, because a newer server may have written it.
fn stored_of(row: &KeyRow) -> Option<Stored> {
    let key: Result<Key, _> = serde_json::from_str(&row.about);
    match key {
        Ok(key) if key.id == row.id && super::is_id(&key.id) && is_hex(&row.sha256, 32) => {
            let key = Key { revoked_at: row.revoked_at, ..key };
            Some(Stored { key, sha256: row.sha256.clone() })
        }
        _ => {
            tracing::error!(id = row.id, "A key of the database cannot be parsed; it is ignored");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Error, KEYS_MAX, row_of, sync};
    use crate::access::keys::{KeyRing, NewKey};
    use crate::model::caller::{Quota, Scopes};
    use crate::storage::db::{KeyRow, Store, StoreConfig};

    fn wanted(name: &str) -> NewKey {
        NewKey {
            name: name.to_owned(),
            scopes: Scopes::all(),
            quota: Quota { storage_bytes: Some(1), ..Quota::default() },
            policy: None,
            network: None,
            expires_at: None,
        }
    }

    #[tokio::test]
    async fn created_and_revoked_keys_reach_the_other_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let store = Store::open(StoreConfig::Sqlite { file }).await.unwrap();
        let ring = |name: &str| Arc::new(KeyRing::open(folder.path().join(name)).unwrap());
        let (here, there) = (ring("here.json"), ring("there.json"));
        // Both create a key with the same name before the first synchronization.
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
            sync(ring, &store).await.unwrap();
        }
        for ring in [&here, &there] {
            assert_eq!(ring.list().unwrap().len(), 2);
            for key in [&first, &second] {
                let caller = ring.authenticate(key.expose()).unwrap().unwrap();
                assert_eq!((caller.name.as_str(), caller.quota.storage_bytes), ("a", Some(1)));
            }
        }
        there.revoke(first.expose()).unwrap();
        // A server that does not know the revocation does not undo it.
        for ring in [&here, &there, &here, &there] {
            sync(ring, &store).await.unwrap();
        }
        for ring in [&here, &there] {
            assert!(ring.authenticate(first.expose()).unwrap().is_none());
            assert!(ring.authenticate(second.expose()).unwrap().is_some());
        }
        assert_eq!(store.keys_mark().await.unwrap(), (3, 1));
        assert_eq!(here.mark().unwrap(), (2, 1), "the row that cannot be parsed is not here");
    }

    #[test]
    fn more_keys_than_there_may_be_are_an_error_and_revocations_hold() {
        let folder = tempfile::tempdir().unwrap();
        let ring = KeyRing::open(folder.path().join("keys.json")).unwrap();
        ring.create(wanted("a")).unwrap();
        let first = ring.keys(true).unwrap()[0].clone();
        let other = |number: usize| {
            let mut other = first.clone();
            other.key.id = format!("{number:012x}");
            other
        };
        let mut theirs: Vec<_> = (1..=KEYS_MAX).map(other).collect();
        let mut revoked = first.clone();
        revoked.key.revoked_at = Some(first.key.created_at);
        let row = row_of(&revoked).unwrap();
        assert_eq!(row.about, row_of(&first).unwrap().about, "a revocation has its own column");
        assert_eq!(row.revoked_at, Some(first.key.created_at));
        theirs.push(revoked);
        assert!(matches!(ring.adopt(&theirs), Err(Error::TooMany)));
        assert_eq!(ring.mark().unwrap(), (KEYS_MAX as u64, 1));
        assert!(ring.adopt(&theirs[..KEYS_MAX - 1]).is_ok(), "all of them are known");
    }
}
