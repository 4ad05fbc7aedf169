//! The REST routes: one table, from which the router is built and the OpenAPI document is written, so
//! that neither can know a route that the other does not.

use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::doors::Doors;
use crate::error::Envelope;
use crate::files::{BeginBody, FetchBody, FileDeleted, FileReply, Files, UploadBody, UploadReply};
use crate::history::{AuditTrail, CheckpointReply, Executions};
use crate::http::{
    docs, downloads, execute, files, health, history, metrics, outputs, sessions, validate,
};
use crate::request::ExecuteBody;
use crate::validation::{ValidateBody, Validation};
use crate::wire::{Reply, Revived, Session};

/// One method of one path.
pub(crate) struct Operation {
    method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) handler: fn() -> MethodRouter<Doors>,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    body: Option<Body>,
    answer: Answer,
}

/// A body's schema, and one to try.
type Body = (fn(&mut SchemaGenerator) -> Schema, &'static str);

enum Answer {
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// The same as it happens, in the form that is asked for.
    Stream,
    /// Something else, by its media type.
    Other(&'static str),
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const EXECUTE: Option<Body> =
    Some((of::<ExecuteBody>, r#"{"code": "print(6 * 7)", "session_id": "docs"}"#));
const SESSION: Option<Body> = Some((of::<sessions::SessionBody>, r#"{"name": "docs"}"#));
const UPLOAD: Option<Body> = Some((
    of::<UploadBody>,
    r#"{"filename": "data.csv", "content_base64": "YSxiCjEsMgo=", "session_id": "docs"}"#,
));
const FETCH: Option<Body> =
    Some((of::<FetchBody>, r#"{"url": "https://example.org/data.csv", "session_id": "docs"}"#));
const BEGIN: Option<Body> =
    Some((of::<BeginBody>, r#"{"path": "data.csv", "size": 8, "session_id": "docs"}"#));
const REPLY: Answer = Answer::Json(of::<Reply>);
const ONE_SESSION: Answer = Answer::Json(of::<Session>);

const fn row(
    (method, path): (&'static str, &'static str),
    handler: fn() -> MethodRouter<Doors>,
    (id, tag, summary): (&'static str, &'static str, &'static str),
    body: Option<Body>,
    answer: Answer,
) -> Operation {
    Operation { method, path, handler, id, tag, summary, body, answer }
}

pub(crate) const OPERATIONS: &[Operation] = &[
    row(
        ("post", "/api/v1/execute"),
        || post(execute::streamed),
        ("execute", "code", "Run code; what it prints and draws arrives as it happens"),
        EXECUTE,
        Answer::Stream,
    ),
    row(
        ("post", "/api/v1/execute_sync"),
        || post(execute::enveloped),
        ("execute_sync", "code", "Run code; one reply at its end, in an envelope"),
        EXECUTE,
        Answer::Json(of::<execute::Enveloped<Reply>>),
    ),
    row(
        ("post", "/execute"),
        || post(execute::plain),
        ("execute_plain", "code", "Run code; one reply at its end"),
        EXECUTE,
        REPLY,
    ),
    row(
        ("post", "/api/execute"),
        || post(execute::plain),
        ("execute_api", "code", "Run code; one reply at its end"),
        EXECUTE,
        REPLY,
    ),
    row(
        ("post", "/api/execute/quick"),
        || post(execute::plain),
        ("execute_quick", "code", "Run code; one reply at its end"),
        EXECUTE,
        REPLY,
    ),
    row(
        ("post", "/api/v1/validate"),
        || post(validate::validate),
        ("validate_code", "code", "Check code without running it"),
        Some((of::<ValidateBody>, r#"{"code": "import os\nprint(os.name)"}"#)),
        Answer::Json(of::<Validation>),
    ),
    row(
        ("get", "/api/v1/executions/{execution_id}/output"),
        || get(outputs::output),
        ("read_output", "code", "Read a text of an earlier execution, in parts"),
        None,
        Answer::Json(of::<outputs::OutputPage>),
    ),
    row(
        ("get", "/api/v1/executions/{execution_id}/images/{number}"),
        || get(outputs::picture),
        ("read_image", "code", "Get a picture of an earlier execution; they count from 1"),
        None,
        Answer::Other("image/*"),
    ),
    row(
        ("get", "/api/v1/sessions"),
        || get(sessions::table),
        ("list_sessions", "sessions", "List your sessions, by their ids"),
        None,
        Answer::Json(of::<sessions::SessionTable>),
    ),
    row(
        ("post", "/api/v1/sessions"),
        || post(sessions::create_enveloped),
        ("create_session", "sessions", "Make a session, in an envelope"),
        SESSION,
        Answer::Json(of::<execute::Enveloped<Session>>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}"),
        || get(sessions::show),
        ("get_session", "sessions", "Tell about a session"),
        None,
        ONE_SESSION,
    ),
    row(
        ("delete", "/api/v1/sessions/{session_id}"),
        || delete(sessions::delete),
        ("delete_session", "sessions", "End a session; what runs in it is interrupted"),
        None,
        Answer::Json(of::<sessions::Deleted>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/interrupt"),
        || post(sessions::interrupt),
        ("interrupt_session", "sessions", "Stop what runs in a session; its variables stay"),
        None,
        Answer::Json(of::<sessions::Interruption>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/reset"),
        || post(sessions::reset),
        ("reset_session", "sessions", "Empty a session: variables and files go, its name stays"),
        None,
        ONE_SESSION,
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/checkpoint"),
        || post(history::checkpoint),
        ("checkpoint_session", "sessions", "Save a session's variables now"),
        None,
        Answer::Json(of::<CheckpointReply>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/restore"),
        || post(history::restore),
        (
            "restore_session",
            "sessions",
            "Take a session back to its last checkpoint, or leave it as it is (409)",
        ),
        None,
        Answer::Json(of::<Revived>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/notebook"),
        || get(history::notebook),
        (
            "export_session",
            "sessions",
            "Get a session as a Jupyter notebook; X-Notebook-… headers count what is left out",
        ),
        None,
        Answer::Other("application/x-ipynb+json"),
    ),
    row(
        ("get", "/api/v1/executions"),
        || get(history::executions),
        ("list_executions", "code", "List your executions, the latest first"),
        None,
        Answer::Json(of::<Executions>),
    ),
    row(
        ("get", "/api/v1/audit"),
        || get(history::audit),
        ("audit", "server", "Read the audit trail: your part of it, or all of it as administrator"),
        None,
        Answer::Json(of::<AuditTrail>),
    ),
    row(
        ("get", "/api/sessions"),
        || get(sessions::list),
        ("list_sessions_api", "sessions", "List your sessions"),
        None,
        Answer::Json(of::<Vec<Session>>),
    ),
    row(
        ("post", "/api/sessions"),
        || post(sessions::create),
        ("create_session_api", "sessions", "Make a session"),
        SESSION,
        ONE_SESSION,
    ),
    row(
        ("get", "/api/sessions/{session_id}"),
        || get(sessions::show),
        ("get_session_api", "sessions", "Tell about a session"),
        None,
        ONE_SESSION,
    ),
    row(
        ("delete", "/api/sessions/{session_id}"),
        || delete(sessions::delete),
        ("delete_session_api", "sessions", "End a session; what runs in it is interrupted"),
        None,
        Answer::Json(of::<sessions::Deleted>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/files"),
        || get(files::list),
        ("list_files", "files", "List the files of a session, or fetch all of them as a zip"),
        None,
        Answer::Json(of::<Files>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/files"),
        || post(files::upload).layer(DefaultBodyLimit::disable()),
        ("upload_file", "files", "Put files into a session, as a form or as JSON"),
        UPLOAD,
        Answer::Json(of::<FileReply>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/files/{*path}"),
        || get(files::read),
        ("read_file", "files", "Fetch a file, a part of it, or a folder as a zip"),
        None,
        Answer::Other("*/*"),
    ),
    row(
        ("put", "/api/v1/sessions/{session_id}/files/{*path}"),
        || put(files::write),
        ("write_file", "files", "Put a file into a session; the body is its content"),
        None,
        Answer::Json(of::<FileReply>),
    ),
    row(
        ("delete", "/api/v1/sessions/{session_id}/files/{*path}"),
        || delete(files::delete),
        ("delete_file", "files", "Delete a file"),
        None,
        Answer::Json(of::<FileDeleted>),
    ),
    row(
        ("post", "/api/v1/uploads"),
        || post(files::begin_upload),
        ("begin_upload", "files", "Begin an upload in parts"),
        BEGIN,
        Answer::Json(of::<UploadReply>),
    ),
    row(
        ("get", "/api/v1/uploads/{upload_id}"),
        || get(files::show_upload),
        ("get_upload", "files", "Tell where an upload stands"),
        None,
        Answer::Json(of::<UploadReply>),
    ),
    row(
        ("patch", "/api/v1/uploads/{upload_id}"),
        || patch(files::continue_upload),
        ("continue_upload", "files", "Add a part; the last one puts the file into its session"),
        None,
        Answer::Json(of::<UploadReply>),
    ),
    row(
        ("delete", "/api/v1/uploads/{upload_id}"),
        || delete(files::give_up_upload),
        ("delete_upload", "files", "Give an upload up"),
        None,
        Answer::Other("*/*"),
    ),
    row(
        ("get", "/api/files"),
        || get(files::list_older),
        ("list_files_api", "files", "List the files of a session"),
        None,
        Answer::Json(of::<Files>),
    ),
    row(
        ("post", "/api/files/upload"),
        || post(files::upload_older).layer(DefaultBodyLimit::disable()),
        ("upload_file_api", "files", "Put files into a session, as a form or as JSON"),
        UPLOAD,
        Answer::Json(of::<FileReply>),
    ),
    row(
        ("post", "/api/files/fetch"),
        || post(files::fetch),
        ("fetch_file_api", "files", "Download a file from a public address into a session"),
        FETCH,
        Answer::Json(of::<FileReply>),
    ),
    row(
        ("delete", "/api/files/{session_id}/{*path}"),
        || delete(files::delete),
        ("delete_file_api", "files", "Delete a file"),
        None,
        Answer::Json(of::<FileDeleted>),
    ),
    row(
        ("get", "/dl/{file_id}/{filename}"),
        || get(downloads::download),
        ("download", "files", "Fetch a file by its address, without a key"),
        None,
        Answer::Other("*/*"),
    ),
    row(
        ("get", "/dl/{file_id}"),
        || get(downloads::download_by_id),
        ("download_by_id", "files", "Fetch a file by its id, without a key"),
        None,
        Answer::Other("*/*"),
    ),
    row(
        ("get", "/charts/{session_id}/{filename}"),
        || get(downloads::chart),
        ("chart", "files", "Show the latest chart of that name"),
        None,
        Answer::Other("*/*"),
    ),
    row(
        ("get", "/api/v1/health"),
        || get(health::health),
        ("health_v1", "server", "How the server is; 503 when it is not well"),
        None,
        Answer::Json(of::<health::HealthBody>),
    ),
    row(
        ("get", "/health"),
        || get(health::health),
        ("health", "server", "How the server is; 503 when it is not well"),
        None,
        Answer::Json(of::<health::HealthBody>),
    ),
    row(
        ("get", "/metrics"),
        || get(metrics::metrics),
        ("metrics", "server", "Figures for Prometheus, as OpenMetrics for those who ask for it"),
        None,
        Answer::Other("text/plain"),
    ),
    row(
        ("get", "/"),
        || get(health::home),
        ("home", "server", "What this server is, and where to go on"),
        None,
        Answer::Json(of::<health::HomeBody>),
    ),
    row(
        ("get", "/openapi.json"),
        || get(docs::document),
        ("openapi", "documentation", "This document"),
        None,
        Answer::Other("application/json"),
    ),
    row(
        ("get", "/docs"),
        || get(docs::interactive),
        ("docs", "documentation", "A page to try every route on"),
        None,
        Answer::Other("text/html"),
    ),
    row(
        ("get", "/redoc"),
        || get(docs::reading),
        ("redoc", "documentation", "A page to read about every route"),
        None,
        Answer::Other("text/html"),
    ),
];

/// The document as it is served and as docs/openapi.json has it.
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
        // A path within a path is a name like any other to readers.
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
    let content = match operation.answer {
        Answer::Json(schema) => json!({ "application/json": { "schema": schema(generator) } }),
        Answer::Other(media_type) => json!({ (media_type): {} }),
        Answer::Stream => json!({
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
            "200": { "description": "Done; `success` says how code ended.", "content": content },
            "default": {
                "description": "Refused.",
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

/// Bodies that are no JSON, and answers that something is there now.
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
        described["responses"]["201"]["description"] = "It is there now.".into();
    }
}

const STREAM: &str = "One JSON object a line: {\"text\": …}, {\"image\": base64, \"format\": \"png\"}, \
                      {\"error\": …, \"traceback\": [lines]}; with events=full also {\"note\": …}, \
                      {\"heartbeat\": seconds} and {\"done\": reply}.";
const EVENTS: &str =
    "The same objects as data of events that are named by their first key, and always `done`.";

/// Those of the path by its braces, those of the query by the operation.
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
            query("archive", json!({ "enum": ["zip"] }), "All files, or those of a folder, as one");
        }
        "list_files_api" | "upload_file_api" => {
            query("session_id", json!({ "type": "string" }), "`default`, if it is left out");
        }
        "continue_upload" => {
            let count = json!({ "type": "integer", "minimum": 0 });
            add("header", "Upload-Offset", count, "Where this part begins");
        }
        "audit" | "list_executions" => {
            let count = || json!({ "type": "integer", "minimum": 1 });
            let text = || json!({ "type": "string" });
            query("session_id", text(), "Only of this session");
            query("limit", count(), "Rows at most; 100, if it is left out");
            query("before", text(), "Go on after the last row of an earlier answer");
            if operation.id == "audit" {
                query("action", text(), "Only this action");
                query("owner", text(), "Only of this caller; for administrators");
                query("since", text(), "Not before this time");
                query("until", text(), "Before this time");
            }
        }
        "read_output" => {
            let streams = json!({ "enum": ["stdout", "stderr", "traceback", "result"] });
            query("stream", streams, "Which text; stdout, if it is left out");
            let count = || json!({ "type": "integer", "minimum": 0 });
            query("offset", count(), "The first character");
            query("limit", count(), "Characters at most; 150000, if it is left out");
        }
        _ => {}
    }
    parameters
}
