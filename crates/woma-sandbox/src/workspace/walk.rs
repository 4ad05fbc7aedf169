//! Walking a tree that may change, be endless, or be shaped to exhaust the walker.

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

/// Folders held open while others below them are visited. Beyond this number the oldest are
/// finished first, which closes them in any tree that is not adversarial.
const HELD_HIGH: usize = 256;
/// Most folders held open in any tree; deeper ones are skipped.
const HELD_MAX: usize = 512;
/// Most bytes of all paths kept from one walk.
const PATHS_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(super) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Bounds of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most files and folders.
    pub entries: u64,
    /// Most nested folders; limited by the longest path.
    pub levels: usize,
    /// Include names that start with a dot, and Python's caches.
    pub hidden: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 50_000, levels: LEVELS_MAX, hidden: false }
    }
}

/// Size of a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Disk usage of its files, in bytes.
    pub bytes: u64,
    /// Number of files and folders.
    pub files: u64,
}

/// Measures a folder. Stops after `files_max` files, to bound its time.
pub fn measure(folder: &Path, files_max: u64) -> io::Result<Contents> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    add_up(&openat(CWD, folder, flags, Mode::empty())?, files_max)
}

pub(super) fn add_up(root: &OwnedFd, files_max: u64) -> io::Result<Contents> {
    let mut sum = Sum::default();
    let reach = Reach { reported: None, counted: files_max.max(1) };
    let coverage = walk(root, reach, &mut |_, stat| sum.add(stat))?;
    if coverage.is_evaded {
        // A tree that hides its files counts as having too many.
        sum.contents.files = sum.contents.files.max(files_max.saturating_add(1));
    }
    Ok(sum.contents)
}

/// Sums up what a walk visits.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) contents: Contents,
    /// Inodes with several names, which count once.
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

/// Extent of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Bounds of the entries whose paths are reported, if any are.
    pub(super) reported: Option<Bounds>,
    /// Most entries visited in total, including hidden, too deep or excess ones. With 0, unreported
    /// entries are skipped.
    pub(super) counted: u64,
}

/// Completeness of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coverage {
    /// All entries within the reported part were visited.
    pub(super) all_reported: bool,
    /// All entries were visited.
    pub(super) all: bool,
    /// Entries were missed because of how the tree is built.
    pub(super) is_evaded: bool,
}

/// A folder held open because folders in it have not been visited yet.
struct Held {
    folder: OwnedFd,
    /// `None` below the reported part.
    path: Option<Vec<u8>>,
    level: usize,
    names: Vec<(CString, bool)>,
}

/// Visits everything below a folder, in no particular order.
pub(super) fn walk(
    root: &OwnedFd,
    reach: Reach,
    visit: &mut dyn FnMut(Option<&[u8]>, &Stat),
) -> io::Result<Coverage> {
    let coverage = Coverage { all_reported: true, all: true, is_evaded: false };
    let mut walk =
        Walk { reach, reported: 0, paths_bytes: 0, visited: 0, coverage, held: VecDeque::new() };
    let opens_up = reach.reported.is_none();
    let root = match openat(root, ".", folder_flags(), Mode::empty()) {
        // For counting only, a folder that its owner has made unreadable is opened anyway.
        Err(Errno::ACCESS) if opens_up => open_up(root)?,
        other => other?,
    };
    walk.read(root, reach.reported.map(|_| Vec::new()), 1, visit)?;
    while let Some((name, is_reported, parent)) = walk.next_folder() {
        let path = parent.path.as_ref().filter(|_| is_reported);
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
            // Removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => walk.miss(path.is_some(), error == Errno::ACCESS),
        }
    }
    Ok(walk.coverage)
}

struct Walk {
    reach: Reach,
    reported: u64,
    paths_bytes: usize,
    visited: u64,
    coverage: Coverage,
    held: VecDeque<Held>,
}

impl Walk {
    /// Next folder to visit: from the newest one held or, if many are held, from the oldest.
    fn next_folder(&mut self) -> Option<(CString, bool, &Held)> {
        let from =
            if self.held.len() > HELD_HIGH { self.held.front_mut() } else { self.held.back_mut() };
        let held = from?;
        let (name, is_reported) = held.names.pop()?;
        Some((name, is_reported, held))
    }

    fn read(
        &mut self,
        folder: OwnedFd,
        path: Option<Vec<u8>>,
        level: usize,
        visit: &mut dyn FnMut(Option<&[u8]>, &Stat),
    ) -> io::Result<()> {
        let Reach { reported, counted } = self.reach;
        let mut names = Vec::new();
        for entry in Dir::new(folder.try_clone()?)? {
            // Reading a folder that is deleted meanwhile ends early.
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let bounds = reported.filter(|bounds| !is_left_out(name.to_bytes(), bounds.hidden));
            let wanted = path.as_ref().zip(bounds);
            if wanted.is_none() && counted == 0 {
                continue;
            }
            // Removed meanwhile; if it comes back, the next walk counts it.
            let Ok(stat) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let path = wanted.map(|(path, _)| joined(path, name.to_bytes()));
            let path = path.filter(|path| self.may_report(path));
            let is_past = wanted.is_some() && path.is_none();
            self.visited += 1;
            if is_past && counted == 0 || counted > 0 && self.visited > counted.saturating_add(1) {
                self.miss(true, false);
                self.held.clear();
                return Ok(());
            }
            visit(path.as_deref(), &stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let is_reported =
                    path.is_some() && bounds.is_some_and(|bounds| level < bounds.levels);
                self.coverage.all_reported &= path.is_none() || is_reported;
                if is_reported || counted > 0 {
                    names.push((name.to_owned(), is_reported));
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

    /// Whether another path fits within the bounds.
    fn may_report(&mut self, path: &[u8]) -> bool {
        let entries_max = self.reach.reported.map_or(0, |bounds| bounds.entries);
        self.reported += 1;
        self.paths_bytes += path.len();
        let may_report =
            self.reported <= entries_max.saturating_add(1) && self.paths_bytes <= PATHS_BYTES_MAX;
        self.coverage.all_reported &= may_report;
        may_report
    }

    fn miss(&mut self, is_reported: bool, is_evaded: bool) {
        self.coverage.all = false;
        self.coverage.all_reported &= !is_reported;
        self.coverage.is_evaded |= is_evaded;
    }
}

/// Hidden names, and our own temporary files.
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

/// Makes a folder readable that its owner has made unreadable, as a session can at any time.
fn open_up(folder: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(fstat(folder)?.st_mode) | Mode::RUSR | Mode::XUSR;
    // By descriptor: a link that replaced the name is not affected.
    chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), mode)?;
    openat(folder, ".", folder_flags(), Mode::empty())
}
