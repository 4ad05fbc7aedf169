//! Expiry of sessions, files and records; paused after a clock jump. Never removes what is in use.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

use super::clock::Clock;
use crate::execution::Executor;
use crate::execution::jobs::KEPT_BYTES_MAX;
use crate::model::SessionId;
use crate::model::caller::CallerId;
use crate::session::known::drop_label;
use crate::session::notebook::drop_transcript;
use crate::session::table::Sessions;
use crate::storage::db::{SessionRow, StoreError};
use crate::storage::layout::remove_folder;
use crate::workspace::Workspaces;

const FIRST: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_mins(10);
/// How long it is said of an address that it has expired; afterwards it never was.
const GONE_FOR: Duration = Duration::from_hours(24);
/// Contents untouched for this long that no row refers to are garbage.
/// Each checkpoint leaves the one before it behind, so this is not long.
const UNTOUCHED: Duration = Duration::from_mins(10);
/// Rows of each kind that one round takes.
const ROUND: u32 = 1_000;

/// Ends with the service.
pub(super) async fn keep_clean(executor: Weak<Executor>, workspaces: Weak<Workspaces>) {
    let mut clock = Clock::new(Timestamp::now(), Instant::now());
    tokio::time::sleep(FIRST).await;
    loop {
        let Some((executor, kept)) = executor.upgrade().zip(workspaces.upgrade()) else { return };
        // By a clock that was just set, everything may seem old that was made a moment ago.
        if let Some(jump) = clock.jump(Timestamp::now(), Instant::now()) {
            tracing::warn!(%jump, "The clock was set; what may have expired stays for this once");
        } else if let Err(error) = clean(&executor, &kept).await {
            tracing::warn!(%error, "Cleaning was not finished; it goes on later");
        }
        drop((executor, kept));
        tokio::time::sleep(TICK).await;
    }
}

async fn clean(executor: &Executor, workspaces: &Workspaces) -> Result<(), StoreError> {
    let known = &executor.sessions;
    let now = Timestamp::now();
    let before = |age: Duration| now.checked_sub(age).unwrap_or(Timestamp::MIN);
    let files = workspaces.storage.db.purge_files(before(GONE_FOR), ROUND).await?;
    let mut sessions = 0;
    let ttl = workspaces.storage.settings.session_ttl;
    {
        let place = |row: &SessionRow| {
            let id = SessionId::parse(&row.id).ok();
            id.map(|id| (CallerId::new(row.owner.clone()), id))
        };
        // One that is at hand is forgotten first, and goes another time.
        let is_known =
            |row: &SessionRow| place(row).is_some_and(|(owner, id)| known.knows_of(&owner, &id));
        // Without a time of the server, only those with a lifetime of their own end.
        let idle_since = ttl.map_or(Timestamp::MIN, before);
        for row in workspaces
            .storage
            .db
            .expire_sessions(&workspaces.storage.process, idle_since, ROUND, is_known)
            .await?
        {
            let Some((owner, id)) = place(&row) else { continue };
            let folder = workspaces.storage.folder(&owner, &id);
            drop_transcript(&folder);
            drop_label(&folder);
            remove_folder(folder).await.unwrap_or_default();
            if let Ok(claim) = workspaces.storage.claim(&owner, &id) {
                claim.end();
            }
            executor.output_cache.remove_spilled(&owner, &id);
            executor.secrets.remove(&owner, &id);
            sessions += 1;
        }
    }
    if let Some(age) = ttl {
        sessions += remove_unborn(known, workspaces, age).await;
    }
    remove_copies(workspaces).await;
    remove_uploads(workspaces).await;
    let retention = before(executor.jobs.settings.retention);
    let jobs = workspaces.storage.db.purge_jobs(retention, KEPT_BYTES_MAX).await?;
    workspaces.storage.db.tell_left_out(now).await?;
    let mut records = 0;
    if let Some(age) = workspaces.storage.settings.audit_retention {
        let purged = workspaces.storage.db.purge(before(age), now).await?;
        records = purged.audit + purged.executions;
    }
    workspaces.storage.outbox.settle_in_time().await;
    let contents = match workspaces.storage.outbox.waiting() {
        0 => workspaces.storage.blobs.collect(&workspaces.storage.db, before(UNTOUCHED)).await?,
        // A checkpoint among them may refer to contents that no row refers to yet.
        _ => 0,
    };
    if files + sessions + jobs + records + contents > 0 {
        tracing::info!(files, sessions, jobs, records, contents, "What had expired was removed");
    }
    Ok(())
}

/// Unfinished uploads whose next part never came.
async fn remove_uploads(workspaces: &Workspaces) {
    match workspaces.sweep_uploads().await {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "Unfinished uploads that had expired were removed"),
        Err(error) => tracing::warn!(%error, "Unfinished uploads could not be looked through"),
    }
}

/// Copies on the host go after their sessions, whichever server has deleted those.
async fn remove_copies(workspaces: &Workspaces) {
    let Some(exports) = workspaces.exports.clone() else { return };
    let sessions = workspaces.storage.sessions_folder().to_owned();
    let age = workspaces.storage.settings.session_ttl;
    let before = age.and_then(|age| SystemTime::now().checked_sub(age));
    let swept = tokio::task::spawn_blocking(move || exports.sweep(&sessions, before));
    match swept.await.map_err(io::Error::other).flatten() {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "Copies of sessions that have ended were removed"),
        Err(error) => tracing::warn!(%error, "Copies on the host could not be looked through"),
    }
}

/// A server that is killed while it makes a session may leave a folder that no row tells of.
async fn remove_unborn(known: &Sessions, workspaces: &Workspaces, age: Duration) -> u64 {
    let known = known.all();
    let known = known.iter().filter_map(|session| session.home.as_ref());
    let known: BTreeSet<PathBuf> = known.map(|home| home.folder.clone()).collect();
    let sessions = workspaces.storage.sessions_folder().to_owned();
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

/// Whether it is called what [`Workspaces::folder`] calls callers and sessions. The folder may be one that
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
