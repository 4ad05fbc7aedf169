//! Content for a model: text within a budget, pictures that fit, links to the rest.

use std::collections::BTreeMap;

use base64::Engine as _;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::{Value, json};
use woma_core::text::{budget, pictures};
use woma_core::{CallerId, Execution, Outcome, Picture, Representation};

use super::lean::LeanReply;
use super::{plain, slim};
use crate::api::error::Envelope;
use crate::api::reply::{Reply, Truncated};
use crate::api::state::AppState;
use crate::config::types::{ReplyForm, TextFormat};
use crate::mcp::Mcp;

/// Bytes of pictures in one reply, before base64; clients reject events over 1 MiB.
const PICTURES_BYTES_MAX: usize = 620 * 1024;

/// A result that is one object. The text block of a full reply is that object as JSON; of a lean
/// one it is `text`, with the warnings, or the JSON where there is no text for it.
pub(crate) fn plain(
    state: &AppState,
    mut answer: Value,
    text: Option<String>,
    warnings: Vec<String>,
) -> CallToolResult {
    let is_for_reading = state.presentation.reply == ReplyForm::Lean
        || state.presentation.text_format == TextFormat::Streams;
    let text = text.filter(|_| is_for_reading).map(|text| {
        let notes = warnings.iter().map(|warning| format!("Note: {warning}"));
        std::iter::once(text).chain(notes).collect::<Vec<_>>().join("\n")
    });
    if let (false, Some(fields)) = (warnings.is_empty(), answer.as_object_mut()) {
        fields.insert("warnings".to_owned(), warnings.into());
    }
    slim::bound_lists(&mut answer, state.presentation.context_chars);
    let text = text.unwrap_or_else(|| answer.to_string());
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(answer);
    result
}

/// Whether clients read the text of every reply as JSON.
pub(crate) fn reads_json(state: &AppState) -> bool {
    let presentation = &state.presentation;
    presentation.reply == ReplyForm::Full && presentation.text_format == TextFormat::Json
}

/// Error result of a rejected call.
pub(crate) fn refusal(state: &AppState, envelope: &Envelope) -> CallToolResult {
    if reads_json(state) {
        let error = state.presentation.shape.refusal(&envelope.message);
        let mut reply = json!({
            "success": false, "error": error, "error_message": envelope.message,
            "code": envelope.code,
        });
        if let (Some(hint), Some(fields)) = (&envelope.hint, reply.as_object_mut()) {
            fields.insert("hint".to_owned(), hint.as_str().into());
        }
        if let (Some(wait), Some(fields)) = (envelope.retry_after, reply.as_object_mut()) {
            fields.insert("retry_after".to_owned(), wait.as_secs().max(1).into());
        }
        return CallToolResult::error(vec![ContentBlock::text(reply.to_string())]);
    }
    let mut text = format!("Error: {}", envelope.message);
    if let Some(hint) = &envelope.hint {
        text = format!("{text}\nHint: {hint}");
    }
    if let Some(wait) = envelope.retry_after {
        text = format!("{text}\nRetry after {} s.", wait.as_secs().max(1));
    }
    // No structured content: it would have to match the output schema.
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Facts about a call that its reply needs.
pub(crate) struct Asked {
    pub(crate) caller: CallerId,
    pub(crate) warnings: Vec<String>,
    /// Whether the caller learns the session's id from this reply.
    pub(crate) is_session_minted: bool,
}

/// The reply to a run, in the configured form.
pub(crate) async fn execution(mcp: &Mcp, asked: Asked, execution: Execution) -> CallToolResult {
    match mcp.state.presentation.reply {
        ReplyForm::Lean => lean(mcp, asked, execution).await,
        ReplyForm::Full => full(&mcp.state, asked, execution).await,
    }
}

async fn lean(mcp: &Mcp, asked: Asked, mut execution: Execution) -> CallToolResult {
    let state = &mcp.state;
    let goes_on = execution.outcome == Outcome::Detached;
    let variables = changed_variables(mcp, &asked, &execution);
    execution.stdout = execution.stdout_and_displays();
    let drawn = execution.displays.iter().flat_map(|shown| shown.pictures.iter().cloned());
    let (drawn, execution_id): (Vec<Picture>, _) = (drawn.collect(), execution.id.to_string());
    execution.warnings.extend(asked.warnings);
    let chars_max = state.presentation.context_chars;
    let mut reply = LeanReply::new(execution, variables, state.base_url(), chars_max);
    let (pictures, left_out) = picture_blocks(state, &asked.caller, &execution_id, drawn).await;
    reply.warnings.extend(left_out);
    let mut blocks = vec![ContentBlock::text(reply.text(asked.is_session_minted))];
    blocks.extend(pictures);
    blocks.extend(reply.truncated.iter().map(|cut| whole_text(&execution_id, cut)));
    let mut result = match reply.success || goes_on {
        true => CallToolResult::success(blocks),
        false => CallToolResult::error(blocks),
    };
    result.structured_content = Some(serde_json::to_value(&reply).unwrap_or_default());
    result
}

/// Variables that no earlier reply has listed. Those of an ephemeral session are of no use.
fn changed_variables(mcp: &Mcp, asked: &Asked, execution: &Execution) -> BTreeMap<String, String> {
    let Some(session) = &execution.session else { return BTreeMap::new() };
    let is_new_kernel = execution.execution_count <= 1 || execution.session_restarted.is_some();
    if is_new_kernel || !execution.state_kept {
        mcp.seen.forget(&asked.caller, session);
    }
    if !execution.state_kept {
        return BTreeMap::new();
    }
    let is_partial = execution.variables_left_out > 0;
    let mut changed = mcp.seen.changes(&asked.caller, session, &execution.variables, is_partial);
    // The reply names them as restored.
    for name in execution.revival.iter().flat_map(|revival| &revival.restored) {
        changed.remove(name);
    }
    changed
}

async fn full(state: &AppState, asked: Asked, mut execution: Execution) -> CallToolResult {
    let goes_on = execution.outcome == Outcome::Detached;
    execution.stdout = execution.stdout_and_displays();
    let drawn: Vec<Picture> = execution
        .displays
        .iter_mut()
        .flat_map(|shown| std::mem::take(&mut shown.pictures))
        .collect();
    let plain_result = execution.result.as_ref().map(|result| result.text.clone());
    let numbers: Vec<String> = drawn.iter().map(|picture| picture.media_type.clone()).collect();
    let mut reply = Reply::new(execution).with_base(state.base_url());
    reply.warnings.extend(asked.warnings);
    state.presentation.shape.complete(&mut reply);
    fit_text(&mut reply, state.presentation.context_chars);
    if reply.inline_images.is_empty() {
        reply.inline_images = crate::api::reply::images(&reply.execution_id, numbers.iter());
    }
    let (mut blocks, left_out) =
        picture_blocks(state, &asked.caller, &reply.execution_id, drawn).await;
    reply.warnings.extend(left_out);
    let shape = state.presentation.shape;
    let structured = shape.over_mcp(serde_json::to_value(&reply).unwrap_or_default());
    let text = match state.presentation.text_format {
        TextFormat::Json => structured.to_string(),
        TextFormat::Plain => plain::with_facts(&reply, plain_result.as_deref()),
        TextFormat::Streams => plain::streams(&reply, plain_result.as_deref()),
    };
    blocks.insert(0, ContentBlock::text(text));
    blocks.extend(reply.truncated.iter().map(|cut| whole_text(&reply.execution_id, cut)));
    let is_fine = reply.success || goes_on || !state.presentation.failure_is_error;
    let mut result = match is_fine {
        true => CallToolResult::success(blocks),
        false => CallToolResult::error(blocks),
    };
    result.structured_content = Some(structured);
    result
}

/// Link to the whole of a truncated text.
fn whole_text(execution_id: &str, cut: &Truncated) -> ContentBlock {
    let uri = format!("execution://{execution_id}/{}", cut.stream);
    let link = Resource::new(uri, format!("the whole {}", cut.stream));
    ContentBlock::resource_link(link.with_mime_type("text/plain"))
}

fn fit_text(reply: &mut Reply, limit_chars: usize) {
    reply.displays.clear();
    let result_text = reply.result.as_ref().map(Representation::to_readable);
    let texts = budget::Texts {
        stdout: &reply.stdout,
        stderr: &reply.stderr,
        traceback: reply.error_traceback.as_deref(),
        result: result_text.as_deref(),
    };
    let fitted = budget::fit(&texts, &reply.execution_id, limit_chars);
    let is_result_cut = fitted.cut.iter().any(|cut| cut.stream == woma_core::OutputStream::Result);
    let is_text = reply.result.as_ref().is_some_and(|result| result.as_text().is_some());
    if let (Some(text), true) = (fitted.result, is_result_cut || is_text) {
        reply.result = Some(Representation::text(text));
    }
    reply.stdout = fitted.stdout;
    reply.stderr = fitted.stderr;
    reply.error_traceback = fitted.traceback;
    reply.truncated = fitted.cut.iter().map(Truncated::from).collect();
    bound_names(reply);
    bound_messages(reply);
}

/// Limits the list of variables.
fn bound_names(reply: &mut Reply) {
    const NAMES_MAX: usize = 100;
    if reply.variables.len() > NAMES_MAX {
        let more = reply.variables.len() - NAMES_MAX;
        reply.variables.truncate(NAMES_MAX);
        reply.warnings.push(format!("{more} more variables are not listed"));
        let listed: std::collections::BTreeSet<&String> = reply.variables.iter().collect();
        reply.variable_types.retain(|name, _| listed.contains(name));
    }
}

/// Limits the length of messages.
pub(crate) fn bound_messages(reply: &mut Reply) {
    const MESSAGE_CHARS_MAX: usize = 2_000;
    let shorten = |text: &mut String| {
        if text.chars().count() > MESSAGE_CHARS_MAX {
            *text = text.chars().take(MESSAGE_CHARS_MAX).chain("…".chars()).collect();
        }
    };
    reply.error_message.iter_mut().for_each(shorten);
    reply.error.iter_mut().for_each(|error| shorten(&mut error.message));
}

/// Image blocks for pictures that fit; a link and a warning for each other one.
async fn picture_blocks(
    state: &AppState,
    caller: &CallerId,
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
            // Later pictures share the bytes that earlier ones did not need.
            bytes_max: bytes_left / (count - index).max(1),
            side_px_max: pictures::PICTURE_SIDE_PX_MAX,
        };
        match fit_picture(state, caller, picture, bounds).await {
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

/// One picture as an image block.
pub(crate) async fn picture_block(
    state: &AppState,
    caller: &CallerId,
    picture: Picture,
) -> Result<ContentBlock, String> {
    let bounds = pictures::Bounds {
        bytes_max: PICTURES_BYTES_MAX,
        side_px_max: pictures::PICTURE_SIDE_PX_MAX,
    };
    let fitting = fit_picture(state, caller, picture, bounds).await?;
    let data = base64::engine::general_purpose::STANDARD.encode(&fitting.bytes);
    Ok(ContentBlock::image(data, fitting.media_type))
}

async fn fit_picture(
    state: &AppState,
    caller: &CallerId,
    picture: Picture,
    bounds: pictures::Bounds,
) -> Result<Picture, String> {
    if !picture.media_type.starts_with("image/") || picture.media_type == "image/svg+xml" {
        return Err(format!("{} is not shown to models", picture.media_type));
    }
    let permit = state.pools.pictures.acquire(caller).await.map_err(|error| error.to_string())?;
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
