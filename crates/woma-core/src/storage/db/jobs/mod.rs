//! Queue of jobs: submitted, claimed with a lease, renewed, ended once.
//!
//! Several servers may share the queue. A claim is committed before the code begins, so a job runs
//! at most once for each claim. A lease expires by the database's clock.

mod claims;
mod listing;
mod webhooks;

use std::time::Duration;

use jiff::Timestamp;

use super::statement::{Row, Statement, Value, change, rows};
use super::{Store, StoreError};
pub use webhooks::{Webhook, WebhookClaim, WebhookEnd, WebhookRow, WebhookState};

/// Duration of a claim without renewal.
pub const JOB_LEASE: Duration = Duration::from_secs(10);
/// Callers that one look at the queue takes in.
const OWNERS_MAX: i64 = 256;

/// State of a job, by its name in replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
    Timeout,
}

impl JobState {
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it has ended.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// How a job came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    Submitted,
    /// From a call that it outlived.
    Detached,
}

impl JobKind {
    pub const ALL: [Self; 2] = [Self::Submitted, Self::Detached];

    /// As it is stored.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Detached => "detached",
        }
    }

    fn parse(name: &str) -> Result<Self, StoreError> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| StoreError::Corrupt(format!("`{name}` is not a kind of job")))
    }
}

/// A job as it is listed, without its code and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    pub id: String,
    pub owner: String,
    /// `None`: a session that ends with the job.
    pub session_id: Option<String>,
    pub kind: JobKind,
    pub state: JobState,
    pub priority: i64,
    pub retries: u64,
    /// How many times it was begun.
    pub attempts: u64,
    pub schedule_id: Option<String>,
    pub submitted_at: Timestamp,
    pub due_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub server: Option<String>,
    pub cancel_requested: bool,
    /// Thousandths.
    pub progress: Option<u64>,
    pub progress_message: Option<String>,
    /// Of all output so far.
    pub output_chars: u64,
    pub execution_id: Option<String>,
    /// JSON.
    pub error: Option<String>,
    pub has_result: bool,
    /// Digest of the request.
    pub request_sha256: String,
    pub webhook: Option<WebhookRow>,
}

/// A job to be queued.
#[derive(Debug, Clone)]
pub struct NewJob {
    pub id: String,
    pub owner: String,
    pub session_id: Option<String>,
    pub priority: i64,
    pub retries: u64,
    /// JSON.
    pub request: String,
    pub request_sha256: String,
    /// JSON.
    pub caller: String,
    pub idempotency_key: Option<String>,
    pub schedule_id: Option<String>,
    /// `None`: at once.
    pub due_at: Option<Timestamp>,
    pub webhook: Option<Webhook>,
}

/// Limits of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    pub jobs: u64,
    pub jobs_of_owner: u64,
    /// Of requests.
    pub bytes: u64,
    pub bytes_of_owner: u64,
    /// Webhooks that are due and not delivered; further jobs with one are refused.
    pub webhooks_of_owner: u64,
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queued {
    Added(Box<JobRow>),
    /// An earlier job with the same key.
    Known(Box<JobRow>),
    /// The queue has no place for it.
    Full,
}

/// A job that this server has to run.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    pub row: JobRow,
    pub request: String,
    pub caller: String,
}

/// Progress and output of a running job, as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobOutputRow {
    pub head: String,
    pub tail: String,
    pub chars: u64,
    pub progress: Option<u64>,
    pub progress_message: Option<String>,
}

/// The end of a job.
#[derive(Debug, Clone)]
pub struct JobEnd {
    pub state: JobState,
    pub execution_id: Option<String>,
    pub error: Option<String>,
    pub result: Option<String>,
    pub output: JobOutputRow,
}

/// Jobs that a listing has.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    pub state: Option<JobState>,
    pub session: Option<String>,
    pub schedule: Option<String>,
}

const COLUMNS: &str = "id, owner, session_id, kind, state, priority, retries, attempts, \
     schedule_id, submitted_at, due_at, started_at, ended_at, server, cancel_requested, progress, \
     progress_message, output_chars, execution_id, error, \
     CASE WHEN result IS NULL THEN 0 ELSE 1 END, request_sha256, webhook_url, webhook_state, \
     webhook_attempts, webhook_due_at, webhook_error, webhook_delivered_at";

impl Store {
    /// Adds a job to the queue, unless that is full or the caller has a job with the same key.
    pub async fn submit_job(
        &self,
        job: &NewJob,
        limits: QueueLimits,
    ) -> Result<Queued, StoreError> {
        if let Some(key) = &job.idempotency_key
            && let Some(known) = self.job_by_key(&job.owner, key).await?
        {
            return Ok(Queued::Known(Box::new(known)));
        }
        let unit = vec![turn_of(&job.owner), self.inserted(job, limits)];
        let added = self.write(unit).await?.pop().unwrap_or_default().rows;
        if let Some(row) = added.into_iter().next() {
            return Ok(Queued::Added(Box::new(job_of(row)?)));
        }
        // Another request may have used the key at the same moment.
        match &job.idempotency_key {
            Some(key) => {
                let known = self.job_by_key(&job.owner, key).await?;
                Ok(known.map_or(Queued::Full, |known| Queued::Known(Box::new(known))))
            }
            None => Ok(Queued::Full),
        }
    }

    /// The insertion of a job, if the queue has a place for it.
    pub(super) fn inserted(&self, job: &NewJob, limits: QueueLimits) -> Statement {
        let now = self.clock();
        let all = |what: &str| {
            format!("(SELECT CAST(COALESCE(SUM({what}), 0) AS BIGINT) FROM job_turns)")
        };
        let own =
            |what: &str| format!("COALESCE((SELECT {what} FROM job_turns WHERE owner = $2), 0)");
        let sql = format!(
            "INSERT INTO jobs (id, owner, session_id, kind, state, priority, retries, attempts, \
             request, request_sha256, request_bytes, caller, idempotency_key, schedule_id, \
             submitted_at, due_at, cancel_requested, output_head, output_tail, output_chars, \
             kept_bytes, webhook_url, webhook_secret, webhook_state) \
             SELECT $1, $2, $3, 'submitted', 'pending', $4, $5, 0, $6, $7, $8, $9, $10, $11, \
             {now}, COALESCE($12, {now}), 0, '', '', 0, $8, $17, $18, $19 \
             WHERE {jobs} < $13 AND {jobs_own} < $14 AND {bytes} + $8 <= $15 \
             AND {bytes_own} + $8 <= $16 AND ($17 IS NULL OR {webhooks} < $20) \
             ON CONFLICT (owner, idempotency_key) DO NOTHING RETURNING {COLUMNS}",
            jobs = all("waiting_jobs"),
            jobs_own = own("waiting_jobs"),
            bytes = all("waiting_bytes"),
            bytes_own = own("waiting_bytes"),
            webhooks = webhooks::DUE_OF_OWNER,
        );
        let webhook = job.webhook.as_ref();
        let values = vec![
            job.id.as_str().into(),
            job.owner.as_str().into(),
            Value::text_maybe(job.session_id.as_deref()),
            job.priority.into(),
            Value::count(job.retries),
            job.request.as_str().into(),
            job.request_sha256.as_str().into(),
            Value::count(job.request.len() as u64),
            job.caller.as_str().into(),
            Value::text_maybe(job.idempotency_key.as_deref()),
            Value::text_maybe(job.schedule_id.as_deref()),
            Value::time_maybe(job.due_at),
            Value::count(limits.jobs),
            Value::count(limits.jobs_of_owner),
            Value::count(limits.bytes),
            Value::count(limits.bytes_of_owner),
            Value::text_maybe(webhook.map(|webhook| webhook.url.as_str())),
            Value::text_maybe(webhook.map(|webhook| webhook.secret.as_str())),
            Value::text_maybe(webhook.map(|_| WebhookState::Waiting.name())),
            Value::count(limits.webhooks_of_owner),
        ];
        rows(sql, values)
    }

    async fn job_by_key(&self, owner: &str, key: &str) -> Result<Option<JobRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM jobs WHERE owner = $1 AND idempotency_key = $2");
        self.read_one(rows(sql, vec![owner.into(), key.into()]), job_of).await
    }

    /// Records a run that goes on as a job, claimed by its server.
    pub async fn adopt_job(
        &self,
        job: &NewJob,
        execution_id: &str,
        server: &str,
        started_at: Timestamp,
    ) -> Result<JobRow, StoreError> {
        let now = self.clock();
        let sql = format!(
            "INSERT INTO jobs (id, owner, session_id, kind, state, priority, retries, attempts, \
             request, request_sha256, request_bytes, caller, submitted_at, due_at, started_at, \
             server, lease_until, cancel_requested, output_head, output_tail, output_chars, \
             kept_bytes, execution_id) \
             VALUES ($1, $2, $3, 'detached', 'running', 0, 0, 1, $4, $5, $6, $7, $8, $8, $8, \
             $9, {now} + $10, 0, '', '', 0, $6, $11) RETURNING {COLUMNS}"
        );
        let values = vec![
            job.id.as_str().into(),
            job.owner.as_str().into(),
            Value::text_maybe(job.session_id.as_deref()),
            job.request.as_str().into(),
            job.request_sha256.as_str().into(),
            Value::count(job.request.len() as u64),
            job.caller.as_str().into(),
            Value::time(started_at),
            server.into(),
            microseconds(JOB_LEASE),
            execution_id.into(),
        ];
        let added = self.write_for_rows(vec![rows(sql, values)], job_of).await?;
        added.into_iter().next().ok_or(StoreError::Conflict)
    }
}

/// Gives a caller its place in the order of turns.
pub(super) fn turn_of(owner: &str) -> Statement {
    change("INSERT INTO job_turns (owner, turn) VALUES ($1, 0)", vec![owner.into()])
        .or_keep("owner")
}

fn output_values(output: &JobOutputRow) -> [Value; 5] {
    [
        output.head.as_str().into(),
        output.tail.as_str().into(),
        Value::count(output.chars),
        Value::count_maybe(output.progress),
        Value::text_maybe(output.progress_message.as_deref()),
    ]
}

pub(super) fn microseconds(duration: Duration) -> Value {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).into()
}

fn state_of(name: &str) -> Result<JobState, StoreError> {
    JobState::parse(name)
        .ok_or_else(|| StoreError::Corrupt(format!("`{name}` is not a state of a job")))
}

fn claimed_of(row: Row) -> Result<ClaimedJob, StoreError> {
    let (row, mut rest) = job_and_rest(row)?;
    Ok(ClaimedJob { row, request: rest.text()?, caller: rest.text()? })
}

fn job_of(row: Row) -> Result<JobRow, StoreError> {
    job_and_rest(row).map(|(job, _)| job)
}

fn job_and_rest(mut row: Row) -> Result<(JobRow, Row), StoreError> {
    let job = JobRow {
        id: row.text()?,
        owner: row.text()?,
        session_id: row.text_maybe()?,
        kind: JobKind::parse(&row.text()?)?,
        state: state_of(&row.text()?)?,
        priority: row.number()?,
        retries: row.count()?,
        attempts: row.count()?,
        schedule_id: row.text_maybe()?,
        submitted_at: row.time()?,
        due_at: row.time()?,
        started_at: row.time_maybe()?,
        ended_at: row.time_maybe()?,
        server: row.text_maybe()?,
        cancel_requested: row.boolean()?,
        progress: row.count_maybe()?,
        progress_message: row.text_maybe()?,
        output_chars: row.count()?,
        execution_id: row.text_maybe()?,
        error: row.text_maybe()?,
        has_result: row.boolean()?,
        request_sha256: row.text()?,
        webhook: webhooks::webhook_of(&mut row)?,
    };
    Ok((job, row))
}
