//! Workspaces, in memory and on the host.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use tempfile::TempDir;
use woma_sandbox::workspace::measure;
use woma_sandbox::{
    Cell, Config, Error, Interruption, Limits, Outcome, Sandbox, Spec, State, Tier, Workspace,
};

use crate::harness::{environment, is_root, run, sandbox, until};
use crate::{check_state, complete, describe, open, trial};

const MIB: u64 = 1024 * 1024;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("every name of the workspace shows the same files", aliases),
        trial("files in memory are gone with the session", memory_is_private),
        trial("a folder of the host is read and written", round_trip),
        trial("a pooled session gets a folder too", pooled),
        trial("a folder outlives its session", folder_is_kept),
        trial("a folder that is not there is refused", missing),
        trial("a folder too large ends the run", || {
            too_full("with open('large', 'wb') as file: file.write(b'x' * (32 << 20))")
        }),
        trial("a folder with too many files ends the run", || {
            too_full("for i in range(500):\n    with open(f'small{i}', 'w'): pass")
        }),
        trial("a folder that was full before can still be emptied", full_before),
        trial("short runs pass a folder's limit once and are then held", short_runs),
        trial("a folder that became too full can be emptied from inside", emptied),
        trial("hidden and closed folders count like others", closed),
        trial("a process that outlives its run cannot fill the folder", left_behind),
        trial("programs that use fallocate work without it", without_fallocate),
    ]
}

async fn aliases() {
    let mut cell = open(Limits::default()).await;
    let code = "
import os
folders = ['/tmp', '/mnt/data', '/workspace', '/home/user', '/var/tmp', os.getcwd()]
folders.append(os.path.expanduser('~'))
names = [f'{i}.txt' for i in range(len(folders))]
for i, folder in enumerate(folders):
    with open(f'{folder}/{i}.txt', 'w') as file: file.write(folder)
for folder in folders:
    assert sorted(os.listdir(folder)) == names, (folder, os.listdir(folder))
    assert open(f'{folder}/0.txt').read() == '/tmp'
";
    complete(&mut cell, code).await;
}

async fn memory_is_private() {
    let mut first = open(Limits::default()).await;
    complete(&mut first, "open('mine', 'w').write('x')").await;
    let mut second = open(Limits::default()).await;
    let result = complete(&mut second, "import os; print(os.listdir('.'))").await;
    assert_eq!(result.stdout, "[]\n");
}

/// A folder with an arbitrary owner if we are root, otherwise our own.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("woma-cells-").tempdir_in("/var/tmp").unwrap();
    if is_root() {
        chown(folder.path(), Some(12_345), Some(12_346)).unwrap();
    }
    folder
}

fn plant(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    let owner = fs::metadata(folder).unwrap();
    chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn spec_for(folder: &Path, limits: Limits) -> Spec {
    Spec { limits, workspace: Workspace::Folder(folder.to_owned()), ..Spec::default() }
}

async fn read_and_write(cell: &mut Cell, folder: &Path) {
    plant(folder, "given.txt", "from the host");
    let code = "
import os
print(open('given.txt').read())
os.makedirs('a/b')
open('a/b/made.txt', 'w').write('from inside')
open('/tmp/given.txt', 'a').write(', and back')
print(os.stat('given.txt').st_uid == os.getuid() == os.stat('a/b/made.txt').st_uid)
";
    let result = complete(cell, code).await;
    assert_eq!(result.stdout, "from the host\nTrue\n", "{}", describe(&result));
    assert_eq!(fs::read_to_string(folder.join("given.txt")).unwrap(), "from the host, and back");
    let made = folder.join("a/b/made.txt");
    assert_eq!(fs::read_to_string(&made).unwrap(), "from inside");
    let owner = fs::metadata(folder).unwrap();
    for path in [made, folder.join("a")] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (owner.uid(), owner.gid()));
    }
}

async fn round_trip() {
    let folder = folder();
    let spec = spec_for(folder.path(), Limits::default());
    let mut cell = sandbox().await.open(&spec).await.unwrap();
    read_and_write(&mut cell, folder.path()).await;
}

async fn pooled() {
    let mut config = Config::new(environment());
    config.preload = Tier::Base;
    config.pool = 2;
    let pooling = Sandbox::start(config).await.unwrap();
    until("the pool is full", Duration::from_secs(20), || match pooling.pooled_cells() {
        2 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    let folder = folder();
    let mut cell = pooling.open(&spec_for(folder.path(), Limits::default())).await.unwrap();
    assert!(cell.id() <= 2, "cell {} is not from the pool", cell.id());
    read_and_write(&mut cell, folder.path()).await;
    until("the pool is full again", Duration::from_secs(20), || match pooling.pooled_cells() {
        2 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
}

async fn folder_is_kept() {
    let folder = folder();
    let spec = spec_for(folder.path(), Limits::default());
    for round in 0..3 {
        let mut cell = sandbox().await.open(&spec).await.unwrap();
        let code = "print(len(open('log').read()) if __import__('os').path.exists('log') else 0)\n\
                    open('log', 'a').write('x')";
        assert!(complete(&mut cell, code).await.stdout.starts_with(&format!("{round}\n")));
        cell.close().await.unwrap();
    }
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "xxx");
}

async fn missing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [Path::new("/nonexistent/folder"), file.path()] {
        let opened = sandbox().await.open(&spec_for(path, Limits::default())).await;
        let Err(Error::Workspace { path: named, reason }) = opened else {
            panic!("{}: {opened:?}", path.display());
        };
        assert!(named == path && !reason.is_empty(), "{}: {reason}", named.display());
    }
}

async fn too_full(code: &str) {
    let folder = folder();
    let limits = Limits {
        workspace_bytes: 8 * MIB,
        workspace_files: 100,
        wall: Duration::from_secs(5),
        ..Limits::default()
    };
    let mut cell = sandbox().await.open(&spec_for(folder.path(), limits)).await.unwrap();
    let code =
        format!("kept = 1\nimport time\n{code}\nprint('written')\nwhile True: time.sleep(0.01)");
    let result = run(&mut cell, &code).await;
    let full = Outcome::Interrupted(Interruption::WorkspaceFull);
    assert_eq!(result.exit.outcome, full, "{}", describe(&result));
    assert_eq!(result.exit.state, State::Preserved, "{}", describe(&result));
    check_state(&mut cell, &result).await;
}

/// Writes as much as fits between two samples.
const PIECE: &str = "open(f'piece{len(os.listdir())}', 'wb').write(b'x' * (3 << 20))";

async fn with_limit(folder: &Path) -> Cell {
    let limits = Limits { workspace_bytes: 8 * MIB, ..Limits::default() };
    let mut cell = sandbox().await.open(&spec_for(folder, limits)).await.unwrap();
    complete(&mut cell, "kept = 1\nimport os").await;
    cell
}

fn held_bytes(folder: &Path) -> u64 {
    measure(folder, 1_000).unwrap().bytes
}

async fn short_runs() {
    let folder = folder();
    let mut cell = with_limit(folder.path()).await;
    let full = Outcome::Interrupted(Interruption::WorkspaceFull);
    let mut refused = 0;
    for _ in 0..20 {
        let result = run(&mut cell, PIECE).await;
        assert_eq!(result.exit.state, State::Preserved, "{}", describe(&result));
        refused += usize::from(result.exit.outcome == full);
    }
    // The run that exceeded it, and one that added more.
    let held = held_bytes(folder.path());
    assert!(held <= (8 + 2 * 3) * MIB + MIB / 2, "{held} bytes");
    assert!(held > 8 * MIB && refused >= 15, "{held} bytes, {refused} were refused");
    // Only the server can make room now; then the session goes on.
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(complete(&mut cell, "print(kept, os.listdir())").await.stdout, "1 []\n");
    complete(&mut cell, PIECE).await;
}

async fn emptied() {
    let folder = folder();
    let mut cell = with_limit(folder.path()).await;
    while held_bytes(folder.path()) <= 8 * MIB {
        run(&mut cell, PIECE).await;
    }
    complete(&mut cell, "print(len(os.listdir()))").await;
    complete(&mut cell, "for name in os.listdir(): os.remove(name)").await;
    for _ in 0..2 {
        complete(&mut cell, PIECE).await;
    }
}

async fn closed() {
    for place in [".hidden", "closed", ".woma-own"] {
        let folder = folder();
        let mut cell = with_limit(folder.path()).await;
        let code = format!(
            "os.mkdir('{place}')\nopen('{place}/large', 'wb').write(b'x' * (32 << 20))\n\
             os.chmod('{place}', 0)\nos.chmod('.', 0o300)\n\
             import time\nwhile True: time.sleep(0.01)"
        );
        let result = run(&mut cell, &code).await;
        let full = Outcome::Interrupted(Interruption::WorkspaceFull);
        assert_eq!(result.exit.outcome, full, "{place}: {}", describe(&result));
    }
}

async fn left_behind() {
    let folder = folder();
    let mut cell = with_limit(folder.path()).await;
    let writer = "import time\nfor i in range(10**6):\n    \
                  open(f'piece{i % 900}', 'ab').write(b'x' * 65536); time.sleep(0.002)";
    let code =
        format!("import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {writer:?}])");
    complete(&mut cell, &code).await;
    until("the session has ended", Duration::from_secs(60), || {
        if cell.is_alive() { Err(format!("{} bytes", held_bytes(folder.path()))) } else { Ok(()) }
    })
    .await;
    assert_eq!(cell.overrun(), Some(Interruption::WorkspaceFull));
}

/// `fallocate`, file system ioctls and extended attributes are not available; programs that use
/// them have a fallback.
async fn without_fallocate() {
    let folder = folder();
    let mut cell = sandbox().await.open(&spec_for(folder.path(), Limits::default())).await.unwrap();
    let code = "
import os, shutil, sqlite3, subprocess, tarfile, termios, fcntl, struct
import numpy as np
fd = os.open('ahead', os.O_CREAT | os.O_RDWR)
os.posix_fallocate(fd, 0, 3 << 20)
assert os.fstat(fd).st_size == 3 << 20 and os.fstat(fd).st_blocks * 512 >= 3 << 20
os.close(fd)
base = sqlite3.connect('base.db')
base.execute('pragma journal_mode = wal')
base.execute('pragma mmap_size = 1048576')
base.execute('create table t (x blob)')
base.executemany('insert into t values (?)', [(os.urandom(5000),) for _ in range(200)])
base.commit()
base.execute('vacuum')
assert base.execute('select count(*) from t').fetchone() == (200,)
base.close()
many = np.memmap('many.bin', dtype=np.float64, mode='w+', shape=(1000, 200))
many[:] = 1.5
many.flush()
del many
assert np.memmap('many.bin', dtype=np.float64, mode='r').sum() == 300_000
shutil.copy2('many.bin', 'copy.bin')
subprocess.run(['cp', '-a', '--reflink=auto', 'many.bin', 'copy2.bin'], check=True)
with tarfile.open('all.tar', 'w') as tar: tar.add('copy.bin')
subprocess.run(['tar', 'xf', 'all.tar', '--xattrs', '--to-stdout'], check=True, stdout=subprocess.DEVNULL)
assert os.path.getsize('copy.bin') == os.path.getsize('copy2.bin') == 1_600_000
assert not os.isatty(0)
ours, theirs = os.pipe()
os.write(theirs, b'abc')
assert struct.unpack('i', fcntl.ioctl(ours, termios.FIONREAD, bytes(4))) == (3,)
os.set_blocking(ours, False)
os.set_inheritable(ours, True)
print('works')
";
    let result = complete(&mut cell, code).await;
    assert_eq!(result.stdout, "works\n", "{}", describe(&result));
}

/// Files that existed before the first run are not charged to it.
async fn full_before() {
    let folder = folder();
    plant(folder.path(), "large", &"x".repeat(16 << 20));
    let limits = Limits { workspace_bytes: 8 * MIB, ..Limits::default() };
    let mut cell = sandbox().await.open(&spec_for(folder.path(), limits)).await.unwrap();
    // Long enough to be sampled.
    let code = "import os, time; time.sleep(0.5); os.remove('large'); print(os.listdir('.'))";
    assert_eq!(complete(&mut cell, code).await.stdout, "[]\n");
}
