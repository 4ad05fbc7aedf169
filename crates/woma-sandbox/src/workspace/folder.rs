//! A workspace folder: open, list, stat and remove, all relative to its descriptor.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, fchown, fstat, mkdir, openat, openat2,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::path::WorkspacePath;
use super::snapshot::{STAMP_STEP, Stamp};
use super::walk::{BENEATH, Bounds, Contents, Reach, add_up, walk};
use crate::steward::room::ROOM_ID;
use crate::sys::{self, ActingAs};

/// A session's folder on the host, and the only access to it.
#[derive(Debug)]
pub struct Folder {
    pub(super) root: OwnedFd,
    uid: u32,
    gid: u32,
}

/// An entry of a folder. Names and times are chosen by the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path below the workspace; invalid UTF-8 is replaced.
    pub path: String,
    /// False if [`WorkspacePath`] rejects the name: display it with care; it cannot be opened.
    pub addressable: bool,
    pub kind: Kind,
    /// Length of the file; a sparse file takes less on disk.
    pub size_bytes: u64,
    pub modified: SystemTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Link,
    /// FIFO, socket, device.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// False if the bounds were exceeded, or a folder could not be read.
    pub complete: bool,
}

/// Stamp of a folder; equal stamps mean that no direct entry was added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stillness(Stamp);

impl Folder {
    /// Opens an existing folder. The path must come from the operator, not from the session.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = openat(CWD, path, flags, Mode::empty())?;
        let stat = fstat(&root)?;
        Ok(Self { root, uid: stat.st_uid, gid: stat.st_gid })
    }

    /// Creates the folder of a new session, accessible to its owner only. If the server is root,
    /// the owner on disk has the same id as the session's user inside the room, which makes opening
    /// a session fastest. The parent folder must be closed to others.
    pub fn make(path: &Path) -> io::Result<Self> {
        mkdir(path, Mode::RWXU)?;
        let made = Self::at(path)?;
        if geteuid().is_root() {
            fchown(&made.root, Some(Uid::from_raw(ROOM_ID)), Some(Gid::from_raw(ROOM_ID)))?;
        }
        // Not synced: losing an empty folder does no harm; files are synced when written.
        Self::at(path)
    }

    /// Opens a regular file for reading. Other types are never opened: a FIFO or device cannot
    /// block us, and a file with a lease is refused at once.
    pub fn open(&self, path: &WorkspacePath) -> io::Result<(File, Metadata)> {
        let _owner = self.as_owner()?;
        let file = self.find(path)?;
        expect_file(&fstat(&file)?)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        // Reopens the file that was checked, whatever has its name now.
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = File::from(openat(CWD, link, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }

    /// Returns the entry; links are not followed.
    pub fn stat(&self, path: &WorkspacePath) -> io::Result<Entry> {
        let _owner = self.as_owner()?;
        let stat = fstat(self.find(path)?)?;
        Ok(Entry::new(path.as_str().as_bytes(), &stat))
    }

    /// Removes a file, link or special file; folders are refused.
    pub fn remove(&self, path: &WorkspacePath) -> io::Result<()> {
        let _owner = self.as_owner()?;
        let (folder, name) = path.split();
        let folder = self.find_folder(folder)?;
        Ok(unlinkat(&folder, name, AtFlags::empty())?)
    }

    /// Lists everything below the folder.
    pub fn list(&self, bounds: Bounds) -> io::Result<Listing> {
        let _owner = self.as_owner()?;
        list(&self.root, "", bounds)
    }

    /// Lists everything below one of its folders; the bounds apply to that folder alone. Paths are
    /// as in [`Folder::list`].
    pub fn list_below(&self, below: &WorkspacePath, bounds: Bounds) -> io::Result<Listing> {
        let _owner = self.as_owner()?;
        list(&self.find_folder(below.as_str())?, &format!("{below}/"), bounds)
    }

    /// Stamp that tells whether a direct entry was added or removed since: true if a later stamp
    /// differs or is `None`. `None` if the folder changed so recently that another change might not
    /// show.
    pub fn stillness(&self) -> io::Result<Option<Stillness>> {
        let stat = rustix::fs::fstat(&self.root)?;
        let stamp = Stamp::of(&stat);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let is_old = now.saturating_sub(stamp.changed_since_epoch()) > STAMP_STEP;
        Ok(is_old.then_some(Stillness(stamp)))
    }

    /// Whether it belongs to the user of this process.
    pub fn is_own(&self) -> bool {
        self.uid == geteuid().as_raw()
    }

    /// Project id of its disk quota, if it has one.
    pub(crate) fn project(&self) -> Option<u32> {
        super::projects::of(&self.root)
    }

    /// Disk usage, including hidden files; counting stops beyond `files_max`.
    pub fn usage(&self, files_max: u64) -> io::Result<Contents> {
        add_up(&self.root, files_max)
    }

    /// Gives this thread the rights of the folder's owner until the guard is dropped.
    pub(super) fn as_owner(&self) -> io::Result<Option<ActingAs>> {
        if geteuid().is_root() && self.uid != 0 {
            sys::act_as(self.uid, self.gid).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Opens a descriptor of that name which cannot be read from.
    fn find(&self, path: &WorkspacePath) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(&self.root, path.as_str(), flags, Mode::empty(), BENEATH)?)
    }

    fn find_folder(&self, folder: &str) -> io::Result<OwnedFd> {
        let folder = if folder.is_empty() { "." } else { folder };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(self.root.as_fd(), folder, flags, Mode::empty(), BENEATH)?)
    }
}

fn list(root: &OwnedFd, prefix: &str, bounds: Bounds) -> io::Result<Listing> {
    let above = prefix.matches('/').count();
    let levels = bounds.levels.min(super::LEVELS_MAX).saturating_sub(above);
    let bounds = Bounds { levels, ..bounds };
    let mut entries = Vec::new();
    let reach = Reach { reported: Some(bounds), counted: 0 };
    let coverage = walk(root, reach, &mut |path, stat| {
        entries.extend(path.map(|path| Entry::new(&[prefix.as_bytes(), path].concat(), stat)));
    })?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let entries_max = usize::try_from(bounds.entries).unwrap_or(usize::MAX);
    let complete = coverage.all_reported && entries.len() <= entries_max;
    entries.truncate(entries_max);
    Ok(Listing { entries, complete })
}

fn expect_file(stat: &Stat) -> io::Result<()> {
    match Kind::of(stat) {
        Kind::File => Ok(()),
        Kind::Folder => Err(Errno::ISDIR.into()),
        // The error that the kernel returns for a link in the middle of a path.
        Kind::Link => Err(Errno::LOOP.into()),
        Kind::Other => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

impl Kind {
    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

impl Entry {
    pub(super) fn new(path: &[u8], stat: &Stat) -> Self {
        let text = String::from_utf8_lossy(path).into_owned();
        let addressable = text.as_bytes() == path
            && WorkspacePath::parse(&format!("./{text}")).is_ok_and(|path| path.as_str() == text);
        Self {
            path: text,
            addressable,
            kind: Kind::of(stat),
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: modified(stat),
        }
    }
}

/// Times are chosen by the session; an invalid one becomes the epoch.
fn modified(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0).min(999_999_999);
    let since = Duration::new(seconds, nanoseconds);
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
