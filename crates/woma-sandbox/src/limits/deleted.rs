//! Deleted files of a workspace that are still open or mapped: they take disk space, and no listing
//! shows them. They are found through `/proc` of the processes that hold them, each inode once.
//!
//! A descriptor in flight on a socket belongs to no process and is not found here; a project quota
//! counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statx};
use rustix::io::Errno;

use super::watchdog;
use crate::keeper;
use crate::steward::shared;
use crate::steward::template::WORKSPACE;
use crate::sync::lock;
use crate::workspace::Contents;

/// Open descriptors and mappings that one scan visits. A room with more is hiding files, and counts
/// as having too many.
const VISITS_MAX: u64 = 65_536;
/// Usual length of `/proc/<pid>/maps` of a Python with its libraries, so that few reads are needed.
const MAPS_BYTES: usize = 128 * 1024;
/// Longest time after a run until its deleted files are scanned.
const DIRTY_TIME_MAX: Duration = Duration::from_millis(500);

/// Deleted files held by the processes of one room.
#[derive(Debug)]
pub(crate) struct DeletedFiles {
    /// Pids of the room's init and kernel; its other processes descend from them.
    roots: [u32; 2],
    /// Path of the workspace of a session without mounts; in rooms it is the same for all.
    workspace: Option<PathBuf>,
    scan: Mutex<Scan>,
    /// Start of code whose deleted files have not been scanned since it ended.
    dirty_since: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Scan {
    /// Bytes by inode.
    open: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, u64>,
    visits: u64,
    /// Path of the workspace, as the session sees it.
    workspace: PathBuf,
    /// Totals reported by the keeper, if there is one.
    keeper_open: Contents,
    keeper_mapped: Contents,
    /// CPU time of the session at the last scan; a session that uses none deletes nothing.
    open_at: Option<Duration>,
    mapped_at: Option<Duration>,
}

/// Extent of a scan. Every Python has many mappings, which take most of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Open,
    OpenAndMapped,
}

impl DeletedFiles {
    pub(crate) fn new(roots: [u32; 2], workspace: Option<PathBuf>) -> Self {
        Self { roots, workspace, scan: Mutex::default(), dirty_since: Mutex::default() }
    }

    /// Scans, unless the session held nothing and has used no CPU time since. Blocks for up to a
    /// millisecond per process, limited by [`VISITS_MAX`].
    pub(crate) fn measure(&self, cpu: Duration, depth: Depth) -> Contents {
        let mut scan = lock(&self.scan);
        // Without a cgroup, CPU time has steps of 10 ms: files closed meanwhile must not be counted
        // on.
        let holds_some = scan.contents() != Contents::default();
        let wants_maps = depth == Depth::OpenAndMapped;
        let with_maps = wants_maps && (scan.mapped_at != Some(cpu) || holds_some);
        if scan.open_at != Some(cpu) || with_maps || holds_some {
            match keeper::of_this_process() {
                // A confined server may not read other processes; the keeper may.
                Some(keeper) => {
                    let workspace = self.workspace.as_deref();
                    let counts = keeper.deleted(self.roots, workspace, with_maps);
                    scan.set_keeper_counts(counts, with_maps);
                }
                None => scan.read(self.roots, self.workspace.as_deref(), with_maps),
            }
            scan.open_at = Some(cpu);
            if with_maps {
                scan.mapped_at = Some(cpu);
            }
        }
        scan.contents()
    }

    /// Called before code runs.
    pub(crate) fn mark_dirty(&self) {
        lock(&self.dirty_since).get_or_insert_with(Instant::now);
    }

    /// Called if the last scan began after all code had ended.
    pub(crate) fn mark_clean(&self) {
        *lock(&self.dirty_since) = None;
    }

    /// Whether a scan is due before more code runs.
    pub(crate) fn is_due(&self) -> bool {
        lock(&self.dirty_since).is_some_and(|since| since.elapsed() > DIRTY_TIME_MAX)
    }
}

/// Scans on behalf of a confined server. Returns open files, and files that are only mapped.
pub(crate) fn held_by(
    roots: [u32; 2],
    workspace: Option<&Path>,
    with_maps: bool,
) -> (Contents, Contents) {
    let mut scan = Scan::default();
    scan.read(roots, workspace, with_maps);
    let all = scan.contents();
    let open = Scan { mapped: BTreeMap::new(), ..scan }.contents();
    let mapped = Contents {
        bytes: all.bytes.saturating_sub(open.bytes),
        files: all.files.saturating_sub(open.files),
    };
    (open, mapped)
}

impl Scan {
    fn read(&mut self, roots: [u32; 2], workspace: Option<&Path>, with_maps: bool) {
        // The mount id tells the session's files from replaced libraries of the operator.
        let mount = match workspace {
            Some(workspace) => stat(workspace).map(|found| found.stx_mnt_id).map_err(Into::into),
            None => mount_of_workspace(roots[1]),
        };
        match mount {
            Ok(mount) => {
                let mut pids = match workspace {
                    Some(_) => shared::members(&roots),
                    None => watchdog::descendants(&roots),
                };
                workspace.unwrap_or(Path::new(WORKSPACE)).clone_into(&mut self.workspace);
                // The room's init is ours, and opens nothing in the workspace.
                pids.remove(&roots[0]);
                self.take(&pids, mount, with_maps);
            }
            // The kernel has ended, and the room with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "cannot find the deleted files of a session"),
        }
    }

    /// Takes over the keeper's counts; zero if it does not answer.
    fn set_keeper_counts(&mut self, counts: Option<(Contents, Contents)>, with_maps: bool) {
        let (open, mapped) = counts.unwrap_or_default();
        self.keeper_open = open;
        if with_maps {
            self.keeper_mapped = mapped;
        }
    }

    fn take(&mut self, pids: &BTreeSet<u32>, mount: u64, with_maps: bool) {
        self.visits = 0;
        self.open.clear();
        if with_maps {
            self.mapped.clear();
        }
        for pid in pids {
            self.descriptors(*pid, mount);
            if with_maps {
                self.mappings(*pid, mount);
            }
            if self.visits > VISITS_MAX {
                return;
            }
        }
    }

    fn descriptors(&mut self, pid: u32, mount: u64) {
        let folder = std::iter::once(format!("/proc/{pid}/cwd").into());
        // A process that has ended holds nothing.
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for path in folder.chain(open.map(|entry| entry.path())) {
            self.visits += 1;
            if self.visits > VISITS_MAX {
                return;
            }
            // Closed meanwhile.
            let Ok(found) = stat(&path) else { continue };
            if let Some((inode, bytes)) = deleted(&found, mount) {
                self.open.insert(inode, bytes);
            }
        }
    }

    fn mappings(&mut self, pid: u32, mount: u64) {
        let mut text = Vec::with_capacity(MAPS_BYTES);
        // A process that has ended maps nothing.
        if let Ok(mut maps) = File::open(format!("/proc/{pid}/maps")) {
            maps.read_to_end(&mut text).unwrap_or_default();
        }
        // File names are chosen by the session and need not be UTF-8.
        for line in text.split(|byte| *byte == b'\n').filter(|line| line.ends_with(b" (deleted)")) {
            self.visits += 1;
            if self.visits > VISITS_MAX {
                return;
            }
            let Some(mapping) = Mapping::parse(line, &self.workspace) else { continue };
            match stat(format!("/proc/{pid}/map_files/{}", mapping.range).as_ref()) {
                Ok(found) => {
                    if let Some((inode, bytes)) = deleted(&found, mount) {
                        self.mapped.insert(inode, bytes);
                    }
                }
                // Only root may follow these links. Otherwise the mapped range is counted.
                Err(Errno::PERM | Errno::ACCESS) if mapping.is_in_workspace => {
                    let end = self.mapped.entry(mapping.inode).or_default();
                    *end = mapping.end.max(*end);
                }
                Err(_gone) => {}
            }
        }
    }

    fn contents(&self) -> Contents {
        let mapped = self.mapped.iter().filter(|(inode, _)| !self.open.contains_key(inode));
        let kept = [self.keeper_open, self.keeper_mapped];
        let mut bytes = kept.iter().fold(0_u64, |sum, kept| sum.saturating_add(kept.bytes));
        let mut files = kept.iter().fold(0_u64, |sum, kept| sum.saturating_add(kept.files));
        for size in self.open.values().chain(mapped.map(|(_, size)| size)) {
            bytes = bytes.saturating_add(*size);
            files = files.saturating_add(1);
        }
        if self.visits > VISITS_MAX {
            files = u64::MAX;
        }
        Contents { bytes, files }
    }
}

/// Mount id of the workspace, which identifies its files on any disk.
fn mount_of_workspace(kernel: u32) -> io::Result<u64> {
    Ok(stat(format!("/proc/{kernel}/root{WORKSPACE}").as_ref())?.stx_mnt_id)
}

fn stat(path: &Path) -> rustix::io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted)
}

/// Inode and disk usage of a file without a name.
fn deleted(found: &Statx, mount: u64) -> Option<(u64, u64)> {
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    let takes_disk = matches!(kind, FileType::RegularFile | FileType::Directory);
    let is_ours = found.stx_nlink == 0 && found.stx_mnt_id == mount && takes_disk;
    is_ours.then(|| (found.stx_ino, found.stx_blocks.saturating_mul(512)))
}

/// One line of `/proc/<pid>/maps`.
struct Mapping<'a> {
    range: &'a str,
    inode: u64,
    /// Offset in the file at which the mapping ends.
    end: u64,
    is_in_workspace: bool,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [u8], workspace: &Path) -> Option<Self> {
        let name = line.iter().position(|byte| *byte == b'/')?;
        let (numbers, name) = line.split_at(name);
        let mut words = std::str::from_utf8(numbers).ok()?.split_ascii_whitespace();
        let range = words.next()?;
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        let (from, to) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let end = offset.saturating_add(address(to)?.saturating_sub(address(from)?));
        let below = name.strip_prefix(workspace.as_os_str().as_bytes());
        Some(Self {
            range,
            inode,
            end,
            is_in_workspace: below.is_some_and(|name| name.starts_with(b"/")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn scanned(mount: u64) -> Contents {
        let mut scan = Scan::default();
        scan.take(&BTreeSet::from([std::process::id()]), mount, true);
        scan.contents()
    }

    #[test]
    fn finds_deleted_open_files_once() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let mount = stat(folder.path()).unwrap().stx_mnt_id;
        let path = folder.path().join("gone");
        // Other tests of this process delete little.
        let before = scanned(mount);
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![1; 24 * 1024 * 1024]).unwrap();
        assert!(scanned(mount).bytes < before.bytes + MIB, "it has a name");
        let again = file.try_clone().unwrap();
        fs::remove_file(&path).unwrap();
        let held = scanned(mount).bytes - before.bytes;
        assert!((24 * MIB..25 * MIB).contains(&held), "{held} of two descriptors");
        assert_eq!(scanned(mount + 1_000_000), Contents::default(), "of another mount");
        drop((file, again));
        assert!(scanned(mount).bytes < before.bytes + MIB);
    }

    #[test]
    fn parses_a_line_of_maps() {
        let line = b"7f00a000-7f00c000 rw-s 00003000 fe:0a 77    /mnt/data/a b\xff (deleted)";
        let Mapping { range, inode, end, is_in_workspace } =
            Mapping::parse(line, Path::new(WORKSPACE)).unwrap();
        assert_eq!((range, inode, end), ("7f00a000-7f00c000", 77, 0x5000));
        assert!(is_in_workspace);
        let line = b"7f00a000-7f00c000 rw-s 00003000 fe:0a 77    /mnt/database (deleted)";
        assert!(!Mapping::parse(line, Path::new(WORKSPACE)).unwrap().is_in_workspace);
        assert!(Mapping::parse(b"junk (deleted)", Path::new(WORKSPACE)).is_none());
    }

    #[test]
    fn more_than_can_be_visited_is_too_much() {
        let scan = Scan { visits: VISITS_MAX + 1, ..Scan::default() };
        assert_eq!(scan.contents().files, u64::MAX);
    }
}
