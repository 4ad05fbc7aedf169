//! Sessions of an honest caller: every limit, every way a run can end, the order of output, the
//! workspace, guards, checkpoints, recovery, and every package of the default environment.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may unwrap")]

#[path = "../harness/mod.rs"]
mod harness;

mod apart;
mod ceiling;
mod checkpoints;
mod datasets;
mod disk;
mod folders;
mod guards;
mod layers;
mod limits;
mod machinery;
mod outcomes;
mod packages;
mod paths;
mod sockets;
mod spares;

use std::process::ExitCode;

use harness::{RunResult, only, role, run, runtime, sandbox, spec};
use libtest_mimic::{Arguments, Trial};
use woma_sandbox::{Cell, Event, Limits, Outcome, State, Stream};

fn main() -> ExitCode {
    if let Some(code) = role() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // One at a time: times are measured, and processes are counted.
    arguments.test_threads = Some(1);
    let groups = [
        ("limits", limits::trials()),
        ("outcomes", outcomes::trials()),
        ("folders", folders::trials()),
        ("datasets", datasets::trials()),
        ("layers", layers::trials()),
        ("sockets", sockets::trials()),
        ("disk", disk::trials()),
        ("spares", spares::trials()),
        ("guards", guards::trials()),
        ("paths", paths::trials()),
        ("checkpoints", checkpoints::trials()),
        ("apart", apart::trials()),
        ("ceiling", ceiling::trials()),
        ("machinery", machinery::trials()),
        ("packages", packages::trials()),
    ];
    let grouped = groups
        .into_iter()
        .flat_map(|(group, trials)| trials.into_iter().map(move |trial| (group, trial)));
    let trials = only(grouped.collect());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test whose name is a sentence; it fails by panicking.
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

pub(crate) async fn complete(cell: &mut Cell, source: &str) -> RunResult {
    let result = run(cell, source).await;
    assert_eq!(result.exit.outcome, Outcome::Completed, "{}", describe(&result));
    result
}

/// Description of a run for failed assertions.
pub(crate) fn describe(result: &RunResult) -> String {
    let error = result.exit.done.as_ref().and_then(|done| done.error.as_ref());
    let error = error.map(|error| error.traceback.join("\n"));
    let RunResult { exit, stdout, stderr, .. } = result;
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

/// Checks that the reported state is true, after a run that set `kept = 1`.
pub(crate) async fn check_state(cell: &mut Cell, result: &RunResult) {
    let next = run(cell, "print(kept)").await;
    match result.exit.state {
        State::Preserved => assert_eq!(next.stdout, "1\n", "{}", describe(&next)),
        State::Lost => {
            let never = matches!(next.exit.outcome, Outcome::NeverStarted { .. });
            assert!(never, "{}", describe(&next));
            assert!(!cell.is_alive());
        }
    }
}

/// The events of a run in order, one string per line.
pub(crate) fn events(result: &RunResult) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for event in &result.events {
        let (kind, text) = match event {
            Event::Output { stream: Stream::Stdout, bytes } => ("out", utf8(bytes)),
            Event::Output { stream: Stream::Stderr, bytes } => ("err", utf8(bytes)),
            Event::Middle { bytes, .. } => ("middle", utf8(bytes)),
            // Another event has it again.
            Event::Held { .. } => continue,
            Event::Gap { bytes, .. } => ("gap", bytes.to_string()),
            Event::Display(display) => {
                ("display", serde_json::to_string(&display.data["text/plain"]).unwrap() + "\n")
            }
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
