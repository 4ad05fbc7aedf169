//! From the events of a run to what is told of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use woma_sandbox::protocol::{Display, Done, Note};
use woma_sandbox::{Clock, Crash, Event, Exit, Interruption, Outcome as RunOutcome, State, Stream};

use crate::model::{
    ErrorCategory, Execution, ExecutionId, FileReport, Outcome, Picture, Representation, RunEvent,
    Shown,
};
use crate::policy::BAD_SYSTEM_CALL;
use crate::text::{TextStream, grouped, settle, settled_offsets};
use crate::workspace::media;

const SVG: &str = "image/svg+xml";

/// The events of a run, collected for its reply.
#[derive(Debug, Default)]
pub(crate) struct Record {
    stdout: (TextStream, String),
    stderr: (TextStream, String),
    displays: Vec<Shown>,
    /// Bytes of standard output before each display, as they came.
    offsets: Vec<usize>,
    notes: Vec<Note>,
    /// Lines of stdout and stderr that stand for what is left out, as they came.
    gaps: Gaps,
    /// Execution by which what is left out can be read, if it can.
    reader: Option<ExecutionId>,
}

/// Places of stdout and of stderr that stand for what is left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gaps {
    pub(crate) stdout: Option<Range<usize>>,
    pub(crate) stderr: Option<Range<usize>>,
}

impl Record {
    /// `reader`: the execution by which what is left out can be read, if it can.
    pub(crate) fn new(reader: Option<ExecutionId>) -> Self {
        Self { reader, ..Self::default() }
    }

    /// Keeps an event, and returns it as a watcher wants it.
    pub(crate) fn add(&mut self, event: Event, is_watched: bool) -> Option<RunEvent> {
        match event {
            Event::Output { stream, bytes } => {
                let (decoder, kept) = self.text_of(stream);
                let text = decoder.push(&bytes);
                kept.push_str(&text);
                (is_watched && !text.is_empty()).then_some(RunEvent::Text { stream, text })
            }
            Event::Gap { stream, bytes } => {
                let text = self.add_gap(stream, bytes);
                is_watched.then_some(RunEvent::Text { stream, text })
            }
            // The text has a line in its place, or an event that follows.
            Event::Middle { .. } | Event::Held { .. } => None,
            Event::Display(display) => {
                let shown = shown(display);
                let happening = is_watched.then(|| RunEvent::Shown(shown.clone()));
                self.displays.push(shown);
                self.offsets.push(self.stdout.1.len());
                happening
            }
            Event::Note(note) => {
                let happening = is_watched.then(|| RunEvent::Note(note.clone()));
                self.notes.push(note);
                happening
            }
        }
    }

    /// Adds a line for bytes that are left out. Returns it as a watcher wants it: not every stream
    /// ends with the notes of the reply, so the line itself says how to read them.
    fn add_gap(&mut self, stream: Stream, bytes: u64) -> String {
        let reader = self.reader.as_ref().map(|id| {
            let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
            format!(
                ": read_output(execution_id=\"{id}\", stream=\"{name}\") has the whole {name}, \
                 within the disk limit"
            )
        });
        let (decoder, kept) = self.text_of(stream);
        let rest = decoder.finish();
        kept.push_str(&rest);
        let start = kept.len();
        let line_end = if kept.ends_with('\n') { "" } else { "\n" };
        let said = format!("{line_end}[{} bytes of output left out", grouped(bytes));
        kept.push_str(&said);
        kept.push_str("]\n");
        let gap = Some(start..kept.len());
        match stream {
            Stream::Stdout => self.gaps.stdout = gap,
            Stream::Stderr => self.gaps.stderr = gap,
        }
        format!("{rest}{said}{}]\n", reader.unwrap_or_default())
    }

    /// Places in the texts of the reply that stand for what is left out.
    pub(crate) fn gaps(&self) -> Gaps {
        let settled = |text: &str, gap: &Option<Range<usize>>| {
            let gap = gap.as_ref()?;
            let settled = settled_offsets(text, &[gap.start, gap.end]);
            Some(*settled.first()?..*settled.get(1)?)
        };
        Gaps {
            stdout: settled(&self.stdout.1, &self.gaps.stdout),
            stderr: settled(&self.stderr.1, &self.gaps.stderr),
        }
    }

    fn text_of(&mut self, stream: Stream) -> &mut (TextStream, String) {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
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
            text
        };
        let stdout = text(self.stdout);
        let done = exit.done;
        let said_exit_code = done.as_ref().and_then(|done| done.exit_code);
        let counts = done.as_ref().map(|done| {
            let Done { execution_count, variables_left_out, imported, .. } = **done;
            (execution_count, variables_left_out, imported)
        });
        let (execution_count, variables_left_out, names_imported) = counts.unwrap_or_default();
        let (variables, error, result) = match done {
            Some(done) => (done.variables, done.error, done.result),
            None => (Vec::new(), None, None),
        };
        let error_name = error.as_ref().map(|error| error.name.as_str());
        let success = exit.outcome == RunOutcome::Completed;
        let error_category = category(&exit.outcome, error_name);
        let exit_code = exit_code(&exit.outcome, said_exit_code);
        let message = message(&exit.outcome, is_kept.then_some(exit.state));
        Execution {
            id,
            session: None,
            session_created: false,
            session_restarted: None,
            outcome: Outcome::Ran(exit.outcome),
            error_category,
            state_kept: exit.state == State::Preserved,
            success,
            exit_code,
            message,
            display_offsets: settled_offsets(&stdout, &self.offsets),
            stdout: settle(&stdout),
            stderr: settle(&text(self.stderr)),
            result,
            error,
            displays: self.displays,
            notes: self.notes,
            wall: exit.wall,
            timeout,
            execution_count,
            variables,
            variables_left_out,
            names_imported,
            output_bytes_dropped: exit.output_bytes_dropped,
            displays_dropped: exit.displays_dropped,
            late_output: String::new(),
            usage: exit.usage,
            warnings: Vec::new(),
            events: Vec::new(),
            is_networked: false,
            hint: None,
            files: FileReport::default(),
            charts: Vec::new(),
            revival: None,
        }
    }
}

fn shown(display: Display) -> Shown {
    let Display { role, id, data, binary, metadata, .. } = display;
    let data = data.into_iter().map(|(media_type, form)| (media_type, Representation::from(form)));
    let mut data: BTreeMap<String, Representation> = data.collect();
    let mut pictures = Vec::new();
    for (media_type, bytes) in binary {
        let bytes = bytes::Bytes::from(bytes);
        let known = media::known(&media_type).to_owned();
        data.insert(media_type, Representation::Binary(bytes.clone()));
        pictures.push(Picture { media_type: known, bytes });
    }
    // Drawings of this one kind come as text.
    if let (true, Some(Representation::Text(drawing))) = (pictures.is_empty(), data.get(SVG)) {
        let bytes = bytes::Bytes::from_owner(Drawing(Arc::clone(drawing)));
        pictures.push(Picture { media_type: SVG.to_owned(), bytes });
    }
    let metadata = metadata.map(|metadata| Representation::Json(Arc::new(metadata)));
    Shown { role, id, data, metadata, pictures }
}

/// A text that is a picture too, without a copy of it.
struct Drawing(Arc<String>);

impl AsRef<[u8]> for Drawing {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Category of a failure.
fn category(outcome: &RunOutcome, error_name: Option<&str>) -> Option<ErrorCategory> {
    const SYNTAX: [&str; 3] = ["SyntaxError", "IndentationError", "TabError"];
    match outcome {
        RunOutcome::Completed => None,
        RunOutcome::Raised => match error_name {
            Some(name) if SYNTAX.contains(&name) => Some(ErrorCategory::Syntax),
            // Libraries have some of their own, below the plain one.
            Some(name) if name.ends_with("MemoryError") => Some(ErrorCategory::Memory),
            _ => Some(ErrorCategory::Runtime),
        },
        RunOutcome::Interrupted(Interruption::Asked) => Some(ErrorCategory::Interrupted),
        // The workspace, its disk or a table of the kernel is full.
        RunOutcome::Interrupted(_) => Some(ErrorCategory::Resource),
        RunOutcome::TimedOut(_) => Some(ErrorCategory::Timeout),
        RunOutcome::OutOfMemory { .. } => Some(ErrorCategory::Memory),
        RunOutcome::Crashed(Crash::Protocol(_) | Crash::Signal(BAD_SYSTEM_CALL)) => {
            Some(ErrorCategory::Security)
        }
        RunOutcome::Crashed(Crash::Signal(_) | Crash::Exited(_)) => Some(ErrorCategory::Crash),
        RunOutcome::Crashed(Crash::Lost(_)) | RunOutcome::NeverStarted { .. } => {
            Some(ErrorCategory::Internal)
        }
    }
}
/// As a shell would report it.
fn exit_code(outcome: &RunOutcome, said: Option<i64>) -> i64 {
    match outcome {
        RunOutcome::Completed => said.unwrap_or(0),
        RunOutcome::Raised => said.unwrap_or(1),
        RunOutcome::Interrupted(_) => 130,
        RunOutcome::TimedOut(_) => 124,
        RunOutcome::OutOfMemory { .. } => 137,
        RunOutcome::Crashed(Crash::Signal(signal)) => 128 + i64::from(*signal),
        RunOutcome::Crashed(Crash::Exited(status)) => i64::from(*status),
        RunOutcome::Crashed(Crash::Protocol(_) | Crash::Lost(_)) => 70,
        RunOutcome::NeverStarted { .. } => 125,
    }
}

/// One sentence: the cause, and whether the variables survived.
fn message(outcome: &RunOutcome, state: Option<State>) -> Option<String> {
    let what = what_happened(outcome)?;
    let rest = match state {
        Some(State::Preserved) => "; the session's variables are still there",
        // The spine says more, if some come back.
        Some(State::Lost) => "; the session's variables are lost, its files are still there",
        None => "",
    };
    Some(format!("{what}{rest}."))
}

/// The cause that stopped a run; `None` if it came to its own end.
pub(crate) fn what_happened(outcome: &RunOutcome) -> Option<String> {
    let what = match outcome {
        RunOutcome::Completed | RunOutcome::Raised => return None,
        RunOutcome::Interrupted(Interruption::Asked) => "Execution was interrupted".to_owned(),
        RunOutcome::Interrupted(Interruption::WorkspaceFull) => {
            "Execution was stopped: the workspace is over its limit".to_owned()
        }
        RunOutcome::Interrupted(Interruption::TooMany { what, limit }) => {
            format!("Execution was stopped: the session has more than {limit} {}", what.plural())
        }
        RunOutcome::Interrupted(Interruption::DeletedFiles { bytes }) => {
            let mebibytes = bytes.div_ceil(1024 * 1024);
            format!(
                "Execution was stopped: deleted but open files hold {mebibytes} MiB, and with them \
                 the workspace is over its limit"
            )
        }
        RunOutcome::Interrupted(Interruption::DiskReserve) => {
            "Execution was stopped: the server's disk is below its reserve (MIN_FREE_DISK), and \
             the workspace grew"
                .to_owned()
        }
        RunOutcome::TimedOut(Clock::Wall { limit }) => {
            format!("Execution timed out after {} seconds", seconds(*limit))
        }
        RunOutcome::TimedOut(Clock::Cpu { limit }) => {
            format!("Execution used more than {} seconds of processor time", seconds(*limit))
        }
        RunOutcome::OutOfMemory { limit_bytes } => {
            format!("Memory limit exceeded ({} MB)", limit_bytes / (1024 * 1024))
        }
        RunOutcome::Crashed(Crash::Signal(signal)) => {
            format!("Python was ended by signal {signal}{}", signal_name(*signal))
        }
        RunOutcome::Crashed(Crash::Exited(status)) => {
            format!("Python ended itself with status {status}")
        }
        RunOutcome::Crashed(Crash::Protocol(reason)) => format!("The session was ended: {reason}"),
        RunOutcome::Crashed(Crash::Lost(reason)) => {
            format!("The session was lost, not by the code's fault: {reason}")
        }
        RunOutcome::NeverStarted { reason } => format!("Execution never started: {reason}"),
    };
    Some(what)
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
        BAD_SYSTEM_CALL => " (bad system call)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use woma_sandbox::protocol::Role;
    use woma_sandbox::{Crash, Outcome as RunOutcome};

    use super::{Record, category};
    use crate::model::{
        DISPLAYED_BYTES_MAX, ErrorCategory, Execution, ExecutionId, Picture, Representation, Shown,
    };

    fn shown(text: String) -> Shown {
        let data = BTreeMap::from([("text/plain".to_owned(), Representation::text(text))]);
        let (role, pictures) = (Role::Display, Vec::new());
        Shown { role, id: None, data, metadata: None, pictures }
    }

    fn execution(stdout: &str, displays: Vec<Shown>) -> Execution {
        let exit = woma_sandbox::Exit::never_started("a test");
        let ended = Record::default().close(ExecutionId::mint(), exit, Duration::ZERO, true);
        Execution { displays, stdout: stdout.to_owned(), ..ended }
    }

    #[test]
    fn displayed_texts_follow_the_output_each_on_its_line() {
        let mut picture = shown("a figure".to_owned());
        let bytes = bytes::Bytes::from_static(b"png");
        picture.data.insert("image/png".to_owned(), Representation::Binary(bytes.clone()));
        let result = Shown { role: Role::Result, ..shown("the value".to_owned()) };
        let texts = || ["a", "b\n", "c"].map(|text| shown(text.to_owned()));
        let displays: Vec<_> = [picture.clone(), result].into_iter().chain(texts()).collect();
        assert_eq!(execution("", displays.clone()).stdout_and_displays(), "a\nb\nc");
        assert_eq!(execution("out", displays.clone()).stdout_and_displays(), "out\na\nb\nc");
        assert_eq!(execution("out\n", displays.clone()).stdout_and_displays(), "out\na\nb\nc");
        assert!(!execution("", displays).has_pictures(), "no bytes of one were kept");
        picture.pictures.push(Picture { media_type: "image/png".to_owned(), bytes });
        assert!(execution("", vec![picture]).has_pictures());
    }

    #[test]
    fn displayed_text_has_a_limit_where_it_is_told_with_output() {
        let displays = vec![shown("é".repeat(DISPLAYED_BYTES_MAX)), shown("later".to_owned())];
        let text = execution("out", displays).stdout_and_displays();
        assert!(text.starts_with("out\né"), "{}", &text[..20]);
        let said = format!("… [{DISPLAYED_BYTES_MAX} more bytes of displayed text]\n");
        assert!(text.contains(&said) && text.ends_with("… [5 more bytes of displayed text]\n"));
        assert!((1_048_576..1_048_576 + 200).contains(&text.len()), "{}", text.len());
    }

    #[test]
    fn what_is_no_fault_of_the_code_is_internal() {
        let never = woma_sandbox::Exit::never_started("a test").outcome;
        let lost = RunOutcome::Crashed(Crash::Lost("a test".into()));
        for outcome in [never, lost] {
            assert_eq!(category(&outcome, None), Some(ErrorCategory::Internal), "{outcome:?}");
        }
        let raised = category(&RunOutcome::Raised, Some("ValueError"));
        assert_eq!(raised, Some(ErrorCategory::Runtime));
    }

    #[test]
    fn displays_are_told_after_the_output_or_where_they_appeared() {
        let exit = woma_sandbox::Exit::never_started("a test");
        let ended = Record::default().close(ExecutionId::mint(), exit, Duration::ZERO, true);
        let shown = |kind: &str, pictures: Vec<Picture>| Shown {
            role: Role::Display,
            id: None,
            data: BTreeMap::from([(kind.to_owned(), Representation::text("seen".to_owned()))]),
            metadata: None,
            pictures,
        };
        let picture = || {
            let picture = Picture { media_type: "image/png".to_owned(), bytes: "".into() };
            shown("image/png", vec![picture])
        };
        let mut execution = Execution {
            stdout: "one\ntwo\nhalf".to_owned(),
            displays: vec![picture(), shown("text/plain", Vec::new()), picture(), picture()],
            ..ended
        };
        assert_eq!(execution.stdout_and_displays(), "one\ntwo\nhalf\nseen");
        // The last one is beyond the text, which was cut after the run.
        execution.display_offsets = vec![4, 8, 10, 99];
        let text = "one\n[chart 1]\ntwo\nseen\nha\n[chart 2]\nlf\n[chart 3]\n";
        assert_eq!(execution.stdout_and_displays(), text);
    }
}
