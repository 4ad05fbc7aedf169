//! Queue of jobs: submitted, claimed with a lease, renewed, ended once.
//!
//! Several servers may share the queue. A claim is committed before the code begins, so a job runs
//! at most once for each claim. A lease expires by the database's clock.

use std::time::Duration;

use jiff::Timestamp;

use super::leases::own_pattern;
use super::statement::{Conditions, Row, Statement, Value, change, rows};
use super::{Backend, Store, StoreError};

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

/// A job as it is listed, without its code and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    pub id: String,
    pub owner: String,
    /// `None`: a session that ends with the job.
    pub session_id: Option<String>,
    /// `submitted`, or `detached` from a call that it outlived.
    pub kind: String,
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
}

/// Limits of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    pub jobs: u64,
    pub jobs_of_owner: u64,
    /// Of requests.
    pub bytes: u64,
    pub bytes_of_owner: u64,
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
     CASE WHEN result IS NULL THEN 0 ELSE 1 END, request_sha256";

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
        let pending =
            |what: &str, of: &str| format!("(SELECT {what} FROM jobs WHERE state = 'pending'{of})");
        let bytes = "CAST(COALESCE(SUM(request_bytes), 0) AS BIGINT)";
        let sql = format!(
            "INSERT INTO jobs (id, owner, session_id, kind, state, priority, retries, attempts, \
             request, request_sha256, request_bytes, caller, idempotency_key, schedule_id, \
             submitted_at, due_at, cancel_requested, output_head, output_tail, output_chars, \
             kept_bytes) \
             SELECT $1, $2, $3, 'submitted', 'pending', $4, $5, 0, $6, $7, $8, $9, $10, $11, \
             {now}, COALESCE($12, {now}), 0, '', '', 0, $8 \
             WHERE {jobs} < $13 AND {jobs_own} < $14 AND {bytes_all} + $8 <= $15 \
             AND {bytes_own} + $8 <= $16 \
             ON CONFLICT (owner, idempotency_key) DO NOTHING RETURNING {COLUMNS}",
            jobs = pending("count(*)", ""),
            jobs_own = pending("count(*)", " AND owner = $2"),
            bytes_all = pending(bytes, ""),
            bytes_own = pending(bytes, " AND owner = $2"),
        );
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

    /// Callers with a job that this server may run now, in the order in which they are served.
    pub async fn job_owners(&self, server: &str) -> Result<Vec<String>, StoreError> {
        let sql = format!(
            "SELECT owner FROM job_turns AS turns WHERE EXISTS (SELECT 1 FROM jobs \
             WHERE jobs.owner = turns.owner AND {claimable}) ORDER BY turn, owner LIMIT $2",
            claimable = self.claimable("$1")
        );
        let values = vec![own_pattern(server), OWNERS_MAX.into()];
        self.read_all(rows(sql, values), |mut row| row.text()).await
    }

    /// Claims a caller's next job: the highest priority, then the earliest.
    pub async fn claim_job(
        &self,
        owner: &str,
        server: &str,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        let now = self.clock();
        let skip = match self.backend {
            Backend::Sqlite(_) => "",
            Backend::Postgres(_) => " FOR UPDATE OF jobs SKIP LOCKED",
        };
        let sql = format!(
            "UPDATE jobs SET state = 'running', server = $2, lease_until = {now} + $3, \
             started_at = {now}, attempts = attempts + 1, progress = NULL, \
             progress_message = NULL, output_head = '', output_tail = '', output_chars = 0 \
             WHERE state = 'pending' AND id = (SELECT id FROM jobs WHERE owner = $1 \
             AND {claimable} ORDER BY priority DESC, due_at, id LIMIT 1{skip}) \
             RETURNING {COLUMNS}, request, caller",
            claimable = self.claimable("$4")
        );
        let values =
            vec![owner.into(), server.into(), microseconds(JOB_LEASE), own_pattern(server)];
        let turn = "UPDATE job_turns SET turn = (SELECT MAX(turn) + 1 FROM job_turns) \
                    WHERE owner = $1";
        let unit = vec![change(turn, vec![owner.into()]), rows(sql, values)];
        Ok(self.write_for_rows(unit, claimed_of).await?.into_iter().next())
    }

    /// SQL: whether the job at hand is due, and no live server with another folder has its session.
    fn claimable(&self, own_pattern: &str) -> String {
        let now = self.clock();
        format!(
            "jobs.state = 'pending' AND jobs.due_at <= {now} AND NOT EXISTS (\
             SELECT 1 FROM sessions, servers WHERE sessions.owner = jobs.owner \
             AND sessions.id = jobs.session_id AND servers.id = sessions.lease_server \
             AND servers.id NOT LIKE {own_pattern} AND servers.alive_until > {now})"
        )
    }

    /// Renews a claim and stores what the job has said so far. Returns whether it is to be
    /// cancelled; `None` if the claim was lost.
    pub async fn renew_job(
        &self,
        id: &str,
        server: &str,
        output: Option<&JobOutputRow>,
    ) -> Result<Option<bool>, StoreError> {
        let now = self.clock();
        let (said, mut values) = (
            ", output_head = $4, output_tail = $5, output_chars = $6, progress = $7, \
             progress_message = $8",
            vec![id.into(), server.into(), microseconds(JOB_LEASE)],
        );
        let said = output.map_or("", |output| {
            values.extend(output_values(output));
            said
        });
        let sql = format!(
            "UPDATE jobs SET lease_until = {now} + $3{said} WHERE id = $1 AND server = $2 \
             AND state = 'running' RETURNING cancel_requested"
        );
        let renewed = self.write_for_rows(vec![rows(sql, values)], |mut row| row.boolean());
        Ok(renewed.await?.into_iter().next())
    }

    /// Ends a job that this server has claimed. False if the claim was lost.
    pub async fn finish_job(
        &self,
        id: &str,
        server: &str,
        end: &JobEnd,
    ) -> Result<bool, StoreError> {
        let now = self.clock();
        let sql = format!(
            "UPDATE jobs SET state = $3, output_head = $4, output_tail = $5, output_chars = $6, \
             progress = $7, progress_message = $8, execution_id = COALESCE($9, execution_id), \
             error = $10, result = $11, kept_bytes = request_bytes + $12, ended_at = {now}, \
             lease_until = NULL \
             WHERE id = $1 AND server = $2 AND state = 'running'"
        );
        let kept = [&end.result, &end.error].into_iter().flatten().map(String::len).sum::<usize>();
        let kept = kept + end.output.head.len() + end.output.tail.len();
        let mut values = vec![id.into(), server.into(), end.state.name().into()];
        values.extend(output_values(&end.output));
        values.extend([
            Value::text_maybe(end.execution_id.as_deref()),
            Value::text_maybe(end.error.as_deref()),
            Value::text_maybe(end.result.as_deref()),
            Value::count(kept as u64),
        ]);
        Ok(self.change(change(sql, values)).await? > 0)
    }

    /// Returns a claimed job to the queue without counting the attempt; it is due after `pause`.
    pub async fn put_back_job(
        &self,
        id: &str,
        server: &str,
        pause: Duration,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "UPDATE jobs SET state = 'pending', server = NULL, lease_until = NULL, \
             started_at = NULL, attempts = attempts - 1, due_at = {} + $3 \
             WHERE id = $1 AND server = $2 AND state = 'running'",
            self.clock()
        );
        let values = vec![id.into(), server.into(), microseconds(pause)];
        self.change(change(sql, values)).await.map(drop)
    }

    /// Ends the jobs of servers whose claims have expired, or returns them to the queue if they
    /// have retries left. Returns their ids and new states.
    pub async fn reap_jobs(
        &self,
        server: &str,
        error: &str,
    ) -> Result<Vec<(String, JobState)>, StoreError> {
        let now = self.clock();
        let again = "cancel_requested = 0 AND attempts <= retries";
        let sql = format!(
            "UPDATE jobs SET state = CASE WHEN {again} THEN 'pending' \
             WHEN cancel_requested = 1 THEN 'cancelled' ELSE 'failed' END, \
             error = CASE WHEN {again} THEN NULL ELSE $2 END, \
             ended_at = CASE WHEN {again} THEN NULL ELSE {now} END, \
             kept_bytes = request_bytes + length(output_head) + length(output_tail), \
             server = CASE WHEN {again} THEN NULL ELSE server END, lease_until = NULL \
             WHERE state = 'running' AND lease_until < {now} AND server <> $1 \
             RETURNING id, state"
        );
        let reaped = |mut row: Row| Ok((row.text()?, state_of(&row.text()?)?));
        self.write_for_rows(vec![rows(sql, vec![server.into(), error.into()])], reaped).await
    }

    pub async fn job(&self, owner: &str, id: &str) -> Result<Option<JobRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM jobs WHERE owner = $1 AND id = $2");
        self.read_one(rows(sql, vec![owner.into(), id.into()]), job_of).await
    }

    /// Output of a job, as far as it is stored.
    pub async fn job_output(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<JobOutputRow>, StoreError> {
        let sql = "SELECT output_head, output_tail, output_chars, progress, progress_message \
                   FROM jobs WHERE owner = $1 AND id = $2";
        let output = |mut row: Row| {
            let (head, tail, chars) = (row.text()?, row.text()?, row.count()?);
            let (progress, progress_message) = (row.count_maybe()?, row.text_maybe()?);
            Ok(JobOutputRow { head, tail, chars, progress, progress_message })
        };
        self.read_one(rows(sql, vec![owner.into(), id.into()]), output).await
    }

    /// The stored result of a job that has one.
    pub async fn job_result(&self, owner: &str, id: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT result FROM jobs WHERE owner = $1 AND id = $2 AND result IS NOT NULL";
        self.read_one(rows(sql, vec![owner.into(), id.into()]), |mut row| row.text()).await
    }

    /// Jobs of an owner, latest first; with `before`, those that precede it.
    pub async fn jobs(
        &self,
        owner: &str,
        filter: &JobFilter,
        limit: u32,
        before: Option<&str>,
    ) -> Result<Vec<JobRow>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("owner = $", owner.into());
        if let Some(state) = filter.state {
            conditions.add("state = $", state.name().into());
        }
        if let Some(session) = &filter.session {
            conditions.add("session_id = $", session.as_str().into());
        }
        if let Some(schedule) = &filter.schedule {
            conditions.add("schedule_id = $", schedule.as_str().into());
        }
        if let Some(before) = before {
            conditions.add(
                "(submitted_at, id) < (SELECT submitted_at, id FROM jobs AS last \
                 WHERE last.owner = $1 AND last.id = $",
                before.into(),
            );
            conditions.text.push(')');
        }
        let (sql, values) = conditions.finish(
            &format!("SELECT {COLUMNS} FROM jobs"),
            "ORDER BY submitted_at DESC, id DESC",
            limit,
        );
        self.read_all(rows(sql, values), job_of).await
    }

    /// Cancels a job: at once if it waits, else its server is told. Returns it as it is then.
    pub async fn cancel_job(&self, owner: &str, id: &str) -> Result<Option<JobRow>, StoreError> {
        let key = || vec![owner.into(), id.into()];
        let select = format!("SELECT {COLUMNS} FROM jobs WHERE owner = $1 AND id = $2");
        let mut unit = self.cancelled("owner = $1 AND id = $2", &key);
        unit.push(rows(select, key()));
        Ok(self.write_for_rows(unit, job_of).await?.into_iter().next())
    }

    /// Cancels the jobs of a session that have not ended, and returns their number.
    pub async fn cancel_session_jobs(&self, owner: &str, session: &str) -> Result<u64, StoreError> {
        let key = || vec![owner.into(), session.into()];
        let answers = self.write(self.cancelled("owner = $1 AND session_id = $2", &key)).await?;
        Ok(answers.iter().map(|answer| answer.touched).sum())
    }

    fn cancelled(&self, which: &str, key: &dyn Fn() -> Vec<Value>) -> Vec<Statement> {
        let waiting = format!(
            "UPDATE jobs SET state = 'cancelled', ended_at = {now}, cancel_requested = 1 \
             WHERE {which} AND state = 'pending'",
            now = self.clock()
        );
        let running = format!(
            "UPDATE jobs SET cancel_requested = 1 WHERE {which} AND state = 'running' \
             AND cancel_requested = 0"
        );
        vec![change(waiting, key()), change(running, key())]
    }

    /// Jobs that wait, of all callers and of one.
    pub async fn pending_jobs(&self, owner: &str) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT count(*), CAST(COALESCE(SUM(CASE WHEN owner = $1 THEN 1 ELSE 0 END), 0) \
                   AS BIGINT) FROM jobs WHERE state = 'pending'";
        let counts = |mut row: Row| Ok((row.count()?, row.count()?));
        Ok(self.read_one(rows(sql, vec![owner.into()]), counts).await?.unwrap_or_default())
    }

    /// Deletes jobs that ended before `before`, and of each owner the oldest ended ones beyond
    /// `kept_bytes_max`. Returns their number.
    pub async fn purge_jobs(
        &self,
        before: Timestamp,
        kept_bytes_max: u64,
    ) -> Result<u64, StoreError> {
        let old = "DELETE FROM jobs WHERE ended_at < $1";
        let over = "DELETE FROM jobs WHERE id IN (SELECT id FROM (SELECT id, \
             SUM(kept_bytes) OVER (PARTITION BY owner ORDER BY ended_at DESC, id DESC) AS kept \
             FROM jobs WHERE ended_at IS NOT NULL) AS ended WHERE kept > $1)";
        let turns = "DELETE FROM job_turns WHERE NOT EXISTS (SELECT 1 FROM jobs \
             WHERE jobs.owner = job_turns.owner)";
        let unit = vec![
            change(old, vec![Value::time(before)]),
            change(over, vec![Value::count(kept_bytes_max)]),
            change(turns, vec![]),
        ];
        let answers = self.write(unit).await?;
        Ok(answers.iter().take(2).map(|answer| answer.touched).sum())
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
        kind: row.text()?,
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
    };
    Ok((job, row))
}
