//! Workspace folders without interference; `races` tests concurrent attackers.

mod races;

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};
use tempfile::TempDir;

use super::*;

pub(super) struct TestFolder {
    pub(super) around: TempDir,
    pub(super) folder: Folder,
}

impl TestFolder {
    pub(super) fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    fn within(around: TempDir) -> Self {
        let folder = Folder::make(&around.path().join("session")).unwrap();
        Self { around, folder }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.around.path().join("session")
    }

    fn write(&self, path: &str, content: &[u8]) {
        write(&self.folder, path, content);
    }

    /// Creates a file as the session would, which owns the folder.
    fn plant(&self, path: impl AsRef<Path>, content: &[u8]) {
        let path = self.path().join(path);
        fs::write(&path, content).unwrap();
        let owner = fs::metadata(self.path()).unwrap();
        std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

pub(super) fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

pub(super) fn write(folder: &Folder, to: &str, content: &[u8]) {
    let mut draft = folder.create(&path(to)).unwrap();
    draft.write_all(content).unwrap();
    draft.commit().unwrap();
}

pub(super) fn read(folder: &Folder, from: &str) -> std::io::Result<String> {
    let (mut file, _) = folder.open(&path(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn all() -> Bounds {
    Bounds { hidden: true, ..Bounds::default() }
}

fn names(folder: &Folder, bounds: Bounds) -> Vec<String> {
    folder.list(bounds).unwrap().entries.into_iter().map(|entry| entry.path).collect()
}

#[test]
fn writes_files_atomically() {
    let place = TestFolder::new();
    let on_disk = || fs::read_dir(place.path()).unwrap().count();
    let mut draft = place.folder.create(&path("x.csv")).unwrap();
    draft.write_all(b"half").unwrap();
    assert_eq!(on_disk(), 0);
    drop(draft);
    assert_eq!(on_disk(), 0);
    place.write("x.csv", b"first");
    let mut draft = place.folder.create(&path("x.csv")).unwrap();
    draft.write_all(b"second").unwrap();
    assert_eq!(read(&place.folder, "x.csv").unwrap(), "first");
    draft.commit().unwrap();
    assert_eq!(read(&place.folder, "x.csv").unwrap(), "second");
    assert_eq!(on_disk(), 1);
}

#[test]
fn written_files_belong_to_the_owner_of_the_folder() {
    let place = TestFolder::new();
    place.write("a/b/x.csv", b"x");
    let owner = fs::metadata(place.path()).unwrap();
    for name in ["a", "a/b", "a/b/x.csv"] {
        let metadata = fs::metadata(place.path().join(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (owner.uid(), owner.gid()), "{name}");
    }
    let own = fs::metadata("/proc/self").unwrap();
    let after = File::create(place.around.path().join("ours")).unwrap().metadata().unwrap();
    assert_eq!((after.uid(), after.gid()), (own.uid(), own.gid()), "our own rights are back");
}

#[test]
fn does_not_replace_a_folder_by_a_file() {
    let place = TestFolder::new();
    place.write("a/x", b"x");
    let mut draft = place.folder.create(&path("a")).unwrap();
    draft.write_all(b"y").unwrap();
    assert!(draft.commit().is_err());
    assert_eq!(names(&place.folder, all()), ["a", "a/x"]);
    assert!(place.folder.create(&path("a/x/y")).is_err());
    let refused = place.folder.remove(&path("a")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::IsADirectory);
    place.folder.remove(&path("a/x")).unwrap();
    assert_eq!(names(&place.folder, all()), ["a"]);
}

#[test]
fn opens_only_regular_files() {
    let place = TestFolder::new();
    fs::write(place.around.path().join("secret"), "secret").unwrap();
    fs::write(place.path().join("own"), "own").unwrap();
    fs::create_dir(place.path().join("folder")).unwrap();
    for (name, target) in
        [("link", "own"), ("out", "../secret"), ("root", "/"), ("up", ".."), ("loop", "loop")]
    {
        symlink(target, place.path().join(name)).unwrap();
    }
    mknodat(CWD, place.path().join("fifo.csv"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
    for name in
        ["link", "out", "root/etc/passwd", "up/secret", "loop", "fifo.csv", "socket", "folder"]
    {
        assert!(place.folder.open(&path(name)).is_err(), "{name}");
    }
    for name in ["root/tmp/x", "up/x", "fifo.csv/x"] {
        assert!(place.folder.create(&path(name)).is_err(), "{name}");
        assert!(place.folder.remove(&path(name)).is_err(), "{name}");
    }
    let kind = |name| place.folder.stat(&path(name)).unwrap().kind;
    assert_eq!(kind("out"), Kind::Link);
    assert_eq!(kind("fifo.csv"), Kind::Other);
    assert_eq!(kind("folder"), Kind::Folder);
    // Writing replaces the link itself, and deleting removes it.
    place.write("out", b"mine");
    place.folder.remove(&path("link")).unwrap();
    assert_eq!(read(&place.folder, "own").unwrap(), "own");
    assert_eq!(fs::read_to_string(place.around.path().join("secret")).unwrap(), "secret");
}

/// Files of other users in the folder are not opened with rights that the session lacks.
#[test]
fn root_reads_with_the_rights_of_the_owner() {
    let place = TestFolder::new();
    place.plant("closed", b"x");
    fs::set_permissions(place.path().join("closed"), Permissions::from_mode(0o000)).unwrap();
    let refused = place.folder.open(&path("closed")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn lists_and_flags_odd_names() {
    let place = TestFolder::new();
    let long = "a".repeat(255);
    let odd: [&[u8]; 5] =
        [b"\xff\xfe", b"new\nline", b"\x1b[2J", "\u{202e}gnp.exe".as_bytes(), b"a\\b"];
    for name in odd {
        place.plant(OsStr::from_bytes(name), b"x");
    }
    for name in [long.as_str(), "-rf", " ", "...", "%00", "报告.csv", ".hidden", ".woma-x"] {
        place.plant(name, b"x");
    }
    let listing = place.folder.list(all()).unwrap();
    let listed = |addressable| {
        let entries = listing.entries.iter().filter(|entry| entry.addressable == addressable);
        entries.map(|entry| entry.path.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(listed(true), [" ", "%00", "-rf", "...", ".hidden", &long, "报告.csv"]);
    assert_eq!(listed(false).len(), odd.len());
    for name in listed(true) {
        assert!(place.folder.open(&path(&format!("./{name}"))).is_ok(), "{name}");
    }
    assert!(!names(&place.folder, Bounds::default()).contains(&".hidden".to_owned()));
}

#[test]
fn listings_are_bounded() {
    let place = TestFolder::new();
    for i in 0..50 {
        place.plant(format!("{i:02}"), b"x");
    }
    let deep = place.path().join(["d"; 80].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let listing = place.folder.list(Bounds { entries: 10, ..all() }).unwrap();
    assert!(!listing.complete && listing.entries.len() == 10);
    let listing = place.folder.list(all()).unwrap();
    assert!(!listing.complete && listing.entries.len() == 50 + LEVELS_MAX, "too deep for the rest");
    let shallow = place.folder.list(Bounds { levels: 2, ..all() }).unwrap();
    assert!(!shallow.complete && shallow.entries.len() == 52);
    assert_eq!(place.folder.usage(1_000_000).unwrap().files, 130);
    assert!(place.folder.usage(20).unwrap().files <= 22);
}

#[test]
fn accepts_invalid_times() {
    let place = TestFolder::new();
    place.plant("old", b"x");
    let file = File::options().write(true).open(place.path().join("old")).unwrap();
    let ancient = SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 33);
    file.set_times(FileTimes::new().set_modified(ancient)).unwrap();
    let entry = place.folder.stat(&path("old")).unwrap();
    assert!(entry.modified <= SystemTime::now());
}

#[test]
fn counts_the_disk_usage_of_sparse_and_linked_files() {
    let place = TestFolder::new();
    place.plant("large", &vec![1; 1 << 20]);
    for i in 0..20 {
        fs::hard_link(place.path().join("large"), place.path().join(format!("link{i}"))).unwrap();
    }
    File::create(place.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
    let usage = place.folder.usage(1_000).unwrap();
    assert!((1 << 20..2 << 20).contains(&usage.bytes), "{usage:?}");
    assert_eq!(usage.files, 22);
    assert_eq!(place.folder.stat(&path("sparse")).unwrap().size_bytes, 1 << 40);
}

/// Makes nested folders, deeper than any path.
fn chain(top: &Path, levels: usize, beside: bool) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut folder = openat(CWD, top, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU).unwrap();
        if beside {
            mkdirat(&folder, "tooth", Mode::RWXU).unwrap();
        }
        folder = openat(&folder, "d", flags, Mode::empty()).unwrap();
    }
}

#[test]
fn counts_and_removes_deep_trees() {
    // In memory, where making and deleting thousands of folders is quick.
    let place = TestFolder::within(tempfile::tempdir_in("/dev/shm").unwrap());
    fs::create_dir(place.path().join("comb")).unwrap();
    chain(&place.path(), 10_000, false);
    chain(&place.path().join("comb"), 2_000, true);
    assert_eq!(place.folder.usage(1_000_000).unwrap().files, 10_000 + 1 + 4_000);
    assert!(!place.folder.list(all()).unwrap().complete);
    remove_tree(&place.path(), 1_000_000).unwrap();
    assert!(!place.path().exists());
    remove_tree(&place.path(), 1).unwrap();
}

#[test]
fn removes_unreadable_folders_without_following_links() {
    let place = TestFolder::new();
    let (outside, inside) = (place.around.path().join("outside"), place.path());
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    fs::create_dir_all(inside.join("a/b/c/d")).unwrap();
    for name in ["a/x", "a/b/x", "a/b/c/x"] {
        fs::write(inside.join(name), "x").unwrap();
    }
    symlink(&outside, inside.join("a/b/link")).unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    mknodat(CWD, inside.join("a/fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    for name in ["a/b/c/d", "a/b/c", "a/b", "a", ""] {
        fs::set_permissions(inside.join(name), Permissions::from_mode(0o000)).unwrap();
    }
    assert!(remove_tree(&inside, 3).is_err(), "the number of deletions is limited");
    remove_tree(&inside, 1_000).unwrap();
    assert!(!inside.exists());
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
}

#[test]
fn rejects_a_link_in_place_of_the_folder() {
    let around = tempfile::tempdir().unwrap();
    let (real, link) = (around.path().join("real"), around.path().join("link"));
    fs::create_dir(&real).unwrap();
    fs::write(real.join("kept"), "kept").unwrap();
    symlink(&real, &link).unwrap();
    assert!(Folder::at(&link).is_err());
    assert!(Folder::make(&link).is_err());
    assert!(remove_tree(&link, 10).is_err());
    assert!(real.join("kept").exists());
}

/// Writes and changes files of each kind, and compares snapshots.
#[test]
fn detects_changes_by_content() {
    let place = TestFolder::new();
    let at = |name: &str| place.path().join(name);
    for name in ["same", "touched", "again", "mode", "edited", "forged", "swapped", "gone", ".hid"]
    {
        place.plant(name, b"before");
    }
    fs::create_dir(at("__pycache__")).unwrap();
    let mut first = Snapshot::take(&place.folder, Bounds::default(), 1_000).unwrap();
    assert_eq!(first.len(), 8);
    let none = Snapshot::default();
    let changes = diff(&place.folder, &none, &mut first, DigestBounds::default());
    assert_eq!((changes.added.len(), changes.complete), (8, false));
    assert!(first.digest("same").is_some());

    let times = fs::metadata(at("forged")).unwrap().modified().unwrap();
    let touch = |name: &str, time| {
        let file = File::options().write(true).open(at(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    };
    touch("touched", SystemTime::now() + Duration::from_secs(60));
    fs::write(at("again"), "before").unwrap();
    fs::set_permissions(at("mode"), Permissions::from_mode(0o640)).unwrap();
    fs::write(at("edited"), "after!").unwrap();
    fs::write(at("forged"), "forged").unwrap();
    touch("forged", times);
    place.plant("new", b"after!");
    touch("new", times);
    fs::rename(at("new"), at("swapped")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::create_dir(at("sub")).unwrap();
    place.plant("sub/new", b"new");
    place.plant("__pycache__/x.pyc", b"x");

    let mut second = Snapshot::take(&place.folder, Bounds::default(), 1_000).unwrap();
    let changes = diff(&place.folder, &first, &mut second, DigestBounds::default());
    let paths = |entries: &[Entry]| entries.iter().map(|e| e.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&changes.modified), ["edited", "forged", "swapped"]);
    assert_eq!(paths(&changes.added), ["sub/new"]);
    assert_eq!(changes.deleted, ["gone"]);
    assert!(changes.complete);
    assert_eq!(second.digest("same"), first.digest("same"));

    // Without digests, a touched file counts as modified; one with another mode does not.
    let bounds = DigestBounds { file_bytes: 0, total_bytes: 0 };
    let changes = diff(&place.folder, &first, &mut second, bounds);
    assert_eq!(paths(&changes.modified), ["again", "edited", "swapped", "touched"]);
}

/// The stamp of a file may be the same after two changes in a row.
#[test]
fn detects_a_change_within_a_clock_tick() {
    let place = TestFolder::new();
    let mut before = Snapshot::default();
    for round in 0..200_u32 {
        place.plant("x", format!("{round:06}").as_bytes());
        let mut after = Snapshot::take(&place.folder, Bounds::default(), 1_000).unwrap();
        let changes = diff(&place.folder, &before, &mut after, DigestBounds::default());
        assert_eq!(changes.added.len() + changes.modified.len(), 1, "round {round}: {changes:?}");
        before = after;
    }
}

#[test]
fn the_stamp_changes_when_an_entry_is_added_or_removed() {
    let place = TestFolder::new();
    let still = || loop {
        // A folder that was just touched has no stamp yet.
        if let Some(stillness) = place.folder.stillness().unwrap() {
            return stillness;
        }
        std::thread::yield_now();
    };
    let empty = still();
    assert_eq!(still(), empty);
    let before = fs::metadata(place.path()).unwrap().modified().unwrap();
    fs::write(place.path().join("x"), "1").unwrap();
    assert_ne!(place.folder.stillness().unwrap(), Some(empty));
    fs::remove_file(place.path().join("x")).unwrap();
    // Setting the times back does not hide a change.
    File::open(place.path()).unwrap().set_modified(before).unwrap();
    assert_ne!(still(), empty);
}
