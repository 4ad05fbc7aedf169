//! Each limit, reached.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use woma_sandbox::{Clock, Event, Limits, Outcome, State};

use crate::harness::{Seen, run, sandbox};
use crate::{complete, open, state_is_true, story, trial};

const MIB: u64 = 1024 * 1024;
/// Beyond the limit: half a second for the run to be stopped, and the same for a busy machine.
const OVERTIME_MAX: Duration = Duration::from_secs(1);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = wall_trials();
    trials.extend(refusal_trials());
    trials.extend([
        trial("a session can do with few descriptors", few_descriptors),
        trial("processor time ends a run", processor_time),
        trial("memory ends a session and not the next one", memory),
        trial("a run may ask for less time than its session", shorter_wall),
        trial("a run may ask for less memory than its session", less_memory),
        trial("a run that asks for less than is in use is refused and loses nothing", too_little),
        trial("a run finds the variables that it was sent with", variables),
        trial("output beyond its limit is counted and dropped", output),
        trial("displays beyond their number are counted and dropped", displays),
        trial("displays beyond their bytes are counted and dropped", display_bytes),
        trial("figures beyond their number are noted", figures),
        trial("processors are shared out", processors),
    ]);
    trials
}

/// Code that takes too long, each in its own way.
const ENDLESS: &[(&str, &str)] = &[
    ("a sleep", "import time; time.sleep(60)"),
    ("a busy loop", "while True: pass"),
    ("a loop in C", "sum(range(10**11))"),
    ("a child that sleeps", "import subprocess; subprocess.run(['sleep', '60'])"),
    ("a wait for a thread", "import threading; threading.Event().wait()"),
    ("a loop that catches everything", CATCHES),
    ("input that never comes", "import os\nr, w = os.pipe()\nos.read(r, 1)"),
];

const CATCHES: &str = "
while True:
    try:
        while True: pass
    except BaseException: pass
";

fn wall_trials() -> Vec<Trial> {
    let wall_trial = |(what, code): &(&str, &'static str)| {
        let code = *code;
        trial(&format!("{what} ends at the wall limit"), move || endless(code))
    };
    ENDLESS.iter().map(wall_trial).collect()
}

async fn endless(code: &str) {
    let limit = Duration::from_millis(500);
    let mut cell = open(Limits { wall: limit, ..Limits::default() }).await;
    let started = Instant::now();
    let seen = run(&mut cell, &format!("kept = 1\nprint('before')\n{code}\nprint('after')")).await;
    let took = started.elapsed();
    assert_eq!(seen.exit.outcome, Outcome::TimedOut(Clock::Wall { limit }), "{}", story(&seen));
    assert!(took >= limit && took < limit + OVERTIME_MAX, "took {took:?}");
    assert_eq!(seen.stdout, "before\n", "{}", story(&seen));
    state_is_true(&mut cell, &seen).await;
}

/// Limits that Python meets as an exception, which the code can catch; the session goes on.
/// (name, limits, code, what it must print)
type Refusal = (&'static str, fn(&mut Limits), &'static str, &'static str);
const REFUSALS: &[Refusal] = &[
    ("a process too many is refused", |limits| limits.processes = 40, FORKS, "OSError True\n"),
    ("a thread too many is refused", |limits| limits.processes = 40, THREADS, "refused True\n"),
    ("a descriptor too many is refused", |limits| limits.open_files = 128, FILES, "EMFILE\n"),
    ("a file too large is refused", |limits| limits.file_bytes = MIB, LARGE, "EFBIG 1048576\n"),
    ("a workspace too large is refused", |limits| limits.workspace_bytes = 4 * MIB, HEAVY, FULL),
    ("a file too many is refused", |limits| limits.workspace_files = 50, SMALL, FULL),
    ("a burst of small files is refused", |limits| limits.workspace_bytes = MIB, SMALL, FULL),
    ("scratch files too large are refused", |limits| limits.scratch_bytes = 4 * MIB, SCRATCH, FULL),
];
const FULL: &str = "ENOSPC True\n";

const FORKS: &str = "
import os, signal, time
children = []
try:
    for _ in range(400):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        children.append(pid)
    print('never refused')
except OSError as error:
    print('OSError', 5 < len(children) <= 40)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
";
const THREADS: &str = "
import threading
stop, threads = threading.Event(), []
try:
    for _ in range(400):
        thread = threading.Thread(target=stop.wait)
        thread.start()
        threads.append(thread)
    print('never refused')
except (OSError, RuntimeError) as error:
    print('refused', 5 < len(threads) <= 40)
stop.set()
for thread in threads:
    thread.join()
";
const FILES: &str = "
import errno, os
held = []
try:
    for _ in range(200):
        held.append(os.open('/dev/null', os.O_RDONLY))
    print('never refused')
except OSError as error:
    for fd in held: os.close(fd)
    print(errno.errorcode[error.errno])
";
const LARGE: &str = "
import errno, os
try:
    with open('large', 'wb', buffering=0) as file:
        while True: file.write(bytes(65536))
except OSError as error:
    print(errno.errorcode[error.errno], os.stat('large').st_size)
";
const HEAVY: &str = "
import errno, os
try:
    for i in range(16):
        with open(f'large{i}', 'wb') as file: file.write(bytes(1 << 20))
    print('never refused')
except OSError as error:
    print(errno.errorcode[error.errno], 2 <= i <= 4)
";
const SMALL: &str = "
import errno, os
try:
    for i in range(5000):
        with open(f'small{i}', 'wb') as file: file.write(b'x')
    print('never refused')
except OSError as error:
    print(errno.errorcode[error.errno], 40 < i <= 256)
";
const SCRATCH: &str = "
import errno, tempfile
try:
    with tempfile.TemporaryFile(dir='/dev/shm') as file:
        for i in range(16): file.write(bytes(1 << 20)); file.flush()
    print('never refused')
except OSError as error:
    print(errno.errorcode[error.errno], 1 <= i <= 4)
";

fn refusal_trials() -> Vec<Trial> {
    let refusal_trial = |refusal: &'static Refusal| trial(refusal.0, || refused(refusal));
    REFUSALS.iter().map(refusal_trial).collect()
}

async fn refused((_, set, code, expected): &Refusal) {
    let mut limits = Limits { wall: Duration::from_secs(10), ..Limits::default() };
    set(&mut limits);
    let mut cell = open(limits).await;
    let seen = complete(&mut cell, &format!("kept = 1\n{code}")).await;
    assert_eq!(seen.stdout, *expected, "{}", story(&seen));
    state_is_true(&mut cell, &seen).await;
}

async fn few_descriptors() {
    let mut cell = open(Limits { open_files: 64, ..Limits::default() }).await;
    assert_eq!(complete(&mut cell, "print(1)").await.stdout, "1\n");
}

async fn processor_time() {
    let limit = Duration::from_millis(300);
    let mut cell = open(Limits { cpu: limit, ..Limits::default() }).await;
    // Time that is slept away is no processor time.
    complete(&mut cell, "kept = 1\nimport time; time.sleep(0.5)").await;
    let seen = run(&mut cell, "print('before')\nwhile True: pass").await;
    assert_eq!(seen.exit.outcome, Outcome::TimedOut(Clock::Cpu { limit }), "{}", story(&seen));
    assert!(seen.exit.wall < limit + OVERTIME_MAX, "{}", story(&seen));
    assert_eq!(seen.stdout, "before\n");
    state_is_true(&mut cell, &seen).await;
}

async fn memory() {
    let limit_bytes = 384 * MIB;
    let limits = Limits { memory_bytes: limit_bytes, ..Limits::default() };
    let mut cell = open(limits.clone()).await;
    let code = "kept = 1\nprint('before')\nhoard = []\nwhile True: hoard.append(b'x' * (4 << 20))";
    let seen = run(&mut cell, code).await;
    assert_eq!(seen.exit.outcome, Outcome::OutOfMemory { limit_bytes }, "{}", story(&seen));
    assert_eq!(seen.exit.state, State::Lost);
    assert_eq!(seen.stdout, "before\n");
    state_is_true(&mut cell, &seen).await;
    let mut fresh = open(limits).await;
    assert_eq!(complete(&mut fresh, "print(len(b'x' * (64 << 20)))").await.stdout, "67108864\n");
}

async fn less_memory() {
    let mut cell = open(Limits::default()).await;
    let limit_bytes = 256 * MIB;
    complete(&mut cell, "kept = 1").await;
    let mut small = woma_sandbox::Run::new("len(b'x' * (64 << 20))");
    small.memory_bytes = Some(limit_bytes);
    let seen = crate::harness::run_with(&mut cell, &small).await;
    assert_eq!(seen.exit.outcome, Outcome::Completed, "{}", story(&seen));
    // The next run has all of it again.
    complete(&mut cell, "len(b'x' * (400 << 20))").await;
    let mut hoard = woma_sandbox::Run::new("h = []\nwhile True: h.append(b'x' * (4 << 20))");
    hoard.memory_bytes = Some(limit_bytes);
    let seen = crate::harness::run_with(&mut cell, &hoard).await;
    assert_eq!(seen.exit.outcome, Outcome::OutOfMemory { limit_bytes }, "{}", story(&seen));
}

async fn too_little() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "kept = 1\nmuch = b'x' * (300 << 20)").await;
    let mut wanted = woma_sandbox::Run::new("print(1)");
    wanted.memory_bytes = Some(128 * MIB);
    let seen = crate::harness::run_with(&mut cell, &wanted).await;
    let never =
        matches!(&seen.exit.outcome, Outcome::NeverStarted { reason } if reason.contains("128 MB"));
    assert!(never, "{}", story(&seen));
    assert_eq!(seen.exit.state, State::Preserved);
    state_is_true(&mut cell, &seen).await;
}

async fn variables() {
    let mut cell = open(Limits::default()).await;
    let mut wanted = woma_sandbox::Run::new("print(n, rows[0]['a'], nothing)\nn += 1");
    let sent = serde_json::json!({"n": 41, "rows": [{"a": "é"}], "nothing": null});
    wanted.variables = sent.as_object().cloned().unwrap_or_default();
    let seen = crate::harness::run_with(&mut cell, &wanted).await;
    assert_eq!(seen.stdout, "41 é None\n", "{}", story(&seen));
    assert_eq!(complete(&mut cell, "print(n)").await.stdout, "42\n");
}

async fn shorter_wall() {
    let mut cell = open(Limits::default()).await;
    for (asked, limit) in [(200, 200), (400, 400)] {
        let mut wanted = woma_sandbox::Run::new("kept = 1\nwhile True: pass");
        wanted.wall = Some(Duration::from_millis(asked));
        let seen = crate::harness::run_with(&mut cell, &wanted).await;
        let limit = Duration::from_millis(limit);
        assert_eq!(seen.exit.outcome, Outcome::TimedOut(Clock::Wall { limit }), "{}", story(&seen));
        assert_eq!(seen.exit.state, State::Preserved, "{}", story(&seen));
    }
    let mut strict = open(Limits { wall: Duration::from_millis(200), ..Limits::default() }).await;
    let mut greedy = woma_sandbox::Run::new("while True: pass");
    greedy.wall = Some(Duration::from_secs(30));
    let seen = crate::harness::run_with(&mut strict, &greedy).await;
    let limit = Duration::from_millis(200);
    assert_eq!(seen.exit.outcome, Outcome::TimedOut(Clock::Wall { limit }), "{}", story(&seen));
}

async fn output() {
    let mut cell = open(Limits { output_bytes: 1_000, ..Limits::default() }).await;
    let code = "import sys\nfor _ in range(100): print('x' * 99); print('y' * 99, file=sys.stderr)";
    let seen = complete(&mut cell, code).await;
    assert_eq!(seen.stdout.len() + seen.stderr.len(), 1_000);
    assert_eq!(seen.exit.output_bytes_dropped, 19_000);
    assert_eq!(complete(&mut cell, "print('next')").await.stdout, "next\n");
}

async fn displays() {
    let mut cell = open(Limits { displays: 3, ..Limits::default() }).await;
    let code = "from IPython.display import display\nfor i in range(10): display(i)";
    let seen = complete(&mut cell, code).await;
    assert_eq!((shown(&seen), seen.exit.displays_dropped), (3, 7));
    assert_eq!(shown(&complete(&mut cell, "1 + 1").await), 1);
}

async fn display_bytes() {
    // Text counts four times: parsed, it takes more memory than on the wire.
    let mut cell = open(Limits { display_bytes: 40_000, ..Limits::default() }).await;
    let code = "from IPython.display import display, HTML\n\
                for size in (4_000, 20_000, 4_000): display(HTML('a' * size))";
    let seen = complete(&mut cell, code).await;
    assert_eq!((shown(&seen), seen.exit.displays_dropped), (2, 1));
}

async fn figures() {
    let mut cell = open(Limits { figures: 2, ..Limits::default() }).await;
    let code = "
import matplotlib.pyplot as plt
for _ in range(4):
    plt.figure(); plt.plot([1, 2])
plt.show()
";
    let seen = complete(&mut cell, code).await;
    let notes: Vec<&str> = seen.events.iter().filter_map(note_code).collect();
    assert_eq!((shown(&seen), notes), (2, vec!["figures_limit"]), "{}", story(&seen));
}

fn note_code(event: &Event) -> Option<&str> {
    match event {
        Event::Note(note) => Some(&note.code),
        _ => None,
    }
}

fn shown(seen: &Seen) -> usize {
    seen.events.iter().filter(|event| matches!(event, Event::Display(_))).count()
}

async fn processors() {
    let mut cell = open(Limits { cpu_cores: 0.5, ..Limits::default() }).await;
    complete(&mut cell, "import os, time").await;
    let before = cell.usage().cpu;
    let code = "
child = os.fork()
end = time.monotonic() + 1
while time.monotonic() < end: pass
if child == 0: os._exit(0)
os.waitpid(child, 0)
";
    complete(&mut cell, code).await;
    let used = cell.usage().cpu.saturating_sub(before);
    let (held_by, why) = sandbox().await.limits_held_by();
    if held_by == "none" {
        // Nothing can hold it; then the caller is told so.
        assert!(why.is_some());
        return;
    }
    assert!(used < Duration::from_millis(800), "{used:?} of processor time in one second");
}
