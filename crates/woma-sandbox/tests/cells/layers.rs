//! Packages of a session: a folder of the host, shown read-only as `/packages`, on top of the last.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use libtest_mimic::Trial;
use woma_sandbox::Limits;

use crate::{complete, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("layers: modules and programs of a layer run, and nothing can write it", shown),
        trial("layers: a later layer is on top, also for a run that goes on", replaced),
        trial("layers: a link in a layer leads nowhere, and its rights give none", links),
    ]
}

/// A layer below the folder, which everyone may read.
fn layer(folder: &Path, version: &str) -> std::path::PathBuf {
    let layer = folder.join(version);
    fs::create_dir_all(layer.join("bin")).unwrap();
    fs::write(layer.join("woma_layer.py"), format!("VERSION = {version:?}\n")).unwrap();
    let program = layer.join("bin/woma-layer");
    fs::write(&program, format!("#!/bin/sh\necho program {version}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    layer
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

async fn shown() {
    let folder = folder();
    let mut cell = open(Limits::default()).await;
    let before = complete(&mut cell, "import os\nprint(os.listdir('/packages'))").await;
    assert_eq!(before.stdout, "[]\n");
    let layer = layer(folder.path(), "1");
    cell.folders().show_packages(&layer).await.unwrap();
    let code = "import subprocess, sys, woma_layer\nprint(woma_layer.VERSION, flush=True)\n\
                subprocess.run(['woma-layer'])\n\
                subprocess.run([sys.executable, '-c', 'import woma_layer; print(woma_layer.VERSION)'])\n\
                for act in (lambda: open('/packages/x', 'w'), lambda: os.remove('/packages/woma_layer.py'),\n        \
                            lambda: os.chmod('/packages/woma_layer.py', 0o777), lambda: os.mkdir('/packages/d')):\n    \
                    try:\n        act(); print('WROTE')\n    except OSError:\n        pass";
    let said = complete(&mut cell, code).await;
    assert_eq!(said.stdout, "1\nprogram 1\n1\n");
    assert!(!layer.join("x").exists());
}

async fn replaced() {
    let folder = folder();
    let mut cell = open(Limits::default()).await;
    let (first, second) = (layer(folder.path(), "1"), layer(folder.path(), "2"));
    let room = cell.folders();
    room.show_packages(&first).await.unwrap();
    complete(&mut cell, "held = open('/packages/woma_layer.py')").await;
    let code = "import time\nuntil = time.monotonic() + 60\n\
                while '2' not in open('/packages/woma_layer.py').read() and time.monotonic() < until:\n    \
                    time.sleep(0.01)\n\
                import woma_layer\nprint(woma_layer.VERSION, held.read().strip())";
    let (said, shown) = tokio::join!(complete(&mut cell, code), room.show_packages(&second));
    shown.unwrap();
    assert_eq!(said.stdout, "2 VERSION = \"1\"\n");
}

async fn links() {
    let folder = folder();
    let layer = layer(folder.path(), "1");
    fs::write(folder.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", layer.join("up")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret"), layer.join("out")).unwrap();
    let program = layer.join("bin/woma-root");
    fs::copy("/usr/bin/id", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    let mut cell = open(Limits::default()).await;
    cell.folders().show_packages(&layer).await.unwrap();
    let code = "import subprocess\nfor name in ('up', 'out'):\n    \
                    try:\n        print(open('/packages/' + name).read())\n    \
                    except OSError:\n        print('nothing')\n\
                own = subprocess.run(['id', '-u'], capture_output=True, text=True).stdout\n\
                theirs = subprocess.run(['woma-root', '-u'], capture_output=True, text=True).stdout\n\
                print(own == theirs)";
    let said = complete(&mut cell, code).await;
    assert_eq!(said.stdout, "nothing\nnothing\nTrue\n");
}
