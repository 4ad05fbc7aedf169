//! Text block of a full reply, for clients that show it as it is.

use crate::api::files::human;
use crate::api::reply::{InlineImage, Reply};

/// Files without a link that the text names; the rest is counted.
const UNLINKED_MAX: usize = 20;
/// Characters of the value of the last expression.
const RESULT_CHARS_MAX: usize = 10_000;

/// Output, value, error, files and charts, and a line about the run.
pub(crate) fn with_facts(reply: &Reply, result: Option<&str>) -> String {
    let mut parts = printed(reply, result);
    parts.extend(reply.error_traceback.iter().cloned());
    parts.extend(error(reply));
    add_files(&mut parts, reply);
    add_notes(&mut parts, reply);
    parts.push(format!(
        "Execution: {:.0}ms | Session: {} variables persisted (call #{}) | id {}",
        reply.execution_time_ms,
        reply.kernel_info.variable_count,
        reply.kernel_info.execution_count,
        reply.execution_id
    ));
    parts.join("\n")
}

/// Output and error, and the files if there are any. The traceback is in standard error.
pub(crate) fn streams(reply: &Reply, result: Option<&str>) -> String {
    let mut parts = printed(reply, result);
    parts.extend(error(reply));
    add_files(&mut parts, reply);
    add_notes(&mut parts, reply);
    parts.join("\n")
}

fn printed(reply: &Reply, result: Option<&str>) -> Vec<String> {
    let mut parts = Vec::new();
    if !reply.stdout.is_empty() {
        parts.push(reply.stdout.trim_end_matches('\n').to_owned());
    }
    if let Some(result) = result.filter(|_| reply.success) {
        parts.push(result.chars().take(RESULT_CHARS_MAX).collect());
    }
    if !reply.stderr.is_empty() {
        parts.push(format!("[STDERR]:\n{}", reply.stderr.trim_end_matches('\n')));
    }
    parts
}

fn error(reply: &Reply) -> Option<String> {
    let message = reply.error_message.as_ref().filter(|_| !reply.success)?;
    Some(format!("Error: {message}"))
}

fn add_files(parts: &mut Vec<String>, reply: &Reply) {
    let is_file =
        |image: &InlineImage| reply.download_urls.iter().any(|file| file.url == image.url);
    let charts = reply.inline_images.iter().filter(|image| !is_file(image));
    parts.extend(charts.map(|image| match image.url.starts_with('/') {
        true => format!("Chart: {}", image.filename),
        false => format!("Chart: {}\nDownload URL: {}", image.filename, image.url),
    }));
    parts.extend(reply.download_urls.iter().map(|file| {
        format!("File: {} ({})\nDownload URL: {}", file.filename, human(file.size), file.url)
    }));
    parts.extend(reply.files_exported.iter().map(|file| {
        format!("File: {} ({})\nHost path: {}", file.path, human(file.size), file.host_path)
    }));
    let unlinked = reply.files_unlinked.iter().take(UNLINKED_MAX);
    parts.extend(unlinked.map(|path| format!("File: {path}")));
    let more = reply.files_unlinked.len().saturating_sub(UNLINKED_MAX);
    if more > 0 {
        parts.push(format!("[{more} more files are not named; list_files lists them]"));
    }
    if parts.is_empty() {
        parts.push("Code executed successfully (no output).".to_owned());
    }
}

fn add_notes(parts: &mut Vec<String>, reply: &Reply) {
    parts.extend(reply.restart_reason.iter().map(|why| format!("[session restarted: {why}]")));
    parts.extend(reply.hint.iter().map(|hint| format!("Hint: {hint}")));
    parts.extend(reply.warnings.iter().map(|warning| format!("[{warning}]")));
}
