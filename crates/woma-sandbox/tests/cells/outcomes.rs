//! The ways in which a run can end, and the order in which its output arrives.

use std::time::Duration;

use libtest_mimic::Trial;
use tokio::sync::mpsc;
use woma_sandbox::{Cell, Crash, Interruption, Limits, Outcome, Run, State};

use crate::harness::{run, until};
use crate::{complete, events, open, state_is_true, story, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crash_trials();
    trials.extend([
        trial("code completes and its value is told", completed),
        trial("an exception is told with its line", raised),
        trial("a syntax error is told with its line", syntax_error),
        trial("an exit with a status ends the run and not the session", exits),
        trial("an interrupt leaves the variables", || {
            interrupted("while True: pass", State::Preserved)
        }),
        trial("an interrupt wakes a sleeper", || {
            interrupted("import time; time.sleep(60)", State::Preserved)
        }),
        trial("an interrupt that is ignored ends the session", || {
            let deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)";
            interrupted_after(deaf, "while True: pass", State::Lost)
        }),
        trial("an interrupt is heard through a flood of output", interrupt_in_a_flood),
        trial("an interrupt between runs does nothing", interrupt_between_runs),
        trial("a dead session never starts a run", dead),
        trial("output of all kinds arrives in order", order),
        trial("output of many switches arrives in order", order_of_many),
        trial("what a thread prints after its run goes to the log", late_thread),
        trial("what a process prints after its run goes to the log", late_process),
        trial("a daemon that holds the output delays nothing", daemon),
        trial("text that is no UTF-8 arrives as it is", binary_output),
        trial("a large output arrives whole", large_output),
    ]);
    trials
}

async fn completed() {
    let mut cell = open(Limits::default()).await;
    let seen = complete(&mut cell, "kept = 1\nkept + 1").await;
    let done = seen.exit.done.as_ref().unwrap();
    let result = done.result.as_ref().unwrap();
    assert_eq!((result.text.as_str(), result.json.as_ref().unwrap().as_i64()), ("2", Some(2)));
    let variables: Vec<_> = done.variables.iter().map(|v| (&*v.name, &*v.type_name)).collect();
    assert_eq!(variables, [("kept", "int")]);
    state_is_true(&mut cell, &seen).await;
    assert!(complete(&mut cell, "").await.exit.done.unwrap().result.is_none());
}

async fn raised() {
    let mut cell = open(Limits::default()).await;
    let code = "kept = 1\ndef inner(x):\n    return 1 / x\nprint('before')\ninner(0)\n";
    let seen = run(&mut cell, code).await;
    assert_eq!(seen.exit.outcome, Outcome::Raised, "{}", story(&seen));
    assert_eq!(seen.stdout, "before\n");
    let error = seen.exit.done.as_ref().unwrap().error.clone().unwrap();
    assert_eq!((&*error.name, &*error.message), ("ZeroDivisionError", "division by zero"));
    // The innermost line of this code.
    assert_eq!(error.line, Some(3));
    let text = error.traceback.join("\n");
    assert!(text.contains("line 5, in <module>") && text.contains("line 3, in inner"), "{text}");
    state_is_true(&mut cell, &seen).await;
}

async fn syntax_error() {
    let mut cell = open(Limits::default()).await;
    let seen = run(&mut cell, "x = 1\nif x\n    pass").await;
    assert_eq!(seen.exit.outcome, Outcome::Raised, "{}", story(&seen));
    let error = seen.exit.done.unwrap().error.unwrap();
    assert_eq!((&*error.name, error.line), ("SyntaxError", Some(2)), "{error:?}");
}

async fn exits() {
    let mut cell = open(Limits::default()).await;
    let exits = [
        ("sys.exit(5)", Some(5), "raised"),
        ("sys.exit(0)", Some(0), "completed"),
        ("sys.exit()", Some(0), "completed"),
        ("sys.exit('a reason')", Some(1), "raised"),
        ("exit(7)", Some(7), "raised"),
    ];
    for (code, exit_code, outcome) in exits {
        let seen = run(&mut cell, &format!("kept = 1\nimport sys\n{code}\nkept = 2")).await;
        let done = seen.exit.done.as_ref().unwrap_or_else(|| panic!("{code}: {}", story(&seen)));
        assert_eq!(done.exit_code, exit_code, "{code}: {}", story(&seen));
        assert_eq!(seen.exit.outcome.name(), outcome, "{code}: {}", story(&seen));
        assert_eq!(seen.exit.state, State::Preserved, "{code}");
        state_is_true(&mut cell, &seen).await;
    }
}

fn crash_trials() -> Vec<Trial> {
    let crashes = [
        ("an exit past Python is a crash", "import os; os._exit(3)", Crash::Exited(3)),
        (
            "a segmentation fault is a crash",
            "import ctypes; ctypes.string_at(0)",
            Crash::Signal(11),
        ),
        ("an abort is a crash", "import os; os.abort()", Crash::Signal(6)),
        (
            "an illegal instruction is a crash",
            "import os; os.kill(os.getpid(), 4)",
            Crash::Signal(4),
        ),
    ];
    let crash_trial = |(name, code, crash): (&str, &'static str, Crash)| {
        trial(name, move || crashed(code, crash))
    };
    crashes.into_iter().map(crash_trial).collect()
}

async fn crashed(code: &str, crash: Crash) {
    let mut cell = open(Limits::default()).await;
    let seen = run(&mut cell, &format!("kept = 1\nprint('before')\n{code}\nprint('after')")).await;
    assert_eq!(seen.exit.outcome, Outcome::Crashed(crash), "{}", story(&seen));
    assert_eq!((seen.exit.state, &*seen.stdout), (State::Lost, "before\n"));
    state_is_true(&mut cell, &seen).await;
}

/// Runs code that prints "started" and then goes on; another task interrupts it after that.
async fn run_and_interrupt(cell: &mut Cell, source: &str) -> woma_sandbox::Exit {
    let (heard, mut hears) = mpsc::unbounded_channel();
    let interrupter = cell.interrupter();
    let other = tokio::spawn(async move {
        hears.recv().await.unwrap();
        interrupter.interrupt();
    });
    // Events after the first find the other task gone, which is fine.
    let exit = cell.run(&Run::new(source), &mut |_| heard.send(()).unwrap_or_default()).await;
    other.await.unwrap();
    exit
}

async fn interrupted(code: &str, state: State) {
    interrupted_after("kept = 1", code, state).await;
}

/// The interrupt is sent when `first` is done: what it prints then is what is waited for.
async fn interrupted_after(first: &str, code: &str, state: State) {
    let mut cell = open(Limits { wall: Duration::from_secs(5), ..Limits::default() }).await;
    let code = format!("kept = 1\n{first}\nprint('started')\n{code}");
    let exit = run_and_interrupt(&mut cell, &code).await;
    assert_eq!(exit.outcome, Outcome::Interrupted(Interruption::Asked));
    assert_eq!(exit.state, state);
    assert!(exit.wall < Duration::from_secs(2), "{:?}", exit.wall);
    let seen = crate::Seen { exit, stdout: String::new(), stderr: String::new(), events: vec![] };
    state_is_true(&mut cell, &seen).await;
}

async fn interrupt_in_a_flood() {
    let mut cell = open(Limits { wall: Duration::from_secs(2), ..Limits::default() }).await;
    for round in 0..20 {
        let exit = run_and_interrupt(&mut cell, "while True: print('flood')").await;
        let asked = Outcome::Interrupted(Interruption::Asked);
        assert_eq!(exit.outcome, asked, "the interrupt was lost in round {round}");
        assert_eq!(exit.state, State::Preserved, "round {round}");
    }
}

async fn interrupt_between_runs() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "kept = 1").await;
    cell.interrupter().interrupt();
    let seen = complete(&mut cell, "import time; time.sleep(0.1)").await;
    state_is_true(&mut cell, &seen).await;
}

async fn dead() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "1").await;
    cell.kill();
    let seen = run(&mut cell, "print(1)").await;
    assert_eq!(seen.exit.outcome.name(), "never_started", "{}", story(&seen));
    assert_eq!((seen.exit.state, &*seen.stdout), (State::Lost, ""));
    assert!(!cell.is_alive());
}

async fn order() {
    let mut cell = open(Limits::default()).await;
    let code = "
import os, subprocess, sys
from IPython.display import display
print('one')
print('two', file=sys.stderr)
print('three')
subprocess.run(['echo', 'four'])
display(5)
print('six', file=sys.stderr)
subprocess.run('echo seven >&2; echo eight', shell=True)
os.write(1, b'nine\\n')
print('ten')
display(11)
os.system('echo twelve')
13
";
    let seen = complete(&mut cell, code).await;
    let mut got = events(&seen);
    // One process wrote to two pipes, and their order cannot be kept; but the next line that Python
    // itself prints comes after both.
    let place = |line: &str| got.iter().position(|some| some == line).unwrap();
    let seven = place("err: seven");
    assert!(place("err: six") < seven && seven < place("out: ten"), "{got:?}");
    got.remove(seven);
    let expected = "out: one|err: two|out: three|out: four|display: \"5\"|err: six|out: eight|\
                    out: nine|out: ten|display: \"11\"|out: twelve|display: \"13\"";
    assert_eq!(got, expected.split('|').collect::<Vec<_>>());
}

async fn order_of_many() {
    let mut cell = open(Limits { displays: 1_000, ..Limits::default() }).await;
    let code = "
import sys
from IPython.display import display
for i in range(100):
    print(i); print(i, file=sys.stderr); display(i)
";
    let seen = complete(&mut cell, code).await;
    let expected: Vec<String> = (0..100)
        .flat_map(|i| [format!("out: {i}"), format!("err: {i}"), format!("display: \"{i}\"")])
        .collect();
    assert_eq!(events(&seen), expected);
}

const LATE_THREAD: &str = "
import os, threading, time
def late():
    while not os.path.exists('go'): time.sleep(0.005)
    print('late')
    open('printed', 'w').close()
threading.Thread(target=late).start()
";
const LATE_PROCESS: &str = "
import os, subprocess, time
subprocess.Popen('until [ -e go ]; do sleep 0.01; done; echo late; touch printed', shell=True)
";

async fn late_thread() {
    late(LATE_THREAD).await;
}

async fn late_process() {
    late(LATE_PROCESS).await;
}

async fn late(code: &str) {
    let mut cell = open(Limits::default()).await;
    assert_eq!(complete(&mut cell, code).await.stdout, "");
    let code = "
open('go', 'w').close()
while not os.path.exists('printed'): time.sleep(0.005)
print('mine')
";
    let seen = complete(&mut cell, code).await;
    assert_eq!((&*seen.stdout, &*seen.stderr), ("mine\n", ""));
    let mut log = Vec::new();
    until("the log has it", Duration::from_secs(2), || {
        log.extend(cell.take_log());
        match String::from_utf8_lossy(&log) {
            text if text == "late\n" => Ok(()),
            text => Err(text.into_owned()),
        }
    })
    .await;
    assert!(cell.take_log().is_empty());
}

async fn daemon() {
    let mut cell = open(Limits::default()).await;
    let code = "import subprocess; subprocess.Popen(['sleep', '30']); print('done')";
    let seen = complete(&mut cell, code).await;
    assert_eq!(seen.stdout, "done\n");
    assert!(seen.exit.wall < Duration::from_secs(2), "{}", story(&seen));
    assert_eq!(complete(&mut cell, "print('next')").await.stdout, "next\n");
}

async fn binary_output() {
    let mut cell = open(Limits::default()).await;
    let seen = complete(&mut cell, "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\xfe')").await;
    let bytes: Vec<u8> = seen
        .events
        .iter()
        .filter_map(|event| match event {
            woma_sandbox::Event::Output { bytes, .. } => Some(bytes.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(bytes, b"\xff\x00\xfe");
}

async fn large_output() {
    let mut cell = open(Limits { output_bytes: 8 << 20, ..Limits::default() }).await;
    let seen = complete(&mut cell, "for i in range(500_000): print('%09d' % i)").await;
    assert_eq!((seen.stdout.len(), seen.exit.output_bytes_dropped), (5_000_000, 0));
    assert!(seen.stdout.ends_with("000499999\n"));
}
