//! What a model sees: text within a budget, pictures that fit, links to the rest.

use base64::Engine as _;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::Value;
use tokio::sync::Semaphore;
use woma_core::output::{budget, pictures};
use woma_core::{Execution, Picture};

use crate::config::types::TextFormat;
use crate::doors::Doors;
use crate::error::Envelope;
use crate::wire::{Reply, Truncated};

/// Bytes of pictures in one answer, before base64; an event over 1 MiB is refused by clients.
const PICTURES_BYTES_MAX: usize = 620 * 1024;
/// Pictures that are made smaller at the same time: each may take 128 MiB meanwhile.
static FITTING: Semaphore = Semaphore::const_new(2);

/// An answer that is one object.
pub(super) fn plain(mut answer: Value, warnings: Vec<String>) -> CallToolResult {
    if let (false, Some(fields)) = (warnings.is_empty(), answer.as_object_mut()) {
        fields.insert("warnings".to_owned(), warnings.into());
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(answer.to_string())]);
    result.structured_content = Some(answer);
    result
}

/// A call that was not carried out, in words for the model.
pub(super) fn refusal(envelope: &Envelope) -> CallToolResult {
    let mut text = format!("Error: {}", envelope.message);
    if let Some(hint) = &envelope.hint {
        text = format!("{text}\nHint: {hint}");
    }
    if let Some(wait) = envelope.retry_after {
        text = format!("{text}\nRetry after {} s.", wait.as_secs().max(1));
    }
    // No structured content: it would have to fit the schema of an answer, and this is none.
    CallToolResult::error(vec![ContentBlock::text(text)])
}

pub(super) async fn execution(
    doors: &Doors,
    mut execution: Execution,
    warnings: Vec<String>,
) -> CallToolResult {
    execution.stdout = execution.stdout_and_displays();
    let drawn: Vec<Picture> = execution
        .displays
        .iter_mut()
        .flat_map(|shown| std::mem::take(&mut shown.pictures))
        .collect();
    let plain_result = execution.result.as_ref().map(|result| result.text.clone());
    let numbers: Vec<String> = drawn.iter().map(|picture| picture.media_type.clone()).collect();
    let mut reply = Reply::new(execution).with_base(doors.base_url());
    reply.warnings.extend(warnings);
    fit_text(&mut reply, doors.manner.context_chars);
    if reply.inline_images.is_empty() {
        reply.inline_images = crate::wire::images(&reply.execution_id, numbers.iter());
    }
    let (mut blocks, left_out) = picture_blocks(&reply.execution_id, drawn).await;
    reply.warnings.extend(left_out);
    let structured = serde_json::to_value(&reply).unwrap_or_default();
    let text = match doors.manner.text_format {
        TextFormat::Json => structured.to_string(),
        TextFormat::Plain => plain_text(&reply, plain_result.as_deref()),
    };
    blocks.insert(0, ContentBlock::text(text));
    blocks.extend(reply.truncated.iter().map(|cut| whole_text(&reply.execution_id, cut)));
    let mut result = match reply.success {
        true => CallToolResult::success(blocks),
        false => CallToolResult::error(blocks),
    };
    result.structured_content = Some(structured);
    result
}

/// Where a text that was shortened is whole.
fn whole_text(execution_id: &str, cut: &Truncated) -> ContentBlock {
    let uri = format!("execution://{execution_id}/{}", cut.stream);
    let link = Resource::new(uri, format!("the whole {}", cut.stream));
    ContentBlock::resource_link(link.with_mime_type("text/plain"))
}

fn fit_text(reply: &mut Reply, limit_chars: usize) {
    reply.displays.clear();
    let result_text = match &reply.result {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let texts = budget::Texts {
        stdout: &reply.stdout,
        stderr: &reply.stderr,
        traceback: reply.error_traceback.as_deref(),
        result: result_text.as_deref(),
    };
    let fitted = budget::fit(&texts, &reply.execution_id, limit_chars);
    let is_result_cut = fitted.cut.iter().any(|cut| cut.stream == woma_core::OutputStream::Result);
    if let (Some(text), true) = (fitted.result, is_result_cut || reply.result.is_string()) {
        reply.result = Value::String(text);
    }
    reply.stdout = fitted.stdout;
    reply.stderr = fitted.stderr;
    reply.error_traceback = fitted.traceback;
    let truncated = fitted.cut.into_iter().map(|cut| Truncated {
        stream: cut.stream.name().to_owned(),
        chars_total: cut.chars_total,
        next_offset: cut.head_end_char,
    });
    reply.truncated = truncated.collect();
    bound_names(reply);
}

/// A session with thousands of names must not fill the answer with them.
fn bound_names(reply: &mut Reply) {
    const NAMES_MAX: usize = 100;
    const MESSAGE_CHARS_MAX: usize = 2_000;
    if reply.variables.len() > NAMES_MAX {
        let more = reply.variables.len() - NAMES_MAX;
        reply.variables.truncate(NAMES_MAX);
        reply.warnings.push(format!("{more} more variables are not listed"));
        let listed: std::collections::BTreeSet<&String> = reply.variables.iter().collect();
        reply.variable_types.retain(|name, _| listed.contains(name));
    }
    let shorten = |text: &mut String| {
        if text.chars().count() > MESSAGE_CHARS_MAX {
            *text = text.chars().take(MESSAGE_CHARS_MAX).chain("…".chars()).collect();
        }
    };
    reply.error_message.iter_mut().for_each(shorten);
    reply.error.iter_mut().for_each(|error| shorten(&mut error.message));
}

/// Image blocks for the pictures that fit, links for the others, and a sentence for each of those.
async fn picture_blocks(
    execution_id: &str,
    drawn: Vec<Picture>,
) -> (Vec<ContentBlock>, Vec<String>) {
    let (mut blocks, mut left_out, mut bytes_left) = (Vec::new(), Vec::new(), PICTURES_BYTES_MAX);
    let count = drawn.len();
    for (index, picture) in drawn.into_iter().enumerate() {
        let number = index + 1;
        let uri = format!("execution://{execution_id}/images/{number}");
        let size = picture.bytes.len() as u64;
        let media_type = picture.media_type.clone();
        let bounds = pictures::Bounds {
            // What earlier ones did not need is shared by those that follow.
            bytes_max: bytes_left / (count - index).max(1),
            side_px_max: pictures::PICTURE_SIDE_PX_MAX,
        };
        match fit_picture(picture, bounds).await {
            Ok(fitting) => {
                bytes_left = bytes_left.saturating_sub(fitting.bytes.len());
                let data = base64::engine::general_purpose::STANDARD.encode(&fitting.bytes);
                blocks.push(ContentBlock::image(data, fitting.media_type));
            }
            Err(reason) => {
                left_out.push(format!("picture {number} is a link only, {uri}: {reason}"));
                let link = Resource::new(uri, format!("picture {number}"));
                let link = link.with_mime_type(media_type).with_size(size);
                blocks.push(ContentBlock::resource_link(link));
            }
        }
    }
    (blocks, left_out)
}

/// One picture as a model is shown it.
pub(super) async fn picture_block(picture: Picture) -> Result<ContentBlock, String> {
    let bounds = pictures::Bounds {
        bytes_max: PICTURES_BYTES_MAX,
        side_px_max: pictures::PICTURE_SIDE_PX_MAX,
    };
    let fitting = fit_picture(picture, bounds).await?;
    let data = base64::engine::general_purpose::STANDARD.encode(&fitting.bytes);
    Ok(ContentBlock::image(data, fitting.media_type))
}

async fn fit_picture(picture: Picture, bounds: pictures::Bounds) -> Result<Picture, String> {
    if !picture.media_type.starts_with("image/") || picture.media_type == "image/svg+xml" {
        return Err(format!("models are not shown {}", picture.media_type));
    }
    let permit = FITTING.acquire().await.map_err(|error| error.to_string())?;
    let fitted = tokio::task::spawn_blocking(move || {
        match pictures::fit(&picture.media_type, &picture.bytes, bounds) {
            pictures::Fit::AsIs => Ok(picture),
            pictures::Fit::Smaller { media_type, bytes, .. } => {
                Ok(Picture { media_type: media_type.to_owned(), bytes: bytes.into() })
            }
            pictures::Fit::TooLarge { reason } => Err(reason),
        }
    });
    let fitted = fitted.await.map_err(|error| error.to_string())?;
    drop(permit);
    fitted
}

/// For clients that show the first block to people, or to models that read no JSON.
fn plain_text(reply: &Reply, result: Option<&str>) -> String {
    let mut parts = Vec::new();
    if !reply.stdout.is_empty() {
        parts.push(reply.stdout.trim_end_matches('\n').to_owned());
    }
    if let Some(result) = result.filter(|_| reply.success) {
        parts.push(result.chars().take(10_000).collect());
    }
    if !reply.stderr.is_empty() {
        parts.push(format!("[STDERR]:\n{}", reply.stderr.trim_end_matches('\n')));
    }
    if let Some(traceback) = &reply.error_traceback {
        parts.push(traceback.clone());
    }
    if let (false, Some(message)) = (reply.success, &reply.error_message) {
        parts.push(format!("Error: {message}"));
    }
    parts.extend(reply.download_urls.iter().map(|file| {
        let size = crate::files::human(file.size);
        format!("File: {} ({size})\nDownload URL: {}", file.filename, file.url)
    }));
    if parts.is_empty() {
        parts.push("Code executed successfully (no output).".to_owned());
    }
    parts.extend(reply.restart_reason.iter().map(|why| format!("[session restarted: {why}]")));
    parts.extend(reply.hint.iter().map(|hint| format!("Hint: {hint}")));
    parts.extend(reply.warnings.iter().map(|warning| format!("[{warning}]")));
    parts.push(format!(
        "Execution: {:.0}ms | Session: {} variables persisted (call #{}) | id {}",
        reply.execution_time_ms,
        reply.kernel_info.variable_count,
        reply.kernel_info.execution_count,
        reply.execution_id
    ));
    parts.join("\n")
}
