//! Every limit, reached.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use woma_sandbox::protocol::Form;
use woma_sandbox::{Clock, Event, Limits, Outcome, State, Stream};

use crate::harness::{RunResult, patience, run, sandbox, slowed};
use crate::{check_state, complete, describe, events, open, trial};

const MIB: u64 = 1024 * 1024;
/// Time over the limit: half a second to stop the run, and the same for a busy machine.
const OVERTIME_MAX: Duration = Duration::from_millis(500);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = wall_trials();
    trials.extend(refusal_trials());
    trials.extend([
        trial("a session works with few descriptors", few_descriptors),
        trial("processor time ends a run", processor_time),
        trial("memory ends a session and not the next one", memory),
        trial("a run may ask for less time than its session", shorter_wall),
        trial("a run may ask for less memory than its session", less_memory),
        trial("a run that asks for less than is in use is refused and loses nothing", too_little),
        trial("a run finds the variables that it was sent with", variables),
        trial("output beyond its limit is counted and dropped", output),
        trial("displays beyond their number are counted and dropped", displays),
        trial("displays beyond their bytes are counted and dropped", display_bytes),
        trial("forms longer than a header travel behind it, in order with output", long_forms),
        trial("notes beyond their bytes are dropped", note_bytes),
        trial("figures beyond their number are noted", figures),
        trial("processors are shared out", processors),
    ]);
    trials
}

/// Code that takes too long, in different ways.
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
    let result =
        run(&mut cell, &format!("kept = 1\nprint('before')\n{code}\nprint('after')")).await;
    let took = started.elapsed();
    assert_eq!(
        result.exit.outcome,
        Outcome::TimedOut(Clock::Wall { limit }),
        "{}",
        describe(&result)
    );
    assert!(took >= limit && took < limit + patience(OVERTIME_MAX), "took {took:?}");
    assert_eq!(result.stdout, "before\n", "{}", describe(&result));
    check_state(&mut cell, &result).await;
}

/// Limits that raise an exception, which the code can catch; the session goes on. (name, limits,
/// code, expected output)
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
    let mut limits = Limits { wall: slowed(Duration::from_secs(10)), ..Limits::default() };
    set(&mut limits);
    let mut cell = open(limits).await;
    let result = complete(&mut cell, &format!("kept = 1\n{code}")).await;
    assert_eq!(result.stdout, *expected, "{}", describe(&result));
    check_state(&mut cell, &result).await;
}

async fn few_descriptors() {
    let mut cell = open(Limits { open_files: 64, ..Limits::default() }).await;
    assert_eq!(complete(&mut cell, "print(1)").await.stdout, "1\n");
}

async fn processor_time() {
    let limit = Duration::from_millis(300);
    let mut cell = open(Limits { cpu: limit, ..Limits::default() }).await;
    // Sleeping takes no CPU time.
    complete(&mut cell, "kept = 1\nimport time; time.sleep(0.5)").await;
    let result = run(&mut cell, "print('before')\nwhile True: pass").await;
    assert_eq!(
        result.exit.outcome,
        Outcome::TimedOut(Clock::Cpu { limit }),
        "{}",
        describe(&result)
    );
    assert!(result.exit.wall < limit + patience(OVERTIME_MAX), "{}", describe(&result));
    assert_eq!(result.stdout, "before\n");
    check_state(&mut cell, &result).await;
}

/// Memory that counts against no limit of a process, in code that ignores the error.
const HOARD: &str = "
kept = 1
print('before')
import mmap, signal
signal.signal(signal.SIGSTKFLT, signal.SIG_IGN)
hoard = []
while True:
    block = mmap.mmap(-1, 4 << 20)
    block.write(b'x' * (4 << 20))
    hoard.append(block)
";

async fn memory() {
    let limit_bytes = 384 * MIB;
    let limits = Limits { memory_bytes: limit_bytes, ..Limits::default() };
    let mut cell = open(limits.clone()).await;
    let result = run(&mut cell, HOARD).await;
    assert_eq!(result.exit.outcome, Outcome::OutOfMemory { limit_bytes }, "{}", describe(&result));
    assert_eq!(result.exit.state, State::Lost);
    assert_eq!(result.stdout, "before\n");
    check_state(&mut cell, &result).await;
    let mut fresh = open(limits).await;
    assert_eq!(complete(&mut fresh, "print(len(b'x' * (64 << 20)))").await.stdout, "67108864\n");
}

async fn less_memory() {
    let mut cell = open(Limits::default()).await;
    let limit_bytes = 256 * MIB;
    complete(&mut cell, "kept = 1").await;
    let mut small = woma_sandbox::Run::new("len(b'x' * (64 << 20))");
    small.memory_bytes = Some(limit_bytes);
    let result = crate::harness::run_with(&mut cell, &small).await;
    assert_eq!(result.exit.outcome, Outcome::Completed, "{}", describe(&result));
    // The next run has the whole limit again.
    complete(&mut cell, "len(b'x' * (400 << 20))").await;
    let mut hoard = woma_sandbox::Run::new(HOARD);
    hoard.memory_bytes = Some(limit_bytes);
    let result = crate::harness::run_with(&mut cell, &hoard).await;
    assert_eq!(result.exit.outcome, Outcome::OutOfMemory { limit_bytes }, "{}", describe(&result));
}

async fn too_little() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "kept = 1\nmuch = b'x' * (300 << 20)").await;
    let mut wanted = woma_sandbox::Run::new("print(1)");
    wanted.memory_bytes = Some(128 * MIB);
    let result = crate::harness::run_with(&mut cell, &wanted).await;
    let never = matches!(&result.exit.outcome, Outcome::NeverStarted { reason } if reason.contains("128 MB"));
    assert!(never, "{}", describe(&result));
    assert_eq!(result.exit.state, State::Preserved);
    check_state(&mut cell, &result).await;
}

async fn variables() {
    let mut cell = open(Limits::default()).await;
    let mut wanted = woma_sandbox::Run::new("print(n, rows[0]['a'], nothing)\nn += 1");
    let sent = serde_json::json!({"n": 41, "rows": [{"a": "é"}], "nothing": null});
    wanted.variables = sent.as_object().cloned().unwrap_or_default();
    let result = crate::harness::run_with(&mut cell, &wanted).await;
    assert_eq!(result.stdout, "41 é None\n", "{}", describe(&result));
    assert_eq!(complete(&mut cell, "print(n)").await.stdout, "42\n");
}

async fn shorter_wall() {
    let mut cell = open(Limits::default()).await;
    for (asked, limit) in [(200, 200), (400, 400)] {
        let mut wanted = woma_sandbox::Run::new("kept = 1\nwhile True: pass");
        wanted.wall = Some(Duration::from_millis(asked));
        let result = crate::harness::run_with(&mut cell, &wanted).await;
        let limit = Duration::from_millis(limit);
        assert_eq!(
            result.exit.outcome,
            Outcome::TimedOut(Clock::Wall { limit }),
            "{}",
            describe(&result)
        );
        assert_eq!(result.exit.state, State::Preserved, "{}", describe(&result));
    }
    let mut strict = open(Limits { wall: Duration::from_millis(200), ..Limits::default() }).await;
    let mut greedy = woma_sandbox::Run::new("while True: pass");
    greedy.wall = Some(Duration::from_secs(30));
    let result = crate::harness::run_with(&mut strict, &greedy).await;
    let limit = Duration::from_millis(200);
    assert_eq!(
        result.exit.outcome,
        Outcome::TimedOut(Clock::Wall { limit }),
        "{}",
        describe(&result)
    );
}

async fn output() {
    let mut cell = open(Limits { output_bytes: 1_000, ..Limits::default() }).await;
    let code = "import sys\nfor _ in range(100): print('x' * 99); print('y' * 99, file=sys.stderr)";
    let result = complete(&mut cell, code).await;
    // 750 bytes of the beginning, and the last whole line of each stream.
    assert_eq!(result.stdout.len() + result.stderr.len(), 950);
    assert_eq!(result.exit.output_bytes_dropped, 19_050);
    let code = "for i in range(1000): print(i)";
    let result = complete(&mut cell, code).await;
    assert!(result.stdout.starts_with("0\n1\n2\n"), "{}", result.stdout);
    assert!(result.stdout.ends_with("\n997\n998\n999\n"), "{}", result.stdout);
    let gaps: Vec<_> =
        result.events.iter().filter(|event| matches!(event, Event::Gap { .. })).collect();
    let bytes = result.exit.output_bytes_dropped;
    assert_eq!(gaps, [&Event::Gap { stream: Stream::Stdout, bytes }]);
    assert_eq!(bytes, 3_890 - result.stdout.len() as u64);
    assert_eq!(complete(&mut cell, "print('next')").await.stdout, "next\n");
}

async fn displays() {
    let mut cell = open(Limits { displays: 3, ..Limits::default() }).await;
    let code = "from IPython.display import display\nfor i in range(10): display(i)";
    let result = complete(&mut cell, code).await;
    assert_eq!((shown(&result), result.exit.displays_dropped), (3, 7));
    assert_eq!(shown(&complete(&mut cell, "1 + 1").await), 1);
}

async fn display_bytes() {
    // A header counts twice: as received, and as parsed.
    let mut cell = open(Limits { display_bytes: 40_000, ..Limits::default() }).await;
    let code = "from IPython.display import display, HTML\n\
                for size in (4_000, 20_000, 4_000): display(HTML('a' * size))";
    let result = complete(&mut cell, code).await;
    assert_eq!((shown(&result), result.exit.displays_dropped), (2, 1));
}

async fn long_forms() {
    let mut cell = open(Limits::default()).await;
    let code = "from IPython.display import display\n\
                print('before')\n\
                display({'text/html': 'é' * 1_000_000, 'application/json': [{'a': 1}] * 100_000,\n\
                         'text/plain': 'short'}, raw=True)\n\
                print('after')";
    let result = complete(&mut cell, code).await;
    assert_eq!(events(&result), ["out: before", "display: \"short\"", "out: after"]);
    let display = result.events.iter().find_map(|event| match event {
        Event::Display(display) => Some(display),
        _ => None,
    });
    let data = &display.unwrap().data;
    assert_eq!(data["text/html"].text().unwrap().chars().count(), 1_000_000);
    assert!(matches!(&data["application/json"], Form::Json(json) if json.text().len() > 600_000));
}

async fn note_bytes() {
    let mut cell = open(Limits::default()).await;
    let code = "import os, struct\n\
                for text in ['x' * 7_000] * 60:\n\
                \x20   body = ('{\"code\":\"c\",\"text\":\"%s\"}' % text).encode()\n\
                \x20   os.set_blocking(900, True)\n\
                \x20   os.write(900, struct.pack('>IB', len(body) + 1, 0x84) + body)\n\
                os.set_blocking(900, False)";
    let result = run(&mut cell, code).await;
    let notes = result.events.iter().filter_map(note_code).count();
    // Of 256 KiB in total.
    assert_eq!(notes, 37, "{}", describe(&result));
}

async fn figures() {
    let mut cell = open(Limits { figures: 2, ..Limits::default() }).await;
    let code = "
import matplotlib.pyplot as plt
for _ in range(4):
    plt.figure(); plt.plot([1, 2])
plt.show()
";
    let result = complete(&mut cell, code).await;
    let notes: Vec<&str> = result.events.iter().filter_map(note_code).collect();
    assert_eq!((shown(&result), notes), (2, vec!["figures_limit"]), "{}", describe(&result));
}

fn note_code(event: &Event) -> Option<&str> {
    match event {
        Event::Note(note) => Some(&note.code),
        _ => None,
    }
}

fn shown(result: &RunResult) -> usize {
    result.events.iter().filter(|event| matches!(event, Event::Display(_))).count()
}

async fn processors() {
    let mut cell = open(Limits { cpu_cores: 0.5, ..Limits::default() }).await;
    complete(&mut cell, "import os, time").await;
    let (started, before) = (Instant::now(), cell.usage().cpu);
    let code = "
child = os.fork()
end = time.monotonic() + 1
while time.monotonic() < end: pass
if child == 0: os._exit(0)
os.waitpid(child, 0)
";
    complete(&mut cell, code).await;
    let used = cell.usage().cpu.saturating_sub(before);
    let took = started.elapsed();
    let (held_by, why) = sandbox().await.limits_held_by();
    if held_by == "none" {
        // Without enforcement, the caller gets the reason.
        assert!(why.is_some());
        return;
    }
    assert!(used < took.mul_f64(0.8), "{used:?} of processor time in {took:?}");
}
