//! The table of REST routes. The router and the OpenAPI document are both made from it.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::idempotency::{self, Idempotency};
use super::job_routes;
use super::layers::{HEALTH_PATH, LIVE_PATH, READY_PATH};
use super::package_routes;
use super::query::{self, Known};
use super::routes::sync::SyncReply;
use super::routes::{
    datasets, docs, downloads, execute, files, health, history, home, keys, metrics, outputs,
    sessions, sync, validate,
};
use crate::api::datasets::{
    DatasetBody, DatasetDropped, DatasetList, DescriptionReply, LoadBody, LoadReply, QueryBody,
    QueryReply,
};
use crate::api::files::{
    BeginBody, FetchBody, FileDeleted, FileReply, Files, UploadBody, UploadReply,
};
use crate::api::history::{AuditTrail, CheckpointReply, ExecutionBody, Executions};
use crate::api::new_session::{CreatedSession, SessionBody};
use crate::api::reply::{Reply, Revived};
use crate::api::request::ExecuteBody;
use crate::api::sessions::Session;
use crate::api::state::AppState;
use crate::api::validation::{ValidateBody, Validation};

/// Prefix of the versioned routes, and the prefix under which an older system served them too.
const API: &str = "/api/v1/";
const OLDER_API: &str = "/ai/sandbox/v1/api/";

/// One method of one path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    handler: fn() -> MethodRouter<AppState>,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) body: Option<Body>,
    pub(super) response: ResponseBody,
}

/// Schema of a body, with an example.
pub(super) type Body = (fn(&mut SchemaGenerator) -> Schema, &'static str);

pub(super) enum ResponseBody {
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A stream of events, or one reply, as `Accept` asks.
    Stream,
    /// Another media type.
    Other(&'static str),
}

pub(super) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const EXECUTE: Option<Body> =
    Some((of::<ExecuteBody>, r#"{"code": "print(6 * 7)", "session_id": "docs"}"#));
const SESSION: Option<Body> = Some((of::<SessionBody>, r#"{"name": "docs"}"#));
const LABELS: &str = r#"{"name": "Sales", "labels": {"team": "a"}, "lifetime": 86400}"#;
const UPLOAD: Option<Body> = Some((
    of::<UploadBody>,
    r#"{"filename": "data.csv", "content_base64": "YSxiCjEsMgo=", "session_id": "docs"}"#,
));
const FETCH: Option<Body> =
    Some((of::<FetchBody>, r#"{"url": "https://example.org/data.csv", "session_id": "docs"}"#));
const BEGIN: Option<Body> =
    Some((of::<BeginBody>, r#"{"path": "data.csv", "size": 8, "session_id": "docs"}"#));
const LOAD: Option<Body> =
    Some((of::<LoadBody>, r#"{"file_path": "sales.csv", "dataset_name": "sales"}"#));
const QUERY: Option<Body> =
    Some((of::<QueryBody>, r#"{"sql": "SELECT count(*) AS n FROM sales"}"#));
const ONE_DATASET: ResponseBody = ResponseBody::Json(of::<DatasetBody>);
const REPLY: ResponseBody = ResponseBody::Json(of::<Reply>);
const ONE_SESSION: ResponseBody = ResponseBody::Json(of::<Session>);

pub(super) const fn row(
    (method, path): (&'static str, &'static str),
    handler: fn() -> MethodRouter<AppState>,
    (id, tag, summary): (&'static str, &'static str, &'static str),
    body: Option<Body>,
    response: ResponseBody,
) -> Operation {
    Operation { method, path, handler, id, tag, summary, body, response }
}

/// All operations, in the order of the document.
pub(super) fn operations() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(package_routes::OPERATIONS).chain(job_routes::OPERATIONS)
}

/// Router of all REST routes.
pub(crate) fn routes(state: &AppState) -> Router {
    let repetitions = Idempotency::new(state);
    let add = |router: Router<AppState>, operation: &Operation| {
        let mut handler = (operation.handler)();
        if idempotency::applies(operation.id) {
            handler = handler.layer(from_fn_with_state(repetitions.clone(), idempotency::once));
        }
        if let Some(known) = Known::of(operation) {
            handler = handler.route_layer(from_fn_with_state(known, query::known_only));
        }
        let router = router.route(operation.path, handler.clone());
        match operation.path.strip_prefix(API) {
            Some(rest) => router.route(&format!("{OLDER_API}{rest}"), handler),
            None => router,
        }
    };
    operations().fold(Router::new(), add).with_state(state.clone())
}

const OPERATIONS: &[Operation] = &[
    row(
        ("post", "/api/v1/executions"),
        || post(execute::run),
        ("run", "code", "Run code; one reply, or a stream if `Accept` asks for one"),
        EXECUTE,
        ResponseBody::Stream,
    ),
    row(
        ("post", "/api/v1/execute"),
        || post(execute::streamed),
        ("execute", "code", "Run code; text and pictures arrive as they are produced"),
        EXECUTE,
        ResponseBody::Stream,
    ),
    row(
        ("post", "/api/v1/execute_sync"),
        || post(sync::execute),
        ("execute_sync", "code", "Run code; one reply at the end, in an envelope"),
        EXECUTE,
        ResponseBody::Json(of::<execute::Enveloped<SyncReply>>),
    ),
    row(
        ("post", "/execute"),
        || post(execute::plain),
        ("execute_plain", "code", "Run code; one reply at the end"),
        EXECUTE,
        REPLY,
    ),
    row(
        ("post", "/api/execute"),
        || post(execute::plain),
        ("execute_api", "code", "Run code; one reply at the end"),
        EXECUTE,
        REPLY,
    ),
    row(
        ("post", "/api/execute/quick"),
        || post(execute::quick),
        (
            "execute_quick",
            "code",
            "Run code, from the query or from the body; one reply at the end",
        ),
        EXECUTE,
        REPLY,
    ),
    row(
        ("post", "/api/v1/validate"),
        || post(validate::validate),
        ("validate_code", "code", "Check code without running it"),
        Some((of::<ValidateBody>, r#"{"code": "import os\nprint(os.name)"}"#)),
        ResponseBody::Json(of::<Validation>),
    ),
    row(
        ("get", "/api/v1/executions/{execution_id}/output"),
        || get(outputs::output),
        ("read_output", "code", "Read a text of an earlier execution, in parts"),
        None,
        ResponseBody::Json(of::<outputs::OutputPage>),
    ),
    row(
        ("get", "/api/v1/executions/{execution_id}/images/{number}"),
        || get(outputs::picture),
        ("read_image", "code", "Get a picture of an earlier execution, by its number from 1"),
        None,
        ResponseBody::Other("image/*"),
    ),
    row(
        ("get", "/api/v1/sessions"),
        || get(sessions::table),
        ("list_sessions", "sessions", "List your sessions, by their ids"),
        None,
        ResponseBody::Json(of::<sessions::SessionTable>),
    ),
    row(
        ("post", "/api/v1/sessions"),
        || post(sessions::create_enveloped),
        ("create_session", "sessions", "Create a session; the reply is in an envelope"),
        SESSION,
        ResponseBody::Json(of::<execute::Enveloped<CreatedSession>>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}"),
        || get(sessions::show),
        ("get_session", "sessions", "Get a session"),
        None,
        ONE_SESSION,
    ),
    row(
        ("put", "/api/v1/sessions/{session_id}"),
        || put(sessions::put),
        ("put_session", "sessions", "Create a session, or replace its name, labels and lifetime"),
        Some((of::<sessions::SessionPutBody>, LABELS)),
        ONE_SESSION,
    ),
    row(
        ("patch", "/api/v1/sessions/{session_id}"),
        || patch(sessions::patch),
        ("change_session", "sessions", "Change the name, the labels or the lifetime of a session"),
        Some((of::<sessions::SessionChangeBody>, LABELS)),
        ONE_SESSION,
    ),
    row(
        ("delete", "/api/v1/sessions/{session_id}"),
        || delete(sessions::delete),
        ("delete_session", "sessions", "Delete a session; running code is interrupted"),
        None,
        ResponseBody::Json(of::<sessions::Deleted>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/interrupt"),
        || post(sessions::interrupt),
        ("interrupt_session", "sessions", "Interrupt the running code; variables are kept"),
        None,
        ResponseBody::Json(of::<sessions::Interruption>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/reset"),
        || post(sessions::reset),
        ("reset_session", "sessions", "Clear the variables and files of a session; its id stays"),
        None,
        ONE_SESSION,
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/checkpoint"),
        || post(history::checkpoint),
        ("checkpoint_session", "sessions", "Save a session's variables now"),
        None,
        ResponseBody::Json(of::<CheckpointReply>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/restore"),
        || post(history::restore),
        (
            "restore_session",
            "sessions",
            "Restore the last checkpoint; on failure (409) the session is unchanged",
        ),
        None,
        ResponseBody::Json(of::<Revived>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/notebook"),
        || get(history::notebook),
        (
            "export_session",
            "sessions",
            "Export a session as a Jupyter notebook; X-Notebook-… headers count omissions",
        ),
        None,
        ResponseBody::Other("application/x-ipynb+json"),
    ),
    row(
        ("get", "/api/v1/executions"),
        || get(history::executions),
        ("list_executions", "code", "List your executions, the latest first"),
        None,
        ResponseBody::Json(of::<Executions>),
    ),
    row(
        ("get", "/api/v1/executions/{execution_id}"),
        || get(history::execution),
        ("get_execution", "code", "Get the record of an execution that has ended"),
        None,
        ResponseBody::Json(of::<ExecutionBody>),
    ),
    row(
        ("get", "/api/v1/keys"),
        || get(keys::list),
        ("list_keys", "keys", "List all keys, including revoked ones"),
        None,
        ResponseBody::Json(of::<keys::Keys>),
    ),
    row(
        ("post", "/api/v1/keys"),
        || post(keys::create),
        ("create_key", "keys", "Create a key; its secret is shown once"),
        Some((of::<keys::KeyRequest>, r#"{"name": "laptop", "scopes": ["execute", "read"]}"#)),
        ResponseBody::Json(of::<keys::CreatedKey>),
    ),
    row(
        ("get", "/api/v1/keys/{key_id}"),
        || get(keys::show),
        ("get_key", "keys", "Get a key, without its secret"),
        None,
        ResponseBody::Json(of::<keys::KeyBody>),
    ),
    row(
        ("delete", "/api/v1/keys/{key_id}"),
        || delete(keys::revoke),
        ("revoke_key", "keys", "Revoke a key; requests with it are refused from then on"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("get", "/api/v1/audit"),
        || get(history::audit),
        ("audit", "server", "Read the audit trail: your part of it, or all of it as administrator"),
        None,
        ResponseBody::Json(of::<AuditTrail>),
    ),
    row(
        ("get", "/api/sessions"),
        || get(sessions::list),
        ("list_sessions_api", "sessions", "List your sessions"),
        None,
        ResponseBody::Json(of::<Vec<Session>>),
    ),
    row(
        ("post", "/api/sessions"),
        || post(sessions::create),
        ("create_session_api", "sessions", "Create a session"),
        SESSION,
        ResponseBody::Json(of::<CreatedSession>),
    ),
    row(
        ("get", "/api/sessions/{session_id}"),
        || get(sessions::show),
        ("get_session_api", "sessions", "Get a session"),
        None,
        ONE_SESSION,
    ),
    row(
        ("delete", "/api/sessions/{session_id}"),
        || delete(sessions::delete),
        ("delete_session_api", "sessions", "Delete a session; running code is interrupted"),
        None,
        ResponseBody::Json(of::<sessions::Deleted>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/files"),
        || get(files::list),
        ("list_files", "files", "List the files of a session, or fetch all of them as a zip"),
        None,
        ResponseBody::Json(of::<Files>),
    ),
    row(
        ("post", "/api/v1/sessions/{session_id}/files"),
        || post(files::upload).layer(DefaultBodyLimit::disable()),
        ("upload_file", "files", "Put files into a session, as a form or as JSON"),
        UPLOAD,
        ResponseBody::Json(of::<FileReply>),
    ),
    row(
        ("get", "/api/v1/sessions/{session_id}/files/{*path}"),
        || get(files::read),
        ("read_file", "files", "Fetch a file, a part of it, or a folder as a zip"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("put", "/api/v1/sessions/{session_id}/files/{*path}"),
        || put(files::write),
        ("write_file", "files", "Put a file into a session; the body is its content"),
        None,
        ResponseBody::Json(of::<FileReply>),
    ),
    row(
        ("delete", "/api/v1/sessions/{session_id}/files/{*path}"),
        || delete(files::delete),
        ("delete_file", "files", "Delete a file"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("post", "/api/v1/fetches"),
        || post(files::fetch),
        ("fetch_file", "files", "Download a file from a public address into a session"),
        FETCH,
        ResponseBody::Json(of::<FileReply>),
    ),
    row(
        ("post", "/api/v1/uploads"),
        || post(files::begin_upload),
        ("begin_upload", "files", "Begin an upload in parts"),
        BEGIN,
        ResponseBody::Json(of::<UploadReply>),
    ),
    row(
        ("get", "/api/v1/uploads/{upload_id}"),
        || get(files::show_upload),
        ("get_upload", "files", "Get the state of an upload"),
        None,
        ResponseBody::Json(of::<UploadReply>),
    ),
    row(
        ("patch", "/api/v1/uploads/{upload_id}"),
        || patch(files::continue_upload),
        ("continue_upload", "files", "Add a part; the last part completes the file"),
        None,
        ResponseBody::Json(of::<UploadReply>),
    ),
    row(
        ("delete", "/api/v1/uploads/{upload_id}"),
        || delete(files::cancel_upload),
        ("delete_upload", "files", "Cancel an upload"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("get", "/api/files"),
        || get(files::list_legacy),
        ("list_files_api", "files", "List the files of a session"),
        None,
        ResponseBody::Json(of::<Files>),
    ),
    row(
        ("post", "/api/files/upload"),
        || post(files::upload_legacy).layer(DefaultBodyLimit::disable()),
        ("upload_file_api", "files", "Put files into a session, as a form or as JSON"),
        UPLOAD,
        ResponseBody::Json(of::<FileReply>),
    ),
    row(
        ("post", "/api/files/fetch"),
        || post(files::fetch),
        ("fetch_file_api", "files", "Download a file from a public address into a session"),
        FETCH,
        ResponseBody::Json(of::<FileReply>),
    ),
    row(
        ("delete", "/api/files/{session_id}/{*path}"),
        || delete(files::delete_legacy),
        ("delete_file_api", "files", "Delete a file"),
        None,
        ResponseBody::Json(of::<FileDeleted>),
    ),
    row(
        ("get", "/api/v1/datasets"),
        || get(datasets::list),
        ("list_datasets", "datasets", "List your datasets, by name"),
        None,
        ResponseBody::Json(of::<DatasetList>),
    ),
    row(
        ("post", "/api/v1/datasets"),
        || post(datasets::create),
        ("load_dataset", "datasets", "Load a file of a session as a dataset"),
        LOAD,
        ResponseBody::Json(of::<LoadReply>),
    ),
    row(
        ("get", "/api/v1/datasets/{name}"),
        || get(datasets::show),
        ("get_dataset", "datasets", "Get a dataset: its columns, size and origin"),
        None,
        ONE_DATASET,
    ),
    row(
        ("get", "/api/v1/datasets/{name}/description"),
        || get(datasets::describe),
        ("describe_dataset", "datasets", "Get statistics of a dataset's columns, and some rows"),
        None,
        ResponseBody::Json(of::<DescriptionReply>),
    ),
    row(
        ("delete", "/api/v1/datasets/{name}"),
        || delete(datasets::delete),
        ("drop_dataset", "datasets", "Drop a dataset"),
        None,
        ResponseBody::Json(of::<DatasetDropped>),
    ),
    row(
        ("post", "/api/v1/queries"),
        || post(datasets::query),
        ("query_datasets", "datasets", "Query your datasets with one SQL statement that reads"),
        QUERY,
        ResponseBody::Json(of::<QueryReply>),
    ),
    row(
        ("post", "/api/data/load"),
        || post(datasets::load),
        ("load_dataset_api", "datasets", "Load a file of a session as a dataset"),
        LOAD,
        ResponseBody::Json(of::<LoadReply>),
    ),
    row(
        ("post", "/api/data/load-csv"),
        || post(datasets::load),
        ("load_csv_api", "datasets", "Load a file of a session as a dataset"),
        LOAD,
        ResponseBody::Json(of::<LoadReply>),
    ),
    row(
        ("post", "/api/data/query"),
        || post(datasets::query),
        ("query_datasets_api", "datasets", "Query your datasets with one SQL statement that reads"),
        QUERY,
        ResponseBody::Json(of::<QueryReply>),
    ),
    row(
        ("get", "/api/data/datasets"),
        || get(datasets::list),
        ("list_datasets_api", "datasets", "List your datasets, by name"),
        None,
        ResponseBody::Json(of::<DatasetList>),
    ),
    row(
        ("get", "/api/data/datasets/{name}"),
        || get(datasets::show),
        ("get_dataset_api", "datasets", "Get a dataset: its columns, size and origin"),
        None,
        ONE_DATASET,
    ),
    row(
        ("delete", "/api/data/datasets/{name}"),
        || delete(datasets::delete),
        ("drop_dataset_api", "datasets", "Drop a dataset"),
        None,
        ResponseBody::Json(of::<DatasetDropped>),
    ),
    row(
        ("get", "/dl/{file_id}/{filename}"),
        || get(downloads::download),
        ("download", "files", "Fetch a file by its address, without a key"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("get", "/dl/{file_id}"),
        || get(downloads::download_by_id),
        ("download_by_id", "files", "Fetch a file by its id, without a key"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("get", "/charts/{session_id}/{filename}"),
        || get(downloads::chart),
        ("chart", "files", "Show the latest chart of that name"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("get", "/api/v1/health"),
        || get(health::health),
        ("health_v1", "server", "Health of the server; 503 if it cannot run code"),
        None,
        ResponseBody::Json(of::<health::HealthBody>),
    ),
    row(
        ("get", HEALTH_PATH),
        || get(health::public),
        ("health", "server", "Health of the server, without a key; with one, as /api/v1/health"),
        None,
        ResponseBody::Json(of::<health::PublicHealth>),
    ),
    row(
        ("get", LIVE_PATH),
        || get(health::live),
        ("live", "server", "Liveness probe: 200 while the server answers"),
        None,
        ResponseBody::Json(of::<health::ProbeBody>),
    ),
    row(
        ("get", READY_PATH),
        || get(health::ready),
        ("ready", "server", "Readiness probe: 503 while the server cannot run code"),
        None,
        ResponseBody::Json(of::<health::ProbeBody>),
    ),
    row(
        ("get", "/metrics"),
        || get(metrics::metrics),
        ("metrics", "server", "Prometheus metrics; OpenMetrics if `Accept` asks for it"),
        None,
        ResponseBody::Other("text/plain"),
    ),
    row(
        ("get", "/"),
        || get(home::home),
        ("home", "server", "Name, version and links of this server; a page for browsers"),
        None,
        ResponseBody::Json(of::<home::HomeBody>),
    ),
    row(
        ("get", "/openapi.json"),
        || get(docs::document),
        ("openapi", "documentation", "This document"),
        None,
        ResponseBody::Other("application/json"),
    ),
    row(
        ("get", "/docs"),
        || get(docs::interactive),
        ("docs", "documentation", "Interactive documentation"),
        None,
        ResponseBody::Other("text/html"),
    ),
    row(
        ("get", "/redoc"),
        || get(docs::reading),
        ("redoc", "documentation", "Reference documentation"),
        None,
        ResponseBody::Other("text/html"),
    ),
];
