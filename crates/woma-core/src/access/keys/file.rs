//! The key file: read and replaced as a whole, one writer at a time.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Error, Key, is_hex, is_id};
use crate::storage::durable::{self, folder_of};

/// Incremented when an older version would ignore a restriction of a key.
const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    pub(super) key: Key,
    /// Digest of the secret, in hexadecimal.
    pub(super) sha256: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    keys: Vec<Stored>,
}

/// Content of the file, and its identity.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) keys: Arc<[Stored]>,
    /// Held open, so that its inode number is not reused.
    source: Option<(File, Stamp)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    mode: u32,
}

impl Snapshot {
    pub(super) fn is_missing(&self) -> bool {
        self.source.is_none()
    }

    /// Whether the file is still the one that was read.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        match (fs::metadata(path), &self.source) {
            (Ok(found), Some((_, stamp))) => Stamp::of(&found) == *stamp,
            (Err(error), None) => error.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            mode: metadata.mode(),
        }
    }
}

pub(super) fn read(path: &Path) -> Result<Snapshot, Error> {
    let damaged = |reason: String| Error::Damaged { path: path.to_owned(), reason };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Snapshot { keys: Arc::new([]), source: None });
        }
        Err(error) => return Err(Error::io("open", path)(error)),
    };
    let metadata = file.metadata().map_err(Error::io("read", path))?;
    if metadata.mode() & 0o022 != 0 {
        return Err(damaged("others may write to it (`chmod 600` it)".to_owned()));
    }
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(damaged("it is not a regular file, or too large".to_owned()));
    }
    let mut text = Vec::new();
    let mut bounded = (&mut file).take(FILE_BYTES_MAX);
    bounded.read_to_end(&mut text).map_err(Error::io("read", path))?;
    let keys = parse(&text).map_err(damaged)?;
    Ok(Snapshot { keys: keys.into(), source: Some((file, Stamp::of(&metadata))) })
}

fn parse(text: &[u8]) -> Result<Vec<Stored>, String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    // Errors of serde_json name line and column, and quote at most a short invalid value.
    let versioned: Versioned = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if versioned.version != VERSION {
        return Err(format!("it has version {}, not {VERSION}", versioned.version));
    }
    let document: Document = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut ids = HashSet::new();
    for (number, stored) in document.keys.iter().enumerate() {
        if !is_id(&stored.key.id) || !is_hex(&stored.sha256, 32) {
            return Err(format!("its entry {} is not a key", number + 1));
        }
        if !ids.insert(&*stored.key.id) {
            return Err(format!("the key {} occurs twice", stored.key.id));
        }
    }
    Ok(document.keys)
}

/// Lock for replacing the file, released on drop. It is a separate file that is never deleted,
/// because each change replaces the key file itself.
pub(super) fn lock(path: &Path) -> Result<File, Error> {
    let lock = beside(path, ".lock");
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // Only a file created here changes its owner: an existing one could be a planted link.
    let file = match options.clone().create_new(true).open(&lock) {
        Ok(file) => {
            give_to_owner(&file, folder).map_err(Error::io("change the owner of", &lock))?;
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.open(&lock).map_err(Error::io("open", &lock))?
        }
        Err(error) => return Err(Error::io("create", &lock)(error)),
    };
    file.lock().map_err(Error::io("lock", &lock))?;
    Ok(file)
}

/// Replaces the file durably. Call under the lock.
pub(super) fn replace(path: &Path, keys: &[Stored]) -> Result<(), Error> {
    let document = Document { version: VERSION, keys: keys.to_vec() };
    let mut text = serde_json::to_vec_pretty(&document)
        .map_err(|error| Error::io("write", path)(error.into()))?;
    text.push(b'\n');
    let folder = folder_of(path);
    durable::remove_leftovers(path).map_err(Error::io("clean up beside", path))?;
    durable::replace_as(path, &text, |file| give_to_owner(file, folder))
        .map_err(Error::io("replace", path))
}

/// Gives files created by root to the owner of the folder, so that the server can read them.
fn give_to_owner(file: &File, folder: &Path) -> io::Result<()> {
    let (ours, theirs) = (file.metadata()?, fs::metadata(folder)?);
    if ours.uid() == 0 && theirs.uid() != 0 {
        fchown(file, Some(theirs.uid()), Some(theirs.gid()))?;
    }
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
