//! Jobs as REST and MCP tell of them.

use std::time::Duration;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};
use woma_core::store::{JobFilter, JobState, ScheduleRow, WebhookRow};
use woma_core::{
    Caller, Code, JobInfo, JobResult, JobSubmission, NewSchedule, NewWebhook, OnTimeout,
    OutputPart, Progress,
};

use super::arguments::{Arguments, Problem};
use super::error::Envelope;
use super::listing::PageRequest;
use super::reply::Reply;
use super::request::{Call, ExecuteBody};
use super::state::AppState;

/// Jobs of a page without `limit`.
const ROWS: usize = 50;
/// Longest `wait`, in seconds.
const WAIT_MAX: f64 = 60.0;

/// Schema of a submission: the arguments of a run, and those of a job.
pub(crate) fn body_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = ExecuteBody::json_schema(generator);
    let more = json!({
        "priority": {
            "type": "integer", "minimum": -100, "maximum": 100, "default": 0,
            "description": "Order among your own jobs; higher ones run first.",
        },
        "retries": {
            "type": "integer", "minimum": 0, "maximum": 10, "default": 0,
            "description": "Times that it may begin again if the server ends while it runs.",
        },
        "webhook": {
            "type": "string", "format": "uri", "maxLength": 8192,
            "description": "Address that the end of the job is posted to, signed as Standard \
                            Webhooks are.",
        },
        "webhook_secret": {
            "type": "string", "maxLength": 256,
            "description": "Secret that signs the webhook: whsec_ and base64, or text of 16 bytes \
                            or more. If absent, one is made and returned.",
        },
        "idempotency_key": {
            "type": "string", "maxLength": 200,
            "description": "A repeated submission with the same key returns the first job.",
        },
        "run_at": {
            "type": "string", "format": "date-time",
            "description": "Not before this time; needs the scope `schedule`.",
        },
    });
    if let (Some(properties), Value::Object(more)) =
        (schema.get_mut("properties").and_then(Value::as_object_mut), more)
    {
        properties.remove("on_timeout");
        properties.extend(more);
    }
    schema
}

/// Schema of a schedule to be made: a submission, and when it repeats.
pub(crate) fn schedule_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = body_schema(generator);
    let more = json!({
        "cron": {
            "type": "string",
            "description": "Minute, hour, day of the month, month and day of the week.",
        },
        "timezone": {"type": "string", "default": "UTC", "description": "Such as Europe/Berlin."},
        "name": {"type": "string", "maxLength": 200},
    });
    if let (Some(properties), Value::Object(more)) =
        (schema.get_mut("properties").and_then(Value::as_object_mut), more)
    {
        properties.retain(|name, _| name != "run_at" && name != "idempotency_key");
        properties.extend(more);
    }
    schema.insert("required".to_owned(), json!(["code", "cron"]));
    schema
}

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

/// Queues the job that the arguments describe.
pub(crate) async fn submit(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
    header_key: Option<String>,
    inline_displays: bool,
) -> Result<JobReply, Envelope> {
    let run_at = time(arguments.text(&["run_at"])?)?;
    let (mut submission, warnings) = submission(state, arguments, inline_displays)?;
    submission.run_at = run_at;
    submission.idempotency_key = submission.idempotency_key.or(header_key);
    let (info, is_known) = state.service.submit_job(caller, submission).await?;
    let mut reply = JobReply::from(info);
    let id = &reply.job_id;
    reply.message = Some(match is_known {
        false => format!(
            "Job {id} is queued. It runs with a copy of the session's variables: files, charts, \
             output and result come back, variables do not. get_job_status tells how far it is."
        ),
        true => format!("Job {id} was queued before with this idempotency_key."),
    });
    reply.warnings = warnings;
    Ok(reply)
}

fn submission(
    state: &AppState,
    mut arguments: Arguments,
    inline_displays: bool,
) -> Result<(JobSubmission, Vec<String>), Envelope> {
    let priority = whole(arguments.number(&["priority"])?)?;
    let retries = arguments.count(&["retries"])?.unwrap_or(0);
    let idempotency_key = arguments.text(&["idempotency_key"])?;
    let secret = arguments.text(&["webhook_secret"])?;
    let url = arguments.text(&["webhook", "webhook_url"])?;
    if url.is_none() && secret.is_some() {
        let message = "`webhook_secret` signs a `webhook`, and there is none";
        return Err(Envelope::new(Code::InvalidArgument, message).with_hint("give both"));
    }
    let webhook = url.map(|url| NewWebhook { url, secret });
    let Call { mut request, warnings, .. } = Call::read(state, arguments)?;
    if request.on_timeout == OnTimeout::Detach {
        let message = "`on_timeout` is for calls that wait; a job runs apart already";
        return Err(Envelope::new(Code::InvalidArgument, message).with_hint("leave it out"));
    }
    request.inline_displays = inline_displays;
    let job = JobSubmission {
        priority,
        retries,
        idempotency_key,
        webhook,
        ..JobSubmission::new(request)
    };
    Ok((job, warnings))
}

fn time(text: Option<String>) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let (name, expected) = ("run_at", "a time such as 2026-01-31T09:00:00Z");
    let got = || format!("{:?}", text.chars().take(40).collect::<String>());
    text.parse().map(Some).map_err(|_| Problem::Wrong { name, expected, got: got() })
}

/// Makes the schedule that the arguments describe.
pub(crate) async fn schedule(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
    inline_displays: bool,
) -> Result<ScheduleReply, Envelope> {
    let cron = arguments.required(&["cron"], "minute, hour, day, month and weekday")?;
    let (zone, name) = (arguments.text(&["timezone"])?, arguments.text(&["name"])?);
    let (job, warnings) = submission(state, arguments, inline_displays)?;
    let row = state.service.create_schedule(caller, NewSchedule { job, cron, zone, name }).await?;
    Ok(ScheduleReply { warnings, ..row.into() })
}

/// A page of the caller's schedules.
pub(crate) async fn schedules(
    state: &AppState,
    caller: &Caller,
    arguments: &mut Arguments,
) -> Result<ScheduleList, Envelope> {
    let PageRequest { limit, cursor } = PageRequest::read(arguments)?;
    let page = state.service.schedules(caller, limit.unwrap_or(ROWS), cursor.as_deref()).await?;
    let schedules = page.schedules.into_iter().map(ScheduleReply::from).collect();
    Ok(ScheduleList { schedules, next: page.next })
}

fn whole(number: Option<f64>) -> Result<i64, Problem> {
    let number = number.unwrap_or(0.0);
    let (name, expected) = ("priority", "a whole number from -100 to 100");
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
    match number.fract() == 0.0 && number.abs() <= 1e9 {
        true => Ok(number as i64),
        false => Err(Problem::Wrong { name, expected, got: number.to_string() }),
    }
}

/// The longest that a request waits for the end of a job: `wait`, in seconds.
pub(crate) fn wait(arguments: &mut Arguments) -> Result<Duration, Problem> {
    let wait = arguments.number(&["wait"])?.unwrap_or(0.0);
    Ok(Duration::try_from_secs_f64(wait.clamp(0.0, WAIT_MAX)).unwrap_or_default())
}

/// A job as it is when it has ended, or after `wait`.
pub(crate) async fn status(
    state: &AppState,
    caller: &Caller,
    id: &str,
    wait: Duration,
) -> Result<JobReply, Envelope> {
    if !wait.is_zero() {
        state.service.wait_for_job(caller, id, u64::MAX, wait).await?;
    }
    let (info, tail) = state.service.job_status(caller, id).await?;
    let mut reply = JobReply::from(info);
    reply.output_tail = (!tail.is_empty()).then_some(tail);
    Ok(reply)
}

/// The result of a job, when it has ended or after `wait`.
pub(crate) async fn result(
    state: &AppState,
    caller: &Caller,
    id: &str,
    wait: Duration,
) -> Result<JobResult, Envelope> {
    if !wait.is_zero() {
        state.service.wait_for_job(caller, id, u64::MAX, wait).await?;
    }
    Ok(state.service.job_result(caller, id).await?)
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

/// Schema of the result of an ended job.
pub(crate) fn result_schema(generator: &mut SchemaGenerator) -> Schema {
    let reply = generator.subschema_for::<Reply>();
    let unfinished = generator.subschema_for::<UnfinishedJob>();
    schemars::json_schema!({ "anyOf": [reply, unfinished] })
}

/// Describes a job that ended without an execution.
pub(crate) async fn unfinished(
    state: &AppState,
    caller: &Caller,
    info: JobInfo,
) -> Result<UnfinishedJob, Envelope> {
    /// Characters of the output that is returned.
    const CHARS_MAX: usize = 25_000;
    let part = state.service.job_output(caller, &info.id, 0, CHARS_MAX).await?;
    let error = info.error.as_ref().map(|error| error.message.clone());
    let message = error.unwrap_or_else(|| format!("The job was {}.", info.state.name()));
    Ok(UnfinishedJob {
        success: false,
        job_id: info.id,
        job_status: info.state.name(),
        outcome: info.state.name(),
        error_message: message,
        stdout: part.text,
        stderr: String::new(),
        session_id: info.session,
    })
}

/// The reply to an ended job, as that to a run.
pub(crate) fn with_job(reply: &Reply, info: &JobInfo) -> Value {
    let mut value = serde_json::to_value(reply).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("job_id".to_owned(), info.id.as_str().into());
        fields.insert("job_status".to_owned(), info.state.name().into());
    }
    value
}

/// A page of the caller's jobs; `status` and `session_id` narrow it.
pub(crate) async fn list(
    state: &AppState,
    caller: &Caller,
    arguments: &mut Arguments,
) -> Result<JobList, Envelope> {
    let PageRequest { limit, cursor } = PageRequest::read(arguments)?;
    let filter = filter(arguments)?;
    let limit = limit.unwrap_or(ROWS);
    let page = state.service.jobs(caller, &filter, limit, cursor.as_deref()).await?;
    let jobs = page.jobs.into_iter().map(JobReply::from).collect();
    Ok(JobList { jobs, next: page.next })
}

fn filter(arguments: &mut Arguments) -> Result<JobFilter, Problem> {
    let state = arguments.text(&["status", "state"])?.filter(|state| !state.is_empty());
    let parsed = state.as_deref().map(|name| {
        JobState::parse(name).ok_or_else(|| Problem::Wrong {
            name: "status",
            expected: "pending, running, completed, failed, cancelled or timeout",
            got: format!("{:?}", name.chars().take(40).collect::<String>()),
        })
    });
    let session = arguments.text(&["session_id"])?.filter(|id| !id.is_empty());
    Ok(JobFilter { state: parsed.transpose()?, session, schedule: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Arguments, WAIT_MAX, wait};

    #[test]
    fn a_wait_is_clamped() {
        let of = |seconds: f64| {
            let fields = json!({ "wait": seconds }).as_object().unwrap().clone();
            wait(&mut Arguments::new(fields)).unwrap().as_secs_f64()
        };
        assert_eq!(
            [-1.0, 0.5, WAIT_MAX, WAIT_MAX + 1.0, 1e300].map(of),
            [0.0, 0.5, WAIT_MAX, WAIT_MAX, WAIT_MAX]
        );
    }
}
