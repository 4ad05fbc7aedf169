//! Claims of a process on sessions whose kernel it has. Processes may share a data folder: a second
//! kernel in the same folder, or a reset by another process, would destroy the first one's work.
//!
//! A claim is a locked file, so it ends with its process, however that ends.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use woma_sandbox::sync::lock;

use super::layout::closed_folder;

/// Attempts to lock a file that other processes keep replacing.
const ATTEMPTS_MAX: usize = 100;

/// The claims of this process.
#[derive(Debug)]
pub(crate) struct Claims {
    folder: PathBuf,
    /// By name: the locked file, and how many claims share it.
    held: Mutex<BTreeMap<String, (File, usize)>>,
}

/// A session that no other process may run or remove meanwhile.
#[derive(Debug)]
pub struct Claim {
    claims: Arc<Claims>,
    name: String,
}

/// Failure to claim a session.
#[derive(Debug)]
pub(crate) enum NotClaimed {
    /// Another process has it; its id, if it could be read.
    Held(Option<u32>),
    Io(io::Error),
}

impl From<io::Error> for NotClaimed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Claims {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        closed_folder(folder)?;
        Ok(Self { folder: folder.to_owned(), held: Mutex::default() })
    }

    /// Claims what has this name. Claims of one process share it.
    pub(crate) fn take(self: &Arc<Self>, name: &str) -> Result<Claim, NotClaimed> {
        let mut held = lock(&self.held);
        match held.get_mut(name) {
            Some((_, count)) => *count += 1,
            None => {
                let mut file = locked(&self.folder.join(name))?;
                file.set_len(0)?;
                file.write_all(std::process::id().to_string().as_bytes())?;
                held.insert(name.to_owned(), (file, 1));
            }
        }
        Ok(Claim { claims: Arc::clone(self), name: name.to_owned() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = lock(&self.claims.held);
        let Some((_, count)) = held.get_mut(&self.name) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        // Removed while it is locked: a process that has opened it meanwhile notices.
        if let Err(error) = fs::remove_file(self.claims.folder.join(&self.name)) {
            tracing::debug!(%error, "The file of a claim stays until the next claim");
        }
        held.remove(&self.name);
    }
}

/// Opens and locks a file, which is still the one of that name then.
fn locked(path: &Path) -> Result<File, NotClaimed> {
    for _ in 0..ATTEMPTS_MAX {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(path).ok();
                return Err(NotClaimed::Held(holder.and_then(|text| text.trim().parse().ok())));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        match fs::metadata(path) {
            Ok(named) if named.ino() == file.metadata()?.ino() => return Ok(file),
            // Its holder has removed it, after we had opened it.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(NotClaimed::Held(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_shared_within_a_process_and_refused_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("claims");
        let one = Arc::new(Claims::open(&root).unwrap());
        let claims = [one.take("a").unwrap(), one.take("a").unwrap()];
        // Locks belong to open files, so this is as good as another process.
        let other = Arc::new(Claims::open(&root).unwrap());
        let refused = other.take("a").unwrap_err();
        assert!(matches!(refused, NotClaimed::Held(Some(id)) if id == std::process::id()));
        other.take("b").unwrap();
        let [first, second] = claims;
        drop(first);
        other.take("a").unwrap_err();
        drop(second);
        let taken = other.take("a").unwrap();
        one.take("a").unwrap_err();
        drop(taken);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_a_killed_process_can_be_claimed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("left"), "1234567").unwrap();
        let claims = Arc::new(Claims::open(folder.path()).unwrap());
        let claim = claims.take("left").unwrap();
        let holder = fs::read_to_string(folder.path().join("left")).unwrap();
        assert_eq!(holder, std::process::id().to_string());
        drop(claim);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
