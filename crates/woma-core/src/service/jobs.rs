//! Requests about jobs.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::Service;
use crate::error::Error;
use crate::execution::jobs::live::{self, OutputPart, Progress};
use crate::execution::jobs::webhook::NewWebhook;
use crate::execution::jobs::{JobError, Stopped, request};
use crate::model::caller::Caller;
use crate::model::{Execute, Execution, Picture, SessionId};
use crate::storage::db::{
    JobFilter, JobKind, JobRow, JobState, NewJob, Queued, StoreError, WebhookRow,
};
use crate::workspace::Workspaces;

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 200;
/// Priorities that a job may have, on both sides of 0.
const PRIORITY_MAX: i64 = 100;
/// Times that a job may be begun again.
const RETRIES_MAX: u64 = 10;
/// Jobs of one page.
const PAGE_MAX: usize = 1_000;
/// Characters of the last output in a status.
const TAIL_CHARS: usize = 1_000;
/// Largest picture of a result that is read, in bytes.
const PICTURE_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// How long the end of a cancelled job is waited for, and how often it is looked for.
const END_MAX: Duration = Duration::from_secs(15);
const END_POLL: Duration = Duration::from_millis(50);

/// A job to be queued.
#[derive(Debug, Clone)]
pub struct JobSubmission {
    pub execute: Execute,
    /// Among the caller's own jobs; higher ones run first.
    pub priority: i64,
    /// How many times it may be begun again after its server ended.
    pub retries: u64,
    pub idempotency_key: Option<String>,
    /// Not before this time; needs the scope `schedule`.
    pub run_at: Option<Timestamp>,
    /// Address that its end is told to.
    pub webhook: Option<NewWebhook>,
}

impl JobSubmission {
    pub fn new(execute: Execute) -> Self {
        let (priority, retries) = (0, 0);
        Self { execute, priority, retries, idempotency_key: None, run_at: None, webhook: None }
    }
}

/// A job as its owner sees it.
#[derive(Debug, Clone)]
pub struct JobInfo {
    pub id: String,
    pub session: Option<String>,
    pub state: JobState,
    /// Whether it began as a call that it outlived.
    pub is_detached: bool,
    pub priority: i64,
    pub retries: u64,
    pub attempts: u64,
    pub schedule_id: Option<String>,
    pub submitted_at: Timestamp,
    pub due_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Since it was submitted.
    pub elapsed: Duration,
    /// Since it was begun.
    pub run_time: Option<Duration>,
    pub is_cancelling: bool,
    pub progress: Option<Progress>,
    pub output_chars: u64,
    pub execution_id: Option<String>,
    pub error: Option<JobError>,
    pub has_result: bool,
    pub webhook: Option<WebhookRow>,
    /// The secret that was made for its webhook; only when it is queued.
    pub webhook_secret: Option<String>,
}

/// The end of a job: its execution, if it got that far.
#[derive(Debug, Clone)]
pub struct JobResult {
    pub info: JobInfo,
    pub execution: Option<Box<Execution>>,
}

/// Jobs of one page, and the cursor of the next one.
#[derive(Debug, Clone)]
pub struct JobPage {
    pub jobs: Vec<JobInfo>,
    pub next: Option<String>,
}

impl Service {
    /// Queues a job. When this returns, the job survives a crash. The second value says whether it
    /// is one that was queued before with the same key.
    pub async fn submit_job(
        &self,
        caller: &Caller,
        submission: JobSubmission,
    ) -> Result<(JobInfo, bool), Error> {
        let (executor, execute) = (&self.executor, &submission.execute);
        executor.check_job(caller, execute)?;
        check(&submission)?;
        if submission.run_at.is_some() {
            caller.may_schedule()?;
        }
        let workspaces = self.storage()?;
        let (webhook, secret) = executor.jobs.webhook(submission.webhook)?;
        let (request, digest) = request::write(execute)?;
        let url = webhook.as_ref().map(|webhook| webhook.url.as_str());
        let request_sha256 = request::with_webhook(digest, url);
        let session = execute.session.named();
        let job = NewJob {
            id: Uuid::now_v7().to_string(),
            owner: caller.id.as_str().to_owned(),
            session_id: session.as_ref().map(|session| session.as_str().to_owned()),
            priority: submission.priority,
            retries: submission.retries,
            request,
            request_sha256,
            caller: request::write_caller(caller)?,
            idempotency_key: submission.idempotency_key,
            schedule_id: None,
            due_at: submission.run_at,
            webhook,
        };
        let limits = executor.jobs.queue_limits(&caller.id);
        let (row, is_known) = match workspaces.storage.db.submit_job(&job, limits).await? {
            Queued::Added(row) => (row, false),
            Queued::Known(row) if row.request_sha256 != job.request_sha256 => {
                return Err(Error::KeyReused);
            }
            Queued::Known(row) => (row, true),
            Queued::Full => return Err(self.queue_full(caller).await),
        };
        if !is_known {
            self.note(caller, "submit_job", session.as_ref(), &json!({"job": row.id}));
            executor.jobs.wake.notify_one();
        }
        let webhook_secret = secret.filter(|_| !is_known);
        Ok((JobInfo { webhook_secret, ..self.info_of(caller, *row) }, is_known))
    }

    /// Which limit of the queue was reached.
    async fn queue_full(&self, caller: &Caller) -> Error {
        let limits = self.executor.jobs.queue_limits(&caller.id);
        let counts = match self.storage() {
            Ok(workspaces) => workspaces.storage.db.pending_jobs(caller.id.as_str()).await.ok(),
            Err(error) => return error,
        };
        let what = match counts {
            Some((_, _, due)) if due >= limits.webhooks_of_owner => {
                format!("{due} webhooks of this caller are not delivered yet")
            }
            Some((_, own, _)) if own >= limits.jobs_of_owner => {
                format!("{own} jobs of this caller wait already")
            }
            Some((all, _, _)) if all >= limits.jobs => format!("{all} jobs wait already"),
            _ => "the requests of waiting jobs are too large together".to_owned(),
        };
        Error::QueueFull { what }
    }

    pub async fn job(&self, caller: &Caller, id: &str) -> Result<JobInfo, Error> {
        caller.may_read()?;
        let row = self.storage()?.storage.db.job(caller.id.as_str(), id).await?;
        Ok(self.info_of(caller, row.ok_or_else(|| no_job(id))?))
    }

    /// A job, and the last lines of its output.
    pub async fn job_status(&self, caller: &Caller, id: &str) -> Result<(JobInfo, String), Error> {
        let info = self.job(caller, id).await?;
        let tail = match info.output_chars {
            0 => String::new(),
            _ => live::last_lines(&self.output_row(caller, id).await?, TAIL_CHARS),
        };
        Ok((info, tail))
    }

    /// A part of a job's output, while it runs or afterwards. Standard output and error are one.
    pub async fn job_output(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
        limit: usize,
    ) -> Result<OutputPart, Error> {
        caller.may_read()?;
        Ok(live::part(&self.output_row(caller, id).await?, offset, limit))
    }

    async fn output_row(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<crate::storage::db::JobOutputRow, Error> {
        if let Some(active) = self.executor.jobs.active(&caller.id, id) {
            return Ok(active.live.row());
        }
        let row = self.storage()?.storage.db.job_output(caller.id.as_str(), id).await?;
        row.ok_or_else(|| no_job(id))
    }

    /// Waits until a job has said more than it had at `offset`, or has ended; no longer than
    /// `limit`. Returns it as it is then.
    pub async fn wait_for_job(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
        limit: Duration,
    ) -> Result<JobInfo, Error> {
        /// How often a job of another server, or one that waits, is looked at.
        const POLL: Duration = Duration::from_millis(250);
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let active = self.executor.jobs.active(&caller.id, id);
            let mut changes = active.as_ref().map(|active| active.live.watch());
            let info = self.job(caller, id).await?;
            if info.state.is_final() || info.output_chars > offset {
                return Ok(info);
            }
            let changed = async {
                match (&active, &mut changes) {
                    (Some(active), Some(changes)) => tokio::select! {
                        _ = changes.changed() => {}
                        () = active.gone.cancelled() => {}
                    },
                    _ => tokio::time::sleep(POLL).await,
                }
            };
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(info);
            }
        }
    }

    /// The result of a job; its execution is there once it has ended with one.
    pub async fn job_result(&self, caller: &Caller, id: &str) -> Result<JobResult, Error> {
        let info = self.job(caller, id).await?;
        if !info.has_result {
            return Ok(JobResult { info, execution: None });
        }
        let workspaces = self.storage()?;
        let json = workspaces.storage.db.job_result(caller.id.as_str(), id).await?;
        let json = json.ok_or_else(|| no_job(id))?;
        let bad = |_| Error::BadJobResult(id.to_owned());
        let mut pictures = Vec::new();
        for chart in Execution::stored_charts(&json).map_err(bad)? {
            pictures.push(picture(workspaces, chart.id).await);
        }
        let execution = Execution::from_stored(&json, pictures).map_err(bad)?;
        Ok(JobResult { info, execution: Some(Box::new(execution)) })
    }

    /// Cancels a job: one that waits never runs, one that runs is interrupted and its processes
    /// are killed, which is waited for. One that has ended stays as it is.
    pub async fn cancel_job(&self, caller: &Caller, id: &str) -> Result<JobInfo, Error> {
        caller.may_execute()?;
        let cancelled = self.storage()?.storage.db.cancel_job(caller.id.as_str(), id).await?;
        let row = cancelled.ok_or_else(|| no_job(id))?;
        if let Some(active) = self.executor.jobs.active(&caller.id, id) {
            active.stop(Stopped::Cancelled);
        }
        // Another server, or one that has just claimed it, learns of it within seconds.
        if !self.wait_for_job(caller, id, u64::MAX, END_MAX).await?.state.is_final() {
            tracing::warn!(id, "A cancelled job takes long to end");
        }
        let session = row.session_id.as_deref().and_then(|id| SessionId::parse(id).ok());
        self.note(caller, "cancel_job", session.as_ref(), &json!({"job": id}));
        self.job(caller, id).await
    }

    /// Jobs of a caller, latest first; `before` is the cursor of the page before.
    pub async fn jobs(
        &self,
        caller: &Caller,
        filter: &JobFilter,
        limit: usize,
        before: Option<&str>,
    ) -> Result<JobPage, Error> {
        caller.may_read()?;
        let limit = limit.clamp(1, PAGE_MAX);
        let asked = u32::try_from(limit + 1).unwrap_or(u32::MAX);
        let db = &self.storage()?.storage.db;
        let mut rows = db.jobs(caller.id.as_str(), filter, asked, before).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|row| row.id.clone());
        let jobs = rows.into_iter().map(|row| self.info_of(caller, row)).collect();
        Ok(JobPage { jobs, next })
    }

    /// Ends the jobs of a session that goes: those that wait never run, and those that run are
    /// gone when this returns.
    pub(super) async fn end_jobs_of(&self, caller: &Caller, session: &SessionId) {
        let Some(workspaces) = &self.workspaces else { return };
        let db = &workspaces.storage.db;
        let cancelled = db.cancel_session_jobs(caller.id.as_str(), session.as_str());
        if let Err(error) = db.in_any_case(cancelled).await {
            tracing::warn!(%error, %session, "Jobs of a session that goes were not cancelled");
        }
        let filter = JobFilter {
            state: Some(JobState::Running),
            session: Some(session.as_str().to_owned()),
            schedule: None,
        };
        let deadline = tokio::time::Instant::now() + END_MAX;
        loop {
            let here = self.executor.jobs.of_session(&caller.id, session);
            for job in &here {
                job.stop(Stopped::Cancelled);
            }
            // One that has just been claimed is not known here yet.
            let running = db.in_any_case(db.jobs(caller.id.as_str(), &filter, 1, None)).await;
            if here.is_empty() && running.is_ok_and(|running| running.is_empty()) {
                return;
            }
            if tokio::time::Instant::now() >= deadline {
                tracing::warn!(%session, "Jobs of a session that goes take long to end");
                return;
            }
            tokio::time::sleep(END_POLL).await;
        }
    }

    pub(super) fn storage(&self) -> Result<&Workspaces, Error> {
        self.workspaces.as_deref().ok_or(Error::NoJobs)
    }

    /// A job as it is stored or, if it runs here, as it is now.
    fn info_of(&self, caller: &Caller, row: JobRow) -> JobInfo {
        let active = self.executor.jobs.active(&caller.id, &row.id);
        let live = active.filter(|_| !row.state.is_final()).map(|active| active.live.row());
        let info = JobInfo::from(row);
        match live {
            Some(live) => JobInfo {
                progress: Progress::of_row(live.progress, live.progress_message.as_deref()),
                output_chars: live.chars,
                ..info
            },
            None => info,
        }
    }
}

impl From<JobRow> for JobInfo {
    fn from(row: JobRow) -> Self {
        let now = Timestamp::now();
        let since = |start: Timestamp| {
            let end = row.ended_at.unwrap_or(now);
            Duration::try_from(end.duration_since(start)).unwrap_or_default()
        };
        Self {
            elapsed: since(row.submitted_at),
            run_time: row.started_at.map(since),
            progress: Progress::of_row(row.progress, row.progress_message.as_deref()),
            output_chars: row.output_chars,
            is_detached: row.kind == JobKind::Detached,
            is_cancelling: row.cancel_requested && !row.state.is_final(),
            error: row.error.as_deref().and_then(|error| serde_json::from_str(error).ok()),
            id: row.id,
            session: row.session_id,
            state: row.state,
            priority: row.priority,
            retries: row.retries,
            attempts: row.attempts,
            schedule_id: row.schedule_id,
            submitted_at: row.submitted_at,
            due_at: row.due_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
            execution_id: row.execution_id,
            has_result: row.has_result,
            webhook: row.webhook,
            webhook_secret: None,
        }
    }
}

/// The contents of a chart; `None` if it has expired.
async fn picture(workspaces: &Workspaces, id: Uuid) -> Option<Picture> {
    let storage = &workspaces.storage;
    let row = storage.db.file(id).await.ok().flatten()?;
    match storage.blobs.read(row.digest, PICTURE_BYTES_MAX).await {
        Ok(bytes) => Some(Picture { media_type: row.media_type, bytes }),
        Err(StoreError::NotFound) => None,
        Err(error) => {
            tracing::warn!(%error, "A picture of a job's result cannot be read");
            None
        }
    }
}

pub(super) fn check(submission: &JobSubmission) -> Result<(), Error> {
    let bad = |what: String| Err(Error::BadJob(what));
    if submission.execute.folder.is_some() {
        return bad("a job cannot work in a folder of the host".to_owned());
    }
    if let Some(key) = &submission.idempotency_key
        && (key.is_empty() || key.len() > KEY_BYTES_MAX)
    {
        return bad(format!("`idempotency_key` must have 1 to {KEY_BYTES_MAX} bytes"));
    }
    if submission.priority.abs() > PRIORITY_MAX {
        return bad(format!("`priority` must be between -{PRIORITY_MAX} and {PRIORITY_MAX}"));
    }
    if submission.retries > RETRIES_MAX {
        return bad(format!("`retries` must be between 0 and {RETRIES_MAX}"));
    }
    Ok(())
}

fn no_job(id: &str) -> Error {
    Error::NoJob(id.chars().take(64).collect())
}
