//! The statuses of each operation: those of success by the operation, those of errors by its parts
//! (a path, a body) and by what it does.

use std::collections::BTreeSet;

use super::is_public;
use crate::http::layers::is_probe;
use crate::http::table::{Operation, ResponseBody};

/// Statuses of success.
pub(super) fn successes(operation: &Operation) -> Vec<u16> {
    match operation.id {
        "run" | "create_key" | "upload_file" | "upload_file_api" | "fetch_file"
        | "fetch_file_api" | "begin_upload" | "create_schedule" => vec![201],
        "submit_job" => vec![202],
        "get_job_result" | "get_job_result_api" => vec![200, 202],
        "write_file" | "put_session" | "load_dataset" => vec![200, 201],
        "delete_upload" | "delete_file" | "revoke_key" | "delete_schedule" => vec![204],
        "read_file" | "download" | "download_by_id" | "chart" => vec![200, 206, 304],
        _ => vec![200],
    }
}

/// Whether a 201 of this operation has the header `Location`.
pub(super) fn has_location(operation: &Operation) -> bool {
    matches!(operation.id, "run" | "create_key" | "put_session")
}

pub(super) fn is_health(operation: &Operation) -> bool {
    is_probe(operation.path) || operation.id == "health_v1"
}

/// Statuses of errors.
pub(super) fn errors(operation: &Operation) -> BTreeSet<u16> {
    // A malformed `Host` or query, a host or an origin that is not allowed, a fault, a shutdown.
    let mut statuses = BTreeSet::from([400, 403, 500, 503]);
    if !is_public(operation.path) {
        statuses.extend([401, 429]);
    }
    if operation.path.contains('{') {
        statuses.insert(404);
    }
    let takes_bytes = matches!(operation.id, "write_file" | "continue_upload");
    if operation.body.is_some() || takes_bytes {
        statuses.extend([408, 413]);
    }
    statuses.extend(by_kind(operation));
    statuses.extend(by_id(operation.id));
    statuses
}

/// Statuses of routes that run code or write files, by their bodies and replies.
fn by_kind(operation: &Operation) -> &'static [u16] {
    match (operation.tag, operation.method, &operation.response) {
        (_, _, ResponseBody::Stream) => &[404, 406, 409, 422, 507],
        ("code" | "jobs", "post", _) | ("files", "post" | "put" | "patch", _) => {
            &[404, 409, 422, 507]
        }
        ("sessions", "post" | "put" | "patch", _) => &[404, 409, 507],
        ("datasets", "post", _) => &[404, 409, 504, 507],
        ("packages", "post" | "delete", _) => &[404, 409, 413, 429, 502, 504, 507],
        _ => &[],
    }
}

fn by_id(id: &str) -> &'static [u16] {
    match id {
        "read_file" => &[409, 413, 416],
        "list_files" => &[413],
        "delete_file" | "delete_file_api" | "create_key" | "revoke_key" => &[409],
        "chart" => &[410, 416],
        "download" | "download_by_id" => &[401, 410, 416, 429],
        "fetch_file" | "fetch_file_api" => &[502],
        "list_files_api" => &[404],
        "describe_dataset" => &[413, 504],
        _ => &[],
    }
}

pub(super) fn meaning(status: u16) -> &'static str {
    match status {
        200 => "Success; of an execution, `success` tells whether the code completed.",
        201 => "Created; of an execution, `success` tells whether the code completed.",
        202 => "Accepted: the job has not ended; `status` tells how far it is.",
        204 => "Done; there is no body.",
        206 => "The requested range.",
        304 => "Not modified: the client has this content.",
        400 => "The request is invalid; the message says why.",
        401 => "No key, or no valid one.",
        403 => {
            "The key lacks a scope, or the host, the page's origin or the address is not allowed."
        }
        404 => "It does not exist, or belongs to another key.",
        406 => "No format in `Accept` is available.",
        408 => "The body was not complete in time, or the client gave up.",
        409 => "It conflicts with what is there.",
        410 => "The address has expired.",
        413 => "A limit of size is exceeded.",
        416 => "The range begins after the end of the file.",
        422 => "The Idempotency-Key was used with another request.",
        429 => "Too many requests, or a quota is reached.",
        500 => "A fault of the server; its log has the details.",
        502 => "The server of the requested address failed.",
        503 => "Busy, shutting down, or a part of the server is unavailable.",
        504 => "The time limit was reached.",
        507 => "The server's disk is full, or below its reserve.",
        _ => "See the message.",
    }
}
