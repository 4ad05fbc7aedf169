//! Copies of sessions' files in a folder of the host, for clients that have no server to download
//! from. Each session has one folder there. It bears a mark that names its session; a folder
//! without that mark belongs to somebody else and is never written to or removed.
//!
//! The folder of copies is not visible to sessions, so no session can plant links in it. All calls
//! block.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use woma_sandbox::workspace::{
    Contents, Entry, Folder, Kind, Reserve, WorkspacePath, counted_max, remove_tree, sanitised,
};

use crate::model::{ExportedFile, SessionId, hex};
use crate::storage::layout::closed_folder;

/// Files that are copied after one run.
pub(crate) const COPIED_MAX: usize = 50;
/// File in a session's folder of copies that says whose it is. Sessions cannot name a file so.
const MARK: &str = ".woma-session";
/// Beginning of folders that have no name yet. Sessions' folders cannot begin so.
const UNNAMED: &str = ".woma-";
/// Age at which a folder without a name was left by a killed server.
const UNNAMED_AGE_MAX: Duration = Duration::from_hours(1);
/// Longest mark that is read, in bytes.
const MARK_BYTES_MAX: u64 = 8 * 1024;
/// Mark of copies whose session ended with its run.
const OF_A_RUN: &str = "run";
/// Most files and folders removed with the copies of one session.
const REMOVED_MAX: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Exports {
    root: PathBuf,
    reserve: Arc<Reserve>,
    /// Largest file that is copied.
    file_bytes_max: u64,
}

/// The session that copies belong to.
#[derive(Debug, Clone)]
pub(crate) struct ExportOwner {
    name: String,
    mark: String,
}

/// Changes to be repeated in the copies of a session.
#[derive(Debug)]
pub(crate) struct ExportJob {
    pub(crate) owner: ExportOwner,
    pub(crate) source: Arc<Folder>,
    pub(crate) written: Vec<Entry>,
    pub(crate) deleted: Vec<String>,
    /// The limit of the session's own folder.
    pub(crate) limit: Contents,
}

/// Copies that were made, and why others were not.
#[derive(Debug, Default)]
pub(crate) struct ExportReport {
    pub(crate) copies: Vec<ExportedFile>,
    pub(crate) notes: Vec<String>,
}

impl ExportOwner {
    /// A session; `folder`: its files.
    pub(crate) fn session(id: &SessionId, folder: &Path) -> Self {
        let mark = format!("session {}", folder.display());
        let name = sanitised(id.as_str()).unwrap_or_else(|| short_digest(&mark));
        Self { name, mark }
    }

    /// A session that ends with its run.
    pub(crate) fn run() -> Self {
        let name = format!("run-{}", uuid::Uuid::now_v7().simple());
        Self { name, mark: OF_A_RUN.to_owned() }
    }

    /// Names of its folder: the second one is for when the first is taken.
    fn names(&self) -> [String; 2] {
        [self.name.clone(), format!("{}-{}", self.name, short_digest(&self.mark))]
    }
}

fn short_digest(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    hex(&digest[..4])
}

impl Exports {
    pub(crate) fn new(root: &Path, reserve: Arc<Reserve>, file_bytes_max: u64) -> Self {
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Self { root, reserve, file_bytes_max }
    }

    /// Copies files that were written, and removes the copies of those that were deleted.
    pub(crate) fn repeat(&self, job: &ExportJob) -> ExportReport {
        let mut report = ExportReport::default();
        let place = match job.written.is_empty() {
            true => self.find(&job.owner),
            false => self.find_or_make(&job.owner).map(Some),
        };
        let place = match place {
            Ok(Some(place)) => place,
            Ok(None) => return report,
            Err(error) => {
                report.notes.push(format!("files are not copied to the host: {error}"));
                return report;
            }
        };
        if let Err(error) = self.repeat_in(&place, job, &mut report) {
            report.notes.push(format!("files are not copied to the host: {error}"));
        }
        report
    }

    fn repeat_in(
        &self,
        place: &Path,
        job: &ExportJob,
        report: &mut ExportReport,
    ) -> io::Result<()> {
        let copies = Folder::at(place)?;
        for path in job.deleted.iter().filter_map(|path| parsed(path)) {
            remove_copy(&copies, &path);
        }
        if job.written.is_empty() {
            return Ok(());
        }
        let mut used = copies.usage(counted_max(job.limit.files))?;
        for (number, entry) in job.written.iter().enumerate() {
            if number == COPIED_MAX {
                let text = format!("only the first {COPIED_MAX} files of a run are copied");
                report.notes.push(text);
                break;
            }
            match self.copy(&copies, job, entry, &mut used) {
                Ok(size_bytes) => {
                    let host_path = place.join(&entry.path).display().to_string();
                    let path = entry.path.clone();
                    report.copies.push(ExportedFile { path, size_bytes, host_path });
                }
                Err(why) => {
                    report.notes.push(format!("{} is not copied to the host: {why}", entry.path));
                }
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        copies: &Folder,
        job: &ExportJob,
        entry: &Entry,
        used: &mut Contents,
    ) -> Result<u64, String> {
        let text = |error: io::Error| error.to_string();
        let path = parsed(&entry.path).ok_or("its name cannot be used")?;
        let (file, metadata) = job.source.open(&path).map_err(text)?;
        let size_bytes = metadata.len();
        let megabytes = |bytes: u64| bytes.div_ceil(1024 * 1024);
        if size_bytes > self.file_bytes_max {
            let (size, limit) = (megabytes(size_bytes), megabytes(self.file_bytes_max));
            return Err(format!("it has {size} MB, the limit is {limit} MB (SANDBOX_FILE_MAX_MB)"));
        }
        let replaced = copies.stat(&path).ok();
        let others = used.bytes.saturating_sub(replaced.as_ref().map_or(0, |old| old.size_bytes));
        if others.saturating_add(size_bytes) > job.limit.bytes {
            let limit = megabytes(job.limit.bytes);
            return Err(format!("the copies of a session may have {limit} MB (DISK_MB)"));
        }
        if replaced.is_none() && used.files >= job.limit.files {
            return Err(format!("a session may have {} files and folders", job.limit.files));
        }
        if self.reserve.refuses(size_bytes) {
            return Err("the disk is below its reserve (MIN_FREE_DISK)".to_owned());
        }
        let mut draft = copies.create(&path).map_err(text)?;
        // Growth since it was opened is left to the next run.
        let copied = io::copy(&mut file.take(size_bytes), &mut draft).map_err(text)?;
        draft.commit().map_err(text)?;
        used.bytes = others.saturating_add(copied);
        used.files += u64::from(replaced.is_none());
        Ok(copied)
    }

    /// Removes one copy, if there is one.
    pub(crate) fn remove_file(&self, owner: &ExportOwner, path: &WorkspacePath) {
        match self.find(owner).and_then(|place| place.map(|place| Folder::at(&place)).transpose()) {
            Ok(Some(copies)) => remove_copy(&copies, path),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "A copy on the host could not be removed"),
        }
    }

    /// Removes all copies of a session.
    pub(crate) fn remove(&self, owner: &ExportOwner) {
        let removed = self.find(owner).and_then(|place| match place {
            Some(place) => remove_tree(&place, REMOVED_MAX),
            None => Ok(()),
        });
        if let Err(error) = removed {
            tracing::warn!(%error, "The copies of a session on the host could not be removed");
        }
    }

    /// Removes the copies of sessions below `sessions` that exist no more, and of runs before
    /// `before`. Returns their number.
    pub(crate) fn sweep(&self, sessions: &Path, before: Option<SystemTime>) -> io::Result<u64> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut removed = 0;
        for entry in entries {
            let path = entry?.path();
            let Ok(Some(mark)) = read_mark(&path) else { continue };
            let is_older = |before: SystemTime| {
                fs::symlink_metadata(&path)
                    .and_then(|found| found.modified())
                    .is_ok_and(|modified| modified < before)
            };
            let is_unnamed = path.file_name().and_then(|name| name.to_str());
            let is_unnamed = is_unnamed.is_some_and(|name| name.starts_with(UNNAMED));
            let is_garbage = match mark.strip_prefix("session ").map(Path::new) {
                _ if is_unnamed => {
                    SystemTime::now().checked_sub(UNNAMED_AGE_MAX).is_some_and(is_older)
                }
                Some(folder) if folder.starts_with(sessions) => is_missing(folder),
                Some(_) => false,
                None => mark == OF_A_RUN && before.is_some_and(is_older),
            };
            if is_garbage {
                remove_tree(&path, REMOVED_MAX)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The folder of a session's copies, if there is one.
    fn find(&self, owner: &ExportOwner) -> io::Result<Option<PathBuf>> {
        for name in owner.names() {
            let path = self.root.join(name);
            if read_mark(&path)?.as_ref() == Some(&owner.mark) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    fn find_or_make(&self, owner: &ExportOwner) -> io::Result<PathBuf> {
        if let Some(found) = self.find(owner)? {
            return Ok(found);
        }
        closed_folder(&self.root)?;
        for name in owner.names() {
            let path = self.root.join(name);
            if is_missing(&path) {
                make(&self.root, &path, &owner.mark)?;
                return Ok(path);
            }
        }
        // Another server may have made it a moment ago.
        let missing = || {
            let text = format!("{} is in use by others", self.root.join(&owner.name).display());
            io::Error::other(text)
        };
        self.find(owner)?.ok_or_else(missing)
    }
}

/// Makes a folder that has its mark before it has its name.
fn make(root: &Path, path: &Path, mark: &str) -> io::Result<()> {
    let unnamed = root.join(format!("{UNNAMED}{}", uuid::Uuid::new_v4().simple()));
    fs::DirBuilder::new().mode(0o700).create(&unnamed)?;
    // Fails if there is anything in a folder of that name.
    let made = fs::write(unnamed.join(MARK), mark).and_then(|()| fs::rename(&unnamed, path));
    if made.is_err() {
        remove_tree(&unnamed, REMOVED_MAX)?;
    }
    made
}

/// The mark of a folder that belongs to this user. Links are not followed: another user may have
/// planted one.
fn read_mark(path: &Path) -> io::Result<Option<String>> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    const LOOP: i32 = 40;
    let folder = match Folder::at(path) {
        Err(error)
            if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
                || error.raw_os_error() == Some(LOOP) =>
        {
            return Ok(None);
        }
        folder => folder?,
    };
    if !folder.is_own() {
        return Ok(None);
    }
    let file = match fs::File::open(path.join(MARK)) {
        Err(error) if error.kind() == NotFound => return Ok(None),
        file => file?,
    };
    let mut mark = String::new();
    file.take(MARK_BYTES_MAX).read_to_string(&mut mark)?;
    Ok(Some(mark))
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn remove_copy(copies: &Folder, path: &WorkspacePath) {
    match copies.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, "a copy on the host could not be removed");
        }
        _ => {}
    }
}

fn parsed(path: &str) -> Option<WorkspacePath> {
    WorkspacePath::parse(&format!("./{path}")).ok()
}

/// Whether a file is copied at all: a plain one with a usable name.
pub(crate) fn is_copied(entry: &Entry) -> bool {
    entry.kind == Kind::File && entry.addressable
}

#[cfg(test)]
mod tests;
