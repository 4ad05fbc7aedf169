//! The OpenAPI document, written from the table of routes.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::table::{OPERATIONS, Operation, ResponseBody, of};
use crate::api::error::Envelope;
use crate::api::reply::Reply;

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
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    let envelope = of::<Envelope>(&mut generator);
    for operation in OPERATIONS {
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
                            over REST. The same service speaks MCP at /mcp.",
            "license": { "name": "MIT", "identifier": "MIT" },
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "bearer": [] }, { "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn describe(operation: &Operation, generator: &mut SchemaGenerator, envelope: &Schema) -> Value {
    let content = match operation.response {
        ResponseBody::Json(schema) => {
            json!({ "application/json": { "schema": schema(generator) } })
        }
        ResponseBody::Other(media_type) => json!({ (media_type): {} }),
        ResponseBody::Stream => json!({
            "application/x-ndjson": { "schema": { "type": "string", "description": STREAM } },
            "text/event-stream": { "schema": { "type": "string", "description": EVENTS } },
            "application/json": { "schema": of::<Reply>(generator) },
        }),
    };
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": {
            "200": { "description": "Success; `success` tells whether the code completed.", "content": content },
            "default": {
                "description": "Error.",
                "content": { "application/json": { "schema": envelope } },
            },
        },
    });
    let parameters = parameters(operation);
    if !parameters.is_empty() {
        described["parameters"] = Value::Array(parameters);
    }
    if let Some((schema, example)) = operation.body {
        let example: Value = serde_json::from_str(example).unwrap_or_default();
        let is_required = operation.tag != "sessions";
        described["requestBody"] = json!({
            "required": is_required,
            "content": { "application/json": { "schema": schema(generator), "example": example } },
        });
    }
    describe_bytes(operation, &mut described);
    described
}

/// Binary and form bodies, and 201 replies.
fn describe_bytes(operation: &Operation, described: &mut Value) {
    let bytes = json!({ "type": "string", "format": "binary" });
    match operation.id {
        "write_file" | "continue_upload" => {
            let content = json!({ "application/octet-stream": { "schema": bytes } });
            described["requestBody"] = json!({ "required": true, "content": content });
        }
        "upload_file" | "upload_file_api" => {
            let text = json!({ "type": "string" });
            let properties = json!({ "file": bytes, "session_id": text, "filename": text });
            let form = json!({ "type": "object", "properties": properties, "required": ["file"] });
            described["requestBody"]["content"]["multipart/form-data"] = json!({ "schema": form });
        }
        _ => {}
    }
    let made = ["write_file", "upload_file", "upload_file_api", "fetch_file_api", "begin_upload"];
    if made.contains(&operation.id) {
        described["responses"]["201"] = described["responses"]["200"].clone();
        described["responses"]["201"]["description"] = "Created.".into();
    }
}

const STREAM: &str = "One JSON object a line: {\"text\": …}, {\"image\": base64, \"format\": \"png\"}, \
                      {\"error\": …, \"traceback\": [lines]}; with events=full also {\"note\": …}, \
                      {\"heartbeat\": seconds} and {\"done\": reply}.";
const EVENTS: &str =
    "The same objects as events, each named by its first key; `done` is always sent.";

/// Parameters of the path by its braces, of the query by the operation.
fn parameters(operation: &Operation) -> Vec<Value> {
    let names = operation.path.split('{').skip(1).filter_map(|part| part.split('}').next());
    let names = names.map(|name| name.trim_start_matches('*'));
    let mut parameters: Vec<Value> = names
        .map(|name| {
            let kind = if name == "number" { "integer" } else { "string" };
            let schema = json!({ "type": kind });
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    let mut add = |place: &str, name: &str, schema: Value, description: &str| {
        let is_required = place == "header";
        parameters.push(json!({
            "name": name, "in": place, "required": is_required, "schema": schema,
            "description": description,
        }));
    };
    let mut query = |name: &str, schema: Value, description: &str| {
        add("query", name, schema, description);
    };
    match operation.id {
        "execute" => {
            query("events", json!({ "enum": ["full"] }), "Adds notes, heartbeats and the reply");
        }
        "list_files" | "read_file" => {
            query(
                "archive",
                json!({ "enum": ["zip"] }),
                "All files, or those of a folder, as a zip",
            );
        }
        "list_files_api" | "upload_file_api" => {
            query("session_id", json!({ "type": "string" }), "Session; default: `default`");
        }
        "continue_upload" => {
            let count = json!({ "type": "integer", "minimum": 0 });
            add("header", "Upload-Offset", count, "Offset of this part");
        }
        "audit" | "list_executions" => {
            let count = || json!({ "type": "integer", "minimum": 1 });
            let text = || json!({ "type": "string" });
            query("session_id", text(), "Filter by session");
            query("limit", count(), "Maximum number of rows; default: 100");
            query("before", text(), "Continue after the last row of an earlier reply");
            if operation.id == "audit" {
                query("action", text(), "Filter by action");
                query("owner", text(), "Filter by caller; for administrators");
                query("since", text(), "Start of the time range");
                query("until", text(), "End of the time range, exclusive");
            }
        }
        "read_output" => {
            let streams = json!({ "enum": ["stdout", "stderr", "traceback", "result", "late"] });
            query("stream", streams, "Text to read; default: stdout");
            let count = || json!({ "type": "integer", "minimum": 0 });
            query("offset", count(), "First character");
            query("limit", count(), "Maximum number of characters; default: 150000");
        }
        _ => {}
    }
    parameters
}
