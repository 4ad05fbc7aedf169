//! The files of a session, for those who are not in it: listed, read, written, fetched from
//! elsewhere, and given addresses. A session's folder is there without its kernel, and mostly
//! without the store too: only addresses need that.

mod addresses;
mod archive;
mod places;
mod uploads;
mod writing;

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use woma_sandbox::workspace::{Bounds, Entry, Folder, Kind, WorkspacePath, sanitised};

use crate::caller::Caller;
use crate::model::{SessionChoice, SessionId, StoredFile};
use crate::service::{may_execute, may_read};
use crate::vault::{Vault, session_folder};
use crate::{Error, Service, media};
pub use addresses::{Chart, Content, Downloaded};
pub use archive::Archive;
use places::Places;
pub(crate) use uploads::Busy;
pub use uploads::{Upload, UploadState};
use writing::{Room, Writing};

/// Files that a list has.
const LISTED_MAX: u64 = 10_000;
/// Stored versions that are looked through for those of a list.
const STORED_LOOKED_AT: u32 = 1_000;
/// The session of a caller who names none.
const DEFAULT_SESSION: &str = "default";

/// A file in a session's folder. Names and times are what the session made them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Below the working directory.
    pub path: String,
    pub size_bytes: u64,
    pub modified: Timestamp,
    pub media_type: &'static str,
    /// Where it can be fetched as it is now, if it is kept.
    pub stored: Option<StoredFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileList {
    pub files: Vec<FileInfo>,
    pub total_bytes: u64,
    /// What is not in the list, and why.
    pub notes: Vec<String>,
}

/// A file that was opened: what is read is this file, whatever has its name meanwhile.
#[derive(Debug)]
pub struct OpenedFile {
    pub file: File,
    pub path: String,
    pub name: String,
    pub size_bytes: u64,
    pub modified: SystemTime,
    pub media_type: &'static str,
}

/// A file that was put into a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: String,
    pub name: String,
    pub size_bytes: u64,
    pub media_type: &'static str,
    /// A file of that name was there before.
    pub replaced: bool,
}

impl OpenedFile {
    /// The first bytes, no more than that.
    pub async fn head(self, bytes_max: u64) -> Result<Vec<u8>, Error> {
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            self.file.take(bytes_max).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(bytes)
        });
        Ok(read.await.map_err(|_| Error::Lost)??)
    }
}

impl Service {
    /// The plain files of a session, by path; hidden ones are left out.
    pub async fn list_files(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<FileList, Error> {
        may_read(caller)?;
        let vault = self.vault()?;
        let Some(folder) = self.folder_to_read(caller, session).await? else {
            return Ok(FileList::default());
        };
        let bounds = Bounds { entries: LISTED_MAX, ..Bounds::default() };
        let listing = blocking(move || Ok(folder.list(bounds)?)).await?;
        let mut list = FileList::default();
        if !listing.complete {
            let why = format!("there are more than {LISTED_MAX}, or a folder cannot be read");
            list.notes.push(format!("not every file was looked at: {why}"));
        }
        let files: Vec<Entry> =
            listing.entries.into_iter().filter(|entry| entry.kind == Kind::File).collect();
        let nameless = files.iter().filter(|entry| !entry.addressable).count();
        if nameless > 0 {
            list.notes.push(format!("{nameless} files have names that cannot be used here"));
        }
        list.files = files.into_iter().filter(|entry| entry.addressable).map(info).collect();
        list.total_bytes = list.files.iter().map(|file| file.size_bytes).sum();
        match vault.stored_in(caller, session).await {
            Ok(stored) => list.files.iter_mut().for_each(|file| file.find_among(&stored)),
            Err(error) => list.notes.push(format!("addresses are not known now: {error}")),
        }
        Ok(list)
    }

    /// Opens a plain file; nothing else ever is.
    pub async fn open_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: &str,
    ) -> Result<OpenedFile, Error> {
        may_read(caller)?;
        let path = exact(path, session)?;
        let folder = self.folder_to_read(caller, session).await?;
        let folder = folder.ok_or_else(|| Error::NoFile(path.to_string()))?;
        blocking(move || open(&folder, &path)).await
    }

    /// Puts a file into a session, which is made if it does not exist. The file is there whole or
    /// not at all: a stream that ends in an error leaves nothing, and so does dropping this.
    pub async fn write_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        place: Place<'_>,
        mut content: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    ) -> Result<Written, Error> {
        may_execute(caller)?;
        let path = place.path(session)?;
        let limit = self.vault()?.settings.file_bytes_max;
        let (mut writing, places) = self.begin_writing(caller, session, path, limit).await?;
        while let Some(bytes) = content.next().await {
            let bytes = bytes.map_err(|error| Error::BrokenOff(error.to_string()))?;
            if !writing.write(bytes).await {
                break;
            }
        }
        let written = writing.finish(&places).await?;
        self.look_away(caller, session).await;
        Ok(written)
    }

    /// Downloads a file into a session. Without a name, it has the one of its address.
    pub async fn fetch_from_url(
        &self,
        caller: &Caller,
        session: &SessionId,
        url: &str,
        name: Option<&str>,
    ) -> Result<Written, Error> {
        may_execute(caller)?;
        let vault = self.vault()?;
        let download = vault.fetcher.open(url).await.map_err(Error::Fetch)?;
        let path = match name {
            Some(name) => Place::Named(name).path(session)?,
            None => Place::Named(&download.file_name).path(session)?,
        };
        let limit = vault.settings.fetch.bytes_max;
        let (mut writing, places) = self.begin_writing(caller, session, path, limit).await?;
        if let Err(error) = download.save(&mut writing, &mut |_, _| {}).await {
            // Who stopped taking it in knows better why.
            return Err(writing.reason().await.unwrap_or(Error::Fetch(error)));
        }
        let written = writing.finish(&places).await?;
        self.look_away(caller, session).await;
        Ok(written)
    }

    pub async fn delete_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: &str,
    ) -> Result<String, Error> {
        may_execute(caller)?;
        let path = exact(path, session)?;
        let folder = self.folder_to_read(caller, session).await?;
        let folder = folder.ok_or_else(|| Error::NoFile(path.to_string()))?;
        let removed = path.clone();
        blocking(move || folder.remove(&path).map_err(|error| trouble(error, &path))).await?;
        self.look_away(caller, session).await;
        Ok(removed.to_string())
    }

    pub(crate) fn vault(&self) -> Result<&Arc<Vault>, Error> {
        self.shared.vault.as_ref().ok_or(Error::KeepsNoFiles)
    }

    /// The folder of a session; `None` if the session has no files yet.
    async fn folder_to_read(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Option<Arc<Folder>>, Error> {
        let path = self.vault()?.folder(&caller.id, session);
        let opened = blocking(move || match Folder::at(&path) {
            Ok(folder) => Ok(Some(Arc::new(folder))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        });
        let opened = opened.await?;
        // Everybody has a default session, though it may not have been used yet.
        if opened.is_none() && session.as_str() != DEFAULT_SESSION {
            self.shared.sessions.find(caller, session)?;
        }
        Ok(opened)
    }

    async fn begin_writing(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: WorkspacePath,
        limit_bytes: u64,
    ) -> Result<(Writing, Places), Error> {
        let vault = self.vault()?;
        let choice = SessionChoice::Named(session.clone());
        // A session that is not at hand is more than its name: it has rules and variables.
        let recalled = self.recall_in_turn(caller, session).await?;
        // Held until it is written: meanwhile the session is not forgotten.
        let seat = self.shared.sessions.choose(caller, &choice)?.map(|(seat, _)| seat);
        drop(recalled);
        let at = vault.folder(&caller.id, session);
        let folder = blocking(move || Ok(Arc::new(session_folder(&at)?.0))).await?;
        let limit = self.shared.settings.limits.workspace();
        let places = Places::new(vault, caller, session, Arc::clone(&folder), limit);
        let room = Box::pin(places.room(limit_bytes)).await?;
        let writing = Writing::begin(vault, seat, folder, path, room).await?;
        Ok((writing, places))
    }

    /// What was written or deleted from outside is not the doing of the next run.
    async fn look_away(&self, caller: &Caller, session: &SessionId) {
        let Ok(session) = self.shared.sessions.find(caller, session) else { return };
        session.look_away().await;
        self.shared.sessions.make_room();
    }
}

/// Where a file is to be.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// Exactly there, or nowhere.
    Path(&'a str),
    /// Under a name that somebody else has made up: what cannot be in a name is left out.
    Named(&'a str),
}

impl Place<'_> {
    fn path(self, session: &SessionId) -> Result<WorkspacePath, Error> {
        match self {
            Self::Path(text) => exact(text, session),
            Self::Named(text) => named(text, session),
        }
    }
}

fn exact(text: &str, session: &SessionId) -> Result<WorkspacePath, Error> {
    WorkspacePath::parse_for(text, session.as_str())
        .map_err(|why| Error::BadPath { path: text.chars().take(100).collect(), why })
}

/// Folders are kept where a path is plain; of everything else the last name is. A name that is
/// hidden, or nothing at all, becomes one that says when it came.
fn named(text: &str, session: &SessionId) -> Result<WorkspacePath, Error> {
    if let Ok(path) = WorkspacePath::parse_for(text, session.as_str())
        && !path.as_str().split('/').any(|name| name.starts_with('.'))
    {
        return Ok(path);
    }
    let name = sanitised(text).unwrap_or_else(|| format!("file_{}", Timestamp::now().as_second()));
    exact(&name, session)
}

fn open(folder: &Folder, path: &WorkspacePath) -> Result<OpenedFile, Error> {
    let (file, metadata) = folder.open(path).map_err(|error| trouble(error, path))?;
    Ok(OpenedFile {
        file,
        path: path.to_string(),
        name: path.name().to_owned(),
        size_bytes: metadata.len(),
        modified: metadata.modified()?,
        media_type: media::of_name(path.name()),
    })
}

/// What the kernel says about a path of a session, in words for its owner.
fn trouble(error: io::Error, path: &WorkspacePath) -> Error {
    const LOOP: i32 = 40;
    const CROSSES_MOUNTS: i32 = 18;
    let path = path.to_string();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NoFile(path),
        io::ErrorKind::IsADirectory => Error::IsFolder(path),
        io::ErrorKind::InvalidInput
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::WouldBlock => Error::NotPlain(path),
        _ if matches!(error.raw_os_error(), Some(LOOP | CROSSES_MOUNTS)) => Error::NotPlain(path),
        _ => error.into(),
    }
}

fn info(entry: Entry) -> FileInfo {
    let modified = Timestamp::try_from(entry.modified).unwrap_or(Timestamp::UNIX_EPOCH);
    let media_type = media::of_name(&entry.path);
    FileInfo { size_bytes: entry.size_bytes, modified, media_type, stored: None, path: entry.path }
}

impl FileInfo {
    /// The latest version that was kept, if the file has not changed since.
    fn find_among(&mut self, stored: &[(StoredFile, Timestamp)]) {
        let same = stored.iter().find(|(file, _)| file.path == self.path);
        let is_current = |file: &StoredFile, at: Timestamp| {
            file.size_bytes == self.size_bytes && at >= self.modified
        };
        self.stored = same.filter(|(file, at)| is_current(file, *at)).map(|(file, _)| file.clone());
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Lost)?
}

#[cfg(test)]
mod tests {
    use super::named;
    use crate::SessionId;

    #[test]
    fn names_that_others_made_up_are_made_fit() {
        let session = SessionId::parse("s").unwrap();
        for (given, path) in [
            ("a.csv", "a.csv"),
            ("sub/a.csv", "sub/a.csv"),
            ("/tmp/a.csv", "a.csv"),
            ("/mnt/data/sub/a.csv", "sub/a.csv"),
            ("../../etc/passwd", "passwd"),
            ("/etc/passwd", "passwd"),
            (r"C:\Users\me\a.csv", "a.csv"),
            (r"..\..\a.csv", "a.csv"),
            ("a\nb.csv", "ab.csv"),
            ("\u{202e}gpj.exe", "gpj.exe"),
            ("报告 📈.csv", "报告 📈.csv"),
        ] {
            assert_eq!(named(given, &session).unwrap().as_str(), path, "{given:?}");
        }
        for hidden in [".bashrc", "sub/.env", "", "..", "/", ".woma-1"] {
            let path = named(hidden, &session).unwrap().to_string();
            assert!(path.starts_with("file_"), "{hidden:?}: {path}");
        }
        let long = format!("{}.csv", "x".repeat(300));
        let path = named(&long, &session).unwrap();
        let extension = path.name().rsplit_once('.').map(|(_, extension)| extension);
        assert_eq!((path.as_str().len(), extension), (255, Some("csv")));
    }
}
