//! What a run left in its session's folder: seen, told, and kept where it can be fetched.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;
use woma_sandbox::workspace::{
    Bounds, Changes, DigestBounds, Entry, Folder, Snapshot, WorkspacePath, diff,
};

use crate::caller::Caller;
use crate::model::{FileReport, SessionId, StoredFile};
use crate::store::FileRow;
use crate::vault::{STORED_EXTENSIONS, Vault, session_folder};
use crate::{Error, media};

/// From this many files on, looking is left to a thread that may take its time.
const QUICK_FILES_MAX: usize = 100;
/// Files that a reply names, of each kind.
const NAMED_MAX: usize = 200;
/// Files that get an address after one run.
const STORED_MAX: usize = 50;
/// What a store that does not answer may cost a run. Its files are in the session all the same.
const SILENCE_MAX: Duration = Duration::from_millis(800);

/// A session's folder, and what was in it when it was last looked at.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) folder: Arc<Folder>,
    seen: Snapshot,
}

impl Files {
    /// Opens the folder, and makes it where it is not there.
    pub(crate) async fn open(path: &Path) -> Result<Self, Error> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let (folder, _) = session_folder(&path)?;
            let seen = Snapshot::take(&folder, Bounds::default())?;
            Ok::<_, io::Error>(Self { folder: Arc::new(folder), seen })
        });
        Ok(opened.await.map_err(|_| Error::Lost)??)
    }

    /// What has changed since the last look.
    pub(crate) async fn look(&mut self) -> io::Result<Changes> {
        let before = std::mem::take(&mut self.seen);
        let is_quick = before.len() <= QUICK_FILES_MAX;
        let folder = Arc::clone(&self.folder);
        let (changes, seen) = if is_quick && Self::is_small(&folder)? {
            compare(&folder, &before)?
        } else {
            let looked = tokio::task::spawn_blocking(move || compare(&folder, &before));
            looked.await.map_err(|error| io::Error::other(error.to_string()))??
        };
        self.seen = seen;
        Ok(changes)
    }

    /// Whether a look takes no time worth speaking of: few files, and nothing to be read.
    fn is_small(folder: &Folder) -> io::Result<bool> {
        let bounds = Bounds { entries: QUICK_FILES_MAX as u64, levels: 1, hidden: true };
        let listing = folder.list(bounds)?;
        Ok(listing.complete && listing.entries.is_empty())
    }
}

fn compare(folder: &Folder, before: &Snapshot) -> io::Result<(Changes, Snapshot)> {
    let mut seen = Snapshot::take(folder, Bounds::default())?;
    let changes = diff(folder, before, &mut seen, DigestBounds::default());
    Ok((changes, seen))
}

impl Vault {
    /// Looks at a folder after a run, and keeps what can be kept.
    pub(crate) async fn look(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        files: &mut Files,
    ) -> FileReport {
        match files.look().await {
            Ok(changes) => self.report(caller, session, &files.folder, changes).await,
            Err(error) => {
                let note = format!("the session's folder cannot be looked at: {error}");
                FileReport { notes: vec![note], ..FileReport::default() }
            }
        }
    }

    /// Keeps what can be kept of the files that a run made or changed, and tells of all.
    pub(crate) async fn report(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        folder: &Arc<Folder>,
        changes: Changes,
    ) -> FileReport {
        let mut report = FileReport::default();
        let written = changes.added.iter().chain(&changes.modified);
        let (mut stored, mut patience) = (0, SILENCE_MAX);
        for entry in written.filter(|entry| is_storable(entry)) {
            if stored == STORED_MAX {
                let text = format!("only the first {STORED_MAX} files of a run get an address");
                report.notes.push(text);
                break;
            }
            stored += 1;
            match self.keep(caller, session, folder, entry, &mut patience).await {
                Ok(file) => report.stored.push(file),
                Err(why) => {
                    report.notes.push(format!("{} has no download address: {why}", entry.path));
                }
            }
        }
        if !changes.complete {
            report.notes.push("there are more files than are looked at".to_owned());
        }
        let names = |entries: Vec<Entry>| named(entries.into_iter().map(|entry| entry.path));
        report.added = names(changes.added);
        report.modified = names(changes.modified);
        report.deleted = named(changes.deleted.into_iter());
        report
    }

    async fn keep(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        folder: &Arc<Folder>,
        entry: &Entry,
        patience: &mut Duration,
    ) -> Result<StoredFile, String> {
        let limit = self.settings.file_bytes_max;
        if entry.size_bytes > limit {
            let megabytes = |bytes: u64| bytes.div_ceil(1024 * 1024);
            let (size, limit) = (megabytes(entry.size_bytes), megabytes(limit));
            return Err(format!(
                "it has {size} MB, the limit is {limit} MB; it stays in the session"
            ));
        }
        let path = WorkspacePath::parse(&format!("./{}", entry.path));
        let path = path.map_err(|error| error.to_string())?;
        let (folder, place) = (Arc::clone(folder), path.clone());
        let opened = tokio::task::spawn_blocking(move || folder.open(&place));
        let (file, _) =
            opened.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let put = self.blobs.put_reader(file, limit).await;
        let (digest, size_bytes) = put.map_err(|error| error.to_string())?;
        let now = Timestamp::now();
        let row = FileRow {
            id: Uuid::new_v4(),
            owner: caller.id.as_str().to_owned(),
            session_id: session.map(|session| session.as_str().to_owned()),
            path: path.as_str().to_owned(),
            name: path.name().to_owned(),
            digest,
            size_bytes,
            media_type: media::of_name(path.name()).to_owned(),
            created_at: now,
            expires_at: self.expiry(now),
            downloads: 0,
            is_chart: false,
        };
        let began = Instant::now();
        match tokio::time::timeout(*patience, self.store.put_file(&row)).await {
            Ok(Ok(())) => Ok(row.into()),
            Ok(Err(error)) => {
                *patience = patience.saturating_sub(began.elapsed());
                Err(error.to_string())
            }
            Err(_) => {
                *patience = Duration::ZERO;
                Err("the store does not answer".to_owned())
            }
        }
    }
}

fn is_storable(entry: &Entry) -> bool {
    let extension =
        entry.path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    entry.addressable
        && extension.is_some_and(|extension| STORED_EXTENSIONS.contains(&extension.as_str()))
}

fn named(names: impl Iterator<Item = String>) -> Vec<String> {
    names.take(NAMED_MAX).collect()
}

impl From<FileRow> for StoredFile {
    fn from(row: FileRow) -> Self {
        Self {
            id: row.id,
            path: row.path,
            name: row.name,
            size_bytes: row.size_bytes,
            media_type: row.media_type,
            expires_at: row.expires_at,
        }
    }
}
