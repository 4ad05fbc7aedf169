//! Files of the index that were downloaded and checked, kept by their digests for the next
//! installation. Shared by all callers: a file is taken only by its digest, or from the same address.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use woma_sandbox::sync::lock;

use crate::model::hex;
use crate::storage::layout::closed_folder;

const PART_BYTES: usize = 128 * 1024;
/// Names of unfinished files.
const UNFINISHED: &str = ".part-";

#[derive(Debug)]
pub(crate) struct FileCache {
    folder: PathBuf,
    bytes_max: u64,
    /// Downloads in progress, by digest or address: the same file is downloaded once.
    busy: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) path: PathBuf,
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
}

impl FileCache {
    pub(crate) fn new(folder: PathBuf, bytes_max: u64) -> Self {
        Self { folder, bytes_max, busy: Mutex::default() }
    }

    /// The turn to download one file.
    pub(crate) async fn turn(&self, key: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut busy = lock(&self.busy);
            busy.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(busy.entry(key.to_owned()).or_default())
        };
        turn.lock_owned().await
    }

    /// A file that is here; it counts as used now.
    pub(crate) fn find(&self, sha256: &str) -> Option<Kept> {
        let path = self.folder.join(sha256);
        let file = File::open(&path).ok()?;
        file.set_modified(SystemTime::now()).ok()?;
        let bytes = file.metadata().ok()?.len();
        Some(Kept { path, sha256: sha256.to_owned(), bytes })
    }

    /// Writes what a reader has, up to its end, and keeps it under its digest. An error leaves nothing.
    pub(crate) async fn keep(
        self: &Arc<Self>,
        mut from: impl AsyncRead + Send + Unpin + 'static,
    ) -> io::Result<Kept> {
        let cache = Arc::clone(self);
        let runtime = tokio::runtime::Handle::current();
        let kept = tokio::task::spawn_blocking(move || {
            closed_folder(&cache.folder)?;
            let path = cache.folder.join(format!("{UNFINISHED}{}", uuid::Uuid::new_v4()));
            let unfinished = Unfinished(&path);
            let (mut file, mut digest) = (File::create_new(&path)?, Sha256::new());
            let (mut part, mut bytes) = (vec![0; PART_BYTES], 0);
            loop {
                let length = runtime.block_on(from.read(&mut part))?;
                let read = part.get(..length).unwrap_or_default();
                if read.is_empty() {
                    break;
                }
                digest.update(read);
                file.write_all(read)?;
                bytes += length as u64;
            }
            let sha256 = hex(&digest.finalize());
            let place = cache.folder.join(&sha256);
            fs::rename(&path, &place)?;
            drop(unfinished);
            cache.make_room(&sha256)?;
            Ok(Kept { path: place, sha256, bytes })
        });
        kept.await.map_err(io::Error::other)?
    }

    /// Removes the files that were unused longest, beyond the limit, and what a killed server left.
    fn make_room(&self, except: &str) -> io::Result<()> {
        let (mut files, mut sum) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let used = metadata.modified()?;
            sum += metadata.len();
            files.push((used, metadata.len(), entry.path(), entry.file_name()));
        }
        files.sort();
        for (used, bytes, path, name) in files {
            let name = name.to_string_lossy();
            let is_left = name.starts_with(UNFINISHED)
                && used.elapsed().is_ok_and(|age| age.as_secs() > 24 * 3600);
            if !is_left && (sum <= self.bytes_max || name == except || name.starts_with(UNFINISHED))
            {
                continue;
            }
            fs::remove_file(&path)?;
            sum -= bytes;
        }
        Ok(())
    }
}

/// Removes a file that was not renamed.
struct Unfinished<'a>(&'a Path);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        match fs::remove_file(self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "An unfinished file of the index could not be removed");
            }
            _ => {}
        }
    }
}

/// The digest and size of a file of the operator.
pub(crate) fn measured(path: &Path) -> io::Result<Kept> {
    let (mut file, mut digest, mut bytes) = (File::open(path)?, Sha256::new(), 0);
    let mut part = vec![0; PART_BYTES];
    loop {
        let length = file.read(&mut part)?;
        let read = part.get(..length).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        digest.update(read);
        bytes += length as u64;
    }
    Ok(Kept { path: path.to_owned(), sha256: hex(&digest.finalize()), bytes })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::FileCache;

    #[tokio::test(flavor = "multi_thread")]
    async fn keeps_files_by_digest_within_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(FileCache::new(folder.path().join("files"), 250));
        let first = cache.keep(&[1_u8; 100][..]).await.unwrap();
        let second = cache.keep(&[2_u8; 100][..]).await.unwrap();
        assert_eq!(first.bytes, 100);
        assert_ne!(first.sha256, second.sha256);
        // The first one is used, so the second one is the older when there is no room for three.
        assert_eq!(cache.find(&first.sha256), Some(first.clone()));
        let third = cache.keep(&[3_u8; 100][..]).await.unwrap();
        assert!(cache.find(&first.sha256).is_some() && cache.find(&third.sha256).is_some());
        assert!(cache.find(&second.sha256).is_none());
        let left = std::fs::read_dir(folder.path().join("files")).unwrap().count();
        assert_eq!(left, 2);
    }
}
