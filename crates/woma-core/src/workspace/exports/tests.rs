//! Copies on the host: made, replaced, bounded, removed; folders of others stay as they are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use woma_sandbox::workspace::{Bounds, Contents, Entry, Folder, Reserve, ReserveSize};

use super::{COPIED_MAX, ExportJob, ExportOwner, ExportReport, Exports, MARK, is_copied};
use crate::model::SessionId;

const FILE_BYTES_MAX: u64 = 1_000;

/// A session with its files, and a folder of the host.
struct World {
    /// Removed when dropped.
    _folder: tempfile::TempDir,
    sessions: PathBuf,
    session: PathBuf,
    root: PathBuf,
    owner: ExportOwner,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (sessions, root) = (folder.path().join("sessions"), folder.path().join("out"));
        let session = sessions.join("owner/session");
        fs::create_dir_all(&session).unwrap();
        let owner = ExportOwner::session(&SessionId::parse("work").unwrap(), &session);
        Self { _folder: folder, sessions, session, root, owner }
    }

    fn exports(&self) -> Exports {
        let reserve = Reserve::new(self.sessions.clone(), ReserveSize::Bytes(0));
        Exports::new(&self.root, Arc::new(reserve), FILE_BYTES_MAX)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.session.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn written(&self) -> Vec<Entry> {
        let listing = Folder::at(&self.session).unwrap().list(Bounds::default()).unwrap();
        listing.entries.into_iter().filter(is_copied).collect()
    }

    fn job(&self, deleted: &[&str], bytes: u64) -> ExportJob {
        ExportJob {
            owner: self.owner.clone(),
            source: Arc::new(Folder::at(&self.session).unwrap()),
            written: self.written(),
            deleted: deleted.iter().map(|name| (*name).to_owned()).collect(),
            limit: Contents { bytes, files: 1_000 },
        }
    }

    fn repeat(&self) -> ExportReport {
        self.exports().repeat(&self.job(&[], 1 << 20))
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root.join(name)).ok()
    }
}

#[test]
fn files_are_copied_replaced_and_removed() {
    let world = World::new();
    world.write("a.csv", "1");
    world.write("sub/größe.txt", "x");
    let report = world.repeat();
    assert_eq!(report.notes, Vec::<String>::new());
    let paths: Vec<(&str, u64)> =
        report.copies.iter().map(|copy| (copy.path.as_str(), copy.size_bytes)).collect();
    assert_eq!(paths, [("a.csv", 1), ("sub/größe.txt", 1)]);
    assert!(report.copies.iter().all(|copy| Path::new(&copy.host_path).is_absolute()));
    assert_eq!(fs::read_to_string(&report.copies[1].host_path).unwrap(), "x");
    world.write("a.csv", "22");
    world.repeat();
    assert_eq!(world.read("work/a.csv").unwrap(), "22");
    fs::remove_file(world.session.join("a.csv")).unwrap();
    let mut gone = world.job(&["a.csv", "never.txt"], 1 << 20);
    gone.written.clear();
    world.exports().repeat(&gone);
    assert_eq!(
        (world.read("work/a.csv"), world.read("work/sub/größe.txt")),
        (None, Some("x".into()))
    );
    world.exports().remove(&world.owner);
    assert!(!world.root.join("work").exists() && world.root.exists());
}

#[test]
fn folders_of_others_are_neither_written_nor_removed() {
    let world = World::new();
    world.write("a.csv", "of the session");
    // A user's own folder, and a link to one.
    fs::create_dir_all(world.root.join("work")).unwrap();
    fs::write(world.root.join("work/a.csv"), "of the user").unwrap();
    let report = world.repeat();
    assert_eq!(world.read("work/a.csv").unwrap(), "of the user");
    let copy = Path::new(&report.copies[0].host_path);
    let name = copy.parent().unwrap().file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("work-"), "{name}");
    assert_eq!(fs::read_to_string(copy).unwrap(), "of the session");
    world.exports().remove(&world.owner);
    assert!(!copy.exists() && world.root.join("work/a.csv").exists());
    let other = World::new();
    other.write("a.csv", "1");
    let elsewhere = other.sessions.join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::create_dir_all(&other.root).unwrap();
    symlink(&elsewhere, other.root.join("work")).unwrap();
    assert_eq!(other.repeat().copies.len(), 1);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn links_that_a_session_makes_are_not_followed() {
    let world = World::new();
    world.write("a.txt", "1");
    let entry = world.written();
    fs::remove_file(world.session.join("a.txt")).unwrap();
    symlink("/etc/passwd", world.session.join("a.txt")).unwrap();
    let job = ExportJob { written: entry, ..world.job(&[], 1 << 20) };
    let report = world.exports().repeat(&job);
    assert!(report.copies.is_empty(), "{report:?}");
    assert!(report.notes[0].starts_with("a.txt is not copied to the host:"), "{report:?}");
    assert_eq!(world.read("work/a.txt"), None);
    assert!(fs::symlink_metadata(world.root.join("work/a.txt")).is_err());
}

#[test]
fn copies_are_bounded() {
    let world = World::new();
    world.write("large", vec![b'x'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1]);
    world.write("small", "1");
    let report = world.repeat();
    assert_eq!(report.copies.len(), 1, "{report:?}");
    assert!(report.notes[0].contains("SANDBOX_FILE_MAX_MB"), "{report:?}");
    let report = world.exports().repeat(&world.job(&[], 0));
    assert!(report.copies.is_empty() && report.notes[1].contains("DISK_MB"), "{report:?}");
    let full = Reserve::new(world.sessions.clone(), ReserveSize::Percent(100.0));
    let full = Exports::new(&world.root, Arc::new(full), FILE_BYTES_MAX);
    let report = full.repeat(&world.job(&[], 1 << 20));
    assert!(report.notes[1].contains("MIN_FREE_DISK"), "{report:?}");
    for number in 0..COPIED_MAX {
        world.write(&format!("many/{number:03}"), "");
    }
    let report = world.repeat();
    assert_eq!(report.copies.len() + report.notes.len(), COPIED_MAX + 1, "{report:?}");
    assert!(report.notes[1].contains("only the first 50"), "{report:?}");
}

#[test]
fn copies_go_after_their_sessions() {
    let world = World::new();
    world.write("a.csv", "1");
    world.repeat();
    let run = ExportJob { owner: ExportOwner::run(), ..world.job(&[], 1 << 20) };
    let run = world.exports().repeat(&run).copies.remove(0);
    fs::create_dir(world.root.join("photos")).unwrap();
    let sweep = |before| world.exports().sweep(&world.sessions, before).unwrap();
    let long_ago = SystemTime::now() - Duration::from_hours(1);
    assert_eq!(sweep(Some(long_ago)), 0);
    fs::remove_dir_all(&world.session).unwrap();
    assert_eq!(sweep(Some(long_ago)), 1);
    assert!(!world.root.join("work").exists() && Path::new(&run.host_path).exists());
    assert_eq!(sweep(Some(SystemTime::now() + Duration::from_hours(1))), 1);
    assert!(!Path::new(&run.host_path).exists() && world.root.join("photos").exists());
    // Of another server, which keeps its sessions elsewhere.
    world.write("b.csv", "1");
    world.repeat();
    fs::write(world.root.join("work").join(MARK), "session /nowhere/else").unwrap();
    assert_eq!(sweep(None), 0);
}
