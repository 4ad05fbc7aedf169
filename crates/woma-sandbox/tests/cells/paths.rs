//! One folder under many names, and its concurrent use by the server and a session.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use tempfile::TempDir;
use woma_sandbox::workspace::{
    Bounds, DigestBounds, Entry, Folder, Kind, Snapshot, WorkspacePath, diff, remove_tree,
};
use woma_sandbox::{Cell, Config, Error, Limits, Sandbox, Spec, Tier, Workspace};

use crate::harness::{environment, is_root, patience, run, sandbox, until};
use crate::{complete, describe, events, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("paths: a named session has one folder under every name, in memory", || names(false)),
        trial("paths: a named session has one folder under every name, on disk", || names(true)),
        trial("paths: a pooled session gets its name too", pooled_name),
        trial("paths: rejects a name that is not a folder name", bad_names),
        trial("paths: names from other machines mean files of the session", foreign_names),
        trial("paths: an error about a file says what is there", file_errors),
        trial("paths: a plotly figure leaves a page", plotly_page),
        trial("paths: pandas reads and writes under every name", pandas),
        trial("paths: a file that is written elsewhere is refused", refused),
        trial("paths: libraries and commands agree and leave no junk", libraries),
        trial("paths: uploads are read under three names and not written", uploads),
        trial("paths: without uploads their folder is empty and closed", no_uploads),
        trial("paths: what the server writes is the session's, and back", both_sides),
        trial("paths: the server is not held up by what a session leaves", traps),
        trial("paths: changes of a run are reported", changes),
        trial("paths: a session's folder is deleted with all that is in it", deleted),
    ];
    if is_root() {
        trials.push(trial("paths: a full disk raises an error in the code", full_disk));
    }
    trials
}

struct TestFolder {
    around: TempDir,
    folder: Folder,
}

impl TestFolder {
    fn new() -> Self {
        Self::within(tempfile::Builder::new().prefix("woma-paths-").tempdir_in("/var/tmp").unwrap())
    }

    fn within(around: TempDir) -> Self {
        let folder = Folder::make(&around.path().join("session")).unwrap();
        Self { around, folder }
    }

    fn path(&self) -> PathBuf {
        self.around.path().join("session")
    }

    fn spec(&self) -> Spec {
        let workspace = Workspace::Folder(self.path());
        Spec { workspace, name: Some("mine".to_owned()), ..Spec::default() }
    }

    async fn open(&self) -> Cell {
        sandbox().await.open(&self.spec()).await.unwrap()
    }

    fn write(&self, to: &str, content: &[u8]) {
        let mut draft = self.folder.create(&path(to)).unwrap();
        draft.write_all(content).unwrap();
        draft.commit().unwrap();
    }

    fn read(&self, from: &str) -> String {
        let mut text = String::new();
        self.folder.open(&path(from)).unwrap().0.read_to_string(&mut text).unwrap();
        text
    }

    fn names(&self) -> Vec<String> {
        let listing = self.folder.list(Bounds { hidden: true, ..Bounds::default() }).unwrap();
        assert!(listing.complete);
        listing.entries.into_iter().map(|entry| entry.path).collect()
    }
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

const EVERY_NAME: &str = "
import os, subprocess
folders = ['/tmp', '/var/tmp', '/temp', '/mnt/data', '/workspace', '/content', '/home/user',
           '/kaggle/input', '/kaggle/working', '/mnt/user-data/outputs', '/mnt/user-data/uploads',
           '/home/jovyan', '/data', '/app/sandbox_data/mine', os.getcwd(),
           os.path.expanduser('~')]
names = sorted(f'{i}.txt' for i in range(len(folders)))
for i, folder in enumerate(folders):
    with open(f'{folder}/{i}.txt', 'w') as file: file.write(folder)
for folder in folders:
    assert sorted(os.listdir(folder)) == names, (folder, os.listdir(folder))
    assert subprocess.check_output(['cat', f'{folder}/0.txt']) == b'/tmp'
    # The last name is no link: a careful program opens it.
    os.close(os.open(f'{folder}/0.txt', os.O_RDONLY | os.O_NOFOLLOW))
    assert os.path.realpath(f'{folder}/0.txt') == '/mnt/data/0.txt'
for folder in ('/tmp/a', '/tmp/b'):
    os.mkdir(folder)
    open(folder + '/x.csv', 'w').write(folder)
assert open('a/x.csv').read() == '/tmp/a' and open('b/x.csv').read() == '/tmp/b'
assert os.listdir('/app/sandbox_data') == ['mine']
for outside in ('/app/sandbox_data/other', '/app/sandbox_data', '/app', '/', '/etc', '/usr/lib',
                '/home/ubuntu'):
    try:
        open(outside + '/x', 'w')
        print('written:', outside)
    except OSError as error:
        assert error.errno in (2, 13, 30), (outside, error)
print('end')
";

async fn names(on_disk: bool) {
    let place = TestFolder::new();
    let mut spec = place.spec();
    if !on_disk {
        spec.workspace = Workspace::Memory;
    }
    let mut cell = sandbox().await.open(&spec).await.unwrap();
    assert_eq!(complete(&mut cell, EVERY_NAME).await.stdout, "end\n");
    assert_eq!(place.names().is_empty(), !on_disk);
}

async fn start(change: impl FnOnce(&mut Config)) -> Result<Sandbox, Error> {
    let mut config = Config::new(environment());
    config.preload = Tier::Base;
    change(&mut config);
    Sandbox::start(config).await
}

async fn pooled_name() {
    let pooling = start(|config| config.pool = 1).await.unwrap();
    until("the pool is full", Duration::from_secs(20), || match pooling.pooled_cells() {
        1 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    let place = TestFolder::new();
    let mut cell = pooling.open(&place.spec()).await.unwrap();
    assert_eq!(cell.id(), 1, "it is not from the pool");
    assert_eq!(complete(&mut cell, EVERY_NAME).await.stdout, "end\n");
}

const FOREIGN_NAMES: &str = r"
import os, sqlite3
import pandas as pd
from pathlib import Path
from PIL import Image
def write(name): open(name, 'w').write(name)
write('C:\\Users\\me\\a.csv'); write('D:/b.csv'); write('mine/c.csv'); write('default/d.csv')
write('sandbox:/mnt/data/e.csv'); write('~/f.csv'); write('new/g/h.csv'); write('/tmp/new/i.csv')
Path('C:\\x\\j.txt').write_text('j')
frame = pd.DataFrame({'a': [1]})
frame.to_csv('C:/data/k.csv'); frame.to_excel('mine/l.xlsx'); frame.to_json('made/m.json')
Image.new('RGB', (2, 2)).save('C:\\x\\n.png')
sqlite3.connect('C:\\x\\o.db').execute('create table t (x)')
assert open('mine/a.csv').read() == 'C:\\Users\\me\\a.csv'
assert pd.read_csv('E:/k.csv').a[0] == pd.read_excel('C:\\l.xlsx').a[0] == 1
meant = ['/tmp/a.csv', '/app/sandbox_data/mine/a.csv', 'mine/a.csv', 'C:/a.csv', '/content/a.csv']
assert {_normalize_path(path) for path in meant} == {'a.csv'}
print('end')
";

async fn foreign_names() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    assert_eq!(complete(&mut cell, FOREIGN_NAMES).await.stdout, "end\n");
    let names = "a.csv b.csv c.csv d.csv e.csv f.csv j.txt k.csv l.xlsx made made/m.json n.png new \
                 new/g new/g/h.csv new/i.csv o.db";
    let mut result = place.names();
    result.sort();
    assert_eq!(result.join(" "), names);
}

async fn file_errors() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    let here = "\nWrite below the working directory /mnt/data; /tmp is the same folder.";
    let cases = [
        ("open('x.csv')", "\nThe working directory /mnt/data is empty."),
        ("open('data/Sales.csv', 'w').close()\nopen('/uploads/sales.csv')", "'data/Sales.csv'"),
        ("import pandas as pd\npd.read_csv('/tmp/sale.csv')", "\nDid you mean: 'data/Sales.csv'"),
        ("open('unlike')", "\nFiles in the working directory /mnt/data: 'data/'"),
        ("open('/etc/x', 'w')", here),
        ("open('/usr/lib/x', 'w')", here),
        ("open('/app/sandbox_data/other/x.csv', 'w')", here),
        ("import os; os.mkdir('/etc/x')", here),
    ];
    for (source, end) in cases {
        let result = run(&mut cell, source).await;
        let error = result.exit.done.as_ref().and_then(|done| done.error.as_ref()).unwrap();
        assert!(error.message.ends_with(end), "{source}: {}", error.message);
        let traceback = error.traceback.join("\n");
        assert!(traceback.ends_with(end), "{source}: {traceback}");
        assert!(!traceback.contains("kernel"), "{source}: {traceback}");
    }
}

async fn plotly_page() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    let code = "import plotly.express as px\nfig = px.bar(y=[1, 2])\nfig.show()\nfig";
    let result = complete(&mut cell, code).await;
    let text = "display: \"<plotly figure: 1 trace (bar); the picture is a preview; \
                the interactive figure is plotly_001.html>\"";
    assert_eq!(events(&result), [text]);
    let page = place.read("plotly_001.html");
    assert!(page.len() < 20_000 && page.contains("Plotly.newPlot"), "{}", page.len());
    assert!(place.read("plotly.min.js").len() > 4_000_000);
}

async fn bad_names() {
    let named = |name: &str| Spec { name: Some(name.to_owned()), ..Spec::default() };
    let long = "x".repeat(256);
    for name in [".", "..", "a/b", "../x", "a\0b", &long] {
        let opened = sandbox().await.open(&named(name)).await;
        assert!(matches!(opened, Err(Error::Workspace { .. })), "{name:?}: {opened:?}");
    }
    let mut cell = sandbox().await.open(&named("Ünïcode 名 -x")).await.unwrap();
    let result = complete(&mut cell, "import os; print(os.listdir('/app/sandbox_data'))").await;
    assert_eq!(result.stdout, "['Ünïcode 名 -x']\n");
}

const PANDAS: &str = r"
import pandas as pd
frame = pd.DataFrame({'a': [1, 2]})
folders = ['/tmp', '/var/tmp', '/temp', '/mnt/data', '/workspace', '/content', '/home/user',
           '/kaggle/working', '/app/sandbox_data/mine', 'C:\\Users\\me', 'C:/data', 'mine', '~', '.']
kinds = {
    'csv': (lambda name: frame.to_csv(name, index=False), [pd.read_csv]),
    'xlsx': (lambda name: frame.to_excel(name, index=False),
             [pd.read_excel, lambda name: pd.ExcelFile(name).parse()]),
    'json': (frame.to_json, [pd.read_json]),
    'parquet': (frame.to_parquet, [pd.read_parquet]),
}
for number, folder in enumerate(folders):
    join = '\\' if '\\' in folder else '/'
    other = folders[(number + 1) % len(folders)]
    beyond = '\\' if '\\' in other else '/'
    for kind, (write, readers) in kinds.items():
        frame['a'] = [number, number + 1]
        write(f'{folder}{join}x.{kind}')
        for read in readers:
            assert read(f'{other}{beyond}x.{kind}').equals(frame), (folder, other, kind)
";

async fn pandas() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    complete(&mut cell, PANDAS).await;
    assert_eq!(place.names(), ["x.csv", "x.json", "x.parquet", "x.xlsx"]);
}

async fn refused() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    let code = "
import io, pathlib
for path in ('/etc/x', '/usr/lib/x', '/x', '/app/x', '/app/sandbox_data/other/x', '/uploads/x',
             '/app/uploads/x', '/home/ubuntu/uploads/x', '/etc/passwd'):
    for write in (lambda: open(path, 'w'), lambda: io.open(path, 'ab'),
                  lambda: pathlib.Path(path).write_text('x')):
        try:
            write()
            print('written', path)
        except PermissionError as error:
            assert error.errno in (13, 30) and error.filename == path, error
print('end')
";
    assert_eq!(complete(&mut cell, code).await.stdout, "end\n");
}

async fn libraries() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    let code = "
import ctypes, multiprocessing, os, sqlite3, subprocess, tempfile
import matplotlib.pyplot as plt, openpyxl, pandas as pd
frame = pd.DataFrame({'a': [1, 2]})
frame.to_csv('/tmp/a.csv', index=False)
frame.to_excel('/mnt/data/b.xlsx', index=False)
assert pd.read_csv('a.csv').equals(pd.read_excel('/temp/b.xlsx'))
database = sqlite3.connect('/var/tmp/c.db')
with database:
    database.execute('create table t (x)')
    database.execute('insert into t values (1)')
database.close()
assert sqlite3.connect('/content/c.db').execute('select x from t').fetchall() == [(1,)]
plt.plot([1, 2]); plt.savefig('/home/user/d.png'); plt.close()
assert ctypes.CDLL(None).access(b'/workspace/d.png', 0) == 0
subprocess.run('cp /tmp/a.csv ~/e.csv; f=$(mktemp); echo x > $f', shell=True, check=True)
folder = tempfile.mkdtemp()
open(folder + '/junk', 'w').close()
assert folder.startswith('/run/scratch/')
with multiprocessing.get_context('fork').Pool(2) as pool:
    assert pool.map(abs, [-1]) == [1]
multiprocessing.Semaphore()
";
    complete(&mut cell, code).await;
    assert_eq!(place.names(), ["a.csv", "b.xlsx", "c.db", "d.png", "e.csv"]);
}

async fn uploads() {
    let uploads = tempfile::Builder::new().prefix("woma-uploads-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(uploads.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(uploads.path().join("first"), "1").unwrap();
    let sandbox = start(|config| config.uploads = Some(uploads.path().to_owned())).await.unwrap();
    fs::write(uploads.path().join("later"), "2").unwrap();
    let mut cell = sandbox.open(&Spec::default()).await.unwrap();
    let code = "
import os
for folder in ('/uploads', '/app/uploads', '/home/ubuntu/uploads'):
    first, new = folder + '/first', folder + '/new'
    assert open(first).read() + open(folder + '/later').read() == '12'
    for action in (lambda: open(first, 'a'), lambda: open(new, 'w'), lambda: os.remove(first),
                   lambda: os.chmod(first, 0o777), lambda: os.mkdir(new),
                   lambda: os.rename(first, '/tmp/x'), lambda: os.link(first, '/tmp/x')):
        try:
            action()
            print('written', folder)
        except OSError:
            pass
print('end')
";
    assert_eq!(complete(&mut cell, code).await.stdout, "end\n");
    assert_eq!(fs::read_dir(uploads.path()).unwrap().count(), 2);
}

async fn no_uploads() {
    let mut cell = open(Limits::default()).await;
    let code = "
import os
for folder in ('/uploads', '/app/uploads', '/home/ubuntu/uploads'):
    assert os.listdir(folder) == []
    try: open(folder + '/x', 'w'); print('written', folder)
    except OSError: pass
print('end')
";
    assert_eq!(complete(&mut cell, code).await.stdout, "end\n");
}

async fn both_sides() {
    let place = TestFolder::new();
    place.write("before.txt", b"before");
    let mut cell = place.open().await;
    place.write("deep/er/given.txt", b"given");
    place.write("gone.txt", b"gone");
    let code = "
import os
assert open('before.txt').read() == 'before' and open('/tmp/deep/er/given.txt').read() == 'given'
assert os.stat('deep/er/given.txt').st_uid == os.getuid() == os.stat('deep').st_uid
open('deep/er/given.txt', 'a').write(' and more')
os.remove('gone.txt'); os.chmod('before.txt', 0o600); os.rename('before.txt', 'deep/after.txt')
open('deep/made.txt', 'w').write('made')
";
    complete(&mut cell, code).await;
    assert_eq!(place.read("deep/er/given.txt"), "given and more");
    assert_eq!(place.read("deep/made.txt"), "made");
    assert_eq!(place.read("/mnt/data/deep/after.txt"), "before");
    place.write("deep/made.txt", b"new");
    place.folder.remove(&path("deep/after.txt")).unwrap();
    let code = "print(open('deep/made.txt').read(), sorted(os.listdir('deep')))";
    assert_eq!(complete(&mut cell, code).await.stdout, "new ['er', 'made.txt']\n");
}

async fn traps() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    let code = "
import fcntl, os
os.mkfifo('report.csv')
os.symlink('/etc/passwd', 'link.csv')
os.symlink('/proc/self/mem', 'memory.csv')
leased = open('leased.csv', 'w')
try:
    fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print('leased')
except OSError as error:
    print(error)
";
    let result = complete(&mut cell, code).await;
    let began = Instant::now();
    let entries = place.folder.list(Bounds::default()).unwrap().entries;
    let kinds: Vec<_> = entries.iter().map(|entry| (entry.path.as_str(), entry.kind)).collect();
    let expected = [
        ("leased.csv", Kind::File),
        ("link.csv", Kind::Link),
        ("memory.csv", Kind::Link),
        ("report.csv", Kind::Other),
    ];
    assert_eq!(kinds, expected);
    for name in ["link.csv", "memory.csv", "report.csv"] {
        assert!(place.folder.open(&path(name)).is_err(), "{name}");
    }
    let leased = place.folder.open(&path("leased.csv"));
    assert_eq!(leased.is_err(), result.stdout == "leased\n", "{} {leased:?}", describe(&result));
    for name in ["link.csv", "report.csv", "leased.csv"] {
        place.write(name, b"mine");
        assert_eq!(place.read(name), "mine");
    }
    assert!(began.elapsed() < patience(Duration::from_secs(2)), "{:?}", began.elapsed());
}

async fn changes() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    let look = || Snapshot::take(&place.folder, Bounds::default(), 1_000).unwrap();
    let paths = |entries: &[Entry]| {
        entries.iter().map(|entry| entry.path.clone()).collect::<Vec<_>>().join(" ")
    };
    let forge = "t = os.stat('b.csv'); open('b.csv', 'w').write('3')
os.utime('b.csv', ns=(t.st_atime_ns, t.st_mtime_ns))";
    let mut before = look();
    for (code, expected) in [
        ("open('a.csv', 'w').write('1'); open('b.csv', 'w').write('1')", ["a.csv b.csv", "", ""]),
        ("open('a.csv', 'w').write('2'); open('b.csv', 'w').write('1')", ["", "a.csv", ""]),
        ("import os; os.remove('a.csv'); os.utime('b.csv')", ["", "", "a.csv"]),
        ("open('.hidden', 'w').write('1')", ["", "", ""]),
        (forge, ["", "b.csv", ""]),
    ] {
        complete(&mut cell, code).await;
        let mut after = look();
        let told = diff(&place.folder, &before, &mut after, DigestBounds::default());
        let told = [paths(&told.added), paths(&told.modified), told.deleted.join(" ")];
        assert_eq!(told, expected, "{code}");
        before = after;
    }
}

async fn deleted() {
    let place = TestFolder::new();
    let mut cell = place.open().await;
    let code = "
import os
os.makedirs('closed/inner/most')
open('closed/inner/x', 'w').close()
for folder in ('closed/inner/most', 'closed/inner', 'closed', '/mnt/data'): os.chmod(folder, 0)
";
    complete(&mut cell, code).await;
    cell.close().await.unwrap();
    remove_tree(&place.path(), 1_000).unwrap();
    assert!(!place.path().exists());
}

/// A file system of one megabyte, in memory.
async fn full_disk() {
    let small = tempfile::Builder::new().prefix("woma-small-").tempdir_in("/var/tmp").unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(small.path());
    assert!(mount.status().unwrap().success());
    let place = TestFolder::within(TempDir::new_in(small.path()).unwrap());
    // Its launcher sees the new mount whatever the host's mount propagation.
    let own = start(|_| ()).await.unwrap();
    let mut cell = own.open(&place.spec()).await.unwrap();
    let code = "
import errno
try:
    with open('large', 'wb') as file: file.write(bytes(4 << 20))
except OSError as error:
    print(errno.errorcode[error.errno])
";
    let result = complete(&mut cell, code).await;
    let mut draft = place.folder.create(&path("more")).unwrap();
    let refused = draft.write_all(&vec![0; 2 << 20]).unwrap_err();
    drop(draft);
    drop((cell, place, own));
    assert!(Command::new("umount").arg("-l").arg(small.path()).status().unwrap().success());
    assert_eq!(result.stdout, "ENOSPC\n");
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
}
