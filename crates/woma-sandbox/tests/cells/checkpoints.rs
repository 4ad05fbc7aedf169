//! Checkpoints: variables saved from one cell and restored in another.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use tokio::io::AsyncRead;
use woma_sandbox::protocol::{Restored, Saved};
use woma_sandbox::{
    Cell, CheckpointError, CheckpointLimits, Guard, Limits, Outcome, Restore, Run, State,
};

use crate::harness::{patience, pid_namespace, processes_in, run, run_with, until};
use crate::{complete, describe, open, trial};

const MIB: u64 = 1024 * 1024;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a checkpoint outlives its kernel", outlive),
        trial("a checkpoint goes on beside a run", beside_a_run),
        trial("one checkpoint at a time", one_at_a_time),
        trial("a checkpoint of a million rows comes back soon", million_rows),
        trial("a checkpoint costs no second copy of the data", no_second_copy),
        trial("a checkpoint of hostile variables saves the others", hostile_variables),
        trial("a checkpoint that is not taken ends by itself", abandoned),
        trial("a checkpoint ends with its cell", ends_with_its_cell),
        trial("a run that is stopped ends the checkpoint only", stopped_run),
        trial("a kernel that does not speak costs its checkpoint", silent_kernel),
        trial("a kernel that says junk costs its checkpoint", junk),
        trial("a kernel that never ends costs its checkpoint", endless),
        trial("a checkpoint that needs a process says so", no_processes),
        trial("a checkpoint of arbitrary bytes does no harm", any_bytes),
        trial("a checkpoint that hangs costs its new cell", hang_at_restore),
        trial("a checkpoint that kills costs its new cell", kill_at_restore),
        trial("a checkpoint that cannot be read costs its new cell", failing_source),
        trial("a checkpoint brings functions back under their guard", guarded),
    ]
}

fn limits() -> CheckpointLimits {
    let wall = Duration::from_secs(20);
    CheckpointLimits { bytes_max: 512 * MIB, variable_bytes_max: 512 * MIB, wall }
}

async fn save(cell: &mut Cell, limits: CheckpointLimits) -> (Saved, Vec<u8>) {
    let mut bytes = Vec::new();
    let saved = cell.checkpoint(limits, &mut bytes).await.unwrap_or_else(|e| panic!("{e:?}"));
    (saved, bytes)
}

async fn restore(cell: &mut Cell, bytes: &[u8]) -> Result<Restored, CheckpointError> {
    let mut bytes = bytes;
    let wall = Duration::from_secs(20);
    cell.restore(&mut bytes, Restore { wall, execution_count: 2, guard: None }).await
}

async fn revive(bytes: &[u8]) -> (Cell, Restored) {
    let mut cell = open(Limits::default()).await;
    let restored = restore(&mut cell, bytes).await.unwrap_or_else(|e| panic!("{e:?}"));
    (cell, restored)
}

async fn outlive() {
    let mut cell = open(Limits::default()).await;
    let source = "import pandas as pd\nx = 41\ndf = pd.DataFrame({'a': [1, 2]})\n\
                  def f(): return x + 1\ngenerator = (i for i in 'ab')";
    complete(&mut cell, source).await;
    let (saved, bytes) = save(&mut cell, limits()).await;
    assert_eq!(saved.saved, ["pd", "x", "df", "f"]);
    assert_eq!(saved.skipped.len(), 1);
    assert_eq!(saved.skipped[0].name, "generator");
    assert_eq!(saved.skipped[0].reason, "cannot pickle 'generator' object");
    complete(&mut cell, "print(next(generator))").await;
    cell.close().await.unwrap();
    let (mut cell, restored) = revive(&bytes).await;
    let nothing = (restored.failed, restored.error);
    assert_eq!((restored.restored, nothing), (saved.saved, (Vec::new(), None)));
    let result = complete(&mut cell, "print(f(), df['a'].sum(), type(df) is pd.DataFrame)").await;
    assert_eq!(result.stdout, "42 3 True\n");
    assert_eq!(result.exit.done.unwrap().execution_count, 3);
    let result = complete(&mut cell, "x = 1; print(f())").await;
    assert_eq!(result.stdout, "2\n");
}

const SLOW: &str = "class Slow:\n    def __reduce__(self):\n        import time\n        \
                    time.sleep(0.4)\n        return int, (7,)\nslow = Slow(); x = 1";

async fn beside_a_run() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, SLOW).await;
    let checkpoint = cell.start_checkpoint(limits()).await.unwrap();
    let saving = tokio::spawn(async move {
        let mut bytes = Vec::new();
        let saved = checkpoint.write_to(&mut bytes).await;
        (saved, bytes)
    });
    let started = Instant::now();
    let result = complete(&mut cell, "x = 2; print(x)").await;
    assert_eq!(result.stdout, "2\n");
    assert!(!saving.is_finished(), "{:?}", started.elapsed());
    let (saved, bytes) = saving.await.unwrap();
    assert_eq!(saved.unwrap().saved, ["Slow", "slow", "x"]);
    let (mut cell, _) = revive(&bytes).await;
    assert_eq!(complete(&mut cell, "print(slow, x)").await.stdout, "7 1\n");
}

async fn one_at_a_time() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, SLOW).await;
    let first = cell.start_checkpoint(limits()).await.unwrap();
    let second = cell.start_checkpoint(limits()).await;
    assert!(matches!(second, Err(CheckpointError::Busy)), "{second:?}");
    first.write_to(&mut Vec::new()).await.unwrap();
    save(&mut cell, limits()).await;
}

#[expect(clippy::print_stdout, reason = "the times are worth reading")]
async fn million_rows() {
    let mut cell = open(Limits::default()).await;
    let source = "import numpy as np, pandas as pd\nn = 1_000_000\n\
                  df = pd.DataFrame({f'c{i}': np.random.rand(n) for i in range(8)})\n\
                  df['s'] = [f'row {i}' for i in range(n)]\n\
                  print(df['c3'].sum(), df['s'].iloc[-1], df.dtypes.to_dict())";
    let told = complete(&mut cell, source).await.stdout;
    let started = Instant::now();
    let checkpoint = cell.start_checkpoint(limits()).await.unwrap();
    complete(&mut cell, "1").await;
    let held = started.elapsed();
    let mut bytes = Vec::new();
    let saved = checkpoint.write_to(&mut bytes).await.unwrap();
    let saving = started.elapsed();
    assert_eq!(saved.skipped, []);
    let mut cell = open(Limits::default()).await;
    let started = Instant::now();
    restore(&mut cell, &bytes).await.unwrap();
    let restoring = started.elapsed();
    println!(
        "1 M rows: {} bytes, session held for {held:?}, saved in {saving:?}, back in {restoring:?}",
        bytes.len()
    );
    let source = "print(df['c3'].sum(), df['s'].iloc[-1], df.dtypes.to_dict())";
    assert_eq!(complete(&mut cell, source).await.stdout, told);
    assert!(restoring < patience(Duration::from_secs(1)), "{restoring:?}");
    assert!(held < patience(Duration::from_millis(500)), "{held:?}");
}

async fn no_second_copy() {
    let limits_of_cell = Limits { memory_bytes: 768 * MIB, ..Limits::default() };
    let mut cell = open(limits_of_cell).await;
    complete(&mut cell, "import numpy as np\na = np.ones(400 << 17)").await;
    let (saved, bytes) = save(&mut cell, limits()).await;
    assert_eq!(saved.saved, ["np", "a"], "{saved:?}");
    assert!(bytes.len() > 400 << 20);
    assert_eq!(complete(&mut cell, "print(a[-1])").await.stdout, "1.0\n");
}

async fn hostile_variables() {
    let mut cell = open(Limits::default()).await;
    let source = "import os, signal, ctypes\nbefore = 1\n\
        def bad(body):\n    return type('R', (), {'__reduce__': lambda self: body()})()\n\
        kills = bad(lambda: os.kill(os.getpid(), 9))\n\
        crashes = bad(lambda: ctypes.string_at(0))\n\
        leaves = bad(lambda: os._exit(0))\n\
        def spin():\n    while True:\n        pass\n\
        hangs = bad(spin)\n\
        eats = bad(lambda: (bytearray, (b'x' * (6 << 30),)))\n\
        shouts = bad(lambda: os.write(3, b'junk'))\n\
        after = 2";
    complete(&mut cell, source).await;
    let wall = Duration::from_secs(20);
    let (saved, bytes) = save(&mut cell, CheckpointLimits { wall, ..limits() }).await;
    let skipped: Vec<&str> = saved.skipped.iter().map(|one| &*one.name).collect();
    assert_eq!(skipped, ["kills", "crashes", "leaves", "hangs", "eats", "shouts"], "{saved:?}");
    let result = complete(&mut cell, "print(before, after)").await;
    assert_eq!(result.stdout, "1 2\n");
    let (mut cell, restored) = revive(&bytes).await;
    assert_eq!((restored.failed, restored.error), (Vec::new(), None));
    assert_eq!(complete(&mut cell, "print(before, after)").await.stdout, "1 2\n");
}

async fn alone(cell: &mut Cell) {
    complete(cell, "1").await; // the kernel waits for its child before the next run
    let namespace = pid_namespace(cell);
    until("the processes of a checkpoint end", Duration::from_secs(10), || {
        let left = processes_in(&namespace).len();
        if left <= 2 { Ok(()) } else { Err(format!("{left} processes")) }
    })
    .await;
}

async fn abandoned() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "class R:\n    def __reduce__(self):\n        while True: pass\nr = R()")
        .await;
    let wall = Duration::from_secs(2);
    drop(cell.start_checkpoint(CheckpointLimits { wall, ..limits() }).await.unwrap());
    alone(&mut cell).await;
    complete(&mut cell, "print(r)").await;
    complete(&mut cell, "del r; data = bytearray(50_000_000)").await;
    drop(cell.start_checkpoint(limits()).await.unwrap());
    alone(&mut cell).await;
    save(&mut cell, limits()).await;
}

async fn ends_with_its_cell() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, SLOW).await;
    let checkpoint = cell.start_checkpoint(limits()).await.unwrap();
    cell.close().await.unwrap();
    let ended = checkpoint.write_to(&mut Vec::new()).await;
    assert!(matches!(ended, Err(CheckpointError::Incomplete)), "{ended:?}");
}

async fn stopped_run() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, &SLOW.replace("0.4", "5")).await;
    let checkpoint = cell.start_checkpoint(limits()).await.unwrap();
    let wall = Some(Duration::from_millis(300));
    let result = run_with(&mut cell, &Run { wall, ..Run::new("while True: pass") }).await;
    assert!(matches!(result.exit.outcome, Outcome::TimedOut(_)), "{}", describe(&result));
    assert_eq!(result.exit.state, State::Preserved);
    let ended = checkpoint.write_to(&mut Vec::new()).await;
    assert!(matches!(ended, Err(CheckpointError::Incomplete)), "{ended:?}");
    complete(&mut cell, "print(x); del slow").await;
    save(&mut cell, limits()).await;
}

/// Replaces the kernel's checkpoint code, and asks for a checkpoint.
async fn betrayed(body: &str, limits: CheckpointLimits) -> (Cell, CheckpointError, u64) {
    let mut cell = open(Limits::default()).await;
    let source = format!(
        "import sys, os, time\nx = 1\ndef begin(shell, wanted, fd):\n    {body}\n\
         sys.modules['_woma_kernel.checkpoint'].begin = begin"
    );
    complete(&mut cell, &source).await;
    let mut bytes = Vec::new();
    let ended = cell.checkpoint(limits, &mut bytes).await.unwrap_err();
    (cell, ended, bytes.len() as u64)
}

async fn silent_kernel() {
    let (mut cell, ended, _) = betrayed("pass", limits()).await;
    assert!(matches!(ended, CheckpointError::Incomplete), "{ended:?}");
    assert_eq!(complete(&mut cell, "print(x)").await.stdout, "1\n");
    let wall = Duration::from_millis(300);
    let short = CheckpointLimits { wall, ..limits() };
    let started = Instant::now();
    let (_, ended, _) = betrayed("time.sleep(100)", short).await;
    assert!(matches!(ended, CheckpointError::TimedOut(_)), "{ended:?}");
    assert!(started.elapsed() < patience(Duration::from_secs(5)));
    let (cell, ended, _) = betrayed("os._exit(0)", limits()).await;
    assert!(matches!(ended, CheckpointError::Incomplete), "{ended:?}");
    until("the kernel is dead", Duration::from_secs(5), || {
        if cell.is_alive() { Err("alive".to_owned()) } else { Ok(()) }
    })
    .await;
}

async fn junk() {
    let (mut cell, ended, _) = betrayed("os.write(fd, b'junk')", limits()).await;
    assert!(matches!(ended, CheckpointError::Protocol(_)), "{ended:?}");
    assert_eq!(complete(&mut cell, "print(x)").await.stdout, "1\n");
    for end in ["b''", "b'WOMADONE'", "b'\\xff' * 4 + b'WOMADONE'", "b'{}\\0\\0\\0\\2WOMADONE'"] {
        let body = format!("os.write(fd, b'WOMAVARS\\1\\3\\13' + {end})");
        let (_, ended, _) = betrayed(&body, limits()).await;
        assert!(matches!(ended, CheckpointError::Incomplete), "{end}: {ended:?}");
    }
    let (mut cell, ended, _) =
        betrayed("sys.modules['_woma_kernel.service'].channels.socket.send(b'x' * 9)", limits())
            .await;
    assert!(matches!(ended, CheckpointError::Incomplete), "{ended:?}");
    let result = run(&mut cell, "1").await;
    assert!(matches!(result.exit.outcome, Outcome::Crashed(_)), "{}", describe(&result));
}

async fn endless() {
    let body = "os.write(fd, b'WOMAVARS')\n    while True: os.write(fd, bytes(65536))";
    let (_, ended, bytes) = betrayed(body, CheckpointLimits { bytes_max: MIB, ..limits() }).await;
    assert!(matches!(ended, CheckpointError::TooLarge { .. }), "{ended:?}");
    assert!(bytes < 6 * MIB, "{bytes}");
}

async fn no_processes() {
    let mut cell = open(Limits { processes: 2, ..Limits::default() }).await;
    complete(&mut cell, "x = 1").await;
    let ended = cell.checkpoint(limits(), &mut Vec::new()).await;
    match ended {
        Err(CheckpointError::Refused(why)) => assert!(why.contains("process"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(complete(&mut cell, "print(x)").await.stdout, "1\n");
}

async fn any_bytes() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "x = 'one'; y = 'two'").await;
    let (_, bytes) = save(&mut cell, limits()).await;
    let mut cell = open(Limits::default()).await;
    let restored = restore(&mut cell, b"").await.unwrap();
    assert_eq!(restored, Restored::default());
    for length in (1..bytes.len()).step_by(37) {
        let mut cell = open(Limits::default()).await;
        let restored = restore(&mut cell, &bytes[..length]).await.unwrap();
        assert!(restored.error.is_some() || length > bytes.len() / 2, "{length}: {restored:?}");
        let mut damaged = bytes.clone();
        damaged[length] ^= 0x55;
        restore(&mut cell, &damaged).await.unwrap();
        complete(&mut cell, "1").await;
    }
}

async fn loaded(body: &str) -> Vec<u8> {
    let mut cell = open(Limits::default()).await;
    let source = format!(
        "def load():\n    {body}\nclass R:\n    def __reduce__(self): return load, ()\nr = R()"
    );
    complete(&mut cell, &source).await;
    save(&mut cell, limits()).await.1
}

async fn hang_at_restore() {
    let bytes = loaded("while True: pass").await;
    let mut cell = open(Limits::default()).await;
    let (wall, guard) = (Duration::from_millis(500), None);
    let started = Instant::now();
    let ended = cell.restore(&mut &*bytes, Restore { wall, execution_count: 1, guard }).await;
    assert!(matches!(ended, Err(CheckpointError::TimedOut(_))), "{ended:?}");
    assert!(started.elapsed() < patience(Duration::from_secs(5)) && !cell.is_alive());
}

async fn kill_at_restore() {
    for body in ["import os; os.kill(os.getpid(), 9)", "import os; os._exit(0)"] {
        let bytes = loaded(body).await;
        let mut cell = open(Limits::default()).await;
        let ended = restore(&mut cell, &bytes).await;
        assert!(matches!(ended, Err(CheckpointError::Incomplete)), "{ended:?}");
        assert!(!cell.is_alive());
    }
    let bytes = loaded("global kept; kept = b'x' * (4 << 30)").await;
    let mut cell = open(Limits { memory_bytes: 512 * MIB, ..Limits::default() }).await;
    match restore(&mut cell, &bytes).await {
        Err(CheckpointError::OutOfMemory) => assert!(!cell.is_alive()),
        // Without a cgroup, memory beyond a bound cannot be allocated at all.
        Ok(restored) => assert_eq!(restored.failed.len(), 1, "{restored:?}"),
        other => panic!("{other:?}"),
    }
}

struct Failing;

impl AsyncRead for Failing {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Err(std::io::Error::other("the disk is gone")))
    }
}

async fn failing_source() {
    let mut cell = open(Limits::default()).await;
    let wall = Duration::from_secs(50);
    let restore = Restore { wall, execution_count: 0, guard: None };
    let ended = cell.restore(&mut Failing, restore).await;
    assert!(matches!(ended, Err(CheckpointError::Storage(_))), "{ended:?}");
    assert!(!cell.is_alive());
}

async fn guarded() {
    let guard = Guard { builtins: vec!["eval".to_owned()], commands: true, ..Guard::default() };
    let guard = Some(std::sync::Arc::new(guard));
    let guarded = |source: &str| Run { guard: guard.clone(), ..Run::new(source) };
    let mut cell = open(Limits::default()).await;
    run_with(&mut cell, &guarded("def f(): return eval('1')")).await;
    let (_, bytes) = save(&mut cell, limits()).await;
    let mut cell = open(Limits::default()).await;
    let wall = Duration::from_secs(50);
    let restore = Restore { wall, execution_count: 1, guard: guard.clone() };
    cell.restore(&mut &*bytes, restore).await.unwrap();
    let result = run_with(&mut cell, &guarded("f()")).await;
    assert_eq!(result.exit.outcome, Outcome::Raised, "{}", describe(&result));
    complete(&mut cell, "f()").await;
}
