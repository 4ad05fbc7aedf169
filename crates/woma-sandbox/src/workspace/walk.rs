//! Going through a tree that may change, be endless, or be shaped to exhaust whoever walks it.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat,
};
use rustix::io::Errno;

use super::path::{LEVELS_MAX, OWN_PREFIX};

/// Folders that are held open at a time while others below them are visited. Beyond, the oldest are
/// finished first, which lets go of them in every tree but one that was built against it.
const HELD_HIGH: usize = 256;
/// No more than this in any tree; what is below is not seen.
const HELD_MAX: usize = 512;
/// Bytes of all paths that are kept from one walk.
const PATHS_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(super) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// How far a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Files and folders.
    pub entries: u64,
    /// Folders in one another; no more than a path may have.
    pub levels: usize,
    /// Names with a dot, and the caches of Python, are seen too.
    pub hidden: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 50_000, levels: LEVELS_MAX, hidden: false }
    }
}

/// What is in a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Bytes that its files take on disk.
    pub bytes: u64,
    /// Files and folders.
    pub files: u64,
}

/// Adds up a folder. Stops once there are more than `files_max` in it: a look must not take for ever
/// because the folder is huge.
pub fn measure(folder: &Path, files_max: u64) -> io::Result<Contents> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    add_up(&openat(CWD, folder, flags, Mode::empty())?, files_max)
}

pub(super) fn add_up(root: &OwnedFd, files_max: u64) -> io::Result<Contents> {
    let mut contents = Contents::default();
    // A file with several names takes its room once.
    let mut linked = BTreeSet::new();
    let bounds = Bounds { entries: files_max, levels: usize::MAX, hidden: true };
    walk(root, bounds, Paths::Unknown, &mut |_, stat| {
        contents.files += 1;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_folder || stat.st_nlink < 2 || linked.insert(stat.st_ino) {
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            contents.bytes = contents.bytes.saturating_add(bytes);
        }
    })?;
    Ok(contents)
}

/// Whether the visitor is told paths. Those of a tree without a bound on its depth have none either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paths {
    Told,
    Unknown,
}

/// A folder that is held open because folders in it are still to be visited.
struct Held {
    folder: OwnedFd,
    path: Vec<u8>,
    level: usize,
    names: Vec<CString>,
}

/// Visits what is below a folder, in no order. False if that was not all of it.
pub(super) fn walk(
    root: &OwnedFd,
    bounds: Bounds,
    paths: Paths,
    visit: &mut dyn FnMut(&[u8], &Stat),
) -> io::Result<bool> {
    let mut walk =
        Walk { bounds, paths, entries: 0, paths_bytes: 0, whole: true, held: VecDeque::new() };
    let root = openat(root, ".", folder_flags(), Mode::empty())?;
    walk.read(root, Vec::new(), 1, visit)?;
    while let Some((name, parent)) = walk.next_folder() {
        let (path, level) = (joined(&parent.path, name.as_bytes(), paths), parent.level + 1);
        let folder = open_folder(parent.folder.as_fd(), &name);
        if parent.names.is_empty() {
            walk.held.retain(|held| !held.names.is_empty());
        }
        match folder {
            Ok(folder) => walk.read(folder, path, level, visit)?,
            // Gone again, or something else by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => walk.whole = false,
        }
    }
    Ok(walk.whole)
}

struct Walk {
    bounds: Bounds,
    paths: Paths,
    entries: u64,
    paths_bytes: usize,
    whole: bool,
    held: VecDeque<Held>,
}

impl Walk {
    /// The next folder to visit, taken from the newest that waits or, when there are many, from the
    /// oldest.
    fn next_folder(&mut self) -> Option<(CString, &Held)> {
        let from =
            if self.held.len() > HELD_HIGH { self.held.front_mut() } else { self.held.back_mut() };
        let held = from?;
        let name = held.names.pop()?;
        Some((name, held))
    }

    fn read(
        &mut self,
        folder: OwnedFd,
        path: Vec<u8>,
        level: usize,
        visit: &mut dyn FnMut(&[u8], &Stat),
    ) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::new(folder.try_clone()?)? {
            // A folder that is deleted while it is read ends early.
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || self.is_left_out(name.to_bytes()) {
                continue;
            }
            // It may be gone again; then the next look counts it.
            let Ok(stat) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let whole_path = joined(&path, name.to_bytes(), self.paths);
            self.entries += 1;
            self.paths_bytes += whole_path.len();
            if self.entries > self.bounds.entries.saturating_add(1)
                || self.paths_bytes > PATHS_BYTES_MAX
            {
                self.whole = false;
                self.held.clear();
                return Ok(());
            }
            visit(&whole_path, &stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                if level < self.bounds.levels {
                    names.push(name.to_owned());
                } else {
                    self.whole = false;
                }
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        if self.held.len() < HELD_MAX {
            self.held.push_back(Held { folder, path, level, names });
        } else {
            self.whole = false;
        }
        Ok(())
    }

    fn is_left_out(&self, name: &[u8]) -> bool {
        !self.bounds.hidden && (name.starts_with(b".") || name == b"__pycache__")
            || self.paths == Paths::Told && name.starts_with(OWN_PREFIX.as_bytes())
    }
}

fn joined(path: &[u8], name: &[u8], paths: Paths) -> Vec<u8> {
    match paths {
        Paths::Unknown => Vec::new(),
        Paths::Told if path.is_empty() => name.to_owned(),
        Paths::Told => [path, b"/", name].concat(),
    }
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW
}

pub(super) fn open_folder(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    openat2(parent, name, folder_flags(), Mode::empty(), BENEATH)
}
