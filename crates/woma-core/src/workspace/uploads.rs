//! Uploads in parts: what came is kept in the data folder until the last part puts the file into
//! its session. A connection that breaks costs what was on its way, and a restart costs nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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

use super::Workspaces;
use super::files::{Destination, Written, blocking, exact};
use super::quota::{FRESH, Grant, Meter, StorageLimit};
use crate::error::Error;
use crate::model::SessionId;
use crate::model::caller::{Caller, CallerId};
use crate::storage::durable;
use crate::storage::layout::closed_folder;
use woma_sandbox::sync::lock;

const UPLOADS: &str = "open uploads in parts";
/// How long an upload waits for its next part.
const LIFE: Duration = Duration::from_hours(24);
/// Uploads that one caller may have begun, and all of them together.
const OPEN_MAX: usize = 16;
const OPEN_IN_ALL_MAX: usize = 1024;

/// Progress of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub id: Uuid,
    pub session: SessionId,
    /// Below the working directory.
    pub path: String,
    pub size_bytes: u64,
    /// Offset of the next part.
    pub offset: u64,
    pub expires_at: Timestamp,
}

/// The state after a part.
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

/// Uploads to which a part is being added; true for those that are being put into their session, and
/// count as files of it.
pub(crate) type Busy = Mutex<BTreeMap<Uuid, bool>>;

/// One of them, for as long as this is held.
struct Turn(Arc<Busy>, Uuid);

impl Turn {
    fn take(busy: &Arc<Busy>, id: Uuid) -> Result<Self, Error> {
        match lock(busy).entry(id) {
            Entry::Occupied(_) => return Err(Error::UploadBusy),
            Entry::Vacant(free) => drop(free.insert(false)),
        }
        Ok(Self(Arc::clone(busy), id))
    }

    /// All parts have come: from here on the file counts, and they do not.
    fn is_whole(&self) {
        lock(&self.0).insert(self.1, true);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.0).remove(&self.1);
    }
}

/// The state after a part was added.
pub(crate) enum Added {
    Open(Upload),
    /// All of it has come; the parts stay until the file is in its session.
    Whole(Whole),
}

/// An upload of which all parts have come.
pub(crate) struct Whole {
    pub(crate) upload: Upload,
    pub(crate) file: File,
    parts: Parts,
    _turn: Arc<Turn>,
}

impl Whole {
    /// Removes the parts, once the file is in its session.
    pub(crate) async fn remove(self) -> Result<(), Error> {
        blocking(move || self.parts.remove(self.upload.id)).await
    }
}

impl Workspaces {
    /// Begins an upload of so many bytes.
    pub(crate) async fn begin_upload(
        &self,
        caller: &Caller,
        session: &SessionId,
        place: Destination<'_>,
        size_bytes: u64,
    ) -> Result<Upload, Error> {
        if size_bytes > self.storage.settings.file_bytes_max {
            return Err(Error::FileTooLarge);
        }
        if self.storage.reserve.refuses(size_bytes) {
            return Err(Error::DiskReserve);
        }
        let note = Note {
            owner: caller.id.as_str().to_owned(),
            session: session.as_str().to_owned(),
            path: place.path(session)?.to_string(),
            size_bytes,
        };
        if let Some(limit) = self.storage_of(caller) {
            let used = self.used_by(&caller.id, Duration::ZERO).await?;
            if used.saturating_add(size_bytes) > limit.bytes {
                return Err(limit.refusal());
            }
        }
        let parts = self.parts();
        blocking(move || parts.begin(&note)).await
    }

    pub(crate) async fn upload(&self, caller: &Caller, id: &str) -> Result<Upload, Error> {
        let (parts, id, owner) = (self.parts(), parse(id)?, caller.id.as_str().to_owned());
        blocking(move || parts.find(id, &owner)).await
    }

    pub(crate) async fn give_up_upload(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        let (parts, id, owner) = (self.parts(), parse(id)?, caller.id.as_str().to_owned());
        let turn = Turn::take(&self.uploading, id)?;
        blocking(move || {
            parts.find(id, &owner)?;
            parts.remove(id)?;
            drop(turn);
            Ok(())
        })
        .await
    }

    /// Adds a part that begins where the last one ended. Bytes that come before an error are kept.
    pub(crate) async fn add_part(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
        mut content: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    ) -> Result<Added, Error> {
        let (parts, id, owner) = (self.parts(), parse(id)?, caller.id.as_str().to_owned());
        // Threads hold it too: a client that comes back does not write beside what it left.
        let turn = Arc::new(Turn::take(&self.uploading, id)?);
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
        let mut stored = self.part_grant(caller, left).await?;
        while let Some(bytes) = content.next().await {
            let bytes = bytes.map_err(|error| Error::BrokenOff(error.to_string()))?;
            left = left.checked_sub(bytes.len() as u64).ok_or(Error::UploadTooLong)?;
            stored.grow(bytes.len() as u64)?;
            let (held, reserve) = (Arc::clone(&turn), Arc::clone(&self.storage.reserve));
            let added = blocking(move || {
                if reserve.refuses(bytes.len() as u64) {
                    return Err(Error::DiskReserve);
                }
                file.write_all(&bytes).map_err(full)?;
                drop(held);
                Ok(file)
            });
            file = added.await?;
        }
        blocking(move || {
            file.sync_all().map_err(full)?;
            let upload = parts.find(id, &owner)?;
            if left > 0 {
                return Ok(Added::Open(upload));
            }
            let file = File::open(parts.content(id))?;
            turn.is_whole();
            Ok(Added::Whole(Whole { upload, file, parts, _turn: turn }))
        })
        .await
    }

    /// The right to add a part, as far as its caller has room.
    async fn part_grant(&self, caller: &Caller, bytes: u64) -> Result<StoredPart, Error> {
        let Some(limit) = self.storage_of(caller) else { return Ok(StoredPart(None)) };
        let mut used = self.used_by(&caller.id, FRESH).await?;
        if used.saturating_add(bytes) > limit.bytes {
            used = self.used_by(&caller.id, Duration::ZERO).await?;
        }
        let meter = self.parts_of(&caller.id);
        // What is elsewhere leaves so much for parts.
        let room = limit.bytes.saturating_sub(used.saturating_sub(meter.used()));
        let grant = meter.take(0, u64::MAX);
        Ok(StoredPart(grant.map(|grant| (grant, room, limit))))
    }

    /// Counter of the parts of an owner.
    pub(super) fn parts_of(&self, owner: &CallerId) -> Meter {
        self.meters.of(format!("parts of {owner}"))
    }

    /// Bytes in the unfinished uploads of an owner.
    pub(super) async fn count_parts(&self, owner: &CallerId) -> Result<u64, Error> {
        let (parts, owner) = (self.parts(), owner.as_str().to_owned());
        let busy = Arc::clone(&self.uploading);
        blocking(move || Ok(parts.survey(&owner, &busy)?.bytes)).await
    }

    /// Deletes abandoned uploads, and returns how many there were.
    pub(crate) async fn sweep_uploads(&self) -> Result<u64, Error> {
        let (parts, busy) = (self.parts(), Arc::clone(&self.uploading));
        blocking(move || Ok(parts.survey("", &busy)?.removed)).await
    }

    fn parts(&self) -> Parts {
        Parts(self.storage.settings.folder.join("uploads"))
    }
}

/// Bytes of a part that are on the disk, whatever becomes of the rest: they stay, and count.
struct StoredPart(Option<(Grant, u64, StorageLimit)>);

impl StoredPart {
    fn grow(&mut self, bytes: u64) -> Result<(), Error> {
        let Some((grant, room, limit)) = &mut self.0 else { return Ok(()) };
        if grant.grow(bytes, *room) { Ok(()) } else { Err(limit.refusal()) }
    }
}

impl Drop for StoredPart {
    fn drop(&mut self) {
        if let Some((grant, ..)) = self.0.take() {
            grant.stored();
        }
    }
}

fn parse(id: &str) -> Result<Uuid, Error> {
    id.parse().map_err(|_| Error::NoUpload(id.chars().take(64).collect()))
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
        let found = self.survey(&note.owner, &Busy::default())?;
        if found.open >= OPEN_MAX {
            return Err(Error::TooManyUploads { limit: OPEN_MAX });
        }
        if found.open_in_all >= OPEN_IN_ALL_MAX {
            return Err(Error::PoolBusy { what: UPLOADS, limit: OPEN_MAX });
        }
        let id = Uuid::new_v4();
        let text = serde_json::to_vec(note).map_err(io::Error::other)?;
        File::create_new(self.content(id)).map_err(full)?;
        durable::replace(&self.note(id), &text).map_err(full)?;
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

    /// Deletes abandoned uploads, and counts those that this owner has open.
    fn survey(&self, owner: &str, busy: &Busy) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(survey),
            Err(error) => return Err(error.into()),
        };
        for entry in entries {
            let path = entry?.path();
            let id = path.file_stem().and_then(|stem| stem.to_str()?.parse::<Uuid>().ok());
            let is_note = path.extension().is_some_and(|ending| ending == "json");
            let (Some(id), true) = (id, is_note) else {
                sweep_stray(&path)?;
                continue;
            };
            match fs::metadata(self.content(id)).and_then(|found| found.modified()) {
                Ok(modified) if !is_old(modified) => {
                    survey.open_in_all += 1;
                    if let Ok(upload) = self.find(id, owner) {
                        survey.open += 1;
                        let is_whole = lock(busy).get(&id).copied().unwrap_or(false);
                        survey.bytes += if is_whole { 0 } else { upload.offset };
                    }
                }
                _ => {
                    self.remove(id).or_else(|_| remove_if_there(&path))?;
                    survey.removed += 1;
                }
            }
        }
        Ok(survey)
    }

    fn note(&self, id: Uuid) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    fn content(&self, id: Uuid) -> PathBuf {
        self.0.join(format!("{id}.part"))
    }
}

/// Unfinished uploads, as they were found.
#[derive(Debug, Default)]
struct Survey {
    /// Of the owner, with the bytes of those that are not being put into their session.
    open: usize,
    bytes: u64,
    open_in_all: usize,
    /// Abandoned ones that were deleted.
    removed: u64,
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::{Busy, LIFE, Note, OPEN_IN_ALL_MAX, OPEN_MAX, Parts};
    use crate::error::Code;

    fn note(owner: &str, size_bytes: u64) -> Note {
        let (session, path) = ("s".to_owned(), "a.bin".to_owned());
        Note { owner: owner.to_owned(), session, path, size_bytes }
    }

    #[test]
    fn abandoned_parts_are_swept_and_others_count_for_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let (parts, busy) = (Parts(folder.path().join("uploads")), Busy::default());
        assert_eq!(parts.survey("", &busy).unwrap().removed, 0, "there is no folder yet");
        let [old, kept, whole] = [1, 2, 3].map(|_| parts.begin(&note("alice", 100)).unwrap().id);
        for id in [old, kept, whole] {
            std::fs::write(parts.content(id), [0; 40]).unwrap();
        }
        parts.begin(&note("bob", 100)).unwrap();
        let long_ago = SystemTime::now() - LIFE - Duration::from_secs(60);
        File::open(parts.content(old)).unwrap().set_modified(long_ago).unwrap();
        // Parts whose note was never written.
        let stray = folder.path().join("uploads").join(format!("{}.part", uuid::Uuid::new_v4()));
        File::create(&stray).unwrap().set_modified(long_ago).unwrap();
        let found = parts.survey("alice", &busy).unwrap();
        assert_eq!((found.removed, found.open, found.open_in_all), (1, 2, 3));
        assert_eq!(found.bytes, 80);
        assert!(!parts.content(old).exists() && !parts.note(old).exists() && !stray.exists());
        assert!(parts.find(kept, "alice").is_ok() && parts.find(kept, "bob").is_err());
        // One that is being put into its session counts there.
        super::lock(&busy).insert(whole, true);
        assert_eq!(parts.survey("alice", &busy).unwrap().bytes, 40);
        assert_eq!(parts.survey("bob", &busy).unwrap().bytes, 0);
    }

    #[test]
    fn open_uploads_have_a_limit_in_all() {
        let folder = tempfile::tempdir().unwrap();
        let parts = Parts(folder.path().join("uploads"));
        let first = parts.begin(&note("alice", 1)).unwrap();
        let text = std::fs::read(parts.note(first.id)).unwrap();
        for _ in 1..OPEN_IN_ALL_MAX {
            let id = uuid::Uuid::new_v4();
            std::fs::write(parts.note(id), &text).unwrap();
            std::fs::write(parts.content(id), "").unwrap();
        }
        let refused = parts.begin(&note("bob", 1)).unwrap_err();
        assert_eq!(refused.code(), Code::Busy, "{refused}");
        parts.remove(first.id).unwrap();
        assert!(parts.begin(&note("bob", 1)).is_ok());
    }

    #[test]
    fn open_uploads_of_one_caller_leave_others_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let parts = Parts(folder.path().join("uploads"));
        for _ in 0..OPEN_MAX {
            parts.begin(&note("alice", 1)).unwrap();
        }
        assert_eq!(parts.begin(&note("alice", 1)).unwrap_err().code(), Code::QuotaExceeded);
        assert!(parts.begin(&note("bob", 1)).is_ok());
    }
}
