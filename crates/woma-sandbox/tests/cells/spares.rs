//! Spare folders of pooled sessions.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use woma_sandbox::workspace::{Bounds, Folder};
use woma_sandbox::{Cell, Config, Sandbox, Spec, Tier, Workspace};

use crate::harness::{attacks_folder, environment, until};
use crate::{complete, trial};

const POOL: usize = 2;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("spares: a new session's folder is one that was ready", becomes_the_folder),
        trial("spares: each session gets a different, empty folder", given_once),
        trial("spares: existing files are never replaced", never_replaces),
        trial("spares: an existing folder is used, and the spare one is removed", existing_folder),
        trial("spares: sessions in memory stay in memory", in_memory),
        trial("spares: no spare outlives its sandbox", none_is_left),
        trial("spares: without a spare a session is opened normally", without),
        trial("spares: a pool whose cells have died is filled again", filled_again),
        trial("spares: containment is the same", attacks),
    ]
}

struct TestFolder {
    around: TempDir,
    pooling: Sandbox,
}

impl TestFolder {
    async fn new() -> Self {
        let around =
            tempfile::Builder::new().prefix("woma-spares-").tempdir_in("/var/tmp").unwrap();
        fs::create_dir(around.path().join("spare")).unwrap();
        let mut config = Config::new(environment());
        config.preload = Tier::Base;
        config.pool = POOL;
        config.spare_folders = Some(around.path().join("spare"));
        let pooling = Sandbox::start(config).await.unwrap();
        let place = Self { around, pooling };
        place.until_full().await;
        place
    }

    async fn until_full(&self) {
        until("the pool is full", Duration::from_secs(20), || match self.pooling.pooled_cells() {
            POOL => Ok(()),
            other => Err(other.to_string()),
        })
        .await;
    }

    fn path(&self, session: &str) -> PathBuf {
        self.around.path().join(session)
    }

    fn spec(&self, session: &str) -> Spec {
        let workspace = Workspace::Folder(self.path(session));
        Spec { workspace, name: Some(session.to_owned()), ..Spec::default() }
    }

    async fn at_once(&self, session: &str) -> Option<(Cell, Arc<Folder>)> {
        self.pooling.open_at_once(&self.spec(session)).await
    }

    fn spares(&self) -> Vec<PathBuf> {
        entries(&self.path("spare"))
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn names(folder: &Folder) -> Vec<String> {
    let listing = folder.list(Bounds { hidden: true, ..Bounds::default() }).unwrap();
    listing.entries.into_iter().map(|entry| entry.path).collect()
}

const USE_IT: &str = "
import os
print(os.listdir('.'), os.listdir('/app/sandbox_data'), os.getcwd())
os.mkdir('sub')
open('/app/sandbox_data/mine/sub/a', 'w').write('1')
print(open('/tmp/sub/a').read(), os.stat('sub/a').st_uid == os.stat('.').st_uid == os.getuid())
for change in (lambda: os.symlink('/', '/app/sandbox_data/other'),
               lambda: os.unlink('/app/sandbox_data/mine'),
               lambda: os.chmod('/app/sandbox_data', 0o777)):
    try:
        change()
        print('changed')
    except OSError as error:
        assert error.errno in (13, 30), error
";

async fn becomes_the_folder() {
    let place = TestFolder::new().await;
    assert_eq!(place.spares().len(), POOL);
    let (mut cell, folder) = place.at_once("mine").await.unwrap();
    assert!(cell.id() <= 2, "cell {} is not from the pool", cell.id());
    assert_eq!(place.spares().len(), POOL - 1);
    // For example one that is created on demand.
    drop(Folder::make(&place.path("made")).unwrap());
    let looks = |session: &str| {
        let metadata = fs::metadata(place.path(session)).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode())
    };
    assert_eq!(looks("mine"), looks("made"));
    let result = complete(&mut cell, USE_IT).await;
    assert_eq!(result.stdout, "[] ['mine'] /mnt/data\n1 True\n");
    assert_eq!(names(&folder), ["sub", "sub/a"], "the handle is of that folder");
    assert_eq!(fs::read_to_string(place.path("mine").join("sub/a")).unwrap(), "1");
    place.until_full().await;
    assert_eq!(place.spares().len(), POOL);
    // To later sessions it is a folder like any other.
    cell.close().await.unwrap();
    let mut next = place.pooling.open(&place.spec("mine")).await.unwrap();
    assert_eq!(complete(&mut next, "print(open('sub/a').read())").await.stdout, "1\n");
}

async fn given_once() {
    let place = TestFolder::new().await;
    let mut cells = Vec::new();
    for session in ["one", "two"] {
        let (mut cell, folder) = place.at_once(session).await.unwrap();
        let code = format!("import os; print(os.listdir('.')); open('{session}', 'w').close()");
        assert_eq!(complete(&mut cell, &code).await.stdout, "[]\n");
        cells.push((cell, folder, session));
        place.until_full().await;
    }
    for (cell, folder, session) in &mut cells {
        assert_eq!(names(folder), [*session]);
        let result =
            complete(cell, "print(os.listdir('.'), os.listdir('/app/sandbox_data'))").await;
        assert_eq!(result.stdout, format!("['{session}'] ['{session}']\n"));
    }
    let inode = |session: &str| fs::metadata(place.path(session)).unwrap().ino();
    assert_ne!(inode("one"), inode("two"));
}

async fn never_replaces() {
    let place = TestFolder::new().await;
    let elsewhere = place.path("elsewhere");
    symlink(&elsewhere, place.path("dangling")).unwrap();
    fs::write(place.path("file"), "1").unwrap();
    drop(Folder::make(&place.path("empty")).unwrap());
    for session in ["dangling", "file", "empty", "no-such-owner/session"] {
        let before = fs::symlink_metadata(place.path(session)).map(|found| found.ino()).ok();
        assert!(place.at_once(session).await.is_none(), "{session}");
        let after = fs::symlink_metadata(place.path(session)).map(|found| found.ino()).ok();
        assert_eq!(before, after, "{session}");
        assert!(!elsewhere.exists());
        assert_eq!((place.pooling.pooled_cells(), place.spares().len()), (POOL, POOL));
    }
    // An invalid name is not accepted either.
    let spec = Spec { name: Some("../x".to_owned()), ..place.spec("free") };
    assert!(place.pooling.open_at_once(&spec).await.is_none() && !place.path("free").exists());
    assert!(place.at_once("free").await.is_some());
}

async fn existing_folder() {
    let place = TestFolder::new().await;
    let given = Folder::make(&place.path("mine")).unwrap();
    let before = place.spares();
    let mut cell = place.pooling.open(&place.spec("mine")).await.unwrap();
    assert!(cell.id() <= 2, "cell {} is not from the pool", cell.id());
    let result = complete(&mut cell, USE_IT).await;
    assert_eq!(result.stdout, "[] ['mine'] /mnt/data\n1 True\n");
    assert_eq!(names(&given), ["sub", "sub/a"]);
    assert_eq!(before.iter().filter(|path| path.exists()).count(), POOL - 1);
}

async fn in_memory() {
    let place = TestFolder::new().await;
    let before = place.spares();
    let spec = Spec { name: Some("mine".to_owned()), ..Spec::default() };
    assert!(place.pooling.open_at_once(&spec).await.is_none());
    let mut cell = place.pooling.open(&spec).await.unwrap();
    complete(&mut cell, "open('a', 'w').write('1')").await;
    assert_eq!(place.spares(), before);
    assert!(before.iter().all(|spare| entries(spare).is_empty()));
}

async fn none_is_left() {
    let TestFolder { around, pooling } = TestFolder::new().await;
    let spares = around.path().join("spare");
    assert_eq!(entries(&spares).len(), POOL);
    drop(pooling);
    until("they are gone", Duration::from_secs(20), || match entries(&spares).len() {
        0 => Ok(()),
        left => Err(left.to_string()),
    })
    .await;
}

/// The parent of the spare folders is gone, as on a failing disk. Kills all processes that have
/// this folder mounted.
fn kill_those_with(folder: &Path) -> usize {
    let folder = folder.to_str().unwrap();
    let mut killed = 0;
    for entry in fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        if pid != 1 && mounts.contains(folder) {
            // It may have died meanwhile.
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap_or_default();
            killed += 1;
        }
    }
    killed
}

async fn filled_again() {
    let place = TestFolder::new().await;
    assert!(kill_those_with(&place.path("spare/spare-")) >= POOL);
    let (mut number, started) = (0, Instant::now());
    loop {
        number += 1;
        match place.at_once(&format!("session-{number}")).await {
            Some((cell, _)) if cell.is_alive() => break,
            other => assert!(started.elapsed() < Duration::from_secs(20), "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    place.until_full().await;
}

async fn without() {
    let place = TestFolder::new().await;
    for spare in place.spares() {
        fs::remove_dir(spare).unwrap();
    }
    fs::remove_dir(place.path("spare")).unwrap();
    assert!(place.at_once("mine").await.is_none());
    drop(Folder::make(&place.path("mine")).unwrap());
    for _ in 0..POOL {
        drop(place.pooling.open(&place.spec("mine")).await.unwrap());
    }
    place.until_full().await;
    assert!(place.at_once("mine").await.is_none());
    let mut cell = place.pooling.open(&place.spec("mine")).await.unwrap();
    let result = complete(&mut cell, USE_IT).await;
    assert_eq!(result.stdout, "[] ['mine'] /mnt/data\n1 True\n");
}

/// The attacks on existing folders are also tried on one that was mounted ahead of time.
async fn attacks() {
    let place = TestFolder::new().await;
    for attack in [
        "host_workspace_origin",
        "folder_mount_tricks",
        "folder_replaced",
        "folder_hard_links",
        "folder_device_nodes",
    ] {
        place.until_full().await;
        let source = fs::read_to_string(attacks_folder().join(format!("{attack}.py"))).unwrap();
        let (mut cell, _) = place.at_once("mine").await.unwrap();
        let result = complete(&mut cell, &source).await;
        let held = result.stdout.contains("held") && !result.stdout.contains("BREACH");
        assert!(held, "{attack}: {}", result.stdout);
        cell.close().await.unwrap();
        fs::rename(place.path("mine"), place.path(attack)).unwrap();
    }
}
