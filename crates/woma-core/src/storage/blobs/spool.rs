//! Spool file: content whose digest is not known yet. Dropping it deletes the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use woma_sandbox::workspace::Reserve;

use super::Digest;
use crate::storage::db::StoreError;

const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    path: PathBuf,
    hasher: Sha256,
    size_bytes: u64,
    size_max: u64,
    /// Reserve of its disk.
    reserve: Option<Arc<Reserve>>,
}

impl Spool {
    pub(super) fn new(
        folder: &Path,
        size_max: u64,
        reserve: Option<Arc<Reserve>>,
    ) -> Result<Self, StoreError> {
        if reserve.as_ref().is_some_and(|reserve| reserve.refuses(0)) {
            return Err(StoreError::Reserve);
        }
        let path = folder.join(Uuid::new_v4().to_string());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| StoreError::of_io(&error))?;
        // The lock keeps another server that starts in the same folder from sweeping it.
        file.lock().map_err(|error| StoreError::of_io(&error))?;
        Ok(Self { file, path, hasher: Sha256::new(), size_bytes: 0, size_max, reserve })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.size_bytes += bytes.len() as u64;
        if self.size_bytes > self.size_max {
            return Err(StoreError::TooLarge { limit_bytes: self.size_max });
        }
        if self.reserve.as_ref().is_some_and(|reserve| reserve.refuses(bytes.len() as u64)) {
            return Err(StoreError::Reserve);
        }
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(|error| StoreError::of_io(&error))
    }

    pub(super) fn fill(&mut self, reader: &mut impl Read) -> Result<(), StoreError> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = match reader.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(StoreError::of_io(&error)),
            };
            self.write(piece.get(..length).unwrap_or_default())?;
        }
    }

    /// Syncs the file and computes its digest.
    pub(super) fn finish(mut self) -> Result<(Digest, u64, Self), StoreError> {
        self.file.sync_all().map_err(|error| StoreError::of_io(&error))?;
        let digest = Digest::finish(std::mem::take(&mut self.hasher));
        Ok((digest, self.size_bytes, self))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for reading from its beginning.
    pub(super) fn open(&self) -> Result<File, StoreError> {
        File::open(&self.path).map_err(|error| StoreError::of_io(&error))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // Usually a rename has already published it.
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "A spool file stays until the next start");
            }
            _ => {}
        }
    }
}
