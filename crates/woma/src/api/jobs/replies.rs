//! Replies about jobs and schedules.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use woma_core::store::{JobState, ScheduleRow, WebhookRow};
use woma_core::{JobInfo, OutputPart, Progress};

/// A job.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "fields of a reply")]
pub(crate) struct JobReply {
    pub(crate) job_id: String,
    /// `pending`, `running`, `completed`, `failed`, `cancelled` or `timeout`.
    pub(crate) status: &'static str,
    /// Absent for a session that ends with the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    session_id: Option<String>,
    submitted_at: String,
    /// Time before which it does not run, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    due_at: Option<String>,
    /// The schedule that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    schedule_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    completed_at: Option<String>,
    /// Since it was submitted.
    elapsed_ms: u64,
    /// Since it was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    execution_time_ms: Option<u64>,
    has_result: bool,
    has_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JobFailure")]
    error: Option<JobFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JobProgress")]
    progress: Option<JobProgress>,
    /// Characters of its output so far.
    output_chars: u64,
    /// Last lines of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) output_tail: Option<String>,
    priority: i64,
    /// How many times it was begun.
    attempts: u64,
    retries: u64,
    /// It began as a call that it outlived.
    detached: bool,
    /// Its cancellation was asked for.
    cancelling: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    execution_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WebhookReply")]
    webhook: Option<WebhookReply>,
    /// The secret that was made for the webhook; it is told once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    webhook_secret: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Delivery of a job's end.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WebhookReply {
    url: String,
    /// `waiting` (for the job's end), `pending`, `delivered` or `failed`.
    status: &'static str,
    attempts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next_attempt_at: Option<String>,
    /// Why the latest attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    delivered_at: Option<String>,
}

impl From<WebhookRow> for WebhookReply {
    fn from(row: WebhookRow) -> Self {
        Self {
            url: row.url,
            status: row.state.name(),
            attempts: row.attempts,
            next_attempt_at: row.next_at.map(|at| at.to_string()),
            error: row.error,
            delivered_at: row.delivered_at.map(|at| at.to_string()),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobProgress {
    /// From 0 to 1.
    fraction: f64,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl From<Progress> for JobProgress {
    fn from(progress: Progress) -> Self {
        Self { fraction: progress.fraction, message: progress.message }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobFailure {
    /// As that of a run; `interrupted` if the server ended while it ran.
    category: String,
    message: String,
}

/// Jobs, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobList {
    pub(crate) jobs: Vec<JobReply>,
    /// `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) next: Option<String>,
}

/// A job that repeats.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleReply {
    pub(crate) schedule_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    name: Option<String>,
    pub(crate) cron: String,
    timezone: String,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    session_id: Option<String>,
    created_at: String,
    /// When it makes its next job, unless it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) next_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    last_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    last_job_id: Option<String>,
    /// Why the latest occurrence made no job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Schedules, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleList {
    pub(crate) schedules: Vec<ScheduleReply>,
    /// `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) next: Option<String>,
}

impl From<ScheduleRow> for ScheduleReply {
    fn from(row: ScheduleRow) -> Self {
        Self {
            schedule_id: row.id,
            name: row.name,
            cron: row.cron,
            timezone: row.zone,
            paused: row.is_paused,
            session_id: row.session_id,
            created_at: row.created_at.to_string(),
            next_at: (!row.is_paused).then(|| row.next_at.to_string()),
            last_at: row.last_at.map(|at| at.to_string()),
            last_job_id: row.last_job,
            problem: row.problem,
            warnings: Vec::new(),
        }
    }
}

/// A part of a job's output; standard output and error are one text. Numbers are characters.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobOutput {
    pub(crate) job_id: String,
    pub(crate) status: &'static str,
    pub(crate) text: String,
    pub(crate) offset: u64,
    /// Offset of the next part, now or when the job has said more.
    pub(crate) next_offset: u64,
    pub(crate) total_chars: u64,
    /// Characters before this part that are not kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) skipped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl JobOutput {
    pub(crate) fn new(info: &JobInfo, part: OutputPart) -> Self {
        let OutputPart { text, offset, next_offset, total_chars, skipped } = part;
        let (job_id, status) = (info.id.clone(), info.state.name());
        Self { job_id, status, text, offset, next_offset, total_chars, skipped }
    }
}

/// Whether it waits for a time that was asked for.
fn is_later(info: &JobInfo) -> bool {
    const SECONDS_MIN: i64 = 5;
    let pause = info.due_at.duration_since(info.submitted_at).as_secs();
    info.state == JobState::Pending && pause >= SECONDS_MIN
}

impl From<JobInfo> for JobReply {
    fn from(info: JobInfo) -> Self {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let failure = |error: woma_core::JobError| JobFailure {
            category: error.category,
            message: error.message,
        };
        Self {
            due_at: is_later(&info).then(|| info.due_at.to_string()),
            job_id: info.id,
            status: info.state.name(),
            session_id: info.session,
            schedule_id: info.schedule_id,
            submitted_at: info.submitted_at.to_string(),
            started_at: info.started_at.map(|at| at.to_string()),
            completed_at: info.ended_at.map(|at| at.to_string()),
            elapsed_ms: milliseconds(info.elapsed),
            execution_time_ms: info.run_time.map(milliseconds),
            has_result: info.has_result,
            has_error: info.error.is_some(),
            error: info.error.map(failure),
            progress: info.progress.map(JobProgress::from),
            output_chars: info.output_chars,
            output_tail: None,
            priority: info.priority,
            attempts: info.attempts,
            retries: info.retries,
            detached: info.is_detached,
            cancelling: info.is_cancelling,
            execution_id: info.execution_id,
            message: None,
            webhook: info.webhook.map(WebhookReply::from),
            webhook_secret: info.webhook_secret,
            warnings: Vec::new(),
        }
    }
}

/// The reply to a job that ended without an execution: cancelled while it waited, or interrupted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UnfinishedJob {
    /// False.
    success: bool,
    job_id: String,
    /// `failed`, `cancelled` or `timeout`.
    job_status: &'static str,
    /// The same.
    outcome: &'static str,
    pub(crate) error_message: String,
    /// Its output so far, standard error included.
    pub(crate) stdout: String,
    stderr: String,
    /// Absent for a session that ends with the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    session_id: Option<String>,
}

impl UnfinishedJob {
    /// `output` is what it has printed.
    pub(super) fn new(info: JobInfo, output: String) -> Self {
        let error = info.error.map(|error| error.message);
        Self {
            success: false,
            job_id: info.id,
            job_status: info.state.name(),
            outcome: info.state.name(),
            error_message: error.unwrap_or_else(|| format!("The job was {}.", info.state.name())),
            stdout: output,
            stderr: String::new(),
            session_id: info.session,
        }
    }
}
