//! The OpenAPI document, written from the table of routes.

mod parameters;
mod statuses;

use schemars::generate::SchemaSettings;
use schemars::transform::ReplaceBoolSchemas;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::layers::is_probe;
use super::table::{Operation, ResponseBody, of, operations};
use crate::api::error::Envelope;
use crate::api::jobs::JobReply;
use crate::api::reply::Reply;

pub(super) use parameters::query_names;

/// Tag of the routes that are there for clients of older systems.
const OLDER: &str = "older";

/// The document as served, equal to docs/openapi.json.
pub(crate) fn text() -> String {
    let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    text.push('\n');
    text
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // Any value is `{}` and not `true`, which generators of clients do not read.
    let mut any_value = ReplaceBoolSchemas::default();
    any_value.skip_additional_properties = true;
    let settings = settings.with_transform(any_value);
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    let envelope = of::<Envelope>(&mut generator);
    for operation in operations() {
        let described = describe(operation, &mut generator, &envelope);
        // OpenAPI has no wildcard parameters; `{*path}` is written as `{path}`.
        let path = operation.path.replace("{*", "{");
        let path = paths.entry(path).or_insert_with(|| json!({}));
        path[operation.method] = described;
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Woma",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A Python that AI agents can be trusted with: live, sandboxed sessions \
                            over REST. The same service speaks MCP at /mcp. New programs use the \
                            routes below /api/v1 that are not deprecated.",
            "license": { "name": "MIT", "identifier": "MIT" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags(),
        "security": [{}, { "bearer": [] }, { "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {
                    "type": "http", "scheme": "bearer",
                    "description": "An API key, or a token of the configured issuer.",
                },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn tags() -> Value {
    json!([
        { "name": "code", "description": "Running code, and reading what it has printed." },
        { "name": "sessions", "description": "Sessions: variables and files that outlive a run." },
        { "name": "files", "description": "Files of a session: upload, download, list." },
        { "name": "keys", "description": "API keys, for administrators." },
        { "name": "server", "description": "Health, metrics and the audit trail." },
        { "name": "documentation", "description": "This document, and pages that show it." },
        { "name": OLDER, "description": "Routes for clients of older systems. They stay; new \
                                         programs use the other groups." },
    ])
}

/// Whether a route is there for clients of older systems.
fn is_older(operation: &Operation) -> bool {
    let is_ours = operation.path.starts_with("/api/v1/")
        || operation.path.starts_with("/dl/")
        || matches!(operation.tag, "server" | "documentation");
    let has_successor = matches!(operation.id, "execute" | "execute_sync" | "create_session");
    !is_ours || has_successor
}

fn describe(operation: &Operation, generator: &mut SchemaGenerator, envelope: &Schema) -> Value {
    let is_older = is_older(operation);
    let mut described = json!({
        "operationId": operation.id,
        "tags": [if is_older { OLDER } else { operation.tag }],
        "summary": operation.summary,
        "responses": responses(operation, generator, envelope),
    });
    if is_older {
        described["deprecated"] = true.into();
    }
    if is_public(operation.path) {
        described["security"] = json!([]);
    }
    let parameters = parameters::of(operation);
    if !parameters.is_empty() {
        described["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = body(operation, generator) {
        described["requestBody"] = body;
    }
    described
}

/// Whether a path needs no key.
fn is_public(path: &str) -> bool {
    is_probe(path)
        || path.starts_with("/dl/")
        || matches!(path, "/docs" | "/redoc" | "/openapi.json")
}

fn responses(operation: &Operation, generator: &mut SchemaGenerator, envelope: &Schema) -> Value {
    let mut responses = Map::new();
    let content = content(operation, generator);
    for status in statuses::successes(operation) {
        let mut response = json!({ "description": statuses::meaning(status) });
        let content = match status {
            204 | 304 => None,
            // A job that has not ended.
            202 => Some(json!({ "application/json": { "schema": of::<JobReply>(generator) } })),
            _ => Some(content.clone()),
        };
        if let Some(content) = content {
            response["content"] = content;
        }
        if status == 201 && statuses::has_location(operation) {
            response["headers"] = json!({
                "Location": { "schema": { "type": "string" }, "description": "Path of it." },
            });
        }
        responses.insert(status.to_string(), response);
    }
    for status in statuses::errors(operation) {
        let mut schema = envelope.clone();
        if let (503, ResponseBody::Json(own), true) =
            (status, &operation.response, statuses::is_health(operation))
        {
            schema = schemars::json_schema!({ "anyOf": [own(generator), envelope] });
        }
        let mut response = json!({
            "description": statuses::meaning(status),
            "content": { "application/json": { "schema": schema } },
        });
        if matches!(status, 429 | 503) {
            response["headers"] = json!({
                "Retry-After": { "schema": { "type": "integer", "minimum": 1 },
                    "description": "Seconds until another try is worth it, if that is known." },
            });
        }
        responses.insert(status.to_string(), response);
    }
    Value::Object(responses)
}

/// Content of a success, by media type. Generators of clients take the first that they know.
fn content(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let mut content = match operation.response {
        ResponseBody::Json(schema) => {
            json!({ "application/json": { "schema": schema(generator) } })
        }
        ResponseBody::Other(media_type) => other_content(media_type),
        // A job is followed as a stream only: its reply is at another route.
        ResponseBody::Stream if operation.id == "stream_job" => streams(JOB_STREAM, JOB_EVENTS),
        ResponseBody::Stream => {
            let mut content = json!({ "application/json": { "schema": of::<Reply>(generator) } });
            if let (Value::Object(content), Value::Object(streams)) =
                (&mut content, streams(STREAM, EVENTS))
            {
                content.extend(streams);
            }
            content
        }
    };
    if operation.id == "list_files" {
        content["application/zip"] = json!({ "schema": bytes() });
    }
    content
}

/// Content of a stream, with descriptions of its two formats.
fn streams(lines: &str, events: &str) -> Value {
    json!({
        "application/x-ndjson": { "schema": { "type": "string", "description": lines } },
        "text/event-stream": { "schema": { "type": "string", "description": events } },
    })
}

/// Content of a media type of its own. Bytes of any type are named as such first, because generators
/// of clients do not read wildcards.
fn other_content(media_type: &str) -> Value {
    match media_type {
        _ if media_type.ends_with("json") => {
            json!({ (media_type): { "schema": { "type": "object" } } })
        }
        _ if media_type.starts_with("text/") => {
            json!({ (media_type): { "schema": { "type": "string" } } })
        }
        _ => json!({
            "application/octet-stream": { "schema": bytes() },
            (media_type): { "schema": bytes() },
        }),
    }
}

fn bytes() -> Value {
    json!({ "type": "string", "format": "binary" })
}

/// Body of a request, if the operation takes one.
fn body(operation: &Operation, generator: &mut SchemaGenerator) -> Option<Value> {
    if matches!(operation.id, "write_file" | "continue_upload") {
        let content = json!({ "application/octet-stream": { "schema": bytes() } });
        return Some(json!({ "required": false, "content": content }));
    }
    let (schema, example) = operation.body?;
    let example: Value = serde_json::from_str(example).unwrap_or_default();
    let media = json!({ "schema": schema(generator), "example": example });
    let mut content = json!({ "application/json": media });
    if matches!(operation.id, "upload_file" | "upload_file_api") {
        let text = json!({ "type": "string" });
        let properties = json!({ "file": bytes(), "session_id": text, "filename": text });
        let form = json!({ "type": "object", "properties": properties, "required": ["file"] });
        content["multipart/form-data"] = json!({ "schema": form });
    }
    let is_required = operation.tag != "sessions";
    Some(json!({ "required": is_required, "content": content }))
}

const STREAM: &str = "One JSON object a line: {\"text\": …}, {\"image\": base64, \"format\": \"png\"}, \
                      {\"error\": …, \"traceback\": [lines]}; at /api/v1/executions, and with \
                      events=full, also {\"html\": …}, {\"plotly\": figure}, {\"progress\": …}, \
                      {\"note\": …}, {\"heartbeat\": seconds} and {\"done\": reply}.";
const JOB_STREAM: &str = "One JSON object a line: {\"text\": …, \"offset\": …, \"next_offset\": …, \
                          \"skipped\": …}, {\"progress\": …}, {\"heartbeat\": status}, and at \
                          last the job.";
const JOB_EVENTS: &str = "The same objects as events; that of the job is `status`, the last one.";
const EVENTS: &str =
    "The same objects as events, each named by its first key; `done` is always sent.";
