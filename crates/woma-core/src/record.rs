//! From the events of a run to what is told of it.

use std::time::Duration;

use serde_json::Value;
use woma_sandbox::protocol::{Display, Note};
use woma_sandbox::{Clock, Crash, Event, Exit, Interruption, Outcome, State, Stream};

use crate::model::{Execution, ExecutionId, FileReport, Happening, Picture, Shown};
use crate::output::{TextStream, settle};

const SVG: &str = "image/svg+xml";

/// What is kept of the events of a run.
#[derive(Debug, Default)]
pub(crate) struct Record {
    stdout: (TextStream, String),
    stderr: (TextStream, String),
    displays: Vec<Shown>,
    notes: Vec<Note>,
}

impl Record {
    /// Keeps an event, and returns it as a watcher wants it.
    pub(crate) fn add(&mut self, event: Event, is_watched: bool) -> Option<Happening> {
        match event {
            Event::Output { stream, bytes } => {
                let (decoder, kept) = match stream {
                    Stream::Stdout => &mut self.stdout,
                    Stream::Stderr => &mut self.stderr,
                };
                let text = decoder.push(&bytes);
                kept.push_str(&text);
                (is_watched && !text.is_empty()).then_some(Happening::Text { stream, text })
            }
            Event::Display(display) => {
                let shown = shown(display);
                let happening = is_watched.then(|| Happening::Shown(shown.clone()));
                self.displays.push(shown);
                happening
            }
            Event::Note(note) => {
                let happening = is_watched.then(|| Happening::Note(note.clone()));
                self.notes.push(note);
                happening
            }
        }
    }

    /// `is_kept`: whether the session goes on, so that its variables are worth a word.
    pub(crate) fn close(
        self,
        id: ExecutionId,
        exit: Exit,
        timeout: Duration,
        is_kept: bool,
    ) -> Execution {
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
        let error_name = error.as_ref().map(|error| error.name.as_str());
        Execution {
            id,
            session: None,
            session_created: false,
            session_restarted: None,
            outcome: exit.outcome.name(),
            error_category: category(&exit.outcome, error_name),
            state_kept: exit.state == State::Preserved,
            success: exit.outcome == Outcome::Completed,
            exit_code: exit_code(&exit.outcome, said_exit_code),
            message: message(&exit.outcome, is_kept.then_some(exit.state)),
            stdout: text(self.stdout),
            stderr: text(self.stderr),
            result,
            error,
            displays: self.displays,
            notes: self.notes,
            wall: exit.wall,
            timeout,
            execution_count,
            variables,
            output_bytes_dropped: exit.output_bytes_dropped,
            displays_dropped: exit.displays_dropped,
            usage: exit.usage,
            warnings: Vec::new(),
            events: Vec::new(),
            hint: None,
            files: FileReport::default(),
            charts: Vec::new(),
            revival: None,
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
        pictures.push(Picture { media_type, bytes: bytes.into() });
    }
    // Drawings of this one kind come as text.
    if let (true, Some(Value::String(drawing))) = (pictures.is_empty(), data.get(SVG)) {
        let bytes = drawing.clone().into_bytes().into();
        pictures.push(Picture { media_type: SVG.to_owned(), bytes });
    }
    Shown { role, id, data, metadata, pictures }
}

/// What kind of failure it was, for statistics.
fn category(outcome: &Outcome, error_name: Option<&str>) -> Option<&'static str> {
    const SYNTAX: [&str; 3] = ["SyntaxError", "IndentationError", "TabError"];
    match outcome {
        Outcome::Completed => None,
        Outcome::Raised => match error_name {
            Some(name) if SYNTAX.contains(&name) => Some("syntax"),
            Some("MemoryError") => Some("memory"),
            _ => Some("runtime"),
        },
        Outcome::Interrupted(Interruption::Asked) => Some("interrupted"),
        Outcome::Interrupted(Interruption::WorkspaceFull) => Some("resource"),
        Outcome::TimedOut(_) => Some("timeout"),
        Outcome::OutOfMemory { .. } => Some("memory"),
        Outcome::Crashed(Crash::Protocol(_) | Crash::Signal(31)) => Some("security"),
        Outcome::Crashed(Crash::Signal(_) | Crash::Exited(_)) => Some("crash"),
        Outcome::Crashed(Crash::Lost(_)) | Outcome::NeverStarted { .. } => Some("internal"),
    }
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
fn message(outcome: &Outcome, state: Option<State>) -> Option<String> {
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
        Some(State::Preserved) => "; the session's variables are still there",
        Some(State::Lost) => "; the session's variables are gone, its files are still there",
        None => "",
    };
    Some(format!("{what}{rest}."))
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
