//! Uploads in parts: what came is kept in the data folder until the last part puts the file into
//! its session. A connection that breaks costs what was on its way, and a restart costs nothing.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Place, Written, blocking, exact};
use crate::caller::Caller;
use crate::lock::lock;
use crate::model::SessionId;
use crate::service::may_execute;
use crate::vault::closed_folder;
use crate::{Error, Service};

/// How long an upload waits for its next part.
const LIFE: Duration = Duration::from_hours(24);
/// Uploads that one caller may have begun.
const OPEN_MAX: usize = 16;

/// Where an upload stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub id: Uuid,
    pub session: SessionId,
    /// Below the working directory.
    pub path: String,
    pub size_bytes: u64,
    /// Where the next part begins.
    pub offset: u64,
    pub expires_at: Timestamp,
}

/// What a part has brought.
#[derive(Debug)]
pub enum UploadState {
    Open(Upload),
    /// It was the last one.
    Done(SessionId, Written),
}

/// On disk beside the parts.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    owner: String,
    session: String,
    path: String,
    size_bytes: u64,
}

/// Which uploads a part is being added to.
pub(crate) type Busy = Mutex<BTreeSet<Uuid>>;

/// One of them, for as long as this is held.
struct Turn(Arc<Busy>, Uuid);

impl Turn {
    fn take(busy: &Arc<Busy>, id: Uuid) -> Result<Self, Error> {
        let is_free = lock(busy).insert(id);
        is_free.then(|| Self(Arc::clone(busy), id)).ok_or(Error::UploadBusy)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.0).remove(&self.1);
    }
}

impl Service {
    /// Begins an upload of so many bytes.
    pub async fn begin_upload(
        &self,
        caller: &Caller,
        session: &SessionId,
        place: Place<'_>,
        size_bytes: u64,
    ) -> Result<Upload, Error> {
        may_execute(caller)?;
        let vault = self.vault()?;
        if size_bytes > vault.settings.file_bytes_max {
            return Err(Error::FileTooLarge);
        }
        let note = Note {
            owner: caller.id.as_str().to_owned(),
            session: session.as_str().to_owned(),
            path: place.path(session)?.to_string(),
            size_bytes,
        };
        let parts = Parts(vault.settings.folder.join("uploads"));
        blocking(move || parts.begin(&note)).await
    }

    pub async fn upload(&self, caller: &Caller, id: &str) -> Result<Upload, Error> {
        may_execute(caller)?;
        let (parts, id, owner) = self.parts(caller, id)?;
        blocking(move || parts.find(id, &owner)).await
    }

    pub async fn give_up_upload(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        may_execute(caller)?;
        let (parts, id, owner) = self.parts(caller, id)?;
        let turn = Turn::take(&self.vault()?.uploading, id)?;
        blocking(move || {
            parts.find(id, &owner)?;
            parts.remove(id)?;
            drop(turn);
            Ok(())
        })
        .await
    }

    /// Adds a part that begins where the last one ended. What comes before an error is kept.
    pub async fn continue_upload(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
        mut content: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    ) -> Result<UploadState, Error> {
        may_execute(caller)?;
        let (parts, id, owner) = self.parts(caller, id)?;
        // Threads hold it too: a client that comes back does not write beside what it left.
        let turn = Arc::new(Turn::take(&self.vault()?.uploading, id)?);
        let (at, who) = (parts.clone(), owner.clone());
        let (mut file, mut left) = blocking(move || {
            let upload = at.find(id, &who)?;
            if upload.offset != offset {
                return Err(Error::UploadOffset { offset: upload.offset });
            }
            let file = OpenOptions::new().append(true).open(at.content(id))?;
            Ok((file, upload.size_bytes - upload.offset))
        })
        .await?;
        while let Some(bytes) = content.next().await {
            let bytes = bytes.map_err(|error| Error::BrokenOff(error.to_string()))?;
            left = left.checked_sub(bytes.len() as u64).ok_or(Error::UploadTooLong)?;
            let held = Arc::clone(&turn);
            let added = blocking(move || {
                file.write_all(&bytes).map_err(full)?;
                drop(held);
                Ok(file)
            });
            file = added.await?;
        }
        let synced = blocking(move || file.sync_all().map_err(full));
        synced.await?;
        if left > 0 {
            let upload = blocking(move || parts.find(id, &owner)).await?;
            return Ok(UploadState::Open(upload));
        }
        let done = self.complete(caller, parts, id).await?;
        drop(turn);
        Ok(done)
    }

    /// From the parts to the session; they stay until it is done.
    async fn complete(
        &self,
        caller: &Caller,
        parts: Parts,
        id: Uuid,
    ) -> Result<UploadState, Error> {
        let owner = caller.id.as_str().to_owned();
        let at = parts.clone();
        let (upload, file) = blocking(move || {
            let upload = at.find(id, &owner)?;
            Ok((upload, File::open(at.content(id))?))
        })
        .await?;
        let pieces = super::Content::File(file).pieces(0, upload.size_bytes);
        let place = Place::Path(&upload.path);
        let written = self.write_file(caller, &upload.session, place, pieces).await?;
        blocking(move || parts.remove(id)).await?;
        Ok(UploadState::Done(upload.session, written))
    }

    fn parts(&self, caller: &Caller, id: &str) -> Result<(Parts, Uuid, String), Error> {
        let parts = Parts(self.vault()?.settings.folder.join("uploads"));
        let parsed = id.parse().map_err(|_| Error::NoUpload(id.chars().take(64).collect()))?;
        Ok((parts, parsed, caller.id.as_str().to_owned()))
    }
}

fn full(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull,
        _ => error.into(),
    }
}

/// The folder of unfinished uploads: `<id>.json` says what, `<id>.part` is how far.
#[derive(Debug, Clone)]
struct Parts(PathBuf);

impl Parts {
    fn begin(&self, note: &Note) -> Result<Upload, Error> {
        closed_folder(&self.0)?;
        let open = self.sweep(&note.owner)?;
        if open >= OPEN_MAX {
            return Err(Error::TooManyUploads { limit: OPEN_MAX });
        }
        let id = Uuid::new_v4();
        let text = serde_json::to_vec(note).map_err(io::Error::other)?;
        File::create_new(self.content(id)).map_err(full)?;
        let mut file = File::create_new(self.note(id)).map_err(full)?;
        file.write_all(&text).map_err(full)?;
        file.sync_all().map_err(full)?;
        self.find(id, &note.owner)
    }

    fn find(&self, id: Uuid, owner: &str) -> Result<Upload, Error> {
        let missing = || Error::NoUpload(id.to_string());
        let text = fs::read(self.note(id)).map_err(|_| missing())?;
        let note: Note = serde_json::from_slice(&text).map_err(|_| missing())?;
        let metadata = fs::metadata(self.content(id)).map_err(|_| missing())?;
        let modified = metadata.modified()?;
        if note.owner != owner || is_old(modified) {
            return Err(missing());
        }
        let session = SessionId::parse(&note.session)?;
        let path = exact(&note.path, &session)?.to_string();
        let expires_at = Timestamp::try_from(modified + LIFE).unwrap_or(Timestamp::MAX);
        let (size_bytes, offset) = (note.size_bytes, metadata.len());
        Ok(Upload { id, session, path, size_bytes, offset, expires_at })
    }

    fn remove(&self, id: Uuid) -> Result<(), Error> {
        fs::remove_file(self.note(id))?;
        Ok(fs::remove_file(self.content(id))?)
    }

    /// Deletes what nobody went on with, and counts what this owner has open.
    fn sweep(&self, owner: &str) -> Result<usize, Error> {
        let mut open = 0;
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let id = path.file_stem().and_then(|stem| stem.to_str()?.parse::<Uuid>().ok());
            let is_note = path.extension().is_some_and(|ending| ending == "json");
            let (Some(id), true) = (id, is_note) else {
                sweep_stray(&path)?;
                continue;
            };
            match fs::metadata(self.content(id)).and_then(|found| found.modified()) {
                Ok(modified) if !is_old(modified) => {
                    open += usize::from(self.find(id, owner).is_ok());
                }
                _ => self.remove(id).or_else(|_| remove_if_there(&path))?,
            }
        }
        Ok(open)
    }

    fn note(&self, id: Uuid) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    fn content(&self, id: Uuid) -> PathBuf {
        self.0.join(format!("{id}.part"))
    }
}

/// Parts whose note never came to be.
fn sweep_stray(path: &Path) -> Result<(), Error> {
    let has_note = path.with_extension("json").exists();
    let modified = fs::metadata(path).and_then(|found| found.modified());
    if !has_note && modified.is_ok_and(is_old) { remove_if_there(path) } else { Ok(()) }
}

fn remove_if_there(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn is_old(modified: SystemTime) -> bool {
    SystemTime::now().duration_since(modified).is_ok_and(|age| age > LIFE)
}
