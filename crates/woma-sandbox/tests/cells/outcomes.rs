//! The ways in which a run can end, and the order of its output.

use std::time::Duration;

use libtest_mimic::Trial;
use tokio::sync::mpsc;
use woma_sandbox::{Cell, Crash, Interruption, Limits, Outcome, Run, State};

use crate::harness::{patience, run, until};
use crate::{check_state, complete, describe, events, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crash_trials();
    trials.extend([
        trial("code completes and its value is reported", completed),
        trial("an exception is reported with its line", raised),
        trial("a syntax error is reported with its line", syntax_error),
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
        trial("an interrupt works during a flood of output", interrupt_in_a_flood),
        trial("an interrupt leaves the variables beside busy sessions", interrupt_beside_others),
        trial("an interrupt between runs does nothing", interrupt_between_runs),
        trial("a dead session never starts a run", dead),
        trial("output of all kinds arrives in order", order),
        trial("output of many switches arrives in order", order_of_many),
        trial("what a thread prints after its run goes to the log", late_thread),
        trial("what a process prints after its run goes to the log", late_process),
        trial("a daemon that holds the output delays nothing", daemon),
        trial("output that is not UTF-8 arrives unchanged", binary_output),
        trial("a large output arrives whole", large_output),
    ]);
    trials
}

async fn completed() {
    let mut cell = open(Limits::default()).await;
    let result = complete(&mut cell, "kept = 1\nkept + 1").await;
    let done = result.exit.done.as_ref().unwrap();
    let value = done.result.as_ref().unwrap();
    assert_eq!((value.text.as_str(), value.json.as_ref().unwrap().text()), ("2", "2"));
    let variables: Vec<_> = done.variables.iter().map(|v| (&*v.name, &*v.type_name)).collect();
    assert_eq!(variables, [("kept", "int")]);
    check_state(&mut cell, &result).await;
    assert!(complete(&mut cell, "").await.exit.done.unwrap().result.is_none());
}

async fn raised() {
    let mut cell = open(Limits::default()).await;
    let code = "kept = 1\ndef inner(x):\n    return 1 / x\nprint('before')\ninner(0)\n";
    let result = run(&mut cell, code).await;
    assert_eq!(result.exit.outcome, Outcome::Raised, "{}", describe(&result));
    assert_eq!(result.stdout, "before\n");
    let error = result.exit.done.as_ref().unwrap().error.clone().unwrap();
    assert_eq!((&*error.name, &*error.message), ("ZeroDivisionError", "division by zero"));
    // The innermost line of this code.
    assert_eq!(error.line, Some(3));
    let text = error.traceback.join("\n");
    assert!(text.contains("line 5, in <module>") && text.contains("line 3, in inner"), "{text}");
    check_state(&mut cell, &result).await;
}

async fn syntax_error() {
    let mut cell = open(Limits::default()).await;
    let result = run(&mut cell, "x = 1\nif x\n    pass").await;
    assert_eq!(result.exit.outcome, Outcome::Raised, "{}", describe(&result));
    let error = result.exit.done.unwrap().error.unwrap();
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
        let result = run(&mut cell, &format!("kept = 1\nimport sys\n{code}\nkept = 2")).await;
        let done =
            result.exit.done.as_ref().unwrap_or_else(|| panic!("{code}: {}", describe(&result)));
        assert_eq!(done.exit_code, exit_code, "{code}: {}", describe(&result));
        assert_eq!(result.exit.outcome.name(), outcome, "{code}: {}", describe(&result));
        assert_eq!(result.exit.state, State::Preserved, "{code}");
        check_state(&mut cell, &result).await;
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
    let result =
        run(&mut cell, &format!("kept = 1\nprint('before')\n{code}\nprint('after')")).await;
    assert_eq!(result.exit.outcome, Outcome::Crashed(crash), "{}", describe(&result));
    assert_eq!((result.exit.state, &*result.stdout), (State::Lost, "before\n"));
    check_state(&mut cell, &result).await;
}

/// Runs code that prints "started" and then goes on; another task interrupts it after that.
async fn run_and_interrupt(cell: &mut Cell, source: &str) -> woma_sandbox::Exit {
    let (heard, mut hears) = mpsc::unbounded_channel();
    let interrupter = cell.interrupter();
    let other = tokio::spawn(async move {
        hears.recv().await.unwrap();
        interrupter.interrupt();
    });
    // Sending fails after the first event, when the other task is gone.
    let exit = cell.run(&Run::new(source), &mut |_| heard.send(()).unwrap_or_default()).await;
    other.await.unwrap();
    exit
}

async fn interrupted(code: &str, state: State) {
    interrupted_after("kept = 1", code, state).await;
}

/// Interrupts once `first` has run, which is recognized by its output.
async fn interrupted_after(first: &str, code: &str, state: State) {
    let mut cell = open(Limits { wall: Duration::from_secs(60), ..Limits::default() }).await;
    let code = format!("kept = 1\n{first}\nprint('started')\n{code}");
    let exit = run_and_interrupt(&mut cell, &code).await;
    assert_eq!(exit.outcome, Outcome::Interrupted(Interruption::Asked));
    assert_eq!(exit.state, state);
    assert!(exit.wall < patience(Duration::from_secs(2)), "{:?}", exit.wall);
    let result =
        crate::RunResult { exit, stdout: String::new(), stderr: String::new(), events: vec![] };
    check_state(&mut cell, &result).await;
}

async fn interrupt_in_a_flood() {
    let mut cell = open(Limits { wall: Duration::from_secs(60), ..Limits::default() }).await;
    for round in 0..20 {
        let exit = run_and_interrupt(&mut cell, "while True: print('flood')").await;
        let asked = Outcome::Interrupted(Interruption::Asked);
        assert_eq!(exit.outcome, asked, "the interrupt was lost in round {round}");
        assert_eq!(exit.state, State::Preserved, "round {round}");
    }
}

/// Each session has a seventh of a processor, and its code must be undone within that.
async fn interrupt_beside_others() {
    let limits = Limits { wall: Duration::from_secs(60), ..Limits::default() };
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..14 {
        let mut cell = open(limits.clone()).await;
        others.spawn(async move { run(&mut cell, "while True: pass").await });
    }
    let mut cell = open(limits).await;
    // Ending takes 60 ms of a processor, on any machine.
    let code = "import time\ndef cost():\n    end = time.process_time() + 0.06\n    \
                while time.process_time() < end: pass\ntry:\n    print('started')\n    \
                while True: pass\nfinally: cost()";
    for round in 0..3 {
        let exit = run_and_interrupt(&mut cell, code).await;
        assert_eq!(exit.outcome, Outcome::Interrupted(Interruption::Asked), "round {round}");
        assert_eq!(exit.state, State::Preserved, "round {round}");
    }
    others.shutdown().await;
}

async fn interrupt_between_runs() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "kept = 1").await;
    cell.interrupter().interrupt();
    let result = complete(&mut cell, "import time; time.sleep(0.1)").await;
    check_state(&mut cell, &result).await;
}

async fn dead() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "1").await;
    cell.kill();
    let result = run(&mut cell, "print(1)").await;
    assert_eq!(result.exit.outcome.name(), "never_started", "{}", describe(&result));
    assert_eq!((result.exit.state, &*result.stdout), (State::Lost, ""));
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
    let result = complete(&mut cell, code).await;
    let mut got = events(&result);
    // One process wrote to two pipes, whose order cannot be preserved; but the next line printed by
    // Python itself comes after both.
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
    let result = complete(&mut cell, code).await;
    let expected: Vec<String> = (0..100)
        .flat_map(|i| [format!("out: {i}"), format!("err: {i}"), format!("display: \"{i}\"")])
        .collect();
    assert_eq!(events(&result), expected);
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
    let result = complete(&mut cell, code).await;
    assert_eq!((&*result.stdout, &*result.stderr), ("mine\n", ""));
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
    let result = complete(&mut cell, code).await;
    assert_eq!(result.stdout, "done\n");
    assert!(result.exit.wall < Duration::from_secs(20), "{}", describe(&result));
    assert_eq!(complete(&mut cell, "print('next')").await.stdout, "next\n");
}

async fn binary_output() {
    let mut cell = open(Limits::default()).await;
    let result =
        complete(&mut cell, "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\xfe')").await;
    let bytes: Vec<u8> = result
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
    let result = complete(&mut cell, "for i in range(500_000): print('%09d' % i)").await;
    assert_eq!((result.stdout.len(), result.exit.output_bytes_dropped), (5_000_000, 0));
    assert!(result.stdout.ends_with("000499999\n"));
}
