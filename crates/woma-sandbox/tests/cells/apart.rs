//! Isolation of kernel resources: sessions cannot notice each other through them, and their number
//! is limited.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libtest_mimic::Trial;
use woma_sandbox::{Cell, Interruption, KernelObject, Limits, Outcome, State};

use crate::harness::{is_root, run, until};
use crate::{complete, describe, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("no inode is another session's or the host's", inodes),
        trial("standard input is an open file of the session's own", standard_input),
        trial("a lock on a shared file is not seen by another session", locks_apart),
        trial("too many file locks stop a run", || {
            too_many(
                KernelObject::FileLock,
                Limits { file_locks: 100, ..Limits::default() },
                "import fcntl
f = open('f', 'w')
for start in range(0, 1000, 2):
    fcntl.lockf(f, fcntl.LOCK_EX, 1, start)
",
            )
        }),
        trial("too many open files in all stop a run", || {
            too_many(
                KernelObject::OpenFile,
                Limits { open_files_total: 300, ..Limits::default() },
                "import os
held = [os.open('/etc/hosts', os.O_RDONLY) for _ in range(500)]
",
            )
        }),
        trial("too many sockets stop a run", || {
            too_many(
                KernelObject::Socket,
                Limits { sockets: 100, ..Limits::default() },
                "import socket
held = [socket.socket() for _ in range(200)]
",
            )
        }),
        trial("a thread that outlives its run cannot take kernel objects", between_runs),
    ]
}

const INODES: &str = "
import os, sys
paths = ['/', '/usr', '/usr/bin/env', '/etc', '/etc/passwd', '/opt/woma/zygote.py', '/mnt', '/run',
         sys.prefix, os.path.realpath(sys.executable), os.__file__, '/dev/null', '/proc/cmdline', '/proc/sys']
for path in paths:
    print(path, os.stat(path).st_dev)
";

async fn devices_of(cell: &mut Cell) -> BTreeMap<String, u64> {
    let result = complete(cell, INODES).await;
    let split = |line: &str| {
        let (path, device) = line.rsplit_once(' ').unwrap();
        (path.to_owned(), device.parse().unwrap())
    };
    result.stdout.lines().map(split).collect()
}

async fn inodes() {
    let (mut one, mut other) = (open(Limits::default()).await, open(Limits::default()).await);
    let (one, other) = (devices_of(&mut one).await, devices_of(&mut other).await);
    assert!(one.len() >= 13, "{one:?}");
    for (path, device) in &one {
        // Device nodes are created by the server if it may, for all its sessions.
        if path == "/dev/null" {
            let of_host = fs::metadata(path).unwrap().dev();
            assert_eq!(*device != of_host, is_root(), "{path} is the host's");
            continue;
        }
        assert_ne!(Some(device), other.get(path), "{path} is shared by both sessions");
        if let Ok(of_host) = fs::metadata(path) {
            assert_ne!(*device, of_host.dev(), "{path} is the host's");
        }
    }
}

async fn standard_input() {
    let (mut one, mut other) = (open(Limits::default()).await, open(Limits::default()).await);
    let flags = "import fcntl, os
print(os.path.realpath('/proc/self/fd/0'), fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK))";
    complete(
        &mut one,
        "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)",
    )
    .await;
    assert_ne!(complete(&mut one, flags).await.stdout, "/dev/null 0\n");
    assert_eq!(complete(&mut other, flags).await.stdout, "/dev/null 0\n");
    assert_eq!(complete(&mut open(Limits::default()).await, flags).await.stdout, "/dev/null 0\n");
}

async fn locks_apart() {
    let (mut one, mut other) = (open(Limits::default()).await, open(Limits::default()).await);
    let lock = "import fcntl, os, sys
for path in ('/', '/usr', '/usr/bin/env', '/etc/passwd', os.__file__, sys.prefix):
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
print('locked')";
    assert_eq!(complete(&mut one, lock).await.stdout, "locked\n");
    assert_eq!(complete(&mut other, lock).await.stdout, "locked\n");
}

/// The run is stopped at its line and keeps its variables; the session is ended if it keeps the
/// objects.
async fn too_many(what: KernelObject, limits: Limits, source: &str) {
    let mut cell = open(limits).await;
    let source = format!("kept = 1\n{source}import time\ntime.sleep(50)");
    let result = run(&mut cell, &source).await;
    let Outcome::Interrupted(Interruption::TooMany { what: found, limit }) = result.exit.outcome
    else {
        panic!("{}", describe(&result))
    };
    assert_eq!(found, what);
    assert!((100..=300).contains(&limit), "the limit is reported: {limit}");
    assert_eq!(result.exit.state, State::Preserved, "{}", describe(&result));
}

async fn between_runs() {
    let mut cell = open(Limits { sockets: 100, ..Limits::default() }).await;
    let source = "import socket, threading, time
def flood():
    time.sleep(0.3)
    held = [socket.socket() for _ in range(300)]
    while True:
        time.sleep(0.01)
threading.Thread(target=flood, daemon=True).start()";
    complete(&mut cell, source).await;
    until("the session has ended", Duration::from_secs(20), || {
        if cell.is_alive() { Err("it lives".to_owned()) } else { Ok(()) }
    })
    .await;
    assert_eq!(cell.ended_for(), Some(KernelObject::Socket));
}
