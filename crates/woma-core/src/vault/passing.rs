//! Folders that end with what they are for: of runs without a session, and of sessions on their way
//! out. Servers may share a data folder, so each has a place of its own, which is locked while it
//! lives; a place that nobody has locked was left by a server that was killed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use woma_sandbox::workspace::remove_tree;

use super::closed_folder;

/// Held for a moment by who looks for a place, or for places that were left.
const GATE: &str = "gate";
const LOCK: &str = "lock";

#[derive(Debug)]
pub(crate) struct PassingRoot {
    pub(crate) folder: PathBuf,
    /// Locked for as long as it is open.
    _lock: File,
}

impl PassingRoot {
    /// Takes a place, and removes those that were left.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        closed_folder(root)?;
        let gate = opened(&root.join(GATE))?;
        gate.lock()?;
        let left = left_in(root)?;
        let folder = root.join(uuid::Uuid::new_v4().simple().to_string());
        closed_folder(&folder)?;
        let lock = opened(&folder.join(LOCK))?;
        lock.lock()?;
        for path in left {
            remove(&path)?;
        }
        drop(gate);
        Ok(Self { folder, _lock: lock })
    }
}

impl Drop for PassingRoot {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            tracing::warn!(%error, "A folder stays until the next start");
        }
    }
}

/// Whatever no server has locked.
fn left_in(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let is_held = || match File::open(path.join(LOCK)) {
            Ok(lock) => lock.try_lock().is_err(),
            Err(_) => false,
        };
        if path.is_dir() && !is_held() {
            left.push(path);
        }
    }
    Ok(left)
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match remove_tree(path, u64::MAX) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::PassingRoot;

    #[test]
    fn what_was_left_goes_and_what_a_server_has_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("passing");
        let count = || fs::read_dir(&root).unwrap().count();
        let first = PassingRoot::open(&root).unwrap();
        let run = first.folder.join("run");
        fs::create_dir(&run).unwrap();
        fs::write(run.join("a"), "1").unwrap();
        fs::create_dir_all(root.join("left/run")).unwrap();
        let second = PassingRoot::open(&root).unwrap();
        assert_eq!(fs::read_to_string(run.join("a")).unwrap(), "1");
        assert_eq!(count(), 3, "two places and the gate");
        // A server that is killed leaves its folder, and no lock.
        let folder = first.folder.clone();
        let copy = root.join("killed");
        fs::rename(&folder, &copy).unwrap();
        drop(first);
        drop(second);
        let third = PassingRoot::open(&root).unwrap();
        assert!(!copy.exists());
        drop(third);
        assert_eq!(count(), 1);
    }
}
