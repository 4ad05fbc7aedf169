//! What a session does for an honest caller: every limit reached, every way a run can end, the
//! order of output, the workspace, guards, checkpoints, healing, and every package of the default
//! environment.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may unwrap")]

mod harness;

#[path = "cells/checkpoints.rs"]
mod checkpoints;
#[path = "cells/folders.rs"]
mod folders;
#[path = "cells/guards.rs"]
mod guards;
#[path = "cells/limits.rs"]
mod limits;
#[path = "cells/machinery.rs"]
mod machinery;
#[path = "cells/outcomes.rs"]
mod outcomes;
#[path = "cells/packages.rs"]
mod packages;
#[path = "cells/paths.rs"]
mod paths;
#[path = "cells/spares.rs"]
mod spares;

use std::process::ExitCode;

use harness::{Seen, role, run, runtime, sandbox, spec};
use libtest_mimic::{Arguments, Trial};
use woma_sandbox::{Cell, Event, Limits, Outcome, State, Stream};

fn main() -> ExitCode {
    if let Some(code) = role() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // Times are measured, and processes are counted.
    arguments.test_threads = Some(1);
    let mut trials = limits::trials();
    trials.extend(outcomes::trials());
    trials.extend(folders::trials());
    trials.extend(spares::trials());
    trials.extend(guards::trials());
    trials.extend(paths::trials());
    trials.extend(checkpoints::trials());
    trials.extend(machinery::trials());
    trials.extend(packages::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test with a name that is a sentence; it fails by panicking.
pub(crate) fn trial<F: Future<Output = ()>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name.replace(' ', "_"), move || {
        runtime().block_on(test());
        Ok(())
    })
}

pub(crate) async fn open(limits: Limits) -> Cell {
    sandbox().await.open(&spec(limits)).await.unwrap()
}

pub(crate) async fn complete(cell: &mut Cell, source: &str) -> Seen {
    let seen = run(cell, source).await;
    assert_eq!(seen.exit.outcome, Outcome::Completed, "{}", story(&seen));
    seen
}

/// What a person wants to know about a run that did not do what it should.
pub(crate) fn story(seen: &Seen) -> String {
    let error = seen.exit.done.as_ref().and_then(|done| done.error.as_ref());
    let error = error.map(|error| error.traceback.join("\n"));
    let Seen { exit, stdout, stderr, .. } = seen;
    let tail = |text: &str| text.chars().skip(text.chars().count().saturating_sub(2_000)).collect();
    let (stdout, stderr): (String, String) = (tail(stdout), tail(stderr));
    format!(
        "{:?}, {:?} after {:?}\nstdout: {stdout}\nstderr: {stderr}\n{}",
        exit.outcome,
        exit.state,
        exit.wall,
        error.unwrap_or_default()
    )
}

/// A run that set `kept = 1` told the truth about what became of it.
pub(crate) async fn state_is_true(cell: &mut Cell, seen: &Seen) {
    let next = run(cell, "print(kept)").await;
    match seen.exit.state {
        State::Preserved => assert_eq!(next.stdout, "1\n", "{}", story(&next)),
        State::Lost => {
            let never = matches!(next.exit.outcome, Outcome::NeverStarted { .. });
            assert!(never, "{}", story(&next));
            assert!(!cell.is_alive());
        }
    }
}

/// The events of a run, a line a string, in order.
pub(crate) fn events(seen: &Seen) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for event in &seen.events {
        let (kind, text) = match event {
            Event::Output { stream: Stream::Stdout, bytes } => ("out", utf8(bytes)),
            Event::Output { stream: Stream::Stderr, bytes } => ("err", utf8(bytes)),
            Event::Display(display) => ("display", display.data["text/plain"].to_string() + "\n"),
            Event::Note(note) => ("note", note.code.clone() + "\n"),
        };
        match lines.last_mut() {
            // A read may end anywhere.
            Some(line) if last == Some(kind) && !line.ends_with('\n') => line.push_str(&text),
            _ => lines.push(format!("{kind}: {text}")),
        }
        last = Some(kind);
    }
    let split = |entry: String| {
        let (kind, text) = entry.split_once(": ").unwrap_or_default();
        text.lines().map(|line| format!("{kind}: {line}")).collect::<Vec<_>>()
    };
    lines.into_iter().flat_map(split).collect()
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
