//! Claims of a process on sessions whose kernel it has. Processes may share a data folder: a second
//! kernel in the same folder, or a reset by another process, would destroy the first one's work.
//!
//! A claim is a locked file, so it ends with its process, however that ends. The file stays, with the
//! name of its last holder, for as long as there is the session: who claims it learns whether another
//! process has had it since, so that what is remembered of it no longer holds.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
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
    /// Name of this process, which no other one has or had.
    process: String,
    /// By name of what is claimed.
    held: Mutex<BTreeMap<String, Held>>,
}

#[derive(Debug)]
struct Held {
    /// Locked for as long as it is open.
    _file: File,
    /// Claims of this process that share it.
    count: usize,
    /// The session is gone, and the file goes with the last claim.
    is_over: bool,
}

/// A session that no other process may run or remove meanwhile.
#[derive(Debug)]
pub struct Claim {
    claims: Arc<Claims>,
    name: String,
    /// Whether another process has had it since this one did.
    pub(crate) was_elsewhere: bool,
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
    pub(super) fn open(folder: &Path, process: &str) -> io::Result<Self> {
        closed_folder(folder)?;
        let (folder, process) = (folder.to_owned(), process.to_owned());
        Ok(Self { folder, process, held: Mutex::default() })
    }

    /// Claims what has this name. Claims of one process share it.
    pub(crate) fn take(self: &Arc<Self>, name: &str) -> Result<Claim, NotClaimed> {
        let mut held = lock(&self.held);
        let mut was_elsewhere = false;
        match held.get_mut(name) {
            Some(held) => held.count += 1,
            None => {
                let mut file = locked(&self.folder.join(name))?;
                let mut before = Vec::new();
                file.read_to_end(&mut before)?;
                let own = format!("{} {}", std::process::id(), self.process);
                was_elsewhere = !before.is_empty() && before != own.as_bytes();
                if before != own.as_bytes() {
                    file.rewind()?;
                    file.set_len(0)?;
                    file.write_all(own.as_bytes())?;
                }
                held.insert(name.to_owned(), Held { _file: file, count: 1, is_over: false });
            }
        }
        Ok(Claim { claims: Arc::clone(self), name: name.to_owned(), was_elsewhere })
    }
}

impl Claim {
    /// Gives it up for good: what was claimed does not exist any more.
    pub(crate) fn end(self) {
        if let Some(held) = lock(&self.claims.held).get_mut(&self.name) {
            held.is_over = true;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = lock(&self.claims.held);
        let Some(claimed) = held.get_mut(&self.name) else { return };
        claimed.count -= 1;
        if claimed.count > 0 {
            return;
        }
        // Removed while it is locked: a process that has opened it meanwhile notices.
        if claimed.is_over
            && let Err(error) = fs::remove_file(self.claims.folder.join(&self.name))
        {
            tracing::debug!(%error, "The file of a claim stays");
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
                let pid = holder.as_deref().and_then(|text| text.split_whitespace().next());
                return Err(NotClaimed::Held(pid.and_then(|pid| pid.parse().ok())));
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

    fn claims(root: &Path, process: &str) -> Arc<Claims> {
        Arc::new(Claims::open(root, process).unwrap())
    }

    #[test]
    fn a_claim_is_shared_within_a_process_and_refused_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("claims");
        let one = claims(&root, "one");
        let both = [one.take("a").unwrap(), one.take("a").unwrap()];
        // Locks belong to open files, so this is as good as another process.
        let other = claims(&root, "other");
        let refused = other.take("a").unwrap_err();
        assert!(matches!(refused, NotClaimed::Held(Some(id)) if id == std::process::id()));
        other.take("b").unwrap();
        let [first, second] = both;
        drop(first);
        other.take("a").unwrap_err();
        drop(second);
        let taken = other.take("a").unwrap();
        one.take("a").unwrap_err();
        drop(taken);
    }

    #[test]
    fn a_claim_says_whether_another_process_had_it() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (claims(folder.path(), "one"), claims(folder.path(), "other"));
        let was_elsewhere = |claims: &Arc<Claims>| claims.take("a").unwrap().was_elsewhere;
        assert!(!was_elsewhere(&one), "it is new");
        assert!(!was_elsewhere(&one), "nobody else had it");
        assert!(was_elsewhere(&other));
        assert!(!was_elsewhere(&other));
        assert!(was_elsewhere(&one));
        // Nothing is known of one that is over.
        one.take("a").unwrap().end();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(!was_elsewhere(&other));
    }

    #[test]
    fn the_file_of_a_claim_goes_with_the_last_claim_of_what_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let one = claims(folder.path(), "one");
        let kept = one.take("a").unwrap();
        one.take("a").unwrap().end();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        drop(kept);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_a_killed_process_can_be_claimed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("left"), "1234567").unwrap();
        let claims = claims(folder.path(), "one");
        let claim = claims.take("left").unwrap();
        assert!(claim.was_elsewhere);
        let holder = fs::read_to_string(folder.path().join("left")).unwrap();
        assert_eq!(holder, format!("{} one", std::process::id()));
    }
}
