//! Tool fixtures, and the calls of those that need no input.
#![expect(deprecated, reason = "the suite still looks at log messages")]

use std::fmt::Display;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, ClientCapabilities, ContentBlock, JsonObject, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, Tool,
};
use rmcp::object;
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{from_json, inputs, tasks, text};

/// One grey pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCB2kUIOwAAAABJRU5ErkJggg==";
/// A millisecond of silence.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";
/// Pause between notifications.
const PAUSE: Duration = Duration::from_millis(50);

/// Names and descriptions; the suite also calls the first one.
const TOOLS: &[(&str, &str)] = &[
    ("test_simple_text", "Answers with text"),
    ("test_image_content", "Answers with a picture"),
    ("test_audio_content", "Answers with sound"),
    ("test_embedded_resource", "Answers with a resource"),
    ("test_multiple_content_types", "Answers with text, a picture and a resource"),
    ("test_error_handling", "Fails"),
    ("test_tool_with_progress", "Tells of its progress"),
    ("test_tool_with_logging", "Logs what it does"),
    ("test_logging_tool", "Logs what it does if the request asks for it"),
    ("test_reconnection", "Takes a moment"),
    ("test_missing_capability", "Needs a client that can sample"),
    ("test_trigger_tool_change", "Says that the tools have changed"),
    ("test_trigger_prompt_change", "Says that the prompts have changed"),
    ("test_custom_header", "Has an argument that is repeated in a header"),
    ("json_schema_2020_12_tool", "Has a schema with keywords of JSON Schema 2020-12"),
];

pub(super) fn list() -> impl Iterator<Item = Tool> {
    let all = [TOOLS, inputs::TOOLS, tasks::TOOLS].into_iter().flatten();
    all.map(|(name, description)| Tool::new(*name, *description, schema(name)))
}

pub(super) fn find(name: &str) -> Option<Tool> {
    list().find(|tool| tool.name == name)
}

pub(super) async fn call(
    name: &str,
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    match name {
        "test_error_handling" => {
            let failed = ContentBlock::text("This tool intentionally returns an error for testing");
            return Ok(CallToolResult::error(vec![failed]));
        }
        "test_tool_with_progress" => show_progress(context).await?,
        "test_tool_with_logging" => log(context).await?,
        "test_logging_tool" if context.meta.log_level().is_some() => log(context).await?,
        "test_reconnection" => sleep(2 * PAUSE).await,
        "test_missing_capability"
            if context.client_capabilities().unwrap_or_default().sampling.is_none() =>
        {
            let needed = ClientCapabilities::builder().enable_sampling().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        _ => {}
    }
    match content(name) {
        Some(blocks) => Ok(CallToolResult::success(from_json(blocks)?)),
        None => Ok(text(format!("{name} was called with {}", json!(arguments)))),
    }
}

/// Constant results.
fn content(name: &str) -> Option<Value> {
    let picture = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let resource = |uri: &str, media_type: &str, text: &str| {
        let resource = json!({"uri": uri, "mimeType": media_type, "text": text});
        json!({"type": "resource", "resource": resource})
    };
    Some(match name {
        "test_simple_text" => {
            json!([{"type": "text", "text": "This is a simple text response for testing."}])
        }
        "test_image_content" => json!([picture]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => {
            let text = "This is an embedded resource content.";
            json!([resource("test://embedded-resource", "text/plain", text)])
        }
        "test_multiple_content_types" => {
            let data = json!({"test": "data", "value": 123}).to_string();
            json!([
                {"type": "text", "text": "Multiple content types test:"},
                picture,
                resource("test://mixed-content-resource", "application/json", &data),
            ])
        }
        _ => return None,
    })
}

async fn show_progress(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, done).with_total(100.0);
            context.peer.notify_progress(progress).await.map_err(gone)?;
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn log(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let lines = ["Tool execution started", "Tool processing data", "Tool execution completed"];
    for line in lines {
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, line.into());
        context.peer.notify_logging_message(message).await.map_err(gone)?;
        sleep(PAUSE).await;
    }
    Ok(())
}

fn gone(error: impl Display) -> ErrorData {
    ErrorData::internal_error(format!("cannot notify the client: {error}"), None)
}

fn schema(name: &str) -> JsonObject {
    let one = |property: &str| {
        object!({
            "type": "object",
            "properties": {property: {"type": "string"}},
            "required": [property],
        })
    };
    match name {
        "test_sampling" => one("prompt"),
        "test_elicitation" => one("message"),
        "greet" => one("name"),
        "confirm_delete" => one("filename"),
        "slow_compute" => object!({
            "type": "object",
            "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}},
        }),
        "test_custom_header" => object!({
            "type": "object",
            "properties": {"value": {"type": "string", "x-mcp-header": "Value"}},
            "required": ["value"],
        }),
        "json_schema_2020_12_tool" => rich_schema(),
        _ => object!({"type": "object", "properties": {}}),
    }
}

/// Schema with every keyword that must reach the client unchanged.
fn rich_schema() -> JsonObject {
    object!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {
            "properties": {"contactMethod": {"const": "phone"}},
            "required": ["contactMethod"],
        },
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}
