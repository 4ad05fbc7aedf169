//! An attacker that swaps the contents of the folder while the server uses it. Bounded, with real
//! races.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::super::*;
use super::{TestFolder, path, read};

const ROUNDS: u32 = 500;
/// No call may wait for anything that the attacker controls.
const CALL_TIME_MAX: Duration = Duration::from_secs(2);

/// Runs the server's side while the attacker loops.
fn race(attack: impl Fn() + Sync, mut serve: impl FnMut(u32)) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                attack();
            }
        });
        // Also if an assertion fails; otherwise the attacker would loop for ever.
        let _end = StopOnDrop(&stop);
        for round in 0..ROUNDS {
            let began = Instant::now();
            serve(round);
            assert!(began.elapsed() < CALL_TIME_MAX, "round {round} waited");
        }
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A folder `d` and a link to the outside, swapped repeatedly; the same for a file `f`. Outside are
/// files of the same names.
struct Trap {
    place: TestFolder,
}

impl Trap {
    fn new() -> Self {
        let place = TestFolder::new();
        let (outside, inside) = (place.around.path().join("outside"), place.path());
        fs::create_dir(&outside).unwrap();
        for folder in [&outside, &inside.join("d")] {
            fs::create_dir_all(folder.join("deeper")).unwrap();
        }
        for (folder, text) in [(&outside, "secret"), (&inside.join("d"), "own"), (&inside, "own")] {
            for name in ["f", "deeper/f"] {
                if folder.join(name).parent().is_some_and(Path::exists) {
                    fs::write(folder.join(name), text).unwrap();
                }
            }
        }
        symlink(&outside, inside.join("d2")).unwrap();
        symlink("../outside/f", inside.join("f2")).unwrap();
        mknodat(CWD, inside.join("f3"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::create_dir(inside.join("f4")).unwrap();
        open_up(&inside);
        Self { place }
    }

    fn swap(&self) {
        let inside = self.place.path();
        for (a, b) in [("d", "d2"), ("f", "f2"), ("f", "f3"), ("f", "f4")] {
            // It fails if the server has just removed one of them.
            renameat_with(CWD, inside.join(a), CWD, inside.join(b), RenameFlags::EXCHANGE)
                .unwrap_or_default();
        }
    }

    fn outside_is_whole(&self) {
        let outside = self.place.around.path().join("outside");
        let names = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["deeper", "f"]);
        for name in ["f", "deeper/f"] {
            assert_eq!(fs::read_to_string(outside.join(name)).unwrap(), "secret");
        }
        assert_eq!(fs::read_dir(outside.join("deeper")).unwrap().count(), 1);
    }
}

/// Everything is accessible to the folder's owner, like files that a session creates.
fn open_up(folder: &Path) {
    use std::os::unix::fs::{MetadataExt, lchown};
    let owner = fs::metadata(folder).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        lchown(entry.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
        if entry.file_type().unwrap().is_dir() {
            open_up(&entry.path());
        }
    }
}

#[test]
fn reading_cannot_escape_the_folder() {
    let trap = Trap::new();
    let folder = &trap.place.folder;
    let mut opened = 0;
    race(
        || trap.swap(),
        |round| {
            let name = ["f", "d/f", "d/deeper/f", "d2/f", "f2", "f3"][round as usize % 6];
            if let Ok(text) = read(folder, name) {
                assert_eq!(text, "own", "{name}");
                opened += 1;
            }
            folder.stat(&path(name)).map(|_| ()).unwrap_or_default();
        },
    );
    assert!(opened > 0, "every call failed, so nothing was tested");
}

#[test]
fn listing_cannot_escape_the_folder() {
    let trap = Trap::new();
    let folder = &trap.place.folder;
    let all = Bounds { hidden: true, ..Bounds::default() };
    let mut before = Snapshot::default();
    race(
        || trap.swap(),
        |_| {
            for entry in folder.list(all).unwrap().entries {
                assert!(entry.kind != Kind::File || entry.size_bytes == 3, "{entry:?}");
            }
            let mut after = Snapshot::take(folder, all, 1_000).unwrap();
            diff(folder, &before, &mut after, DigestBounds::default());
            before = after;
            folder.usage(1_000).unwrap();
        },
    );
}

#[test]
fn writing_and_deleting_cannot_escape_the_folder() {
    let trap = Trap::new();
    let folder = &trap.place.folder;
    let mut written = 0;
    race(
        || trap.swap(),
        |round| {
            let name = ["d/f", "d/deeper/f", "d2/new", "d/new/f", "f"][round as usize % 5];
            if let Ok(mut draft) = folder.create(&path(name)) {
                draft.write_all(b"own").unwrap();
                written += u32::from(draft.commit().is_ok());
            }
            let name = ["d/new/f", "d2/new", "d/gone"][round as usize % 3];
            folder.remove(&path(name)).unwrap_or_default();
        },
    );
    assert!(written > 0, "every call failed, so nothing was tested");
    trap.outside_is_whole();
}

#[test]
fn recursive_removal_cannot_escape_the_folder() {
    let trap = Trap::new();
    let inside = trap.place.path();
    let made = AtomicU32::new(0);
    race(
        || {
            trap.swap();
            // Each under a unique name: the attacker's own calls must not escape either.
            let number = made.fetch_add(1, Ordering::Relaxed);
            if number > ROUNDS {
                return;
            }
            let (real, link) = (inside.join(format!("again{number}")), inside.join("link"));
            fs::create_dir_all(real.join("deep/er")).unwrap_or_default();
            symlink("../outside", &link).unwrap_or_default();
            renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap_or_default();
        },
        // It may fail while files are created as fast as they are deleted.
        |_| remove_tree(&inside, 200).unwrap_or_default(),
    );
    trap.outside_is_whole();
    remove_tree(&inside, 1_000).unwrap();
    assert!(!inside.exists());
}
