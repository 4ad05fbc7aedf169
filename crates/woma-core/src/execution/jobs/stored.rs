//! An execution as it is stored: the result of a job, read again by any server.
//!
//! Pictures are stored as files of their own; here is where they belong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use woma_sandbox::Usage;
use woma_sandbox::protocol::{Json, Note, Raised, ResultValue, Role, Variable};

use crate::model::{
    ErrorCategory, Execution, ExecutionId, FileReport, Outcome, Picture, Representation,
    SecurityEvent, SessionId, Shown, StoredFile,
};
use crate::text::grouped;

/// Largest stored result, in bytes of JSON. Of a larger one, displays and output are cut.
pub(crate) const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Part of each stream that is kept then, in bytes: half of it from the beginning, half from the end.
const STREAM_BYTES_MAX: usize = 512 * 1024;
/// Longest representation of a displayed object that is kept then, in bytes.
const FORM_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Serialize, Deserialize)]
struct StoredExecution {
    id: String,
    session: Option<String>,
    session_created: bool,
    outcome: Outcome,
    error_category: Option<ErrorCategory>,
    state_kept: bool,
    success: bool,
    exit_code: i64,
    message: Option<String>,
    stdout: String,
    stderr: String,
    result: Option<ResultValue>,
    error: Option<Raised>,
    displays: Vec<StoredShown>,
    display_offsets: Vec<usize>,
    notes: Vec<Note>,
    wall: Duration,
    timeout: Duration,
    execution_count: u64,
    variables: Vec<Variable>,
    variables_left_out: u64,
    names_imported: u64,
    output_bytes_dropped: u64,
    displays_dropped: u64,
    usage: Option<Usage>,
    warnings: Vec<String>,
    events: Vec<SecurityEvent>,
    hint: Option<String>,
    files: FileReport,
    charts: Vec<StoredFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredShown {
    role: Role,
    id: Option<String>,
    data: BTreeMap<String, StoredForm>,
    metadata: Option<StoredForm>,
    /// Media types of its pictures, which are among the charts in the same order.
    pictures: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredForm {
    Text(String),
    Json(String),
}

impl StoredForm {
    fn of(form: &Representation) -> Option<Self> {
        match form {
            Representation::Text(text) => Some(Self::Text(text.as_ref().clone())),
            Representation::Json(json) => Some(Self::Json(json.text().to_owned())),
            Representation::Binary(_) => None,
        }
    }

    fn len(&self) -> usize {
        let (Self::Text(text) | Self::Json(text)) = self;
        text.len()
    }

    fn read(self) -> Representation {
        match self {
            Self::Text(text) => Representation::text(text),
            Self::Json(text) => match Json::parse(text) {
                Some(json) => Representation::Json(Arc::new(json)),
                None => Representation::text(String::new()),
            },
        }
    }
}

impl Execution {
    /// Its stored form, within [`RESULT_BYTES_MAX`].
    pub(crate) fn to_stored(&self) -> Result<String, serde_json::Error> {
        let mut stored = StoredExecution::of(self);
        let json = serde_json::to_string(&stored)?;
        if json.len() <= RESULT_BYTES_MAX {
            return Ok(json);
        }
        stored.shorten();
        serde_json::to_string(&stored)
    }

    /// Reads a stored form. `pictures` are the contents of its charts, in their order; one that is
    /// not there any more is `None`.
    pub(crate) fn from_stored(
        json: &str,
        pictures: Vec<Option<Picture>>,
    ) -> Result<Self, serde_json::Error> {
        let stored: StoredExecution = serde_json::from_str(json)?;
        Ok(stored.read(pictures))
    }

    /// The charts of a stored form.
    pub(crate) fn stored_charts(json: &str) -> Result<Vec<StoredFile>, serde_json::Error> {
        #[derive(Deserialize)]
        struct Charts {
            charts: Vec<StoredFile>,
        }
        Ok(serde_json::from_str::<Charts>(json)?.charts)
    }
}

impl StoredExecution {
    fn of(execution: &Execution) -> Self {
        let Execution { id, session, displays, .. } = execution;
        let execution = execution.clone();
        Self {
            id: id.as_str().to_owned(),
            session: session.as_ref().map(|session| session.as_str().to_owned()),
            session_created: execution.session_created,
            outcome: execution.outcome,
            error_category: execution.error_category,
            state_kept: execution.state_kept,
            success: execution.success,
            exit_code: execution.exit_code,
            message: execution.message,
            stdout: execution.stdout,
            stderr: execution.stderr,
            result: execution.result,
            error: execution.error,
            displays: displays.iter().map(StoredShown::of).collect(),
            display_offsets: execution.display_offsets,
            notes: execution.notes,
            wall: execution.wall,
            timeout: execution.timeout,
            execution_count: execution.execution_count,
            variables: execution.variables,
            variables_left_out: execution.variables_left_out,
            names_imported: execution.names_imported,
            output_bytes_dropped: execution.output_bytes_dropped,
            displays_dropped: execution.displays_dropped,
            usage: execution.usage,
            warnings: execution.warnings,
            events: execution.events,
            hint: execution.hint,
            files: execution.files,
            charts: execution.charts,
        }
    }

    fn shorten(&mut self) {
        for shown in &mut self.displays {
            shown.data.retain(|_, form| form.len() <= FORM_BYTES_MAX);
            shown.metadata = None;
        }
        for text in [&mut self.stdout, &mut self.stderr] {
            self.output_bytes_dropped += cut_middle(text, STREAM_BYTES_MAX);
        }
        // Offsets of a longer text.
        self.display_offsets.clear();
        if let Some(result) = &mut self.result {
            result.json = None;
            result.text.truncate(result.text.floor_char_boundary(STREAM_BYTES_MAX));
        }
        let text = format!(
            "the stored result is shortened: it had more than {} bytes",
            grouped(RESULT_BYTES_MAX as u64)
        );
        let code = "result_shortened".to_owned();
        self.notes.push(Note { code, text, subject: None, line: None });
    }

    fn read(self, pictures: Vec<Option<Picture>>) -> Execution {
        let mut pictures = pictures.into_iter();
        let mut warnings = self.warnings;
        let mut displays = Vec::with_capacity(self.displays.len());
        let mut expired = 0;
        for stored in self.displays {
            displays.push(stored.read(&mut pictures, &mut expired));
        }
        if expired > 0 {
            warnings.push(format!("{expired} pictures of this result are not stored any more"));
        }
        Execution {
            id: ExecutionId::known(&self.id),
            session: self.session.and_then(|id| SessionId::parse(&id).ok()),
            session_created: self.session_created,
            session_restarted: None,
            outcome: self.outcome,
            error_category: self.error_category,
            state_kept: self.state_kept,
            success: self.success,
            exit_code: self.exit_code,
            message: self.message,
            stdout: self.stdout,
            stderr: self.stderr,
            result: self.result,
            error: self.error,
            displays,
            display_offsets: self.display_offsets,
            notes: self.notes,
            wall: self.wall,
            timeout: self.timeout,
            execution_count: self.execution_count,
            variables: self.variables,
            variables_left_out: self.variables_left_out,
            names_imported: self.names_imported,
            output_bytes_dropped: self.output_bytes_dropped,
            displays_dropped: self.displays_dropped,
            late_output: String::new(),
            usage: self.usage,
            warnings,
            events: self.events,
            is_networked: false,
            hint: self.hint,
            files: self.files,
            charts: self.charts,
            revival: None,
        }
    }
}

impl StoredShown {
    fn of(shown: &Shown) -> Self {
        let forms = shown.data.iter();
        let data = forms.filter_map(|(kind, form)| Some((kind.clone(), StoredForm::of(form)?)));
        Self {
            role: shown.role,
            id: shown.id.clone(),
            data: data.collect(),
            metadata: shown.metadata.as_ref().and_then(StoredForm::of),
            pictures: shown.pictures.iter().map(|picture| picture.media_type.clone()).collect(),
        }
    }

    fn read(
        self,
        pictures: &mut impl Iterator<Item = Option<Picture>>,
        expired: &mut usize,
    ) -> Shown {
        let data = self.data.into_iter().map(|(kind, form)| (kind, form.read()));
        let mut data: BTreeMap<String, Representation> = data.collect();
        let mut own = Vec::new();
        for media_type in self.pictures {
            let Some(picture) = pictures.next().flatten() else {
                *expired += 1;
                continue;
            };
            let form = || Representation::Binary(picture.bytes.clone());
            data.entry(media_type).or_insert_with(form);
            own.push(picture);
        }
        let metadata = self.metadata.map(StoredForm::read);
        Shown { role: self.role, id: self.id, data, metadata, pictures: own }
    }
}

/// Cuts the middle out of a text that is longer than `bytes_max`; returns the bytes that went.
fn cut_middle(text: &mut String, bytes_max: usize) -> u64 {
    if text.len() <= bytes_max {
        return 0;
    }
    let head = text.floor_char_boundary(bytes_max / 2);
    let tail = text.ceil_char_boundary(text.len() - bytes_max / 2);
    let gone = tail - head;
    let gap = format!("\n[{} bytes of output left out]\n", grouped(gone as u64));
    text.replace_range(head..tail, &gap);
    gone as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use woma_sandbox::{Clock, Exit, Outcome as RunOutcome};

    use super::*;
    use crate::execution::record::Record;

    fn execution() -> Execution {
        let exit = Exit {
            outcome: RunOutcome::TimedOut(Clock::Wall { limit: Duration::from_secs(3) }),
            ..Exit::never_started("")
        };
        Record::default().close(ExecutionId::mint(), exit, Duration::from_secs(3), false)
    }

    fn picture(bytes: &'static [u8]) -> Picture {
        Picture { media_type: "image/png".to_owned(), bytes: bytes.into() }
    }

    #[test]
    fn an_execution_is_read_as_it_was_stored() {
        let mut execution = execution();
        execution.stdout = "a\0b".to_owned();
        let forms = [
            ("text/plain", Representation::text("plot".to_owned())),
            ("image/png", Representation::Binary(b"one"[..].into())),
        ];
        let data = forms.map(|(kind, form)| (kind.to_owned(), form)).into();
        let pictures = vec![picture(b"one")];
        let shown = Shown { role: Role::Display, id: None, data, metadata: None, pictures };
        execution.displays = vec![shown.clone(), shown];
        let json = execution.to_stored().unwrap();
        assert!(!json.contains("b25l"), "a picture is a file of its own");
        let read = Execution::from_stored(&json, vec![Some(picture(b"one")), None]).unwrap();
        assert_eq!((read.outcome, &*read.stdout), (execution.outcome, "a\0b"));
        assert_eq!((read.id, read.timeout), (execution.id, Duration::from_secs(3)));
        assert_eq!(read.displays[0].pictures, [picture(b"one")]);
        assert!(matches!(read.displays[0].data["image/png"], Representation::Binary(_)));
        assert!(read.displays[1].pictures.is_empty());
        assert_eq!(read.warnings, ["1 pictures of this result are not stored any more"]);
    }

    #[test]
    fn a_result_that_is_too_large_is_shortened_and_says_so() {
        let mut execution = execution();
        execution.stdout = "é".repeat(RESULT_BYTES_MAX);
        let html = Representation::text("x".repeat(FORM_BYTES_MAX + 1));
        let data = [("text/html".to_owned(), html)].into();
        let (role, pictures) = (Role::Display, Vec::new());
        execution.displays = vec![Shown { role, id: None, data, metadata: None, pictures }];
        let json = execution.to_stored().unwrap();
        assert!(json.len() <= RESULT_BYTES_MAX, "{}", json.len());
        let read = Execution::from_stored(&json, Vec::new()).unwrap();
        assert!(read.stdout.contains("bytes of output left out"));
        assert!(read.output_bytes_dropped > 0 && read.displays[0].data.is_empty());
        assert!(read.notes.iter().any(|note| note.code == "result_shortened"));
    }
}
