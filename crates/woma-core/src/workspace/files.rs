//! The files of a session, for those who are not in it: listed, read, written, fetched from
//! elsewhere, and given addresses. A session's folder is there without its kernel, and mostly
//! without the store too: only addresses need that.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use woma_sandbox::workspace::{Bounds, Entry, Folder, Kind, WorkspacePath, sanitised};

use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{SessionId, StoredFile};
use crate::text::near;
use crate::workspace::Workspaces;
use crate::workspace::media;

/// Files that a list has.
const LISTED_MAX: u64 = 10_000;
/// Stored versions that are looked through for those of a list.
pub(super) const STORED_LOOKED_AT: u32 = 1_000;

/// A file in a session's folder. Names and times are what the session made them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Below the working directory.
    pub path: String,
    pub size_bytes: u64,
    pub modified: Timestamp,
    pub media_type: &'static str,
    /// Its download, if it is stored as it is now.
    pub stored: Option<StoredFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileList {
    pub files: Vec<FileInfo>,
    pub total_bytes: u64,
    /// Files that the list lacks, and why.
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

impl Workspaces {
    /// The folder of a session; `None` if the session has no files yet.
    pub(crate) async fn open_folder(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Option<Arc<Folder>>, Error> {
        let path = self.storage.folder(&caller.id, session);
        blocking(move || match Folder::at(&path) {
            Ok(folder) => Ok(Some(Arc::new(folder))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// Lists the files of a session, with the addresses of those that are stored as they are now.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        session: &SessionId,
        folder: Arc<Folder>,
    ) -> Result<FileList, Error> {
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
        match self.stored_in(caller, session).await {
            Ok(stored) => list.files.iter_mut().for_each(|file| file.find_among(&stored)),
            Err(error) => list.notes.push(format!("addresses are not known now: {error}")),
        }
        Ok(list)
    }
}

/// Destination of a file.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// Exactly there, or nowhere.
    Path(&'a str),
    /// Under a foreign name: characters that cannot be in a name are left out.
    Named(&'a str),
}

impl Destination<'_> {
    pub(crate) fn path(self, session: &SessionId) -> Result<WorkspacePath, Error> {
        match self {
            Self::Path(text) => exact(text, session),
            Self::Named(text) => named(text, session),
        }
    }
}

pub(crate) fn exact(text: &str, session: &SessionId) -> Result<WorkspacePath, Error> {
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

pub(crate) fn open(folder: &Folder, path: &WorkspacePath) -> Result<OpenedFile, Error> {
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

/// Translates an error of the operating system about a path for the owner of the session.
pub(crate) fn trouble(error: io::Error, path: &WorkspacePath) -> Error {
    const LOOP: i32 = 40;
    const CROSSES_MOUNTS: i32 = 18;
    let path = path.to_string();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::no_file(path),
        io::ErrorKind::IsADirectory => Error::IsFolder(path),
        io::ErrorKind::InvalidInput
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::WouldBlock => Error::NotPlain(path),
        _ if matches!(error.raw_os_error(), Some(LOOP | CROSSES_MOUNTS)) => Error::NotPlain(path),
        _ => error.into(),
    }
}

/// Adds to the error about a missing file the names that are near. A folder that cannot be listed
/// has none.
pub(crate) fn with_near(error: Error, folder: &Folder) -> Error {
    let Error::NoFile { path, .. } = error else { return error };
    let listing = folder.list(Bounds { entries: LISTED_MAX, ..Bounds::default() });
    let entries = listing.map(|listing| listing.entries).unwrap_or_default();
    let files = entries.iter().filter(|entry| entry.kind == Kind::File && entry.addressable);
    let near = near::paths(&path, files.map(|entry| entry.path.as_str()));
    Error::NoFile { path, near }
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

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Lost)?
}

#[cfg(test)]
mod tests {
    use super::named;
    use crate::model::SessionId;

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
