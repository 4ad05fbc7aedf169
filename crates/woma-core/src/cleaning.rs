//! What nobody needs any more goes; what is in use never does.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

use crate::caller::CallerId;
use crate::clock::Clock;
use crate::memory::drop_label;
use crate::model::SessionId;
use crate::service::Shared;
use crate::store::{SessionRow, StoreError};
use crate::transcript::drop_transcript;
use crate::vault::{Vault, remove_folder};

const FIRST: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_mins(10);
/// How long it is said of an address that it has expired; afterwards it never was.
const GONE_FOR: Duration = Duration::from_hours(24);
/// Contents that nobody has touched for this long, and that nothing refers to, are garbage.
/// Each checkpoint leaves the one before it behind, so this is not long.
const UNTOUCHED: Duration = Duration::from_mins(10);
/// Rows of each kind that one round takes.
const ROUND: u32 = 1_000;

/// Ends with the service.
pub(crate) async fn keep_clean(shared: Weak<Shared>) {
    let mut clock = Clock::new(Timestamp::now(), Instant::now());
    tokio::time::sleep(FIRST).await;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        // By a clock that was just set, everything may seem old that was made a moment ago.
        if let Some(jump) = clock.jump(Timestamp::now(), Instant::now()) {
            tracing::warn!(%jump, "The clock was set; what may have expired stays for this once");
        } else if let Some(vault) = &shared.vault
            && let Err(error) = clean(&shared, vault).await
        {
            tracing::warn!(%error, "Cleaning was not finished; it goes on later");
        }
        drop(shared);
        tokio::time::sleep(TICK).await;
    }
}

async fn clean(shared: &Shared, vault: &Vault) -> Result<(), StoreError> {
    let now = Timestamp::now();
    let before = |age: Duration| now.checked_sub(age).unwrap_or(Timestamp::MIN);
    let files = vault.store.purge_files(before(GONE_FOR), ROUND).await?;
    let mut sessions = 0;
    if let Some(age) = vault.settings.session_ttl {
        let place = |row: &SessionRow| {
            let id = SessionId::parse(&row.id).ok();
            id.map(|id| (CallerId::new(row.owner.clone()), id))
        };
        // One that is at hand is forgotten first, and goes another time.
        let is_known = |row: &SessionRow| {
            place(row).is_some_and(|(owner, id)| shared.sessions.knows_of(&owner, &id))
        };
        for row in vault.store.expire_sessions(before(age), ROUND, is_known).await? {
            let Some((owner, id)) = place(&row) else { continue };
            let folder = vault.folder(&owner, &id);
            drop_transcript(&folder);
            drop_label(&folder);
            remove_folder(folder).await.unwrap_or_default();
            sessions += 1;
        }
        sessions += remove_unborn(shared, vault, age).await;
    }
    let mut records = 0;
    if let Some(age) = vault.settings.audit_retention {
        let purged = vault.store.purge(before(age), now).await?;
        records = purged.audit + purged.executions;
    }
    let contents = vault.blobs.collect(&vault.store, before(UNTOUCHED)).await?;
    if files + sessions + records + contents > 0 {
        tracing::info!(files, sessions, records, contents, "What had expired was removed");
    }
    Ok(())
}

/// A server that is killed while it makes a session may leave a folder that no row tells of.
async fn remove_unborn(shared: &Shared, vault: &Vault, age: Duration) -> u64 {
    let known = shared.sessions.all();
    let known = known.iter().filter_map(|session| session.home.as_ref());
    let known: BTreeSet<PathBuf> = known.map(|home| home.folder.clone()).collect();
    let sessions = vault.sessions_folder().to_owned();
    let Some(before) = SystemTime::now().checked_sub(age) else { return 0 };
    let removed = tokio::task::spawn_blocking(move || unborn(&sessions, &known, before));
    match removed.await.map_err(io::Error::other).and_then(|removed| removed) {
        Ok(count) => count,
        Err(error) => {
            tracing::warn!(%error, "The folders of sessions could not be looked through");
            0
        }
    }
}

/// Removes old folders with nothing in them and nothing beside them: where a run has ended there is
/// a transcript, and where something was said of a session, that.
fn unborn(sessions: &Path, known: &BTreeSet<PathBuf>, before: SystemTime) -> io::Result<u64> {
    let mut removed = 0;
    for owner in fs::read_dir(sessions)? {
        let owner = owner?;
        if is_ours(&owner.file_name()) {
            match unborn_of(&owner.path(), known, before) {
                Ok(count) => removed += count,
                // Of one who has just gone, or not ours after all: the others are looked at.
                Err(error) => {
                    tracing::debug!(%error, "a caller's sessions were not looked through");
                }
            }
        }
    }
    Ok(removed)
}

fn unborn_of(owner: &Path, known: &BTreeSet<PathBuf>, before: SystemTime) -> io::Result<u64> {
    let (mut folders, mut told) = (Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(owner)? {
        let name = entry?.file_name();
        match name.to_str().and_then(|name| name.split_once('.')) {
            Some((session, _)) => drop(told.insert(OsString::from(session))),
            None => folders.push(name),
        }
    }
    folders.retain(|name| is_ours(name) && !told.contains(name));
    let mut removed = 0;
    for folder in folders.into_iter().map(|name| owner.join(name)) {
        let is_old = || fs::symlink_metadata(&folder).is_ok_and(|found| touched(&found) < before);
        // Refused by the kernel if there is anything in it.
        if !known.contains(&folder) && is_old() && fs::remove_dir(&folder).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether it is called what [`Vault::folder`] calls callers and sessions. The folder may be one that
/// others use too.
fn is_ours(name: &OsStr) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == 32 && name.as_encoded_bytes().iter().all(is_digit)
}

/// When it was changed, or got its name: one that waited for a session is older than that session.
fn touched(found: &fs::Metadata) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(found.ctime()).unwrap_or(0));
    let nanoseconds = Duration::from_nanos(u64::try_from(found.ctime_nsec()).unwrap_or(0));
    let changed = SystemTime::UNIX_EPOCH + seconds + nanoseconds;
    found.modified().map_or(changed, |modified| modified.max(changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_never_was_a_session_goes() {
        let root = tempfile::tempdir().unwrap();
        let [owner, other] = [1, 2].map(|number| root.path().join(format!("{number:032x}")));
        let session = |number: u32| format!("{number:032x}");
        let make = |path: PathBuf| {
            fs::create_dir_all(&path).unwrap();
            path
        };
        let full = make(owner.join(session(1)));
        fs::create_dir(full.join("a")).unwrap();
        for (number, ending) in [(2, "cells"), (3, "cells.old"), (4, "label")] {
            make(owner.join(session(number)));
            fs::write(owner.join(format!("{}.{ending}", session(number))), "").unwrap();
        }
        let known = BTreeSet::from([make(owner.join(session(5)))]);
        let gone = [make(owner.join(session(6))), make(other.join(session(6)))];
        let kept = [
            make(owner.join("of-somebody-else")),
            make(root.path().join("lost+found").join(session(7))),
            make(root.path().join("passing").join(session(7))),
        ];
        let waited = make(root.path().join("spare"));
        fs::write(root.path().join(session(8)), "no folder").unwrap();
        // The clock of a file system has steps.
        let mark = root.path().join("mark");
        let last = fs::metadata(&gone[1]).map(|found| touched(&found)).unwrap();
        let before = loop {
            let made = fs::metadata(make(mark.clone())).map(|found| touched(&found)).unwrap();
            fs::remove_dir(&mark).unwrap();
            if made > last {
                break made;
            }
        };
        let young = [make(owner.join(session(9))), owner.join(session(10))];
        fs::rename(waited, &young[1]).unwrap();
        assert_eq!(unborn(root.path(), &known, before).unwrap(), 2);
        assert!(gone.iter().all(|folder| !folder.exists()));
        let stays = kept.iter().chain(&young).chain(&known).chain([&full]);
        assert!(stays.into_iter().all(|folder| folder.is_dir()));
        assert!((2..5).all(|number| owner.join(session(number)).is_dir()));
        assert_eq!(unborn(root.path(), &known, before).unwrap(), 0);
    }
}
