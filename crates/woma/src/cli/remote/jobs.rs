//! `woma jobs` on a server elsewhere.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::client::encoded;
use super::{Client, failed, json_lines, line, text};
use crate::terminal::{Waiting, print, tell};

const JOBS: &str = "/api/v1/jobs";
/// Longest wait of one request, in seconds.
const WAIT_SECONDS: u32 = 30;

/// Exit status of a job that did not complete.
const UNSUCCESSFUL: u8 = 1;

#[derive(Debug)]
pub(crate) enum Request<'a> {
    List {
        status: Option<&'a str>,
        session: Option<&'a str>,
        limit: usize,
    },
    Show {
        id: &'a str,
    },
    Cancel {
        id: &'a str,
    },
    /// The output, or with JSON the reply to the run, of a job that has ended.
    Result {
        id: &'a str,
    },
    Wait {
        id: &'a str,
    },
    Submit {
        wanted: Map<String, Value>,
        wait: bool,
    },
}

/// Runs the request; waiting ends with 1 if the job did not complete.
pub(crate) fn main(client: &Client, request: &Request<'_>, is_json: bool) -> ExitCode {
    match act(client, request, is_json) {
        Ok((text, is_success)) => {
            print(&text);
            if is_success { ExitCode::SUCCESS } else { ExitCode::from(UNSUCCESSFUL) }
        }
        Err(error) => failed(&*error),
    }
}

/// Text for standard output, and whether it is a success.
fn act(
    client: &Client,
    request: &Request<'_>,
    is_json: bool,
) -> Result<(String, bool), Box<dyn Error>> {
    let of = |id: &str| format!("{JOBS}/{}", encoded(id));
    let told = |job: Value| (shown(&[job], is_json), true);
    Ok(match request {
        Request::List { status, session, limit } => {
            let filters = [("status", status), ("session_id", session)];
            let filters: Vec<_> = filters
                .iter()
                .filter_map(|(name, value)| value.map(|value| format!("{name}={}", encoded(value))))
                .collect();
            let jobs = client.rows(&format!("{JOBS}?{}", filters.join("&")), "jobs", *limit)?;
            (shown(&jobs, is_json), true)
        }
        Request::Show { id } => told(client.get(&of(id))?),
        Request::Cancel { id } => told(client.post(&format!("{}/cancel", of(id)), &json!({}))?),
        Request::Result { id } => (result(client, id, is_json)?, true),
        Request::Wait { id } => waited(client, id, is_json)?,
        Request::Submit { wanted, wait } => {
            let job = client.post(JOBS, &Value::Object(wanted.clone()))?;
            let id = text(&job, "job_id").to_owned();
            let secret = job["webhook_secret"].as_str().map(str::to_owned);
            match wait {
                true => {
                    if let Some(secret) = secret {
                        tell(&format!("secret of the webhook: {secret}"));
                    }
                    waited(client, &id, is_json)?
                }
                false => {
                    let secret = secret.filter(|_| !is_json).map(|secret| secret + "\n");
                    (shown(&[job], is_json) + &secret.unwrap_or_default(), true)
                }
            }
        }
    })
}

/// Waits for the end of a job; then its output, or with JSON the reply to its run.
fn waited(client: &Client, id: &str, is_json: bool) -> Result<(String, bool), Box<dyn Error>> {
    let state = Arc::new(Mutex::new(format!("job {id}")));
    let told = Arc::clone(&state);
    let waiting =
        Waiting::start(move || told.lock().unwrap_or_else(PoisonError::into_inner).clone());
    let path = format!("{JOBS}/{}?wait={WAIT_SECONDS}", encoded(id));
    let job = loop {
        let job = client.get(&path)?;
        if !matches!(text(&job, "status"), "pending" | "running") {
            break job;
        }
        let message = job["progress"]["message"].as_str().unwrap_or_default();
        *state.lock().unwrap_or_else(PoisonError::into_inner) =
            format!("job {id} is {}: {message}", text(&job, "status"));
    };
    drop(waiting);
    let is_success = text(&job, "status") == "completed";
    if !is_success {
        let reason = job["error"]["message"].as_str().unwrap_or_default();
        tell(line(&[&format!("job {id}: {}", text(&job, "status")), reason]).trim_end());
    }
    Ok((result(client, id, is_json)?, is_success))
}

fn result(client: &Client, id: &str, is_json: bool) -> Result<String, Box<dyn Error>> {
    let of = format!("{JOBS}/{}", encoded(id));
    if is_json {
        let (status, reply) = client.exchange("GET", &format!("{of}/result"), ())?;
        return match status {
            202 => {
                Err(format!("job {id} has not ended: `woma jobs wait {id}` waits for it").into())
            }
            _ => Ok(json_lines(&[reply])),
        };
    }
    let mut output = String::new();
    let mut offset = 0;
    loop {
        let part = client.get(&format!("{of}/output?offset={offset}"))?;
        if part["skipped"].as_u64().is_some_and(|skipped| skipped > 0) {
            output.push_str("\n[…]\n");
        }
        output.push_str(part["text"].as_str().unwrap_or_default());
        let next = part["next_offset"].as_u64().unwrap_or(offset);
        let is_over = next >= part["total_chars"].as_u64().unwrap_or_default();
        if is_over || next <= offset {
            return Ok(output);
        }
        offset = next;
    }
}

fn shown(jobs: &[Value], is_json: bool) -> String {
    if is_json {
        return json_lines(jobs);
    }
    let row = |job: &Value| {
        let error = job["error"]["message"].as_str().unwrap_or_default();
        let columns =
            ["job_id", "status", "submitted_at", "session_id"].map(|name| text(job, name));
        line(&[&columns[..], &[error]].concat())
    };
    jobs.iter().map(row).collect()
}
