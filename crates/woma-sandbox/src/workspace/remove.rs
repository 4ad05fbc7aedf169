//! Recursive removal of a session's folder, however deep, unreadable or busy it is.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;

use super::projects;
use super::walk::BENEATH;
use super::write::free_name;

/// Removes a folder and everything in it; succeeds if it does not exist. The path must come from
/// the operator.
///
/// Nested folders are moved to the top before they are emptied, so that a tree of any depth takes
/// two descriptors. More than `steps_max` deletions are an error: files are being created as fast
/// as they are deleted.
pub fn remove_tree(path: &Path, steps_max: u64) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = openat(CWD, parent, flags, Mode::empty())?;
    let name = std::ffi::CString::new(name.as_encoded_bytes())?;
    let root = match open(parent.as_fd(), &name) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let project = projects::of(&root);
    let mut removal = Removal { root, steps_left: steps_max };
    while removal.pass()? {}
    unlinkat(&parent, &name, AtFlags::REMOVEDIR)?;
    projects::release(project);
    Ok(())
}

struct Removal {
    root: OwnedFd,
    steps_left: u64,
}

impl Removal {
    /// Removes the files at the top and in its folders. False if there was nothing.
    fn pass(&mut self) -> io::Result<bool> {
        let mut found = false;
        for entry in Dir::read_from(&self.root)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            found = true;
            self.step()?;
            match unlinkat(&self.root, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => self.folder(name)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    fn folder(&mut self, name: &CStr) -> io::Result<()> {
        let folder = match open(self.root.as_fd(), name) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            other => other?,
        };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.step()?;
            match unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => self.lift(&folder, name)?,
                Err(error) => return Err(error.into()),
            }
        }
        drop(folder);
        match unlinkat(&self.root, name, AtFlags::REMOVEDIR) {
            // Not empty because files are still being written: left to the next pass.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty folder, or moves it to the top for the next pass.
    fn lift(&self, folder: &OwnedFd, name: &CStr) -> io::Result<()> {
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let top = free_name();
        let moved = match renameat(folder, name, &self.root, &top) {
            // A folder must be writable to be moved, because its `..` changes.
            Err(Errno::ACCESS) => {
                drop(open(folder.as_fd(), name)?);
                renameat(folder, name, &self.root, &top)
            }
            other => other,
        };
        match moved {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn step(&mut self) -> io::Result<()> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or_else(|| {
            io::Error::other(
                "the folder cannot be emptied: files are created as fast as they are deleted",
            )
        })?;
        Ok(())
    }
}

/// Opens a folder to be emptied; its owner may have made it unreadable.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat2(parent, name, flags | OFlags::PATH, Mode::empty(), BENEATH)?;
    // By descriptor: a link that replaced the name is not affected.
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let stat = rustix::fs::fstat(&found)?;
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
        return openat(&found, ".", flags, Mode::empty());
    }
    chmod(&link, Mode::RWXU)?;
    openat(&found, ".", flags, Mode::empty())
}
