//! Jobs as REST and MCP tell of them.

mod replies;
mod schema;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use woma_core::store::{JobFilter, JobState};
use woma_core::{
    Caller, Code, JobInfo, JobResult, JobSubmission, NewSchedule, NewWebhook, OnTimeout,
};

use crate::api::arguments::{Arguments, Problem};
use crate::api::error::Envelope;
use crate::api::listing::PageRequest;
use crate::api::reply::Reply;
use crate::api::request::Call;
use crate::api::state::AppState;

pub(crate) use self::replies::{
    JobList, JobOutput, JobProgress, JobReply, ScheduleList, ScheduleReply, UnfinishedJob,
};
pub(crate) use self::schema::{body_schema, result_schema, schedule_schema};

/// Jobs of a page without `limit`.
const ROWS: usize = 50;
/// Longest `wait`, in seconds.
const WAIT_MAX: f64 = 60.0;

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
    let mut reply = ScheduleReply::from(row);
    reply.warnings = warnings;
    Ok(reply)
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

/// Describes a job that ended without an execution.
pub(crate) async fn unfinished(
    state: &AppState,
    caller: &Caller,
    info: JobInfo,
) -> Result<UnfinishedJob, Envelope> {
    /// Characters of the output that is returned.
    const CHARS_MAX: usize = 25_000;
    let part = state.service.job_output(caller, &info.id, 0, CHARS_MAX).await?;
    Ok(UnfinishedJob::new(info, part.text))
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
    use std::time::Duration;

    use serde_json::json;

    use super::{Arguments, WAIT_MAX, wait};

    #[test]
    fn a_wait_is_clamped() {
        let of = |seconds: f64| {
            let fields = json!({ "wait": seconds }).as_object().unwrap().clone();
            wait(&mut Arguments::new(fields)).unwrap()
        };
        let most = Duration::from_secs_f64(WAIT_MAX);
        assert_eq!(
            [-1.0, 0.5, WAIT_MAX, WAIT_MAX + 1.0, 1e300].map(of),
            [Duration::ZERO, Duration::from_millis(500), most, most, most]
        );
    }
}
