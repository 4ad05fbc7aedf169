//! Ephemeral folders: of runs without a session, and of sessions that are being deleted. Servers
//! may share a data folder, so each has its own root, locked while the server runs. A root without
//! a lock was left by a killed server and is removed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use woma_sandbox::workspace::remove_tree;

use super::layout::closed_folder;

/// Lock file held while a server creates its root or looks for abandoned ones.
const GATE: &str = "gate";
const LOCK: &str = "lock";

#[derive(Debug)]
pub(crate) struct EphemeralRoot {
    pub(crate) folder: PathBuf,
    /// Holds the lock while open.
    _lock: File,
}

impl EphemeralRoot {
    /// Creates a root for this server and removes abandoned ones.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        closed_folder(root)?;
        let gate = opened(&root.join(GATE))?;
        gate.lock()?;
        let abandoned = abandoned_in(root)?;
        let folder = root.join(uuid::Uuid::new_v4().simple().to_string());
        closed_folder(&folder)?;
        let lock = opened(&folder.join(LOCK))?;
        lock.lock()?;
        for path in abandoned {
            remove(&path)?;
        }
        drop(gate);
        Ok(Self { folder, _lock: lock })
    }
}

impl Drop for EphemeralRoot {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            tracing::warn!(%error, "An ephemeral folder stays until the next start");
        }
    }
}

/// Roots that no running server has locked.
fn abandoned_in(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut abandoned = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let is_held = || match File::open(path.join(LOCK)) {
            Ok(lock) => lock.try_lock().is_err(),
            Err(_) => false,
        };
        if path.is_dir() && !is_held() {
            abandoned.push(path);
        }
    }
    Ok(abandoned)
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

    use super::EphemeralRoot;

    #[test]
    fn removes_abandoned_roots_and_keeps_locked_ones() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("passing");
        let count = || fs::read_dir(&root).unwrap().count();
        let first = EphemeralRoot::open(&root).unwrap();
        let run = first.folder.join("run");
        fs::create_dir(&run).unwrap();
        fs::write(run.join("a"), "1").unwrap();
        fs::create_dir_all(root.join("left/run")).unwrap();
        let second = EphemeralRoot::open(&root).unwrap();
        assert_eq!(fs::read_to_string(run.join("a")).unwrap(), "1");
        assert_eq!(count(), 3, "two roots and the gate");
        // A killed server leaves its folder without a lock.
        let folder = first.folder.clone();
        let copy = root.join("killed");
        fs::rename(&folder, &copy).unwrap();
        drop(first);
        drop(second);
        let third = EphemeralRoot::open(&root).unwrap();
        assert!(!copy.exists());
        drop(third);
        assert_eq!(count(), 1);
    }
}
