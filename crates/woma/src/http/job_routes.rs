//! The rows of jobs and schedules in the table of REST routes.

use axum::routing::{delete, get, post};

use super::routes::jobs;
use super::table::{Body, Operation, ResponseBody, of, row};
use crate::api::jobs::{
    JobList, JobOutput, JobReply, ScheduleList, ScheduleReply, body_schema, result_schema,
    schedule_schema,
};

const JOB: Option<Body> =
    Some((body_schema, r#"{"code": "print(6 * 7)", "session_id": "docs", "timeout": 600}"#));
const SCHEDULE: Option<Body> =
    Some((schedule_schema, r#"{"code": "print(6 * 7)", "cron": "0 3 * * *"}"#));
const ONE_SCHEDULE: ResponseBody = ResponseBody::Json(of::<ScheduleReply>);
const ONE_JOB: ResponseBody = ResponseBody::Json(of::<JobReply>);
const JOB_RESULT: ResponseBody = ResponseBody::Json(result_schema);

pub(super) const OPERATIONS: &[Operation] = &[
    row(
        ("post", "/api/v1/jobs"),
        || post(jobs::submit),
        ("submit_job", "jobs", "Queue code to run as a job"),
        JOB,
        ONE_JOB,
    ),
    row(
        ("get", "/api/v1/jobs"),
        || get(jobs::list),
        ("list_jobs", "jobs", "List your jobs, the latest first"),
        None,
        ResponseBody::Json(of::<JobList>),
    ),
    row(
        ("get", "/api/v1/jobs/{job_id}"),
        || get(jobs::status),
        ("get_job", "jobs", "Get a job; `wait` waits for its end"),
        None,
        ONE_JOB,
    ),
    row(
        ("get", "/api/v1/jobs/{job_id}/result"),
        || get(jobs::result),
        ("get_job_result", "jobs", "Get the reply to a job's run; 202 while it has not ended"),
        None,
        JOB_RESULT,
    ),
    row(
        ("get", "/api/v1/jobs/{job_id}/output"),
        || get(jobs::output),
        ("get_job_output", "jobs", "Read a job's output from an offset on, also while it runs"),
        None,
        ResponseBody::Json(of::<JobOutput>),
    ),
    row(
        ("get", "/api/v1/jobs/{job_id}/stream"),
        || get(jobs::stream),
        ("stream_job", "jobs", "Follow a job's output and progress to its end"),
        None,
        ResponseBody::Stream,
    ),
    row(
        ("post", "/api/v1/jobs/{job_id}/cancel"),
        || post(jobs::cancel),
        ("cancel_job", "jobs", "Cancel a job; its processes are killed"),
        None,
        ONE_JOB,
    ),
    row(
        ("post", "/api/jobs/submit"),
        || post(jobs::submit_older),
        ("submit_job_api", "jobs", "Queue code to run as a job"),
        JOB,
        ONE_JOB,
    ),
    row(
        ("get", "/api/jobs"),
        || get(jobs::list),
        ("list_jobs_api", "jobs", "List your jobs, the latest first"),
        None,
        ResponseBody::Json(of::<JobList>),
    ),
    row(
        ("get", "/api/jobs/{job_id}/status"),
        || get(jobs::status),
        ("get_job_api", "jobs", "Get a job; `wait` waits for its end"),
        None,
        ONE_JOB,
    ),
    row(
        ("get", "/api/jobs/{job_id}/result"),
        || get(jobs::result),
        ("get_job_result_api", "jobs", "Get the reply to a job's run; 202 while it has not ended"),
        None,
        JOB_RESULT,
    ),
    row(
        ("post", "/api/jobs/{job_id}/cancel"),
        || post(jobs::cancel),
        ("cancel_job_api", "jobs", "Cancel a job; its processes are killed"),
        None,
        ONE_JOB,
    ),
    row(
        ("post", "/api/v1/schedules"),
        || post(jobs::schedule),
        ("create_schedule", "jobs", "Have a job run repeatedly"),
        SCHEDULE,
        ONE_SCHEDULE,
    ),
    row(
        ("get", "/api/v1/schedules"),
        || get(jobs::schedules),
        ("list_schedules", "jobs", "List your schedules, the latest first"),
        None,
        ResponseBody::Json(of::<ScheduleList>),
    ),
    row(
        ("get", "/api/v1/schedules/{schedule_id}"),
        || get(jobs::show_schedule),
        ("get_schedule", "jobs", "Get a schedule"),
        None,
        ONE_SCHEDULE,
    ),
    row(
        ("delete", "/api/v1/schedules/{schedule_id}"),
        || delete(jobs::delete_schedule),
        ("delete_schedule", "jobs", "Delete a schedule; a job that it made goes on"),
        None,
        ResponseBody::Other("*/*"),
    ),
    row(
        ("post", "/api/v1/schedules/{schedule_id}/pause"),
        || post(jobs::pause_schedule),
        ("pause_schedule", "jobs", "Pause a schedule"),
        None,
        ONE_SCHEDULE,
    ),
    row(
        ("post", "/api/v1/schedules/{schedule_id}/resume"),
        || post(jobs::resume_schedule),
        ("resume_schedule", "jobs", "Resume a schedule; what it has missed is left out"),
        None,
        ONE_SCHEDULE,
    ),
];
