//! The spine: one execution from request to outcome.

use std::time::Duration;

use serde_json::Value;
use woma_sandbox::protocol::Display;
use woma_sandbox::{
    Cell, Clock, Crash, Event, Exit, Interrupter, Interruption, Outcome, Run, Spec, State, Stream,
};

use crate::model::{Execute, Execution, Picture, Shown};
use crate::output::{TextStream, settle};
use crate::{Error, Service};

/// Longest source, in bytes.
pub(crate) const SOURCE_BYTES_MAX: usize = 1024 * 1024;

impl Service {
    /// Runs code in a session of its own, which ends with it. `on_start` gets the handle by which
    /// another task can interrupt; `on_event` hears everything as it happens.
    pub async fn execute_once(
        &self,
        spec: &Spec,
        request: &Execute,
        on_start: impl FnOnce(Interrupter),
        on_event: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<Execution, Error> {
        check(request)?;
        let mut cell = self.sandbox().open(spec).await?;
        on_start(cell.interrupter());
        let execution = execute(&mut cell, request, on_event).await;
        if let Err(error) = cell.close().await {
            tracing::warn!(%error, "the end of a session could not be awaited");
        }
        Ok(execution)
    }
}

fn check(request: &Execute) -> Result<(), Error> {
    let bytes = request.source.len();
    if request.source.trim().is_empty() {
        return Err(Error::EmptyCode);
    }
    if bytes > SOURCE_BYTES_MAX {
        return Err(Error::CodeTooLong { bytes, limit_bytes: SOURCE_BYTES_MAX });
    }
    Ok(())
}

async fn execute(
    cell: &mut Cell,
    request: &Execute,
    on_event: &mut (dyn FnMut(&Event) + Send),
) -> Execution {
    let run = Run { source: request.source.clone(), wall: request.timeout };
    let mut record = Record::default();
    let exit = cell
        .run(&run, &mut |event| {
            on_event(&event);
            record.add(event);
        })
        .await;
    record.close(exit)
}

/// What is kept of the events of a run.
#[derive(Debug, Default)]
struct Record {
    stdout: (TextStream, String),
    stderr: (TextStream, String),
    displays: Vec<Shown>,
    notes: Vec<woma_sandbox::protocol::Note>,
}

impl Record {
    fn add(&mut self, event: Event) {
        match event {
            Event::Output { stream, bytes } => {
                let (decoder, text) = match stream {
                    Stream::Stdout => &mut self.stdout,
                    Stream::Stderr => &mut self.stderr,
                };
                text.push_str(&decoder.push(&bytes));
            }
            Event::Display(display) => self.displays.push(shown(display)),
            Event::Note(note) => self.notes.push(note),
        }
    }

    fn close(self, exit: Exit) -> Execution {
        let text = |(mut decoder, mut text): (TextStream, String)| {
            text.push_str(&decoder.finish());
            settle(&text)
        };
        let done = exit.done.map(|done| *done);
        let said_exit_code = done.as_ref().and_then(|done| done.exit_code);
        let (execution_count, variables, error, result) = match done {
            Some(done) => (done.execution_count, done.variables, done.error, done.result),
            None => (0, Vec::new(), None, None),
        };
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
        Execution {
            outcome: exit.outcome.name(),
            state: match exit.state {
                State::Preserved => "preserved",
                State::Lost => "lost",
            },
            success: exit.outcome == Outcome::Completed,
            exit_code: exit_code(&exit.outcome, said_exit_code),
            message: message(&exit.outcome, exit.state),
            stdout: text(self.stdout),
            stderr: text(self.stderr),
            result,
            error,
            displays: self.displays,
            notes: self.notes,
            execution_time: exit.wall.as_secs_f64(),
            execution_time_ms: milliseconds(exit.wall),
            execution_count,
            variables,
            output_bytes_dropped: exit.output_bytes_dropped,
            displays_dropped: exit.displays_dropped,
            cpu_time_ms: exit.usage.map(|usage| milliseconds(usage.cpu)),
            memory_peak_bytes: exit.usage.map(|usage| usage.memory_peak_bytes),
        }
    }
}

fn shown(display: Display) -> Shown {
    use base64::Engine as _;
    let Display { role, id, mut data, binary, metadata, .. } = display;
    let mut pictures = Vec::new();
    for (media_type, bytes) in binary {
        let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
        data.insert(media_type.clone(), Value::String(text));
        pictures.push(Picture { media_type, bytes });
    }
    Shown { role, id, data, metadata, pictures }
}

/// As a shell would report it.
fn exit_code(outcome: &Outcome, said: Option<i64>) -> i64 {
    match outcome {
        Outcome::Completed => said.unwrap_or(0),
        Outcome::Raised => said.unwrap_or(1),
        Outcome::Interrupted(_) => 130,
        Outcome::TimedOut(_) => 124,
        Outcome::OutOfMemory { .. } => 137,
        Outcome::Crashed(Crash::Signal(signal)) => 128 + i64::from(*signal),
        Outcome::Crashed(Crash::Exited(status)) => i64::from(*status),
        Outcome::Crashed(Crash::Protocol(_) | Crash::Lost(_)) => 70,
        Outcome::NeverStarted { .. } => 125,
    }
}

/// What happened, and whether the variables survived it.
fn message(outcome: &Outcome, state: State) -> Option<String> {
    let what = match outcome {
        Outcome::Completed | Outcome::Raised => return None,
        Outcome::Interrupted(Interruption::Asked) => "Execution was interrupted".to_owned(),
        Outcome::Interrupted(Interruption::WorkspaceFull) => {
            "Execution was stopped: the workspace is over its limit".to_owned()
        }
        Outcome::TimedOut(Clock::Wall { limit }) => {
            format!("Execution timed out after {} seconds", seconds(*limit))
        }
        Outcome::TimedOut(Clock::Cpu { limit }) => {
            format!("Execution used more than {} seconds of processor time", seconds(*limit))
        }
        Outcome::OutOfMemory { limit_bytes } => {
            format!("Memory limit exceeded ({} MB)", limit_bytes / (1024 * 1024))
        }
        Outcome::Crashed(Crash::Signal(signal)) => {
            format!("Python was ended by signal {signal}{}", signal_name(*signal))
        }
        Outcome::Crashed(Crash::Exited(status)) => {
            format!("Python ended itself with status {status}")
        }
        Outcome::Crashed(Crash::Protocol(reason)) => format!("The session was ended: {reason}"),
        Outcome::Crashed(Crash::Lost(reason)) => {
            format!("The session was lost, not by the code's fault: {reason}")
        }
        Outcome::NeverStarted { reason } => format!("Execution never started: {reason}"),
    };
    let rest = match state {
        State::Preserved => "the session's variables are still there",
        State::Lost => "the session's variables are gone",
    };
    Some(format!("{what}; {rest}."))
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic error)",
        9 => " (killed)",
        11 => " (segmentation fault)",
        31 => " (bad system call)",
        _ => "",
    }
}
