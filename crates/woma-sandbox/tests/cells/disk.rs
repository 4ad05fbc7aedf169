//! Files that no listing of a folder shows, and disks that are nearly full.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use woma_sandbox::workspace::{Reserve, ReserveSize};
use woma_sandbox::{Cell, Config, Interruption, Limits, Outcome, Sandbox, State, Tier};

use crate::folders::{folder, spec_for};
use crate::harness::{environment, run, sandbox, until};
use crate::{complete, describe, trial};

const MIB: u64 = 1024 * 1024;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("files that are deleted but open end the run", deleted),
        trial("files that are deleted but mapped end the run", mapped),
        trial("short runs cannot hide files by deleting them", short_runs),
        trial("a process left behind cannot hide files by deleting them", left_behind),
        trial("below the reserve a run that grows is stopped", reserve),
        trial("below the reserve what is left behind may not grow", reserve_between_runs),
    ]
}

async fn with_limit(folder: &Path) -> Cell {
    let limits = Limits { workspace_bytes: 8 * MIB, ..Limits::default() };
    let mut cell = sandbox().await.open(&spec_for(folder, limits)).await.unwrap();
    complete(&mut cell, "kept = []\nimport mmap, os, time").await;
    complete(&mut cell, HIDE).await;
    cell
}

/// Writes this many mebibytes into deleted files.
const HIDE: &str = "
def hide(size):
    with open('gone', 'wb+', buffering=0) as file:
        os.unlink('gone')
        file.write(b'x' * (size << 20))
        kept.append(os.dup(file.fileno()))
";

async fn deleted() {
    let folder = folder();
    let mut cell = with_limit(folder.path()).await;
    let code = "hide(3)\nhide(4)\ntime.sleep(1)\nhide(5)\nwhile True: time.sleep(0.01)";
    // A sample may see the last file half written.
    let result = run(&mut cell, code).await;
    let Outcome::Interrupted(Interruption::DeletedFiles { bytes }) = result.exit.outcome else {
        panic!("{}", describe(&result));
    };
    assert!((8 * MIB..13 * MIB).contains(&bytes), "{bytes}");
    assert_eq!(result.exit.state, State::Preserved, "{}", describe(&result));
    // Closing them lets the session go on; more of them are refused.
    let result = run(&mut cell, "hide(2)\nwhile True: time.sleep(0.01)").await;
    let is_deleted = |outcome: &Outcome| {
        matches!(outcome, Outcome::Interrupted(Interruption::DeletedFiles { .. }))
    };
    assert!(is_deleted(&result.exit.outcome), "{}", describe(&result));
    cell.kill();
    let mut cell = with_limit(folder.path()).await;
    run(&mut cell, "hide(5)\nhide(6)\nwhile True: time.sleep(0.01)").await;
    // Longer than the interval of samples: a run that closes them slowly is not stopped.
    let close = "time.sleep(0.5)\nfor fd in kept: os.close(fd)\nkept.clear()\ntime.sleep(0.3)";
    complete(&mut cell, close).await;
    complete(&mut cell, "hide(7)\ntime.sleep(0.5)").await;
}

async fn mapped() {
    let folder = folder();
    let mut cell = with_limit(folder.path()).await;
    let code = "
hide(7)
maps = [mmap.mmap(kept[0], 0)]
os.close(kept.pop())
hide(5)
while True: time.sleep(0.01)";
    let result = run(&mut cell, code).await;
    let Outcome::Interrupted(Interruption::DeletedFiles { bytes }) = result.exit.outcome else {
        panic!("{}", describe(&result));
    };
    // Over the limit only together with the mapped file.
    assert!((8 * MIB..13 * MIB).contains(&bytes), "{bytes}");
}

/// Bytes of deleted files that the kernel process has open.
async fn hidden_bytes(cell: &mut Cell) -> u64 {
    let code = "print(sum(os.fstat(fd).st_blocks * 512 for fd in kept))";
    let result = run(cell, code).await;
    result.stdout.trim().parse().unwrap_or(0)
}

async fn short_runs() {
    let folder = folder();
    let mut cell = with_limit(folder.path()).await;
    let (mut held, mut refused) = (0, 0);
    let started = std::time::Instant::now();
    // Each takes milliseconds and leaves 3 MiB; no sample is taken while one of them runs.
    while started.elapsed() < Duration::from_secs(4)
        || (refused == 0 && started.elapsed() < Duration::from_secs(60))
    {
        let result = run(&mut cell, "hide(1)").await;
        if !cell.is_alive() {
            refused += 1;
            break;
        }
        let is_refused = matches!(result.exit.outcome, Outcome::Interrupted(_));
        refused += usize::from(is_refused);
        held = if is_refused { held } else { hidden_bytes(&mut cell).await.max(held) };
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert!(refused > 0, "{held} bytes are held by deleted files");
    // Half a second of such runs, twice; a busy machine checks later.
    assert!(held < (8 + 120) * MIB, "{held} bytes before it was refused");
}

async fn left_behind() {
    let folder = folder();
    let mut cell = with_limit(folder.path()).await;
    let writer = format!(
        "import os, time\nkept = []\n{HIDE}\nfor i in range(600):\n    hide(1)\n    time.sleep(0.05)"
    );
    let code =
        format!("import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {writer:?}])");
    complete(&mut cell, &code).await;
    until("the session has ended", Duration::from_secs(60), || {
        if cell.is_alive() { Err("it lives".to_owned()) } else { Ok(()) }
    })
    .await;
    let why = cell.overrun();
    assert!(matches!(why, Some(Interruption::DeletedFiles { .. })), "{why:?}");
}

/// A sandbox whose disk is below its reserve, whatever is free.
async fn with_reserve(folder: &Path) -> Sandbox {
    let mut config = Config::new(environment());
    config.preload = Tier::Base;
    let reserve = Reserve::new(folder.to_owned(), ReserveSize::Percent(100.0));
    assert!(reserve.look().unwrap().is_low());
    config.reserve = Some(Arc::new(reserve));
    Sandbox::start(config).await.unwrap()
}

async fn reserve() {
    let folder = folder();
    let sandbox = with_reserve(folder.path()).await;
    let mut cell = sandbox.open(&spec_for(folder.path(), Limits::default())).await.unwrap();
    // A workspace that does not grow is not stopped, and a little growth is allowed.
    complete(&mut cell, "import time\nopen('small', 'wb').write(b'x' * 9000)\ntime.sleep(0.5)")
        .await;
    let code =
        "kept = 1\nopen('large', 'wb').write(b'x' * (4 << 20))\nwhile True: time.sleep(0.01)";
    let result = run(&mut cell, code).await;
    let low = Outcome::Interrupted(Interruption::DiskReserve);
    assert_eq!(
        (&result.exit.outcome, result.exit.state),
        (&low, State::Preserved),
        "{}",
        describe(&result)
    );
    // Deleting must be possible now.
    complete(&mut cell, "import os\nos.remove('large')\ntime.sleep(0.5)\nprint(kept)").await;
    // Runs too short to be sampled exceed it once.
    let short = "open(f'more{len(os.listdir())}', 'wb').write(b'x' * (3 << 20))";
    let mut refused = 0;
    for _ in 0..6 {
        refused += usize::from(run(&mut cell, short).await.exit.outcome == low);
    }
    assert!(refused >= 4, "{refused} of 6 were refused");
}

async fn reserve_between_runs() {
    let folder = folder();
    let sandbox = with_reserve(folder.path()).await;
    let mut cell = sandbox.open(&spec_for(folder.path(), Limits::default())).await.unwrap();
    let writer = "import time\nfor i in range(10**6):\n    \
                  open(f'piece{i % 900}', 'ab').write(b'x' * 65536); time.sleep(0.002)";
    let code =
        format!("import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {writer:?}])");
    complete(&mut cell, &code).await;
    until("the session has ended", Duration::from_secs(60), || {
        if cell.is_alive() { Err("it lives".to_owned()) } else { Ok(()) }
    })
    .await;
    assert_eq!(cell.overrun(), Some(Interruption::DiskReserve));
}
