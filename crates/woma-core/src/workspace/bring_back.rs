//! Files of a session that only the database has: written back into a new folder, by a server that
//! takes the session over.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use woma_sandbox::workspace::{Changes, Contents, Folder, WorkspacePath};

use super::Workspaces;
use super::changes::Passing;
use super::files::blocking;
use crate::error::Error;
use crate::model::caller::{Caller, CallerId};
use crate::model::{ExecutionId, SessionId, StoredFile};
use crate::storage::blobs::Blob;
use crate::storage::db::{FileRow, FilesLeft, SessionRow, StoreError, shares_folder};
use crate::storage::layout::closed_folder;
use crate::storage::outbox::Entry;

/// Files that are brought back into one folder.
const FILES_MAX: u32 = 10_000;
/// Files that are named in a sentence.
const NAMED_MAX: usize = 8;
/// Paths in one entry of the outbox.
const PATHS_MAX: usize = 500;

/// Result of bringing a session's files back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BroughtBack {
    /// The server that had the session had another data folder.
    is_from_elsewhere: bool,
    back: Vec<String>,
    /// Files that are not back, with the reason.
    missing: Vec<(String, String)>,
}

impl BroughtBack {
    /// The reason why a session was restarted, with what became of its files.
    pub(crate) fn told(&self, otherwise: String) -> String {
        if !self.is_from_elsewhere && self.back.is_empty() && self.missing.is_empty() {
            return otherwise;
        }
        let files = match self.back.as_slice() {
            [] => "no file of its folder was stored there".to_owned(),
            [file] => format!("1 file is back: {file}"),
            files => format!("{} files are back: {}", files.len(), listed(files)),
        };
        let missing: Vec<String> =
            self.missing.iter().map(|(path, why)| format!("{path} ({why})")).collect();
        let missing = match missing.as_slice() {
            [] => String::new(),
            missing => format!("; not back: {}", listed(missing)),
        };
        format!("the session was taken over from the database; {files}{missing}")
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        count if count > NAMED_MAX => format!("{shown} and {} more", count - NAMED_MAX),
        _ => shown,
    }
}

impl Workspaces {
    /// Makes the folder of a session that has none here, with its stored files. The folder is there
    /// with all of them or not at all; files beyond the limit of a folder are left out.
    pub(crate) async fn bring_back(
        &self,
        row: &SessionRow,
        owner: &CallerId,
        session: &SessionId,
        limit: Contents,
    ) -> Result<BroughtBack, Error> {
        let storage = &self.storage;
        let lease = row.lease_server.as_deref();
        let is_from_elsewhere = lease.is_none_or(|lease| !shares_folder(&storage.process, lease));
        let mut brought = BroughtBack { is_from_elsewhere, ..BroughtBack::default() };
        let found =
            storage.db.files_in_folder(owner.as_str(), &row.id, row.created_at, FILES_MAX).await?;
        let now = Timestamp::now();
        let found = found.into_iter().filter(|file| file.expires_at.is_none_or(|end| end > now));
        let found: Vec<FileRow> = found.collect();
        if found.is_empty() {
            return Ok(brought);
        }
        let aside = Passing(storage.ephemeral_folder(&ExecutionId::mint()));
        let made = aside.0.clone();
        let folder = blocking(move || {
            made.parent().map_or(Ok(()), closed_folder)?;
            Ok(Arc::new(Folder::make(&made)?))
        })
        .await?;
        let mut room = limit;
        for file in found {
            match self.write_back(&folder, &file, &mut room).await {
                Ok(()) => brought.back.push(file.path),
                Err(why) => brought.missing.push((file.path, why)),
            }
        }
        let (from, to) = (aside.0.clone(), storage.folder(owner, session));
        blocking(move || Ok(put_in_place(&from, &to)?)).await?;
        Ok(brought)
    }

    async fn write_back(
        &self,
        folder: &Arc<Folder>,
        file: &FileRow,
        room: &mut Contents,
    ) -> Result<(), String> {
        let path = WorkspacePath::parse(&format!("./{}", file.path));
        let path = path.map_err(|error| error.to_string())?;
        // A folder on the way counts as a file does.
        let files = 1 + path.folders().count() as u64;
        if file.size_bytes > room.bytes || files > room.files {
            return Err("the folder would be over its limit, DISK_MB".to_owned());
        }
        if self.storage.sessions_reserve.refuses(file.size_bytes) {
            return Err("the server's disk is below its reserve, MIN_FREE_DISK".to_owned());
        }
        let blob = self.storage.blobs.get(file.digest).await.map_err(|error| match error {
            StoreError::NotFound => "its content is not in this server's storage".to_owned(),
            error => error.to_string(),
        })?;
        write(Arc::clone(folder), path, blob).await.map_err(|error| error.to_string())?;
        room.bytes -= file.size_bytes;
        room.files -= files;
        Ok(())
    }

    /// Records which files a session's folder has no longer as they were stored.
    pub(super) fn note_changes(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        changes: &Changes,
        stored: &[StoredFile],
    ) {
        let Some(session) = session else { return };
        let is_stored = |path: &String| stored.iter().any(|file| file.path == *path);
        let modified = changes.modified.iter().map(|entry| &entry.path);
        let outdated = modified.filter(|path| !is_stored(path));
        let gone: Vec<String> = changes.deleted.iter().chain(outdated).cloned().collect();
        self.note_left(caller, session, &gone);
    }

    /// Records that a session's folder has these files no longer as they were stored, so that no
    /// other server brings them back.
    pub(crate) fn note_left(&self, caller: &Caller, session: &SessionId, paths: &[String]) {
        if !self.storage.db.is_shared() {
            return;
        }
        for paths in paths.chunks(PATHS_MAX) {
            let left = FilesLeft {
                owner: caller.id.as_str().to_owned(),
                session_id: session.as_str().to_owned(),
                paths: paths.to_vec(),
                at: Timestamp::now(),
            };
            if let Err(error) = self.storage.outbox.push(Entry::FilesLeft(left)) {
                tracing::error!(%error, %session, "Deleted files could not be recorded");
            }
        }
    }
}

/// Writes a blob to a file, piece by piece. A blob that ends early leaves nothing.
async fn write(folder: Arc<Folder>, path: WorkspacePath, blob: Blob) -> io::Result<()> {
    let (size_bytes, mut stream) = (blob.size_bytes, blob.stream);
    let (pieces, mut written) = tokio::sync::mpsc::channel::<bytes::Bytes>(4);
    let writing = tokio::task::spawn_blocking(move || {
        let mut draft = folder.create(&path)?;
        let mut bytes = 0;
        while let Some(piece) = written.blocking_recv() {
            bytes += piece.len() as u64;
            draft.write_all(&piece)?;
        }
        if bytes != size_bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        draft.commit().map(drop)
    });
    while let Some(piece) = stream.next().await {
        let Ok(piece) = piece else { break };
        if pieces.send(piece).await.is_err() {
            break;
        }
    }
    drop(pieces);
    writing.await.map_err(io::Error::other)?
}

/// Gives a folder its place; one that is there already stays.
fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    to.parent().map_or(Ok(()), closed_folder)?;
    match std::fs::rename(from, to) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
            ) =>
        {
            Ok(())
        }
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::{BroughtBack, NAMED_MAX};

    #[test]
    fn says_which_files_are_back_and_which_are_not() {
        let told = |brought: &BroughtBack| brought.told("restarted".to_owned());
        let nothing = BroughtBack::default();
        assert_eq!(told(&nothing), "restarted");
        let elsewhere = BroughtBack { is_from_elsewhere: true, ..BroughtBack::default() };
        let said = "the session was taken over from the database; no file of its folder was \
                    stored there";
        assert_eq!(told(&elsewhere), said);
        let missing = vec![("b.bin".to_owned(), "DISK_MB".to_owned())];
        let some = BroughtBack { back: vec!["a.csv".to_owned()], missing, ..elsewhere };
        let said = "the session was taken over from the database; 1 file is back: a.csv; not \
                    back: b.bin (DISK_MB)";
        assert_eq!(told(&some), said);
        let back = (0..NAMED_MAX + 2).map(|number| format!("{number}.csv")).collect();
        let many = BroughtBack { back, missing: Vec::new(), is_from_elsewhere: true };
        assert!(
            told(&many).ends_with(
                "10 files are back: 0.csv, 1.csv, 2.csv, 3.csv, 4.csv, \
                                       5.csv, 6.csv, 7.csv and 2 more"
            ),
            "{}",
            told(&many)
        );
    }
}
