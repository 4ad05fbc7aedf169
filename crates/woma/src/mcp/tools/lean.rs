//! The lean reply to a run: as text, what a person would want to read; as data, the same. Empty
//! fields are left out, variables are changes, and ids are there where a next call needs them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use woma_core::text::budget;
use woma_core::{Execution, FileReport, Raised, Representation, SecurityEvent};

use super::content;
use crate::api::files::human;
use crate::api::reply::{Download, Reply, Revived, Truncated, is_plain_exit};

/// Variables and files of one reply; the rest is counted.
const LISTED_MAX: usize = 20;

/// Result of a run. A field that is absent is empty, false or zero.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LeanReply {
    pub(crate) success: bool,
    /// How the run ended, unless it was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    result: Option<Representation>,
    #[serde(skip_serializing_if = "String::is_empty")]
    stdout: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    stderr: String,
    #[serde(skip_serializing_if = "is_zero")]
    exit_code: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    error_traceback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LeanError")]
    error: Option<LeanError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security_events: Vec<SecurityEvent>,
    /// Type, size and dtypes of the variables that are new or have others, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    variables: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<LeanFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files_deleted: Vec<String>,
    /// Links to the pictures, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    charts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
    /// The session, if the call did not name it or it did not exist before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    session_created: bool,
    #[serde(skip_serializing_if = "is_false")]
    session_restarted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    restart_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Revived")]
    session_restored: Option<Revived>,
    /// Texts that are shortened here; `read_output` returns the whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) truncated: Vec<Truncated>,
    /// For `read_output`, if there is more to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) execution_id: Option<String>,
    /// How to read frames of libraries that are left out of the traceback.
    #[serde(skip)]
    more_frames: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    output_bytes_dropped: i64,
    #[serde(skip_serializing_if = "is_zero")]
    displays_dropped: i64,
    /// Name of the exception, if `error_message` is its message.
    #[serde(skip)]
    raised: Option<String>,
    /// Readable form of `result`.
    #[serde(skip)]
    result_text: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LeanError {
    r#type: String,
    category: &'static str,
    /// Line of the code that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    line: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LeanFile {
    path: String,
    /// Bytes, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    url: Option<String>,
    /// Path of a copy on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    host_path: Option<String>,
    /// The file existed before.
    #[serde(skip_serializing_if = "is_false")]
    modified: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The user's own frames of an error and its message; and whether frames of libraries are left out,
/// which `read_output` has. `None` if it is too long to be shown in full.
fn own_traceback(error: &Raised) -> Option<(String, bool)> {
    const CHARS_MAX: usize = 4_000;
    let head = "Traceback (most recent call last):";
    // The message and the notes on it.
    let last = error.traceback.iter().rposition(|line| tells(line, &error.name))?;
    let said = error.traceback.get(last..)?.join("\n");
    let text = format!("{head}\n{}\n{said}", error.own.join("\n"));
    let frames = |lines: &[String]| lines.iter().filter(|line| line.contains("  File \"")).count();
    let is_shorter = frames(&error.own) < frames(&error.traceback);
    (!error.own.is_empty() && text.len() <= CHARS_MAX).then_some((text, is_shorter))
}

/// Whether a line of a traceback has the message of an exception of this name.
fn tells(line: &str, name: &str) -> bool {
    let simple = name.rsplit('.').next().unwrap_or_default();
    let after = line.strip_prefix(name).or_else(|| line.strip_prefix(simple));
    after.is_some_and(|after| after.is_empty() || after.starts_with(':'))
}

fn whole_traceback(id: &str) -> String {
    format!("[whole traceback: read_output(execution_id=\"{id}\", stream=\"traceback\")]")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl LeanReply {
    /// The reply within `limit_chars`. `execution.stdout` has its displays in place already.
    /// `variables`: changes. `base`: start of links, if there are any.
    pub(crate) fn new(
        mut execution: Execution,
        variables: BTreeMap<String, String>,
        base: Option<&str>,
        limit_chars: usize,
    ) -> Self {
        let files = files(&execution.files, base);
        // The value of a variable called `result` is shown if nothing else is.
        let is_silent = execution.stdout.is_empty();
        execution.result = execution.result.filter(|result| is_silent || !result.named);
        let result = execution.result.as_ref().map(|result| result.text.clone());
        // With all that the kernel has listed, those that it left out are new too.
        let is_all = variables.len() == execution.variables.len();
        let left_out = if is_all { execution.variables_left_out } else { 0 };
        let own = execution.error.as_ref().and_then(own_traceback);
        let raised = execution.error.as_ref().filter(|_| execution.message.is_none());
        let raised = raised.map(|error| error.name.clone());
        let execution_session = execution.session.clone();
        let mut reply = Reply::new(execution).with_base(base);
        content::bound_messages(&mut reply);
        let has_more_frames = own.as_ref().is_some_and(|(_, is_shorter)| *is_shorter);
        reply.error_traceback = own.map(|(text, _)| text).or(reply.error_traceback);
        if reply.error.as_ref().is_some_and(|error| is_plain_exit(&error.r#type)) {
            // The message says all about it.
            reply.error_traceback = None;
        }
        let is_new =
            reply.session_created && execution_session.is_some_and(|session| !session.is_default());
        let texts = budget::Texts {
            stdout: &reply.stdout,
            stderr: &reply.stderr,
            traceback: reply.error_traceback.as_deref(),
            result: result.as_deref(),
        };
        let fitted = budget::fit(&texts, &reply.execution_id, limit_chars);
        let truncated: Vec<Truncated> = fitted.cut.iter().map(Truncated::from).collect();
        let mut lean = Self {
            success: reply.success,
            outcome: (!reply.success).then_some(reply.outcome),
            result: None,
            stdout: fitted.stdout,
            stderr: fitted.stderr,
            exit_code: reply.exit_code,
            error_message: reply.error_message,
            error_traceback: fitted.traceback,
            error: reply.error.map(|error| LeanError {
                r#type: error.r#type,
                category: error.category,
                line: error.line,
            }),
            hint: reply.hint,
            security_events: reply.security_events,
            variables,
            files,
            files_deleted: reply.files_deleted,
            charts: match base {
                Some(_) => reply.inline_images.into_iter().map(|image| image.url).collect(),
                None => Vec::new(),
            },
            warnings: reply.warnings,
            session_id: reply.session_id.filter(|_| is_new),
            session_created: reply.session_created,
            session_restarted: reply.session_restarted,
            restart_reason: reply.restart_reason,
            session_restored: reply.session_restored,
            more_frames: has_more_frames.then(|| whole_traceback(&reply.execution_id)),
            execution_id: (has_more_frames || !truncated.is_empty()).then_some(reply.execution_id),
            truncated,
            output_bytes_dropped: signed(reply.output_bytes_dropped),
            displays_dropped: signed(reply.displays_dropped),
            raised,
            result_text: fitted.result,
        };
        lean.set_result(reply.result, limit_chars);
        lean.shorten_lists(usize::try_from(left_out).unwrap_or(usize::MAX / 2));
        lean
    }

    /// The value as JSON, if the whole of it fits beside the other texts; else as text.
    fn set_result(&mut self, value: Option<Representation>, limit_chars: usize) {
        let texts = [Some(&self.stdout), Some(&self.stderr), self.error_traceback.as_ref()];
        let used: usize = texts.into_iter().flatten().map(|text| text.chars().count()).sum();
        let is_cut = self.truncated.iter().any(|cut| cut.stream == "result");
        self.result = match (value, &self.result_text) {
            (Some(Representation::Json(json)), _)
                if !is_cut && used + json.text().chars().count() <= limit_chars =>
            {
                Some(Representation::Json(json))
            }
            (Some(_), Some(text)) => Some(Representation::text(text.clone())),
            _ => None,
        };
    }

    /// `left_out`: new variables that the kernel has not listed.
    fn shorten_lists(&mut self, left_out: usize) {
        let mut note = |count: usize, what: &str| {
            if count > LISTED_MAX {
                let more = count - LISTED_MAX;
                self.warnings.push(format!("{more} more {what} are not listed"));
            }
        };
        note(self.variables.len() + left_out, "new variables");
        note(self.files.len(), "new or changed files");
        note(self.files_deleted.len(), "deleted files");
        while self.variables.len() > LISTED_MAX {
            self.variables.pop_last();
        }
        self.files.truncate(LISTED_MAX);
        self.files_deleted.truncate(LISTED_MAX);
    }

    /// The text block. `is_minted`: the caller learns the session's id from it.
    pub(crate) fn text(&self, is_minted: bool) -> String {
        let mut parts = Vec::new();
        let block = |title: &str, text: &str| match text.contains('\n') {
            true => format!("{title}:\n{text}"),
            false => format!("{title}: {text}"),
        };
        if !self.stdout.is_empty() {
            parts.push(self.stdout.trim_end_matches('\n').to_owned());
        }
        parts.extend(self.result_text.iter().map(|result| block("Out", result)));
        if !self.stderr.is_empty() {
            parts.push(block("Stderr", self.stderr.trim_end_matches('\n')));
        }
        parts.extend(self.error_traceback.iter().map(|text| text.trim_end().to_owned()));
        parts.extend(self.more_frames.clone());
        let message = self.error_message.iter().filter(|message| !self.is_told(message));
        parts.extend(message.map(|message| format!("Error: {message}")));
        parts.extend(self.hint.iter().map(|hint| format!("Hint: {hint}")));
        if !self.variables.is_empty() {
            let listed = self.variables.iter().map(|(name, kind)| format!("{name}: {kind}"));
            parts.push(format!("Variables: {}", listed.collect::<Vec<_>>().join("; ")));
        }
        parts.extend(self.files.iter().map(LeanFile::line));
        if !self.files_deleted.is_empty() {
            parts.push(format!("Deleted: {}", self.files_deleted.join(", ")));
        }
        let charts = self.charts.iter().enumerate();
        parts.extend(charts.map(|(index, url)| format!("Chart {}: {url}", index + 1)));
        self.tell_session(is_minted, &mut parts);
        let events = self.security_events.iter().map(|event| &event.message);
        let notes = events.chain(&self.warnings);
        parts.extend(notes.map(|note| format!("Note: {note}")));
        if parts.is_empty() {
            parts.push("(no output)".to_owned());
        }
        parts.join("\n")
    }

    /// A traceback has the exception at its end, with notes on it, and not always in the words of
    /// the message: that of a `SyntaxError` repeats the line. Any other end is told apart.
    fn is_told(&self, message: &str) -> bool {
        let traceback = self.error_traceback.as_deref().unwrap_or_default();
        let is_exception = |name: &String| traceback.lines().any(|line| tells(line, name.as_str()));
        traceback.contains(message) || self.raised.as_ref().is_some_and(is_exception)
    }

    fn tell_session(&self, is_minted: bool, parts: &mut Vec<String>) {
        parts.extend(self.session_id.iter().map(|id| match is_minted {
            true => format!("New session: pass session_id=\"{id}\" to continue in it"),
            false => format!("New session: {id}"),
        }));
        let restart = self.restart_reason.iter();
        parts.extend(restart.map(|why| format!("Note: the session was restarted: {why}")));
        let Some(restored) = &self.session_restored else { return };
        if !restored.restored.is_empty() {
            parts.push(format!("Restored: {}", listed(restored.restored.iter())));
        }
        if !restored.not_restored.is_empty() {
            let missing = restored.not_restored.iter();
            let missing = missing.map(|one| format!("{} ({})", one.name, one.reason));
            parts.push(format!("Not restored: {}", listed(missing)));
        }
        parts.extend(restored.error.iter().map(|why| format!("Note: not all was restored: {why}")));
    }
}

fn listed(names: impl ExactSizeIterator<Item = impl AsRef<str>>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let shown: Vec<String> = names.take(LISTED_MAX).map(|name| name.as_ref().to_owned()).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn files(report: &FileReport, base: Option<&str>) -> Vec<LeanFile> {
    let file = |path: &String, modified: bool| {
        let stored = report.stored.iter().find(|stored| stored.path == *path);
        let link = base.zip(stored).map(|(base, stored)| {
            let Download { url, .. } = Download::from(stored.clone());
            format!("{base}{url}")
        });
        let copy = report.exported.iter().find(|copy| copy.path == *path);
        let copied = copy.map(|copy| copy.size_bytes);
        LeanFile {
            path: path.clone(),
            size: stored.map(|stored| stored.size_bytes).or(copied),
            url: link,
            host_path: copy.map(|copy| copy.host_path.clone()),
            modified,
        }
    };
    let added = report.added.iter().map(|path| file(path, false));
    added.chain(report.modified.iter().map(|path| file(path, true))).collect()
}

impl LeanFile {
    fn line(&self) -> String {
        let mut facts: Vec<String> = self.size.iter().map(|size| human(*size)).collect();
        if self.modified {
            facts.push("changed".to_owned());
        }
        let facts =
            if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
        let place = self.url.as_ref().or(self.host_path.as_ref());
        let url = place.map(|place| format!(" {place}")).unwrap_or_default();
        format!("File: {}{facts}{url}", self.path)
    }
}
