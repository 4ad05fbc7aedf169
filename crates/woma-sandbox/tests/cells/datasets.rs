//! The folder of a caller's datasets, as sessions see it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::Trial;
use tempfile::TempDir;
use woma_sandbox::workspace::Folder;
use woma_sandbox::{Config, Error, Limits, Sandbox, Spec, Tier, Workspace};

use crate::harness::{environment, until};
use crate::{complete, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("datasets: a live session sees the folder and its changes", live),
        trial("datasets: the folder can neither be changed nor executed from", read_only),
        trial("datasets: each session sees the folder of its caller only", apart),
        trial("datasets: a session shows one folder, and may be asked again", once),
        trial("datasets: a pooled session in a folder on disk sees them too", pooled),
    ]
}

struct Datasets {
    _around: TempDir,
    path: PathBuf,
}

impl Datasets {
    fn new(content: &str) -> Self {
        let around =
            tempfile::Builder::new().prefix("woma-datasets-").tempdir_in("/var/tmp").unwrap();
        let path = around.path().join("of-a-caller");
        Folder::make(&path).unwrap();
        let made = Self { _around: around, path };
        made.write("sales.parquet", content);
        made
    }

    /// Replaces a file as the server does: by a rename.
    fn write(&self, name: &str, content: &str) {
        let aside = self.path.with_file_name("aside");
        fs::write(&aside, content).unwrap();
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&aside, self.path.join(name)).unwrap();
    }
}

async fn live() {
    let datasets = Datasets::new("first");
    let mut cell = open(Limits::default()).await;
    let empty = complete(&mut cell, "import os\nx = 41\nprint(os.listdir('/datasets'))").await;
    assert_eq!(empty.stdout, "[]\n");
    cell.show_datasets(&datasets.path).await.unwrap();
    let shown = "held = open('/datasets/sales.parquet')\n\
                 print(x, os.listdir('/datasets'), held.read(2))";
    assert_eq!(complete(&mut cell, shown).await.stdout, "41 ['sales.parquet'] fi\n");
    datasets.write("sales.parquet", "second");
    datasets.write("more.parquet", "more");
    let changed = "print(open('/datasets/sales.parquet').read(), sorted(os.listdir('/datasets')), \
                   held.read())";
    let changed = complete(&mut cell, changed).await.stdout;
    assert_eq!(changed, "second ['more.parquet', 'sales.parquet'] rst\n");
    fs::remove_file(datasets.path.join("more.parquet")).unwrap();
    let gone = complete(&mut cell, "print(os.path.exists('/datasets/more.parquet'))").await;
    assert_eq!(gone.stdout, "False\n");
}

const CHANGES: &str = r#"
import os, subprocess
held = []
def tried(name, action):
    try:
        action()
        held.append(name)
    except (OSError, subprocess.SubprocessError):
        pass
at = "/datasets/sales.parquet"
tried("write", lambda: open(at, "w"))
tried("append", lambda: open(at, "a"))
tried("update", lambda: open(at, "r+"))
tried("create", lambda: open("/datasets/new", "w"))
tried("mkdir", lambda: os.mkdir("/datasets/new"))
tried("link", lambda: os.link(at, "/datasets/new"))
tried("link out", lambda: os.link(at, "/mnt/data/new"))
tried("symlink", lambda: os.symlink(at, "/datasets/new"))
tried("rename", lambda: os.rename(at, "/datasets/new"))
tried("move out", lambda: os.rename(at, "/mnt/data/new"))
tried("remove", lambda: os.remove(at))
tried("chmod", lambda: os.chmod(at, 0o777))
tried("utime", lambda: os.utime(at))
tried("truncate", lambda: os.truncate(at, 0))
tried("attribute", lambda: os.setxattr(at, "user.x", b"1"))
tried("execute", lambda: subprocess.run([at], check=True))
tried("descriptor", lambda: os.open(f"/proc/self/fd/{os.open(at, os.O_RDONLY)}", os.O_RDWR))
options = [line.split()[5] for line in open("/proc/self/mountinfo") if line.split()[4] == "/datasets"]
print(held, all(flag in options[-1].split(",") for flag in ("ro", "nosuid", "nodev", "noexec")))
"#;

async fn read_only() {
    let datasets = Datasets::new("#!/bin/sh\nexit 0\n");
    let mut cell = open(Limits::default()).await;
    cell.show_datasets(&datasets.path).await.unwrap();
    assert_eq!(complete(&mut cell, CHANGES).await.stdout, "[] True\n");
    let kept = fs::read_to_string(datasets.path.join("sales.parquet")).unwrap();
    assert!(kept.starts_with("#!/bin/sh"));
}

async fn apart() {
    let (ann, bob) = (Datasets::new("ann's"), Datasets::new("bob's"));
    let (mut hers, mut his) = (open(Limits::default()).await, open(Limits::default()).await);
    hers.show_datasets(&ann.path).await.unwrap();
    his.show_datasets(&bob.path).await.unwrap();
    let read = "print(open('/datasets/sales.parquet').read())";
    assert_eq!(complete(&mut hers, read).await.stdout, "ann's\n");
    assert_eq!(complete(&mut his, read).await.stdout, "bob's\n");
    let mut none = open(Limits::default()).await;
    let seen = complete(&mut none, "import os\nprint(os.listdir('/datasets'))").await;
    assert_eq!(seen.stdout, "[]\n");
}

async fn once() {
    let (datasets, other) = (Datasets::new("one"), Datasets::new("other"));
    let mut cell = open(Limits::default()).await;
    for _ in 0..3 {
        cell.show_datasets(&datasets.path).await.unwrap();
    }
    let mounts =
        "print(sum(line.split()[4] == '/datasets' for line in open('/proc/self/mountinfo')))";
    assert_eq!(complete(&mut cell, mounts).await.stdout, "1\n");
    let refused = cell.show_datasets(&other.path).await.unwrap_err();
    assert!(matches!(refused, Error::Workspace { .. }), "{refused}");
    let missing = other.path.join("nowhere");
    let mut cell = open(Limits::default()).await;
    assert!(cell.show_datasets(&missing).await.is_err());
    // A refusal leaves the session as it was.
    cell.show_datasets(&other.path).await.unwrap();
    let read = "print(open('/datasets/sales.parquet').read())";
    assert_eq!(complete(&mut cell, read).await.stdout, "other\n");
}

async fn pooled() {
    let around = tempfile::Builder::new().prefix("woma-datasets-").tempdir_in("/var/tmp").unwrap();
    fs::create_dir(around.path().join("spare")).unwrap();
    let mut config = Config::new(environment());
    config.preload = Tier::Base;
    config.pool = 1;
    config.spare_folders = Some(around.path().join("spare"));
    let pooling = Sandbox::start(config).await.unwrap();
    until("the pool is full", Duration::from_secs(20), || match pooling.pooled_cells() {
        1 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    let datasets = Datasets::new("pooled");
    let workspace = Workspace::Folder(around.path().join("session"));
    let spec = Spec { workspace, ..Spec::default() };
    let (mut cell, _) = pooling.open_at_once(&spec).await.unwrap();
    cell.show_datasets(&datasets.path).await.unwrap();
    let code = "open('mine.txt', 'w').write(open('/datasets/sales.parquet').read())";
    complete(&mut cell, code).await;
    assert_eq!(fs::read_to_string(around.path().join("session/mine.txt")).unwrap(), "pooled");
}
