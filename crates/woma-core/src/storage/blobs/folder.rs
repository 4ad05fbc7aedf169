//! Blobs as files in shard folders, `ab/cdef…`; `tmp` is the spool.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use jiff::Timestamp;
use woma_sandbox::workspace::Reserve;

use super::spool::Spool;
use super::{BlobStream, Digest, blocking};
use crate::storage::db::StoreError;
use crate::storage::durable;
use crate::storage::layout::closed_folder;
use woma_sandbox::sync::lock;

const PIECE_BYTES: u64 = 256 * 1024;

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    spool: PathBuf,
    /// Held while a blob is published, touched or deleted, so that a put and a delete do not
    /// overlap.
    names: Mutex<()>,
    /// Reserve of its disk, once set.
    reserve: OnceLock<Arc<Reserve>>,
}

impl Folder {
    pub(super) fn open(root: PathBuf) -> Result<Self, StoreError> {
        let spool = root.join("tmp");
        // Closed to others: a digest reveals that a known content is stored here.
        closed_folder(&root).and_then(|()| closed_folder(&spool)).map_err(failed)?;
        sync(&root)?;
        Ok(Self { root, spool, names: Mutex::default(), reserve: OnceLock::new() })
    }

    pub(super) fn spool(&self, size_max: u64) -> Result<Spool, StoreError> {
        Spool::new(&self.spool, size_max, self.reserve.get().cloned())
    }

    /// Sets the reserve; later calls have no effect.
    pub(super) fn keep_free(&self, reserve: Arc<Reserve>) {
        self.reserve.get_or_init(|| reserve);
    }

    /// Publishes a spool file under its digest by a rename; durable when it returns.
    pub(super) fn publish(
        &self,
        spool: &Spool,
        digest: Digest,
        size_bytes: u64,
    ) -> Result<(), StoreError> {
        if self.touch(digest, size_bytes)? {
            return Ok(());
        }
        let (shard, path) = self.path_of(digest);
        match fs::create_dir(&shard) {
            Ok(()) => sync(&self.root)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        let names = lock(&self.names);
        fs::rename(spool.path(), &path).map_err(failed)?;
        drop(names);
        sync(&shard)
    }

    /// Updates the time of a blob; returns whether it exists with this size.
    pub(super) fn touch(&self, digest: Digest, size_bytes: u64) -> Result<bool, StoreError> {
        let (shard, path) = self.path_of(digest);
        let names = lock(&self.names);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        if file.metadata().map_err(failed)?.len() != size_bytes {
            return Ok(false);
        }
        file.set_modified(SystemTime::now()).map_err(failed)?;
        drop(names);
        // A concurrent `publish` may not have synced its rename yet.
        sync(&shard)?;
        Ok(true)
    }

    pub(super) fn open_blob(&self, digest: Digest) -> Result<Option<(File, u64)>, StoreError> {
        let (_, path) = self.path_of(digest);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let size_bytes = file.metadata().map_err(failed)?.len();
        Ok(Some((file, size_bytes)))
    }

    pub(super) fn delete(
        &self,
        digest: Digest,
        untouched_since: Timestamp,
    ) -> Result<bool, StoreError> {
        let (_, path) = self.path_of(digest);
        let _names = lock(&self.names);
        match fs::metadata(&path) {
            Ok(metadata) if touched_at(&metadata) < untouched_since => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        fs::remove_file(&path).map_err(failed)?;
        Ok(true)
    }

    pub(super) fn list(&self) -> Result<Vec<(Digest, Timestamp)>, StoreError> {
        let mut blobs = Vec::new();
        for shard in entries(&self.root)? {
            if shard.path() == self.spool {
                continue;
            }
            let Ok(start) = shard.file_name().into_string() else { continue };
            for blob in entries(&shard.path())? {
                // Files that are not named by a digest are not blobs.
                let Ok(rest) = blob.file_name().into_string() else { continue };
                let Ok(digest) = format!("{start}{rest}").parse() else { continue };
                match blob.metadata() {
                    Ok(metadata) => blobs.push((digest, touched_at(&metadata))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(blobs)
    }

    pub(super) fn sweep(&self) -> Result<u64, StoreError> {
        let mut swept = 0;
        for leftover in entries(&self.spool)? {
            let is_in_use = |file: File| file.try_lock().is_err();
            match File::open(leftover.path()).map(is_in_use) {
                Ok(false) => {}
                Ok(true) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            }
            fs::remove_file(leftover.path()).map_err(failed)?;
            swept += 1;
        }
        Ok(swept)
    }

    fn path_of(&self, digest: Digest) -> (PathBuf, PathBuf) {
        let name = digest.to_string();
        let (start, rest) = name.split_at(2);
        let shard = self.root.join(start);
        let path = shard.join(rest);
        (shard, path)
    }
}

pub(super) fn stream(file: File) -> BlobStream {
    let pieces = futures_util::stream::try_unfold(file, |file| async move {
        blocking(move || {
            let mut piece = Vec::new();
            (&file).take(PIECE_BYTES).read_to_end(&mut piece).map_err(failed)?;
            Ok((!piece.is_empty()).then(|| (Bytes::from(piece), file)))
        })
        .await
    });
    Box::pin(pieces)
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<io::Result<_>>().map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

fn touched_at(metadata: &fs::Metadata) -> Timestamp {
    let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
    // A blob of unknown age is kept.
    modified.unwrap_or(Timestamp::MAX)
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> Result<(), StoreError> {
    durable::sync_folder(folder).map_err(failed)
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err by name")]
fn failed(error: io::Error) -> StoreError {
    StoreError::of_io(&error)
}
