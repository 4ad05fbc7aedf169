//! What has changed in a folder between two looks, told without reading what has not.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Stat};
use sha2::{Digest as _, Sha256};

use super::folder::{Entry, Folder};
use super::path::WorkspacePath;
use super::walk::{Bounds, Contents, Reach, Sum, walk};

/// The clock that the kernel stamps files with moves in steps; a file that was changed this shortly
/// before a look can change again without a new stamp.
pub(super) const STAMP_STEP: Duration = Duration::from_millis(20);

/// SHA-256 of a file's content.
pub type Digest = [u8; 32];

/// The regular files of a folder at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    files: BTreeMap<Vec<u8>, Seen>,
    complete: bool,
    contents: Contents,
}

#[derive(Debug, Clone)]
struct Seen {
    stamp: Stamp,
    entry: Entry,
    /// Its stamp does not tell whether it is changed again.
    fresh: bool,
    digest: Option<Digest>,
}

/// What cannot stay the same when content changes: the last is the kernel's own and cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// How much is read to compare contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestBounds {
    /// Of one file; a larger one counts as modified when its size or time is another.
    pub file_bytes: u64,
    /// Of all files of one comparison.
    pub total_bytes: u64,
}

impl Default for DigestBounds {
    fn default() -> Self {
        Self { file_bytes: 50 * 1024 * 1024, total_bytes: 200 * 1024 * 1024 }
    }
}

/// By path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<Entry>,
    pub modified: Vec<Entry>,
    pub deleted: Vec<String>,
    /// False if one of the looks did not see everything.
    pub complete: bool,
}

impl Changes {
    /// Whether everything was seen, and is as it was.
    pub fn is_nothing(&self) -> bool {
        *self == Self { complete: true, ..Self::default() }
    }
}

impl Snapshot {
    /// Looks at every file, and into none. Without `bounds.hidden` the hidden ones are left out; in
    /// [`Self::contents`] they are not, up to `counted_max` files and folders.
    pub fn take(folder: &Folder, bounds: Bounds, counted_max: u64) -> io::Result<Self> {
        let owner = folder.as_owner()?;
        let bounds = Bounds { levels: bounds.levels.min(super::LEVELS_MAX), ..bounds };
        let fresh_from = SystemTime::now().checked_sub(STAMP_STEP);
        let fresh_from =
            fresh_from.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let fresh_from = fresh_from.unwrap_or_default();
        let (mut files, mut sum) = (BTreeMap::new(), Sum::default());
        let reach = Reach { told: Some(bounds), counted: counted_max };
        let saw = walk(&folder.root, reach, &mut |path, stat| {
            sum.add(stat);
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if let Some(path) = path.filter(|_| is_file) {
                let stamp = Stamp::of(stat);
                let fresh = stamp.changed_since_epoch() >= fresh_from;
                let entry = Entry::new(path, stat);
                files.insert(path.to_owned(), Seen { stamp, entry, fresh, digest: None });
            }
        })?;
        drop(owner);
        // What its owner cannot see, whoever only counts can.
        let contents = if saw.all { sum.contents } else { folder.usage(counted_max)? };
        Ok(Self { files, complete: saw.all_told, contents })
    }

    /// Of a folder that was just made.
    pub fn of_nothing() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// All that is in the folder, hidden or not, and what it takes on disk.
    pub fn contents(&self) -> Contents {
        self.contents
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The digest of a file's content, if it was read.
    pub fn digest(&self, path: &str) -> Option<&Digest> {
        self.files.get(path.as_bytes())?.digest.as_ref()
    }

    /// Keeps a digest that was computed elsewhere, so that the next comparison has it.
    pub fn remember(&mut self, path: &str, digest: Digest) {
        if let Some(seen) = self.files.get_mut(path.as_bytes()) {
            seen.digest = Some(digest);
        }
    }
}

/// What has become of a folder. What is new or looks changed is read, as far as the bounds go, and
/// its digest kept in `after`: a file that was touched, or written again with the same content, has
/// not changed.
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
    /// `None` if it is too large, or not the file any more that was seen.
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

    /// Without the content: a new name or mode alone is none.
    fn is_another_content(&self, other: &Self) -> bool {
        (self.inode, self.size, self.modified) != (other.inode, other.size, other.modified)
    }
}
