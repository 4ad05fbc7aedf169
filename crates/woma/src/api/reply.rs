//! Replies of REST and MCP. One derive feeds the schemas of the tools and of OpenAPI.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use woma_core::text::budget::Cut;
use woma_core::{
    ErrorCategory, Execution, ExportedFile, FileReport, Missing, Representation, Revival,
    SecurityEvent, Shown, StoredFile,
};

/// Longest name of an exception's class.
const TYPE_CHARS_MAX: usize = 200;
const MIB: f64 = 1024.0 * 1024.0;

/// Result of an execution, the same object over REST and MCP.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// Whether the code ran to its end without an uncaught exception.
    pub(crate) success: bool,
    /// Id of this execution in logs, in metrics, and for `read_output`.
    pub(crate) execution_id: String,
    /// The session it ran in; absent when that ended with the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) session_id: Option<String>,
    /// `completed`, `raised`, `interrupted`, `timed_out`, `out_of_memory`, `crashed`,
    /// `never_started`, or `rejected` by the server's rules before anything ran.
    pub(crate) outcome: &'static str,
    /// Value of the last expression, else of the variable `result`: as JSON, or as text where it
    /// cannot be JSON.
    #[schemars(with = "Value")]
    pub(crate) result: Option<Representation>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Exit status as in a shell: 0, 1, the program's own, 124 for a time-out, 137 for memory.
    pub(crate) exit_code: i64,
    /// Seconds.
    pub(crate) execution_time: f64,
    pub(crate) execution_time_ms: f64,
    /// One sentence: the exception, or how else the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) error_traceback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ErrorDetail")]
    pub(crate) error: Option<ErrorDetail>,
    /// Remedy for the error, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) hint: Option<String>,
    /// Operations that the policy does not allow, and how each was handled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) security_events: Vec<SecurityEvent>,
    /// The same events, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) security_warnings: Vec<String>,
    /// Names of the session's variables.
    pub(crate) variables: Vec<String>,
    pub(crate) variable_types: BTreeMap<String, String>,
    pub(crate) kernel_info: KernelInfo,
    /// Peak memory of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub(crate) memory_used_mb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub(crate) cpu_time_ms: Option<f64>,
    /// Files that the run made, by their paths below the working directory.
    pub(crate) files_created: Vec<String>,
    /// Files whose content the run changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files_modified: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files_deleted: Vec<String>,
    /// Files that can be fetched without a key, until they expire.
    pub(crate) download_urls: Vec<Download>,
    /// Copies of the run's files on the host, for clients without a server to download from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files_exported: Vec<Exported>,
    /// Files of the run that have neither a link nor a copy.
    #[serde(skip)]
    pub(crate) files_unlinked: Vec<String>,
    /// Pictures that the code drew, in order.
    pub(crate) inline_images: Vec<InlineImage>,
    /// Objects that the code displayed, by media type; pictures are in base64.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub(crate) displays: Vec<Shown>,
    /// The time limit that held, in seconds.
    pub(crate) timeout_applied: f64,
    /// Deviations from the request, and other notes.
    pub(crate) warnings: Vec<String>,
    /// The session did not exist before.
    pub(crate) session_created: bool,
    /// The session's Python is a new one: `restart_reason` says why, `session_restored` what came
    /// back.
    pub(crate) session_restarted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) restart_reason: Option<String>,
    /// Variables restored from an earlier kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Revived")]
    pub(crate) session_restored: Option<Revived>,
    /// Texts that are shortened in this reply; `read_output` returns the whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) truncated: Vec<Truncated>,
    /// Bytes of output beyond the server's limit, which this reply lacks.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) output_bytes_dropped: u64,
    /// Displayed objects beyond the server's limit, which are lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) displays_dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ErrorDetail {
    /// The exception's class.
    pub(crate) r#type: String,
    pub(crate) message: String,
    /// `syntax`, `runtime`, `timeout`, `memory`, `interrupted`, `resource`, `security`, `crash` or
    /// `internal`.
    pub(crate) category: &'static str,
    /// Line of the code that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub(crate) line: Option<u64>,
}

/// Result of restoring a session's variables.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Revived {
    /// Time of the checkpoint; later changes are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) saved_at: Option<String>,
    pub(crate) restored: Vec<String>,
    pub(crate) not_restored: Vec<NotRestored>,
    /// Reason why the rest was not restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct NotRestored {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl From<Missing> for NotRestored {
    fn from(missing: Missing) -> Self {
        Self { name: missing.name, reason: missing.reason }
    }
}

impl From<Revival> for Revived {
    fn from(revival: Revival) -> Self {
        let missing = revival.missing.into_iter();
        Self {
            saved_at: revival.saved_at.map(|time| time.to_string()),
            restored: revival.restored,
            not_restored: missing.map(NotRestored::from).collect(),
            error: revival.error,
        }
    }
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct KernelInfo {
    pub(crate) execution_count: u64,
    pub(crate) variable_count: usize,
    /// Whether the next call with the same session id finds these variables.
    pub(crate) session_persisted: bool,
}

/// A file that can be fetched.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Download {
    pub(crate) filename: String,
    pub(crate) url: String,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) mime_type: String,
    pub(crate) file_id: String,
    pub(crate) is_image: bool,
    /// Absent if the file never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) expires_at: Option<String>,
}

/// Copy of a session's file on the host.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Exported {
    /// Below the working directory.
    pub(crate) path: String,
    /// Of the copy, on the host.
    pub(crate) host_path: String,
    /// Bytes.
    pub(crate) size: u64,
}

impl From<ExportedFile> for Exported {
    fn from(file: ExportedFile) -> Self {
        Self { path: file.path, host_path: file.host_path, size: file.size_bytes }
    }
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct InlineImage {
    pub(crate) url: String,
    pub(crate) filename: String,
    pub(crate) alt_text: String,
}

/// A shortened text, and the offset at which to read on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Truncated {
    pub(crate) stream: String,
    pub(crate) chars_total: u64,
    /// `read_output` with this offset continues where the shown part ends.
    pub(crate) next_offset: u64,
}

impl From<&Cut> for Truncated {
    fn from(cut: &Cut) -> Self {
        Self {
            stream: cut.stream.name().to_owned(),
            chars_total: cut.chars_total,
            next_offset: cut.head_end_char,
        }
    }
}

impl Reply {
    pub(crate) fn new(execution: Execution) -> Self {
        let Execution { id, error, result, notes, mut warnings, .. } = execution;
        warnings.extend(notes.into_iter().map(|note| note.text));
        warnings.extend(execution.files.notes.iter().cloned());
        let raised = error.as_ref().filter(|error| !is_plain_exit(&error.name));
        // A stopped run ends in an exception too, but `message` names the real cause.
        let raised = raised.map(|error| sentence(&error.name, &error.message));
        let is_exit = error.as_ref().is_some_and(|error| is_plain_exit(&error.name));
        let exited = (is_exit && !execution.success)
            .then(|| format!("the program ended with status {}", execution.exit_code));
        let error_message = execution.message.or(raised).or(exited);
        let inline_images = inline_images(id.as_str(), &execution.displays, &execution.charts);
        let category = execution.error_category.unwrap_or(ErrorCategory::Runtime).name();
        let milliseconds = |duration: Duration| round(duration.as_secs_f64() * 1e3);
        Self {
            success: execution.success,
            outcome: execution.outcome.name(),
            result: result.map(|result| match result.json {
                Some(json) => Representation::Json(Arc::new(json)),
                None => Representation::text(result.text),
            }),
            stdout: execution.stdout,
            stderr: execution.stderr,
            exit_code: execution.exit_code,
            execution_time: round(execution.wall.as_secs_f64()),
            execution_time_ms: milliseconds(execution.wall),
            error_traceback: error.as_ref().map(|error| error.traceback.join("\n")),
            error: error.map(|error| ErrorDetail {
                r#type: error.name.chars().take(TYPE_CHARS_MAX).collect(),
                message: error.message,
                category,
                line: error.line,
            }),
            error_message,
            hint: execution.hint,
            security_warnings: execution.events.iter().map(|e| e.message.clone()).collect(),
            security_events: execution.events,
            variables: execution.variables.iter().map(|v| v.name.clone()).collect(),
            kernel_info: KernelInfo {
                execution_count: execution.execution_count,
                variable_count: execution.variables.len()
                    + usize::try_from(execution.variables_left_out).unwrap_or(usize::MAX / 2),
                session_persisted: execution.state_kept,
            },
            variable_types: execution
                .variables
                .into_iter()
                .map(|v| (v.name, v.type_name))
                .collect(),
            memory_used_mb: execution.usage.map(|usage| megabytes(usage.memory_peak_bytes)),
            cpu_time_ms: execution.usage.map(|usage| milliseconds(usage.cpu)),
            files_unlinked: unlinked(&execution.files),
            files_created: execution.files.added,
            files_modified: execution.files.modified,
            files_deleted: execution.files.deleted,
            download_urls: execution.files.stored.into_iter().map(Download::from).collect(),
            files_exported: execution.files.exported.into_iter().map(Exported::from).collect(),
            inline_images,
            displays: execution.displays,
            timeout_applied: round(execution.timeout.as_secs_f64()),
            warnings,
            session_id: execution.session.map(|session| session.to_string()),
            session_created: execution.session_created,
            session_restarted: execution.session_restarted.is_some(),
            restart_reason: execution.session_restarted,
            session_restored: execution.revival.map(Revived::from),
            truncated: Vec::new(),
            output_bytes_dropped: execution.output_bytes_dropped,
            displays_dropped: execution.displays_dropped,
            execution_id: id.to_string(),
        }
    }
}

impl Reply {
    /// Prefixes the links with the base URL; without one, download links are removed.
    pub(crate) fn with_base(mut self, base: Option<&str>) -> Self {
        let Some(base) = base else {
            let names = self.download_urls.drain(..).map(|file| file.filename);
            self.files_unlinked.extend(names);
            return self;
        };
        let urls = self.download_urls.iter_mut().map(|file| &mut file.url);
        let urls = urls.chain(self.inline_images.iter_mut().map(|image| &mut image.url));
        for url in urls.filter(|url| url.starts_with('/')) {
            url.insert_str(0, base);
        }
        self
    }
}

/// Files of a run that have neither a link nor a copy.
fn unlinked(report: &FileReport) -> Vec<String> {
    let written = report.added.iter().chain(&report.modified);
    let is_had = |path: &String| {
        report.stored.iter().any(|stored| stored.path == *path)
            || report.exported.iter().any(|exported| exported.path == *path)
    };
    written.filter(|path| !is_had(path)).cloned().collect()
}

impl From<&StoredFile> for InlineImage {
    fn from(file: &StoredFile) -> Self {
        Self {
            url: format!("/dl/{}/{}", file.id, encoded(&file.name)),
            filename: file.name.clone(),
            alt_text: format!("Picture {}", file.name),
        }
    }
}

impl From<StoredFile> for Download {
    fn from(file: StoredFile) -> Self {
        Self {
            url: format!("/dl/{}/{}", file.id, encoded(&file.name)),
            filename: file.name,
            size: file.size_bytes,
            is_image: file.media_type.starts_with("image/"),
            mime_type: file.media_type,
            file_id: file.id.to_string(),
            expires_at: file.expires_at.map(|end| end.to_string()),
        }
    }
}

/// Percent-encodes a name for a URL.
pub(crate) fn encoded(name: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").unwrap_or_default();
        }
    }
    text
}

/// Whether the exception is `SystemExit`, which the exit code reports.
pub(crate) fn is_plain_exit(name: &str) -> bool {
    name == "SystemExit"
}

pub(crate) fn sentence(name: &str, message: &str) -> String {
    if message.is_empty() { name.to_owned() } else { format!("{name}: {message}") }
}

/// Links to the pictures of a run: those of its charts, where they are stored.
fn inline_images(
    execution_id: &str,
    displays: &[Shown],
    charts: &[StoredFile],
) -> Vec<InlineImage> {
    if !charts.is_empty() {
        return charts.iter().map(InlineImage::from).collect();
    }
    let pictures = displays.iter().flat_map(|shown| &shown.pictures);
    images(execution_id, pictures.map(|picture| &picture.media_type))
}

/// Links to the pictures of an execution.
pub(crate) fn images<'a>(
    execution_id: &str,
    media_types: impl Iterator<Item = &'a String>,
) -> Vec<InlineImage> {
    let image = |(index, media_type): (usize, &String)| {
        let number = index + 1;
        InlineImage {
            url: format!("/api/v1/executions/{execution_id}/images/{number}"),
            filename: format!("chart_{number:03}.{}", extension(media_type)),
            alt_text: format!("Picture {number} of execution {execution_id}"),
        }
    };
    media_types.enumerate().map(image).collect()
}

pub(crate) use woma_core::media::extension;

/// A reply with notes on the request, such as arguments that nothing has used.
#[derive(Debug, Serialize)]
pub(crate) struct Noted<T> {
    #[serde(flatten)]
    pub(crate) reply: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Path of a session's files, as its code sees them.
pub(crate) const WORKSPACE: &str = "/mnt/data";

fn megabytes(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let bytes = bytes as f64;
    round(bytes / MIB)
}

/// Rounds to six decimals.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}
