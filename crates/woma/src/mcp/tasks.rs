//! MCP tasks: a view of jobs. A call that takes long goes on as a job, and its client fetches the
//! result later, also from another server or after a restart.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus,
};
use woma_core::Caller;
use woma_core::store::JobState;

use super::Mcp;
use super::tools::jobs;
use crate::api::error::Envelope;

/// Interval at which a client is asked to look.
const POLL_MS: u64 = 1_000;

/// The reply to a call that has become a task.
pub(super) fn created(mcp: &Mcp, job: &str) -> CreateTaskResult {
    let now = jiff::Timestamp::now().to_string();
    CreateTaskResult::new(task(mcp, job, now.clone(), now))
}

pub(super) async fn get(mcp: &Mcp, caller: &Caller, id: &str) -> Result<GetTaskResult, ErrorData> {
    let result = mcp.state.service.job_result(caller, id).await.map_err(|_| unknown())?;
    let info = &result.info;
    let started = info.submitted_at.to_string();
    let updated = info.ended_at.map_or_else(|| started.clone(), |ended| ended.to_string());
    let task = task(mcp, &info.id, started, updated);
    let payload = match result.info.state {
        JobState::Pending | JobState::Running => TaskPayload::Working,
        JobState::Cancelled => TaskPayload::Cancelled,
        JobState::Completed | JobState::Failed | JobState::Timeout => {
            let has_run = result.execution.is_some();
            let error = result.info.error.clone();
            match jobs::finished(mcp, caller, result, Vec::new()).await {
                Ok(result) if has_run => completed(&result),
                Ok(_) | Err(_) => {
                    let error = error.map(|error| error.message);
                    failed(&error.unwrap_or_else(|| "the run has no result".to_owned()))
                }
            }
        }
    };
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// Fails for a task that does not exist.
pub(super) async fn check(mcp: &Mcp, caller: &Caller, id: &str) -> Result<(), ErrorData> {
    mcp.state.service.job(caller, id).await.map(drop).map_err(|_| unknown())
}

pub(super) async fn cancel(mcp: &Mcp, caller: &Caller, id: &str) -> Result<(), ErrorData> {
    match mcp.state.service.cancel_job(caller, id).await {
        Ok(_) => Ok(()),
        Err(woma_core::Error::NoJob(_)) => Err(unknown()),
        Err(error) => Err(ErrorData::internal_error(Envelope::from(error).message, None)),
    }
}

fn task(mcp: &Mcp, id: &str, started: String, updated: String) -> Task {
    let ttl = mcp.state.service.settings().jobs.retention;
    Task::new(id.to_owned(), TaskStatus::Working, started, updated)
        .with_ttl_ms(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
        .with_poll_interval_ms(POLL_MS)
}

fn completed(result: &CallToolResult) -> TaskPayload {
    match serde_json::to_value(result) {
        Ok(serde_json::Value::Object(result)) => TaskPayload::Completed { result },
        _ => failed("cannot encode the result"),
    }
}

fn failed(message: &str) -> TaskPayload {
    let code = rmcp::model::ErrorCode::INTERNAL_ERROR.0;
    let mut error = rmcp::model::JsonObject::new();
    error.insert("code".to_owned(), code.into());
    error.insert("message".to_owned(), message.into());
    TaskPayload::Failed { error }
}

fn unknown() -> ErrorData {
    ErrorData::invalid_params("the task does not exist or has expired", None)
}
