//! Folder of the sessions without mounts: files that every session reads, and a folder for each.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::rung::Rung;
use crate::steward::control::Setup;
use crate::steward::template::{KERNEL_FILES, SHIM_PROGRAMS};

const PREFIX: &str = "woma-cells-";
const LOCK: &str = "lock";
/// Folder that [`KERNEL_FILES`] and the paths of programs are below in a room.
const IN_ROOM: &str = "/opt/woma";

/// The folder of a steward; removed when it ends, or by the next steward beside it.
#[derive(Debug)]
pub(crate) struct Base {
    folder: PathBuf,
    /// Host paths that sessions may read.
    pub(crate) shown: Vec<PathBuf>,
    pub(crate) rung: Rung,
    /// Held while the steward lives.
    _lock: fs::File,
}

/// Folders of one session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Places {
    /// Contains the other two.
    pub(crate) folder: PathBuf,
    /// Workspace of a session in memory.
    pub(crate) workspace: PathBuf,
    pub(crate) scratch: PathBuf,
}

impl Base {
    pub(super) fn make(setup: &Setup) -> io::Result<Self> {
        remove_stale(&setup.scratch)?;
        let folder = setup.scratch.join(format!("{PREFIX}{}", std::process::id()));
        make_dir(&folder, 0o700)?;
        let lock = fs::File::create(folder.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let shown = setup.mounts.iter().map(|(from, _)| from.clone()).collect();
        let base = Self { folder, shown, rung: setup.rung, _lock: lock };
        for (name, source) in KERNEL_FILES {
            let path = base.files().join(name);
            make_dir(path.parent().unwrap_or(&path), 0o755)?;
            fs::write(&path, source)?;
            if path.starts_with(base.of_room(SHIM_PROGRAMS)) {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
        }
        Self::make_places(&base.zygote())?;
        Ok(base)
    }

    /// Files that every session reads.
    pub(crate) fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Place here of a path below `/opt/woma` of a room.
    pub(crate) fn of_room(&self, path: &str) -> PathBuf {
        let below = Path::new(path).strip_prefix(IN_ROOM).unwrap_or(Path::new(path));
        self.files().join(below)
    }

    pub(crate) fn zygote(&self) -> Places {
        Places::below(self.folder.join("zygote"))
    }

    pub(super) fn session(&self, id: u64) -> Places {
        Places::below(self.folder.join(id.to_string()))
    }

    pub(super) fn make_places(places: &Places) -> io::Result<()> {
        make_dir(&places.workspace, 0o700)?;
        for folder in ["tmp", "shm", "config"] {
            make_dir(&places.scratch.join(folder), 0o700)?;
        }
        Ok(())
    }
}

impl Places {
    fn below(folder: PathBuf) -> Self {
        Self { workspace: folder.join("data"), scratch: folder.join("scratch"), folder }
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("steward: cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// Removes what stewards left behind that could not do it themselves: nobody holds their locks.
fn remove_stale(around: &Path) -> io::Result<()> {
    for entry in fs::read_dir(around)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Another user's, or being removed.
        let Ok(lock) = fs::File::open(entry.path().join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            eprintln!("steward: cannot remove {}: {error}", entry.path().display());
        }
    }
    Ok(())
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}
