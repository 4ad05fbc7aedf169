//! Atomic writes into a session's folder: a file appears complete or not at all, and belongs to the
//! session.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fsync, linkat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::folder::Folder;
use super::path::{OWN_PREFIX, WorkspacePath};
use super::walk::open_folder;

const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
/// Attempts to find a free temporary name.
const NAME_TRIES_MAX: u32 = 16;

/// A file being written. It appears under its name with [`Draft::commit`]; dropping it removes it.
#[derive(Debug)]
pub struct Draft<'a> {
    owner: &'a Folder,
    folder: OwnedFd,
    name: String,
    file: File,
    /// Temporary name, on file systems without unnamed files.
    temporary: Option<String>,
}

impl Folder {
    /// Starts a file and creates its parent folders. [`Draft::commit`] replaces what has the name
    /// then, unless it is a folder.
    pub fn create(&self, path: &WorkspacePath) -> io::Result<Draft<'_>> {
        let _owner = self.as_owner()?;
        let mut folder = self.root.try_clone()?;
        for name in path.folders() {
            folder = enter(&folder, name)?;
        }
        let (file, temporary) = begin(&folder)?;
        let name = path.name().to_owned();
        Ok(Draft { owner: self, folder, name, file, temporary })
    }
}

/// Opens a folder; creates it if it does not exist.
fn enter(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, FOLDER_MODE) {
        Ok(()) => fsync(parent)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(open_folder(parent.as_fd(), &CString::new(name)?)?)
}

fn begin(folder: &OwnedFd) -> io::Result<(File, Option<String>)> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(folder, ".", flags | OFlags::TMPFILE, FILE_MODE) {
        Ok(file) => Ok((file.into(), None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let (file, name) = with_free_name(|name| openat(folder, name, flags, FILE_MODE))?;
            Ok((file.into(), Some(name)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Calls `make` with temporary names until one is free.
fn with_free_name<T>(
    mut make: impl FnMut(&str) -> rustix::io::Result<T>,
) -> io::Result<(T, String)> {
    let mut tries = 0;
    loop {
        let name = free_name();
        match make(&name) {
            Ok(made) => return Ok((made, name)),
            Err(Errno::EXIST) if tries < NAME_TRIES_MAX => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Temporary name that cannot be guessed.
pub(super) fn free_name() -> String {
    format!("{OWN_PREFIX}{:016x}", RandomState::new().hash_one(0))
}

impl Draft<'_> {
    /// Sets the time that the file will be said to have been modified at; after the last write.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.file.set_modified(time)
    }

    /// Moves the file to its name and syncs it to disk.
    pub fn commit(mut self) -> io::Result<Metadata> {
        let _owner = self.owner.as_owner()?;
        self.file.sync_all()?;
        let temporary = match self.temporary.clone() {
            Some(name) => name,
            None => {
                let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let flags = AtFlags::SYMLINK_FOLLOW;
                let linked = with_free_name(|name| linkat(CWD, &link, &self.folder, name, flags))?;
                self.temporary.insert(linked.1).clone()
            }
        };
        renameat(&self.folder, &temporary, &self.folder, &self.name)?;
        self.temporary = None;
        fsync(&self.folder)?;
        self.file.metadata()
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        let Some(temporary) = self.temporary.take() else { return };
        let removed = self
            .owner
            .as_owner()
            .and_then(|_owner| Ok(unlinkat(&self.folder, &temporary, AtFlags::empty())?));
        // The session may have removed it already.
        if let Err(error) = removed {
            tracing::debug!(%error, "cannot remove a temporary file");
        }
    }
}
