//! Advisory lock of one environment, on a file beside it.
//!
//! Lock files are never deleted: a process could hold the lock of a deleted file, unseen by others.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use super::{Error, Progress, Report};

/// Lock on one environment, released on drop or by the kernel when the last process that holds it
/// ends.
#[derive(Debug)]
pub(super) struct Held(File);

impl Held {
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

/// Takes the lock; waits for another holder.
pub(super) fn wait(path: &Path, report: &mut Report<'_>) -> Result<Held, Error> {
    if let Some(held) = attempt(path)? {
        return Ok(held);
    }
    report(Progress::WaitingForOther);
    let file = open(path)?;
    file.lock().map_err(Error::io("lock", path))?;
    Ok(Held(file))
}

/// Takes the lock if it is free.
pub(super) fn attempt(path: &Path) -> Result<Option<Held>, Error> {
    let file = open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Held(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // The first write of every creation: a failure means that the folder is not writable.
    let folder = path.parent().unwrap_or(path);
    options.open(path).map_err(|source| Error::DataDirectory { path: folder.to_owned(), source })
}
