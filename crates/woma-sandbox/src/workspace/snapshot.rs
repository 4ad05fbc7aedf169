//! Changes of a folder between two snapshots, found without reading unchanged files.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Stat};
use sha2::{Digest as _, Sha256};

use super::folder::{Entry, Folder};
use super::path::WorkspacePath;
use super::walk::{Bounds, Contents, Reach, Sum, walk};

/// The kernel's file timestamps advance in steps: a file changed this shortly before a snapshot can
/// change again without a new timestamp.
pub(super) const STAMP_STEP: Duration = Duration::from_millis(20);

/// SHA-256 of a file's content.
pub type Digest = [u8; 32];

/// Regular files of a folder at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    files: BTreeMap<Vec<u8>, FileState>,
    complete: bool,
    contents: Contents,
}

#[derive(Debug, Clone)]
struct FileState {
    stamp: Stamp,
    entry: Entry,
    /// Its timestamp is so recent that a further change might not show.
    fresh: bool,
    digest: Option<Digest>,
}

/// Metadata that changes with the content: the ctime is set by the kernel and cannot be forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Most bytes read to compare contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestBounds {
    /// Of one file; a larger file counts as modified if its size or mtime differs.
    pub file_bytes: u64,
    /// Of all files in one comparison.
    pub total_bytes: u64,
}

impl Default for DigestBounds {
    fn default() -> Self {
        Self { file_bytes: 50 * 1024 * 1024, total_bytes: 200 * 1024 * 1024 }
    }
}

/// Changed files, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<Entry>,
    pub modified: Vec<Entry>,
    pub deleted: Vec<String>,
    /// False if either snapshot is incomplete.
    pub complete: bool,
}

impl Changes {
    /// Whether both snapshots are complete and equal.
    pub fn is_nothing(&self) -> bool {
        *self == Self { complete: true, ..Self::default() }
    }
}

impl Snapshot {
    /// Records the metadata of every file. Hidden files are left out unless `bounds.hidden`;
    /// [`Self::contents`] counts them, up to `counted_max` files and folders.
    pub fn take(folder: &Folder, bounds: Bounds, counted_max: u64) -> io::Result<Self> {
        let owner = folder.as_owner()?;
        let bounds = Bounds { levels: bounds.levels.min(super::LEVELS_MAX), ..bounds };
        let fresh_from = SystemTime::now().checked_sub(STAMP_STEP);
        let fresh_from =
            fresh_from.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let fresh_from = fresh_from.unwrap_or_default();
        let (mut files, mut sum) = (BTreeMap::new(), Sum::default());
        let reach = Reach { reported: Some(bounds), counted: counted_max };
        let coverage = walk(&folder.root, reach, &mut |path, stat| {
            sum.add(stat);
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if let Some(path) = path.filter(|_| is_file) {
                let stamp = Stamp::of(stat);
                let fresh = stamp.changed_since_epoch() >= fresh_from;
                let entry = Entry::new(path, stat);
                files.insert(path.to_owned(), FileState { stamp, entry, fresh, digest: None });
            }
        })?;
        drop(owner);
        // Folders unreadable to their owner can still be counted.
        let contents = if coverage.all { sum.contents } else { folder.usage(counted_max)? };
        Ok(Self { files, complete: coverage.all_reported, contents })
    }

    /// Snapshot of a new folder.
    pub fn of_nothing() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// Size of the folder, including hidden files.
    pub fn contents(&self) -> Contents {
        self.contents
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Digest of a file's content, if it was read.
    pub fn digest(&self, path: &str) -> Option<&Digest> {
        self.files.get(path.as_bytes())?.digest.as_ref()
    }

    /// Stores a digest computed elsewhere for the next comparison.
    pub fn remember(&mut self, path: &str, digest: Digest) {
        if let Some(file) = self.files.get_mut(path.as_bytes()) {
            file.digest = Some(digest);
        }
    }
}

/// Compares two snapshots. Files that are new or look changed are read, within the bounds, and
/// their digests are kept in `after`: a file that was touched, or rewritten with the same content,
/// is not modified.
pub fn diff(
    folder: &Folder,
    before: &Snapshot,
    after: &mut Snapshot,
    bounds: DigestBounds,
) -> Changes {
    let mut changes = Changes { complete: before.complete && after.complete, ..Changes::default() };
    let mut reader = Reader { folder, bounds, bytes_left: bounds.total_bytes };
    for (path, now) in &mut after.files {
        let Some(was) = before.files.get(path) else {
            now.digest = reader.digest(&now.entry);
            changes.added.push(now.entry.clone());
            continue;
        };
        if now.stamp == was.stamp && !was.fresh {
            now.digest = was.digest;
            continue;
        }
        now.digest = reader.digest(&now.entry);
        let modified = match (was.digest, now.digest) {
            (Some(was), Some(now)) => was != now,
            _ => now.stamp.is_another_content(&was.stamp),
        };
        if modified {
            changes.modified.push(now.entry.clone());
        }
    }
    if after.complete {
        let gone = before.files.iter().filter(|(path, _)| !after.files.contains_key(*path));
        changes.deleted = gone.map(|(_, was)| was.entry.path.clone()).collect();
    }
    changes
}

struct Reader<'a> {
    folder: &'a Folder,
    bounds: DigestBounds,
    bytes_left: u64,
}

impl Reader<'_> {
    /// `None` if the file is too large, or no longer the one in the snapshot.
    fn digest(&mut self, entry: &Entry) -> Option<Digest> {
        if entry.size_bytes > self.bounds.file_bytes.min(self.bytes_left) || !entry.addressable {
            return None;
        }
        let path = WorkspacePath::parse(&format!("./{}", entry.path)).ok()?;
        let (file, _) = self.folder.open(&path).ok()?;
        let mut file = file.take(entry.size_bytes.saturating_add(1));
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        let mut length = 0;
        loop {
            let read = file.read(&mut buffer).ok()?;
            if read == 0 {
                break;
            }
            length += read as u64;
            hasher.update(buffer.get(..read)?);
        }
        self.bytes_left = self.bytes_left.saturating_sub(length);
        (length == entry.size_bytes).then(|| hasher.finalize().into())
    }
}

impl Stamp {
    pub(super) fn of(stat: &Stat) -> Self {
        let nanoseconds = |value| i64::try_from(value).unwrap_or(0);
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }

    pub(super) fn changed_since_epoch(&self) -> Duration {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        Duration::new(seconds, u32::try_from(self.changed.1).unwrap_or(0).min(999_999_999))
    }

    /// Compares without ctime: a new name or mode alone is not a change of content.
    fn is_another_content(&self, other: &Self) -> bool {
        (self.inode, self.size, self.modified) != (other.inode, other.size, other.modified)
    }
}
