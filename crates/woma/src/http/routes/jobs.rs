//! Jobs over REST.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use woma_core::{Caller, JobResult};

use super::execute::{self, ReplyFormat};
use super::fit::{self, Room};
use super::stream::Framing;
use crate::api::arguments::Arguments;
use crate::api::error::Envelope;
use crate::api::jobs::{self, JobList, JobOutput, JobReply, ScheduleList, ScheduleReply};
use crate::api::reply::Reply;
use crate::api::state::AppState;
use crate::http::extract::{BodyArguments, CallerOf, PathParams, QueryArguments, RequestState};
use crate::http::idempotency::IDEMPOTENCY_KEY;

/// Characters of one part of an output.
const PART_CHARS_MAX: usize = 256 * 1024;
/// Longest pause of a stream without an event.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Queues a job: 202, with its address.
pub(crate) async fn submit(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    headers: HeaderMap,
    BodyArguments(arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let reply = queue(&state, &caller, &headers, arguments).await?;
    let location = HeaderValue::from_str(&format!("/api/v1/jobs/{}", reply.job_id));
    let mut response = (StatusCode::ACCEPTED, Json(reply)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Queues a job, for older clients.
pub(crate) async fn submit_older(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    headers: HeaderMap,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<JobReply>, Envelope> {
    queue(&state, &caller, &headers, arguments).await.map(Json)
}

async fn queue(
    state: &AppState,
    caller: &Caller,
    headers: &HeaderMap,
    arguments: Arguments,
) -> Result<JobReply, Envelope> {
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok()).map(str::to_owned);
    jobs::submit(state, caller, arguments, key, false).await
}

pub(crate) async fn list(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<JobList>, Envelope> {
    jobs::list(&state, &caller, &mut query).await.map(Json)
}

pub(crate) async fn status(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<JobReply>, Envelope> {
    let wait = jobs::wait(&mut query)?;
    jobs::status(&state, &caller, &id, wait).await.map(Json)
}

/// The reply to the run; 202 with the status while it has not ended.
pub(crate) async fn result(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    QueryArguments(mut query): QueryArguments,
) -> Result<Response, Envelope> {
    let wait = jobs::wait(&mut query)?;
    let JobResult { info, execution } = jobs::result(&state, &caller, &id, wait).await?;
    if let Some(execution) = execution {
        let mut reply = Reply::new(*execution).with_base(state.base_url());
        state.presentation.shape.complete(&mut reply);
        fit::fit(&mut reply, Room::Whole);
        return Ok(Json(jobs::with_job(&reply, &info)).into_response());
    }
    if info.state.is_final() {
        return Ok(Json(jobs::unfinished(&state, &caller, info).await?).into_response());
    }
    let mut reply = JobReply::from(info);
    reply.message = Some(format!("The job is still {}.", reply.status));
    Ok((StatusCode::ACCEPTED, Json(reply)).into_response())
}

pub(crate) async fn cancel(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<JobReply>, Envelope> {
    Ok(Json(state.service.cancel_job(&caller, &id).await?.into()))
}

/// A part of the output from `offset` on; with `wait`, when there is more, or the job has ended.
pub(crate) async fn output(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<JobOutput>, Envelope> {
    let offset = query.count(&["offset"])?.unwrap_or(0);
    let limit = query.count(&["limit"])?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(PART_CHARS_MAX).clamp(1, PART_CHARS_MAX);
    let wait = jobs::wait(&mut query)?;
    let info = state.service.wait_for_job(&caller, &id, offset, wait).await?;
    let part = state.service.job_output(&caller, &id, offset, limit).await?;
    Ok(Json(JobOutput::new(&info, part)))
}

/// Output and progress as they come, from `offset` on, then the status; NDJSON or server-sent
/// events, as `Accept` asks. A client that leaves does not stop the job.
pub(crate) async fn stream(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
    QueryArguments(mut query): QueryArguments,
) -> Result<Response, Envelope> {
    let offset = query.count(&["offset"])?.unwrap_or(0);
    let framing = match execute::accepted(&headers, ReplyFormat::Lines)? {
        ReplyFormat::Events => Framing::Events { is_full: true },
        ReplyFormat::Lines | ReplyFormat::Json => Framing::Lines { is_full: true },
    };
    // An unknown job is an error, and not an empty stream.
    state.service.job(&caller, &id).await?;
    let follower = Follower { state, caller, id, framing, offset, progress: None, is_over: false };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(event)), follower))
    });
    let mut response = Response::new(Body::from_stream(events));
    let content_type = HeaderValue::from_static(framing.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A client that follows a job.
struct Follower {
    state: AppState,
    caller: Caller,
    id: String,
    framing: Framing,
    offset: u64,
    progress: Option<serde_json::Value>,
    is_over: bool,
}

impl Follower {
    /// The next events; `None` after the last.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        match self.look().await {
            Ok(events) => Some(events),
            Err(envelope) => {
                self.is_over = true;
                Some(self.framing.frame("error", &json!({"error": envelope.message})))
            }
        }
    }

    async fn look(&mut self) -> Result<String, Envelope> {
        let (service, id) = (&self.state.service, &self.id);
        let waited = service.wait_for_job(&self.caller, id, self.offset, HEARTBEAT).await?;
        let part = service.job_output(&self.caller, id, self.offset, PART_CHARS_MAX).await?;
        let mut events = String::new();
        if !part.text.is_empty() {
            self.offset = part.next_offset;
            let output = JobOutput::new(&waited, part);
            events.push_str(&self.framing.frame(
                "text",
                &json!({
                    "text": output.text, "offset": output.offset,
                    "next_offset": output.next_offset, "skipped": output.skipped,
                }),
            ));
        }
        let is_whole = self.offset >= waited.output_chars;
        let is_final = waited.state.is_final();
        let reply = JobReply::from(waited);
        let progress = serde_json::to_value(&reply).unwrap_or_default()["progress"].clone();
        if !progress.is_null() && self.progress.as_ref() != Some(&progress) {
            events.push_str(&self.framing.frame("progress", &json!({"progress": progress})));
            self.progress = Some(progress);
        }
        if is_final && is_whole {
            self.is_over = true;
            events.push_str(&self.framing.frame("status", &reply));
        } else if events.is_empty() {
            events.push_str(&self.framing.frame("heartbeat", &json!({"heartbeat": reply.status})));
        }
        Ok(events)
    }
}

/// Makes a schedule: 201.
pub(crate) async fn schedule(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let made = jobs::schedule(&state, &caller, arguments, false).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

pub(crate) async fn schedules(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<ScheduleList>, Envelope> {
    jobs::schedules(&state, &caller, &mut query).await.map(Json)
}

pub(crate) async fn show_schedule(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<ScheduleReply>, Envelope> {
    Ok(Json(state.service.schedule(&caller, &id).await?.into()))
}

pub(crate) async fn pause_schedule(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<ScheduleReply>, Envelope> {
    Ok(Json(state.service.pause_schedule(&caller, &id, true).await?.into()))
}

pub(crate) async fn resume_schedule(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<ScheduleReply>, Envelope> {
    Ok(Json(state.service.pause_schedule(&caller, &id, false).await?.into()))
}

pub(crate) async fn delete_schedule(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<StatusCode, Envelope> {
    state.service.delete_schedule(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
