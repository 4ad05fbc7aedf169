//! The memory limit as code meets it: first an exception, then the end of the session.

use std::time::Duration;

use libtest_mimic::Trial;
use woma_sandbox::{Cell, Event, Limits, Outcome, Run, Spec, State, Tier};

use crate::harness::{RunResult, run, run_with, sandbox, spec};
use crate::{check_state, complete, describe, trial};

const MIB: u64 = 1024 * 1024;
const SMALL: u64 = 256 * MIB;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = HOARDS.iter().map(hoard_trial).collect();
    trials.extend([
        trial("memory that is let go after the error can be used again", used_again),
        trial("a session that is nearly full can still be used", nearly_full),
        trial("code may catch the error and go on", caught),
        trial("an error in a function does not keep its variables", not_kept),
        trial("many threads fit into a small limit", threads),
        trial("a child that takes too much is killed and told", child_killed),
        trial("a command that takes too much is killed and told", command_killed),
        trial("workers that take too much leave the variables alone", workers),
        trial("a thread that takes too much gets the error", thread_hoards),
        trial("code that goes on after the error is killed", goes_on),
        trial("shared memory that takes too much is met as an error", shared),
        trial("a run's own limit is met as an error too", own_limit),
        trial("address space that is not used costs nothing for long", reserved),
        trial("the smallest limit is enough for a program and its error", smallest),
    ]);
    trials
}

/// Programs that need more memory than the limit. (name, preparation, line that raises)
type Hoard = (&'static str, &'static str, &'static str);
const HOARDS: &[Hoard] = &[
    ("one array", "import numpy", "much = numpy.ones(10**10)"),
    ("a little too much in one array", "import numpy", "much = numpy.ones((250 << 20) // 8)"),
    ("many arrays", "import numpy\nh = []", "while True: h.append(numpy.ones(1 << 19))"),
    ("a table", "import pandas, numpy", "pandas.DataFrame(numpy.ones((10_000, 10_000)))"),
    ("a table that grows", TABLE, "while True: f = pandas.concat([f, f])"),
    ("a byte string", "", "much = b'x' * (1 << 40)"),
    ("many byte strings", "h = []", "while True: h.append(b'x' * (1 << 20))"),
    ("a text that doubles", "t = 'woma' * 1000", "while True: t += t"),
    ("a list that doubles", "l = [0] * 1000", "while True: l += l"),
    ("a dictionary", "d, n = {}, 0", "while True: n += 1; d[n] = str(n)"),
    ("a set of tuples", "s, n = set(), 0", "while True: n += 1; s.add((n, n))"),
    ("a list of numbers", "", "l = list(range(10**9))"),
    ("a comprehension", "", "l = [str(n) for n in range(10**9)]"),
    ("what a stream unpacks to", UNPACK, "zlib.decompressobj(-15).decompress(chunk * 10240)"),
];
const TABLE: &str = "import pandas\nf = pandas.DataFrame({'a': range(10_000), 'b': 'text'})";
const UNPACK: &str = "
import zlib
packer = zlib.compressobj(9, zlib.DEFLATED, -15)
chunk = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)";

fn hoard_trial(hoard: &'static Hoard) -> Trial {
    trial(&format!("{} too large raises at its line", hoard.0), move || hoards(hoard))
}

async fn small() -> Cell {
    let wall = Duration::from_secs(60);
    open(Limits { memory_bytes: SMALL, wall, ..Limits::default() }).await
}

/// Always of the base tier: without a cgroup, a share of the zygote's memory counts for the
/// session, and that of the full tier is half of these limits while there are few sessions.
async fn open(limits: Limits) -> Cell {
    let wanted = Spec { tier: Some(Tier::Base), ..spec(limits) };
    sandbox().await.open(&wanted).await.unwrap()
}

/// The run ended by a `MemoryError`, or by what a library makes of one.
fn raised_for_memory(result: &RunResult) -> &woma_sandbox::protocol::Raised {
    assert_eq!(result.exit.outcome, Outcome::Raised, "{}", describe(result));
    assert_eq!(result.exit.state, State::Preserved, "{}", describe(result));
    let error = result.exit.done.as_ref().and_then(|done| done.error.as_ref());
    let error = error.unwrap_or_else(|| panic!("no error: {}", describe(result)));
    assert!(error.name.ends_with("MemoryError"), "{}", describe(result));
    error
}

async fn hoards((_, before, line): &Hoard) {
    let mut cell = small().await;
    complete(&mut cell, &format!("kept = 1\n{before}")).await;
    let result = run(&mut cell, &format!("print('before')\n\n{line}\nprint('after')")).await;
    let error = raised_for_memory(&result);
    assert_eq!(result.stdout, "before\n");
    assert_eq!(error.line, Some(3), "{}", describe(&result));
    assert!(error.traceback.iter().any(|text| text.contains(line)), "{}", describe(&result));
    for said in ["256 MiB", "in use", "variables are kept"] {
        assert!(error.message.contains(said), "{}: {}", said, describe(&result));
    }
    check_state(&mut cell, &result).await;
}

async fn used_again() {
    let mut cell = small().await;
    for _ in 0..3 {
        let result =
            run(&mut cell, "kept = 1\nh = []\nwhile True: h.append(b'x' * (1 << 20))").await;
        raised_for_memory(&result);
        complete(&mut cell, "assert len(h) > 128\ndel h").await;
        assert_eq!(
            complete(&mut cell, "print(len(b'x' * (128 << 20)))").await.stdout,
            "134217728\n"
        );
    }
    let result = run(&mut cell, "import numpy\nnumpy.ones(1 << 30)").await;
    raised_for_memory(&result);
    assert_eq!(complete(&mut cell, "print(len(b'x' * (128 << 20)))").await.stdout, "134217728\n");
    check_state(&mut cell, &result).await;
}

async fn nearly_full() {
    let mut cell = small().await;
    let result = run(&mut cell, "kept = 1\nh = []\nwhile True: h.append(b'x' * (1 << 16))").await;
    raised_for_memory(&result);
    for _ in 0..3 {
        assert_eq!(complete(&mut cell, "print(len([0] * 1000))").await.stdout, "1000\n");
        let result = run(&mut cell, "more = b'x' * (64 << 20)").await;
        raised_for_memory(&result);
        let result = run(&mut cell, "while True: h.append(b'x' * (1 << 16))").await;
        raised_for_memory(&result);
        let result = run(&mut cell, "1 / 0").await;
        assert_eq!(result.exit.outcome, Outcome::Raised, "{}", describe(&result));
    }
    check_state(&mut cell, &result).await;
}

async fn caught() {
    let code = "
kept = 1
h = []
try:
    n = 0
    while True: h.append(b'x' * (1 << 20))
except MemoryError:
    h.clear()
h = b'x' * (128 << 20)
print(len(h))
";
    let mut cell = small().await;
    let result = complete(&mut cell, code).await;
    assert_eq!(result.stdout, "134217728\n", "{}", describe(&result));
    check_state(&mut cell, &result).await;
}

async fn not_kept() {
    let code = "
kept = 1
def hoard():
    local = []
    while True: local.append(b'x' * (1 << 20))
hoard()
";
    let mut cell = small().await;
    for _ in 0..3 {
        let result = run(&mut cell, code).await;
        assert_eq!(raised_for_memory(&result).line, Some(5), "{}", describe(&result));
        complete(&mut cell, "len(b'x' * (160 << 20))").await;
    }
}

async fn threads() {
    let code = "
import threading
gate, done = threading.Barrier(101), []
def work():
    gate.wait()
    done.append(1)
threads = [threading.Thread(target=work) for _ in range(100)]
for thread in threads: thread.start()
gate.wait()
for thread in threads: thread.join()
print(len(done))
import numpy
a = numpy.ones((500, 500))
print((a @ a)[0, 0])
";
    let mut cell = open(Limits { memory_bytes: 64 * MIB, ..Limits::default() }).await;
    assert_eq!(complete(&mut cell, code).await.stdout, "100\n500.0\n");
}

/// Memory taken here counts against no limit of a process; a string would be refused.
const TAKE: &str = "
import mmap
def take():
    blocks = []
    while True:
        block = mmap.mmap(-1, 1 << 20)
        block.write(b'x' * (1 << 20))
        blocks.append(block)
";

async fn child_killed() {
    let code = "
import os
child = os.fork()
if child == 0: take()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
    let mut cell = small().await;
    complete(&mut cell, &format!("kept = 1{TAKE}")).await;
    let result = complete(&mut cell, code).await;
    assert_eq!(result.stdout, "-9\n", "{}", describe(&result));
    told_of_children(&result, "A child process was");
    check_state(&mut cell, &result).await;
    // It is reported once.
    assert_eq!(complete(&mut cell, "import time; time.sleep(0.1)").await.exit.children_killed, 0);
}

/// A program that raises the limit of the kernel process for itself.
const GREEDY: &str = "
import subprocess, sys
code = '''
import resource
most = resource.getrlimit(resource.RLIMIT_DATA)[1]
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
blocks = []
while True: blocks.append(bytearray(b'x') * (1 << 20))
'''
done = subprocess.run([sys.executable, '-I', '-S', '-c', code], capture_output=True)
print(done.returncode)
";

async fn command_killed() {
    let mut cell = small().await;
    let result = complete(&mut cell, &format!("kept = 1\n{GREEDY}")).await;
    assert_eq!(result.stdout, "-9\n", "{}", describe(&result));
    told_of_children(&result, "A child process was");
    check_state(&mut cell, &result).await;
}

fn told_of_children(result: &RunResult, who: &str) {
    assert!(result.exit.children_killed > 0, "{}", describe(result));
    let told = result.events.iter().any(|event| match event {
        Event::Note(note) => {
            note.code == "child_killed"
                && note.text.starts_with(who)
                && note.text.contains("memory limit of 256 MiB")
        }
        _ => false,
    });
    assert!(told, "{:?}", result.events);
}

const WORKERS: &str = "
data = b'x' * (32 << 20)
import os
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0: take()
    children.append(pid)
ends = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children}
# A group that is full may refuse a mapping: then take() ends in an error.
print(len(data), len(children), -9 in ends and ends <= {-9, 1})
";

async fn workers() {
    let mut cell = small().await;
    complete(&mut cell, &format!("kept = 1{TAKE}")).await;
    let result = complete(&mut cell, WORKERS).await;
    assert_eq!(result.stdout, "33554432 4 True\n", "{}", describe(&result));
    told_of_children(&result, "");
    check_state(&mut cell, &result).await;
}

async fn thread_hoards() {
    let code = "
kept = 1
import threading
h, errors = [], []
def hoard():
    try:
        while True: h.append(b'x' * (1 << 20))
    except MemoryError as error:
        h.clear()
        errors.append(1)
    finally:
        done.set()
done = threading.Event()
threading.Thread(target=hoard).start()
# Not by join: before Python 3.13, one that is interrupted takes the thread for ended.
while not done.is_set():
    try:
        done.wait(1)
    except MemoryError:
        pass
print(errors)
";
    let mut cell = small().await;
    let result = complete(&mut cell, code).await;
    assert_eq!(result.stdout, "[1]\n", "{}", describe(&result));
}

async fn goes_on() {
    let code = "
import mmap
maps = []
while True:
    try:
        while True:
            block = mmap.mmap(-1, 1 << 20)
            block.write(b'x' * (1 << 20))
            maps.append(block)
    except MemoryError:
        pass
";
    let mut cell = small().await;
    let result = run(&mut cell, &format!("kept = 1\n{code}")).await;
    let outcome = Outcome::OutOfMemory { limit_bytes: SMALL };
    assert_eq!(result.exit.outcome, outcome, "{}", describe(&result));
    assert_eq!(result.exit.state, State::Lost);
    check_state(&mut cell, &result).await;
}

async fn shared() {
    let code = "
import mmap
maps = []
while True:
    block = mmap.mmap(-1, 1 << 20)
    block.write(b'x' * (1 << 20))
    maps.append(block)
";
    let mut cell = small().await;
    let result = run(&mut cell, &format!("kept = 1\n{code}")).await;
    raised_for_memory(&result);
    check_state(&mut cell, &result).await;
}

async fn own_limit() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "kept = 1\nh = []").await;
    for code in ["much = b'x' * (1 << 30)", "while True: h.append(b'x' * (1 << 20))"] {
        let mut own = Run::new(code);
        own.memory_bytes = Some(SMALL);
        let result = run_with(&mut cell, &own).await;
        let error = raised_for_memory(&result);
        assert!(error.message.contains("256 MiB"), "{}", describe(&result));
    }
    // The next run has the whole limit of the session.
    let result = complete(&mut cell, "much = b'x' * (1 << 30)").await;
    check_state(&mut cell, &result).await;
}

async fn smallest() {
    let mut cell = open(Limits { memory_bytes: 16 * MIB, ..Limits::default() }).await;
    let result = complete(&mut cell, "kept = 1\nimport json\nprint(json.dumps([1]))").await;
    assert_eq!(result.stdout, "[1]\n");
    let result = run(&mut cell, "h = []\nwhile True: h.append(bytes(1000))").await;
    raised_for_memory(&result);
    check_state(&mut cell, &result).await;
}

async fn reserved() {
    let code = "
kept = 1
import numpy, time
a = numpy.empty((180 << 20) // 8)
time.sleep(4)  # some looks, on a busy machine too
b = numpy.empty((180 << 20) // 8)
a[:1000] = b[:1000] = 1
print(len(a) == len(b))
";
    let mut cell = small().await;
    assert_eq!(complete(&mut cell, code).await.stdout, "True\n");
}
