//! Tools for jobs.

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Value, json};
use woma_core::{Caller, JobResult, Service};

use super::call::{Refusal, to_value};
use super::catalogue::ToolKind;
use super::content::{self, Asked};
use super::schemas::{object, schema_of};
use super::slim;
use crate::api::arguments::Arguments;
use crate::api::jobs::{self, JobList, JobReply, ScheduleReply};
use crate::config::types::ReplyForm;
use crate::mcp::Mcp;

/// Description, input, output; `run` are the arguments of a run.
pub(crate) fn describe(
    kind: ToolKind,
    service: &Service,
    run: JsonObject,
) -> (String, JsonObject, JsonObject) {
    let job = json!({"job_id": {"type": "string", "description": "The job_id of submit_job."}});
    let wait = json!({"type": "number", "description": "Seconds to wait for its end, up to 60.", "default": 0});
    let with_wait = || {
        let mut properties = job.clone();
        properties["wait"] = wait.clone();
        properties
    };
    match kind {
        ToolKind::SubmitJob => (submit_text(service), submit_input(service, run), submit_output()),
        ToolKind::GetJobStatus => {
            let mut properties = with_wait();
            properties["offset"] = json!({"type": "integer", "minimum": 0, "description": "Return the output from this character on, instead of its last lines."});
            let text = "How far a job is: status (pending, running, completed, failed, cancelled, timeout), progress, last lines of its output.";
            (text.to_owned(), object(&properties, &["job_id"]), schema_of::<JobReply>())
        }
        ToolKind::GetJobResult => (
            "Result of a job that has ended, as execute_code would have returned it. A job that has not ended is told as such.".to_owned(),
            object(&with_wait(), &["job_id"]),
            object(&json!({"success": {"type": "boolean"}}), &["success"]),
        ),
        ToolKind::CancelJob => (
            "Cancel a job: one that waits never runs, one that runs is stopped with all its processes. What it has printed and written is kept.".to_owned(),
            object(
                &json!({
                    "job_id": {"type": "string", "description": "The job_id of submit_job."},
                    "schedule_id": {"type": "string", "description": "Delete this schedule, instead of cancelling a job."},
                }),
                &[],
            ),
            object(&json!({"job_id": {"type": "string"}, "status": {"type": "string"}, "schedule_id": {"type": "string"}, "message": {"type": "string"}}), &[]),
        ),
        _ => (
            "List your jobs, the latest first.".to_owned(),
            object(
                &json!({
                    "status": {"type": "string", "enum": ["pending", "running", "completed", "failed", "cancelled", "timeout"]},
                    "session_id": {"type": "string", "description": "Jobs of this session only."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50},
                    "cursor": {"type": "string", "description": "The `next` of the page before."},
                    "schedules": {"type": "boolean", "description": "List schedules instead of jobs.", "default": false},
                }),
                &[],
            ),
            object(&json!({"jobs": {"type": "array", "items": {"type": "object"}}, "schedules": {"type": "array", "items": {"type": "object"}}, "next": {"type": "string"}}), &[]),
        ),
    }
}

fn submit_text(service: &Service) -> String {
    let jobs = &service.settings().jobs;
    format!(
        "Run long code in the background and get a job_id at once; get_job_status and get_job_result follow it. It runs beside the session, with a copy of its variables and with the same files: files, charts, output and result come back, variables do not. Use progress(0.4, \"message\") in the code to tell how far it is. At most {} s; {} jobs run at once, others wait.",
        jobs.timeout_max.as_secs(),
        jobs.running_max,
    )
}

fn submit_output() -> JsonObject {
    object(
        &json!({
            "job_id": {"type": "string"}, "status": {"type": "string"},
            "message": {"type": "string"}, "session_id": {"type": "string"},
            "schedule_id": {"type": "string"}, "next_at": {"type": "string"},
        }),
        &[],
    )
}

fn submit_input(service: &Service, mut run: JsonObject) -> JsonObject {
    let jobs = &service.settings().jobs;
    if let Some(properties) = run.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|name, _| name != "on_timeout" && name != "use_container");
        let most = jobs.timeout_max.as_secs();
        let timeout = json!({
            "type": "number", "description": format!("Seconds until the job is stopped; at most {most}."),
            "default": jobs.timeout_default.min(jobs.timeout_max).as_secs(),
        });
        properties.insert("timeout".to_owned(), timeout);
        let more = json!({
            "priority": {"type": "integer", "minimum": -100, "maximum": 100, "description": "Order among your own jobs; higher ones run first.", "default": 0},
            "retries": {"type": "integer", "minimum": 0, "maximum": 10, "description": "Times that it may begin again if the server ends while it runs.", "default": 0},
            "idempotency_key": {"type": "string", "description": "A repeated call with the same key returns the first job."},
            "webhook": {"type": "string", "description": "Public URL that the end of the job is posted to, signed; nothing of its output is sent."},
            "webhook_secret": {"type": "string", "description": "Signs the webhook; if absent, one is made and returned."},
            "run_at": {"type": "string", "description": "Time before which it does not run, such as 2026-01-31T09:00:00Z; needs the scope `schedule`."},
            "cron": {"type": "string", "description": "Make it a schedule that repeats: minute hour day month weekday; needs the scope `schedule`."},
            "timezone": {"type": "string", "description": "Of `cron`.", "default": "UTC"},
            "name": {"type": "string", "description": "Of the schedule."},
        });
        properties.extend(more.as_object().cloned().unwrap_or_default());
    }
    run
}

pub(crate) async fn call(
    mcp: &Mcp,
    caller: &Caller,
    kind: ToolKind,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let state = &mcp.state;
    if kind == ToolKind::SubmitJob {
        let is_lean = state.presentation.reply == ReplyForm::Lean;
        if arguments.has("cron") {
            let made = jobs::schedule(state, caller, arguments, is_lean).await?;
            return Ok(scheduled(mcp, made));
        }
        let reply = jobs::submit(state, caller, arguments, None, is_lean).await?;
        return Ok(told(mcp, reply, Vec::new()));
    }
    if kind == ToolKind::ListJobs && arguments.flag(&["schedules"])?.unwrap_or(false) {
        let listed = jobs::schedules(state, caller, &mut arguments).await?;
        let mut lines: Vec<String> = listed.schedules.iter().map(schedule_line).collect();
        if lines.is_empty() {
            lines.push("No schedules.".to_owned());
        }
        let (value, warnings) = (to_value(&listed), arguments.unknown().collect());
        return Ok(content::plain(state, value, Some(lines.join("\n")), warnings));
    }
    if kind == ToolKind::ListJobs {
        let listed = jobs::list(state, caller, &mut arguments).await?;
        return Ok(list(mcp, &listed, arguments.unknown().collect()));
    }
    if let (ToolKind::CancelJob, Some(id)) = (kind, arguments.text(&["schedule_id"])?) {
        state.service.delete_schedule(caller, &id).await?;
        let text = "The schedule is deleted; a job that it made goes on.";
        let value = json!({"schedule_id": id, "message": text});
        return Ok(content::plain(state, value, Some(text.to_owned()), Vec::new()));
    }
    let id = arguments.required(&["job_id"], "the job_id of submit_job")?;
    match kind {
        ToolKind::CancelJob => {
            let reply = JobReply::from(state.service.cancel_job(caller, &id).await?);
            Ok(told(mcp, reply, arguments.unknown().collect()))
        }
        ToolKind::GetJobResult => {
            let wait = jobs::wait(&mut arguments)?;
            let result = jobs::result(state, caller, &id, wait).await?;
            finished(mcp, caller, result, arguments.unknown().collect()).await
        }
        _ => {
            let wait = jobs::wait(&mut arguments)?;
            let offset = arguments.count(&["offset"])?;
            let mut reply = jobs::status(state, caller, &id, wait).await?;
            if let Some(offset) = offset {
                let limit = state.presentation.context_chars;
                let part = state.service.job_output(caller, &id, offset, limit).await?;
                let next = part.next_offset;
                reply.output_tail = Some(part.text);
                reply.message = Some(format!("Output from {offset}; the next offset is {next}."));
            }
            Ok(told(mcp, reply, arguments.unknown().collect()))
        }
    }
}

/// The result of a job as content for a model.
pub(crate) async fn finished(
    mcp: &Mcp,
    caller: &Caller,
    result: JobResult,
    warnings: Vec<String>,
) -> Result<CallToolResult, Refusal> {
    let JobResult { info, execution } = result;
    if let Some(execution) = execution {
        let asked = Asked { caller: caller.id.clone(), warnings, is_session_minted: false };
        return Ok(content::execution(mcp, asked, *execution).await);
    }
    if info.state.is_final() {
        let job = jobs::unfinished(&mcp.state, caller, info).await?;
        let mut text = job.error_message.clone();
        if !job.stdout.is_empty() {
            text = format!("{text}\nOutput:\n{}", job.stdout);
        }
        return Ok(content::plain(&mcp.state, to_value(&job), Some(text), warnings));
    }
    let state = info.state.name();
    let mut value = to_value(&JobReply::from(info));
    let text = format!("The job is still {state}: call again, with `wait` to wait for its end.");
    if let Some(fields) = value.as_object_mut() {
        fields.insert("success".to_owned(), false.into());
        fields.insert("message".to_owned(), text.as_str().into());
    }
    slim_times(mcp, &mut value);
    Ok(content::plain(&mcp.state, value, Some(text), warnings))
}

fn told(mcp: &Mcp, mut reply: JobReply, warnings: Vec<String>) -> CallToolResult {
    let mut lines = vec![line(&reply)];
    lines.extend(reply.message.clone());
    lines.extend(reply.output_tail.as_ref().map(|tail| format!("Output:\n{tail}")));
    let warnings = std::mem::take(&mut reply.warnings).into_iter().chain(warnings).collect();
    let mut value = to_value(&reply);
    slim_times(mcp, &mut value);
    content::plain(&mcp.state, value, Some(lines.join("\n")), warnings)
}

fn scheduled(mcp: &Mcp, mut made: ScheduleReply) -> CallToolResult {
    let warnings = std::mem::take(&mut made.warnings);
    content::plain(&mcp.state, to_value(&made), Some(schedule_line(&made)), warnings)
}

/// One line about a schedule.
fn schedule_line(schedule: &ScheduleReply) -> String {
    let next = schedule.next_at.as_deref().map(slim::whole_seconds);
    let next = next.map_or_else(|| "paused".to_owned(), |next| format!("next at {next}"));
    format!("Schedule {}: {}, {next}", schedule.schedule_id, schedule.cron)
}

fn list(mcp: &Mcp, listed: &JobList, warnings: Vec<String>) -> CallToolResult {
    let mut lines: Vec<String> = listed.jobs.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("No jobs.".to_owned());
    }
    lines.extend(listed.next.as_ref().map(|next| format!("[more: cursor \"{next}\"]")));
    let mut value = to_value(listed);
    for job in value["jobs"].as_array_mut().into_iter().flatten() {
        slim_times(mcp, job);
    }
    content::plain(&mcp.state, value, Some(lines.join("\n")), warnings)
}

/// One line about a job.
fn line(reply: &JobReply) -> String {
    let value = to_value(reply);
    let mut facts = vec![reply.status.to_owned()];
    if let Some(time) = value["execution_time_ms"].as_u64() {
        facts.push(format!("ran {}.{} s", time / 1_000, time % 1_000 / 100));
    }
    if let Some(fraction) = value["progress"]["fraction"].as_f64() {
        let message = value["progress"]["message"].as_str().unwrap_or_default();
        facts.push(format!("{:.0} % {message}", fraction * 100.0).trim_end().to_owned());
    }
    if let Some(message) = value["error"]["message"].as_str() {
        facts.push(message.to_owned());
    }
    format!("Job {}: {}", reply.job_id, facts.join(", "))
}

/// Leaves out what a model has no use for.
fn slim_times(mcp: &Mcp, value: &mut Value) {
    if mcp.state.presentation.reply != ReplyForm::Lean {
        return;
    }
    slim::fields(value);
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, value| match name.as_str() {
            "priority" | "retries" | "output_chars" => *value != json!(0),
            "attempts" => value.as_u64().is_some_and(|attempts| attempts > 1),
            "detached" | "cancelling" | "has_error" | "has_result" => *value == json!(true),
            "submitted_at" | "started_at" | "completed_at" | "execution_id" => false,
            _ => true,
        });
    }
}
