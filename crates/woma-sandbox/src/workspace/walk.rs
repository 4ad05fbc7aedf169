//! Going through a tree that may change, be endless, or be shaped to exhaust whoever walks it.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, chmod, fstat, openat, openat2,
    statat,
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
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    add_up(&openat(CWD, folder, flags, Mode::empty())?, files_max)
}

pub(super) fn add_up(root: &OwnedFd, files_max: u64) -> io::Result<Contents> {
    let mut sum = Sum::default();
    let reach = Reach { told: None, counted: files_max.max(1) };
    let saw = walk(root, reach, &mut |_, stat| sum.add(stat))?;
    if saw.is_evaded {
        // A tree that was built so that its files are not seen has too many of them.
        sum.contents.files = sum.contents.files.max(files_max.saturating_add(1));
    }
    Ok(sum.contents)
}

/// Adds up what a walk visits.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) contents: Contents,
    /// A file with several names takes its room once.
    linked: BTreeSet<u64>,
}

impl Sum {
    pub(super) fn add(&mut self, stat: &Stat) {
        self.contents.files += 1;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_folder || stat.st_nlink < 2 || self.linked.insert(stat.st_ino) {
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            self.contents.bytes = self.contents.bytes.saturating_add(bytes);
        }
    }
}

/// What a walk visits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Of what the visitor is told the path, if of anything.
    pub(super) told: Option<Bounds>,
    /// How many are visited in all if the others are too: hidden, too deep, too many to be told.
    /// With 0 they are left out.
    pub(super) counted: u64,
}

/// What a walk has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Saw {
    /// Everything that the visitor was to be told of.
    pub(super) all_told: bool,
    /// Everything that was to be visited.
    pub(super) all: bool,
    /// Not everything, and it is the tree's own doing.
    pub(super) is_evaded: bool,
}

/// A folder that is held open because folders in it are still to be visited.
struct Held {
    folder: OwnedFd,
    /// `None` below what is told.
    path: Option<Vec<u8>>,
    level: usize,
    names: Vec<(CString, bool)>,
}

/// Visits what is below a folder, in no order.
pub(super) fn walk(
    root: &OwnedFd,
    reach: Reach,
    visit: &mut dyn FnMut(Option<&[u8]>, &Stat),
) -> io::Result<Saw> {
    let saw = Saw { all_told: true, all: true, is_evaded: false };
    let mut walk = Walk { reach, told: 0, paths_bytes: 0, visited: 0, saw, held: VecDeque::new() };
    let opens_up = reach.told.is_none();
    let root = match openat(root, ".", folder_flags(), Mode::empty()) {
        // Who only counts is not kept out by a folder that its owner has closed to itself.
        Err(Errno::ACCESS) if opens_up => open_up(root)?,
        other => other?,
    };
    walk.read(root, reach.told.map(|_| Vec::new()), 1, visit)?;
    while let Some((name, is_told, parent)) = walk.next_folder() {
        let path = parent.path.as_ref().filter(|_| is_told);
        let path = path.map(|path| joined(path, name.as_bytes()));
        let level = parent.level + 1;
        let folder = match open_folder(parent.folder.as_fd(), &name) {
            Err(Errno::ACCESS) if opens_up => open_closed(parent.folder.as_fd(), &name),
            other => other,
        };
        if parent.names.is_empty() {
            walk.held.retain(|held| !held.names.is_empty());
        }
        match folder {
            Ok(folder) => walk.read(folder, path, level, visit)?,
            // Gone again, or something else by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => walk.miss(path.is_some(), error == Errno::ACCESS),
        }
    }
    Ok(walk.saw)
}

struct Walk {
    reach: Reach,
    told: u64,
    paths_bytes: usize,
    visited: u64,
    saw: Saw,
    held: VecDeque<Held>,
}

impl Walk {
    /// The next folder to visit, taken from the newest that waits or, when there are many, from the
    /// oldest.
    fn next_folder(&mut self) -> Option<(CString, bool, &Held)> {
        let from =
            if self.held.len() > HELD_HIGH { self.held.front_mut() } else { self.held.back_mut() };
        let held = from?;
        let (name, is_told) = held.names.pop()?;
        Some((name, is_told, held))
    }

    fn read(
        &mut self,
        folder: OwnedFd,
        path: Option<Vec<u8>>,
        level: usize,
        visit: &mut dyn FnMut(Option<&[u8]>, &Stat),
    ) -> io::Result<()> {
        let Reach { told, counted } = self.reach;
        let mut names = Vec::new();
        for entry in Dir::new(folder.try_clone()?)? {
            // A folder that is deleted while it is read ends early.
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let bounds = told.filter(|bounds| !is_left_out(name.to_bytes(), bounds.hidden));
            let wanted = path.as_ref().zip(bounds);
            if wanted.is_none() && counted == 0 {
                continue;
            }
            // It may be gone again; then the next look counts it.
            let Ok(stat) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let path = wanted.map(|(path, _)| joined(path, name.to_bytes()));
            let path = path.filter(|path| self.tells(path));
            let is_past = wanted.is_some() && path.is_none();
            self.visited += 1;
            if is_past && counted == 0 || counted > 0 && self.visited > counted.saturating_add(1) {
                self.miss(true, false);
                self.held.clear();
                return Ok(());
            }
            visit(path.as_deref(), &stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let is_told = path.is_some() && bounds.is_some_and(|bounds| level < bounds.levels);
                self.saw.all_told &= path.is_none() || is_told;
                if is_told || counted > 0 {
                    names.push((name.to_owned(), is_told));
                }
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        if self.held.len() < HELD_MAX {
            self.held.push_back(Held { folder, path, level, names });
        } else {
            self.miss(path.is_some(), true);
        }
        Ok(())
    }

    /// Whether there is room for another path.
    fn tells(&mut self, path: &[u8]) -> bool {
        let entries_max = self.reach.told.map_or(0, |bounds| bounds.entries);
        self.told += 1;
        self.paths_bytes += path.len();
        let tells =
            self.told <= entries_max.saturating_add(1) && self.paths_bytes <= PATHS_BYTES_MAX;
        self.saw.all_told &= tells;
        tells
    }

    fn miss(&mut self, is_told: bool, is_evaded: bool) {
        self.saw.all = false;
        self.saw.all_told &= !is_told;
        self.saw.is_evaded |= is_evaded;
    }
}

/// Hidden names, and our own unfinished files.
fn is_left_out(name: &[u8], shows_hidden: bool) -> bool {
    !shows_hidden && (name.starts_with(b".") || name == b"__pycache__")
        || name.starts_with(OWN_PREFIX.as_bytes())
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_owned() } else { [path, b"/", name].concat() }
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW
}

pub(super) fn open_folder(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    openat2(parent, name, folder_flags(), Mode::empty(), BENEATH)
}

fn open_closed(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_up(&openat2(parent, name, flags, Mode::empty(), BENEATH)?)
}

/// Opens a folder whose owner has closed it to itself, as the code of a session can at any time.
fn open_up(folder: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(fstat(folder)?.st_mode) | Mode::RUSR | Mode::XUSR;
    // By the descriptor: a link that has taken the name's place is not what is opened up.
    chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), mode)?;
    openat(folder, ".", folder_flags(), Mode::empty())
}
