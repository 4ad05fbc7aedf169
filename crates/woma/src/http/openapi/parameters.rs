//! Parameters of each operation: of the path by its braces, of the query and headers by the
//! operation.

use serde_json::{Value, json};

use crate::api::schema;
use crate::http::idempotency;
use crate::http::table::Operation;

/// Largest page of a listing.
const ROWS_MAX: u32 = 1_000;

pub(super) fn of(operation: &Operation) -> Vec<Value> {
    let names = operation.path.split('{').skip(1).filter_map(|part| part.split('}').next());
    let names = names.map(|name| name.trim_start_matches('*'));
    let mut parameters: Vec<Value> = names
        .map(
            |name| json!({ "name": name, "in": "path", "required": true, "schema": in_path(name) }),
        )
        .collect();
    parameters.extend(by_id(operation.id));
    if idempotency::applies(operation.id) {
        let text = "Makes a repetition safe: the same key and body get the first reply again";
        let key = json!({
            "type": "string", "minLength": 1, "maxLength": idempotency::KEY_BYTES_MAX,
            "pattern": "^[!-~]+$",
        });
        parameters.push(parameter("header", "Idempotency-Key", &key, text));
    }
    parameters
}

/// Names of the query's parameters: a request with another one is refused.
pub(in crate::http) fn query_names(operation: &Operation) -> Vec<String> {
    let own = by_id(operation.id).into_iter().filter(|parameter| parameter["in"] == "query");
    own.filter_map(|parameter| parameter["name"].as_str().map(str::to_owned)).collect()
}

fn in_path(name: &str) -> Value {
    match name {
        "session_id" => schema::session_id(),
        "number" => json!({ "type": "integer", "minimum": 1, "maximum": 1_000_000 }),
        "upload_id" | "file_id" | "execution_id" => json!({ "type": "string", "format": "uuid" }),
        "key_id" => json!({ "type": "string", "pattern": "^[0-9a-f]{12}$" }),
        _ => json!({ "type": "string", "minLength": 1, "maxLength": 4096 }),
    }
}

fn parameter(place: &str, name: &str, schema: &Value, description: &str) -> Value {
    json!({
        "name": name, "in": place, "required": false, "schema": schema,
        "description": description,
    })
}

fn query(name: &str, schema: &Value, description: &str) -> Value {
    parameter("query", name, schema, description)
}

fn by_id(id: &str) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let session = schema::session_id();
    match id {
        "execute" => {
            let full = json!({ "type": "string", "enum": ["full"] });
            vec![query("events", &full, "Adds notes, heartbeats, html, plotly and the reply")]
        }
        "execute_quick" => vec![query("code", &text, "Python code, if it is not in the body")],
        "list_files" => {
            let zip = json!({ "type": "string", "enum": ["zip"] });
            let mut listed = vec![query("archive", &zip, "All files as a zip")];
            listed.extend(page("path"));
            listed
        }
        "read_file" => {
            let zip = json!({ "type": "string", "enum": ["zip"] });
            vec![query("archive", &zip, "The files of a folder as a zip")]
        }
        "list_files_api" | "upload_file_api" => {
            vec![query("session_id", &session, "Session; default: `default`")]
        }
        "continue_upload" => {
            let count = json!({ "type": "integer", "minimum": 0, "maximum": schema::COUNT_MAX });
            let mut offset = parameter("header", "Upload-Offset", &count, "Offset of this part");
            offset["required"] = true.into();
            vec![offset]
        }
        "list_sessions" => {
            let mut listed = page("id");
            let flag = json!({ "type": "boolean" });
            listed.extend([
                query("label", &text, "Those with this label: `name`, or `name=value`"),
                query("active", &flag, "true: those whose variables are in memory"),
            ]);
            listed
        }
        "list_keys" => page("id"),
        "list_datasets" | "list_datasets_api" => page("name"),
        "list_schedules" => page_of("time of their making, the latest first", "50"),
        "list_jobs" | "list_jobs_api" => jobs(),
        "get_job" | "get_job_api" | "get_job_result" | "get_job_result_api" => vec![wait()],
        "get_job_output" => [job_output(), vec![wait()]].concat(),
        "stream_job" => job_output().into_iter().take(1).collect(),
        "audit" | "list_executions" => records(id),
        "read_output" => output(),
        _ => Vec::new(),
    }
}

/// `limit` and `cursor` of a listing in the order of `what`.
fn page(what: &str) -> Vec<Value> {
    page_of(what, "all")
}

/// The same, of a listing that returns `default` rows if the request names no number.
fn page_of(what: &str, default: &str) -> Vec<Value> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": ROWS_MAX });
    let about = format!("Maximum number; the order is that of the {what}. Default: {default}");
    vec![
        query("limit", &limit, &about),
        query("cursor", &json!({ "type": "string" }), "The `next` of the page before"),
        before(&json!({ "type": "string" })),
    ]
}

/// The earlier name of `cursor`.
fn before(schema: &Value) -> Value {
    let mut parameter = query("before", schema, "The same as `cursor`");
    parameter["deprecated"] = true.into();
    parameter
}

fn records(id: &str) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": ROWS_MAX });
    let cursor = match id {
        "audit" => json!({ "type": "integer", "minimum": 0, "maximum": schema::COUNT_MAX }),
        _ => json!({ "type": "string" }),
    };
    let mut parameters = vec![
        query("session_id", &schema::session_id(), "Filter by session"),
        query("limit", &limit, "Maximum number of rows; default: 100"),
        query("cursor", &cursor, "The `next` of the page before"),
        before(&cursor),
    ];
    if id == "audit" {
        let time = json!({ "type": "string", "format": "date-time" });
        parameters.extend([
            query("action", &text, "Filter by action"),
            query("owner", &text, "Filter by caller; for administrators"),
            query("since", &time, "Start of the time range"),
            query("until", &time, "End of the time range, exclusive"),
        ]);
    }
    parameters
}

/// The filters of a listing of jobs, and its pages.
fn jobs() -> Vec<Value> {
    let states = ["pending", "running", "completed", "failed", "cancelled", "timeout"];
    let state = json!({ "type": "string", "enum": states });
    let mut older = query("state", &state, "The same as `status`");
    older["deprecated"] = true.into();
    let mut parameters = page_of("time of their submission, the latest first", "50");
    parameters.extend([
        query("status", &state, "Filter by status"),
        older,
        query("session_id", &schema::session_id(), "Filter by session"),
    ]);
    parameters
}

fn wait() -> Value {
    let seconds = json!({ "type": "number", "minimum": 0 });
    query("wait", &seconds, "Seconds to wait for a change or the end, 60 at most; default: 0")
}

fn job_output() -> Vec<Value> {
    let count = json!({ "type": "integer", "minimum": 0, "maximum": schema::COUNT_MAX });
    vec![
        query("offset", &count, "First character"),
        query("limit", &count, "Maximum number of characters"),
    ]
}

fn output() -> Vec<Value> {
    let streams =
        json!({ "type": "string", "enum": ["stdout", "stderr", "traceback", "result", "late"] });
    let count = json!({ "type": "integer", "minimum": 0, "maximum": schema::COUNT_MAX });
    vec![
        query("stream", &streams, "Text to read; default: stdout"),
        query("offset", &count, "First character"),
        query("limit", &count, "Maximum number of characters; default and most: 150000"),
    ]
}
