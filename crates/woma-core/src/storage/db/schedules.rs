//! Schedules: jobs that repeat.

use jiff::Timestamp;

use super::jobs::turn_of;
use super::statement::{Conditions, Row, Value, change, rows};
use super::{NewJob, QueueLimits, Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRow {
    pub id: String,
    pub owner: String,
    pub name: Option<String>,
    pub cron: String,
    /// Name of a time zone.
    pub zone: String,
    pub session_id: Option<String>,
    pub priority: i64,
    pub retries: u64,
    /// JSON.
    pub request: String,
    /// JSON.
    pub caller: String,
    pub is_paused: bool,
    pub created_at: Timestamp,
    pub next_at: Timestamp,
    pub last_at: Option<Timestamp>,
    pub last_job: Option<String>,
    /// Why the latest occurrence made no job.
    pub problem: Option<String>,
}

/// An occurrence that is over: when the next one is, and what became of this one.
#[derive(Debug, Clone)]
pub struct Occurrence {
    pub next_at: Timestamp,
    /// `None`: no job, because of `problem`.
    pub job: Option<NewJob>,
    pub problem: Option<String>,
}

const COLUMNS: &str = "id, owner, name, cron, zone, session_id, priority, retries, request, \
     caller, is_paused, created_at, next_at, last_at, last_job, problem";

impl Store {
    /// Adds a schedule; `Conflict` if its owner has `limit` of them already.
    pub async fn add_schedule(&self, row: &ScheduleRow, limit: u64) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO schedules ({COLUMNS}) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
             $11, $12, $13, $14, $15, $16 \
             WHERE (SELECT count(*) FROM schedules WHERE owner = $2) < $17"
        );
        let values = vec![
            row.id.as_str().into(),
            row.owner.as_str().into(),
            Value::text_maybe(row.name.as_deref()),
            row.cron.as_str().into(),
            row.zone.as_str().into(),
            Value::text_maybe(row.session_id.as_deref()),
            row.priority.into(),
            Value::count(row.retries),
            row.request.as_str().into(),
            row.caller.as_str().into(),
            Value::boolean(row.is_paused),
            Value::time(row.created_at),
            Value::time(row.next_at),
            Value::time_maybe(row.last_at),
            Value::text_maybe(row.last_job.as_deref()),
            Value::text_maybe(row.problem.as_deref()),
            Value::count(limit),
        ];
        self.change(change(sql, values).or_else(StoreError::Conflict)).await.map(drop)
    }

    pub async fn schedule(&self, owner: &str, id: &str) -> Result<Option<ScheduleRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM schedules WHERE owner = $1 AND id = $2");
        self.read_one(rows(sql, vec![owner.into(), id.into()]), schedule_of).await
    }

    /// Schedules of an owner, latest first; with `before`, those that precede it.
    pub async fn schedules(
        &self,
        owner: &str,
        limit: u32,
        before: Option<&str>,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("owner = $", owner.into());
        if let Some(before) = before {
            conditions.add(
                "(created_at, id) < (SELECT created_at, id FROM schedules AS last \
                 WHERE last.owner = $1 AND last.id = $",
                before.into(),
            );
            conditions.text.push(')');
        }
        let (sql, values) = conditions.finish(
            &format!("SELECT {COLUMNS} FROM schedules"),
            "ORDER BY created_at DESC, id DESC",
            limit,
        );
        self.read_all(rows(sql, values), schedule_of).await
    }

    /// Schedules whose time has come, by the database's clock.
    pub async fn due_schedules(&self, limit: u32) -> Result<Vec<ScheduleRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM schedules WHERE is_paused = 0 AND next_at <= {} \
             ORDER BY next_at LIMIT $1",
            self.clock()
        );
        self.read_all(rows(sql, vec![i64::from(limit).into()]), schedule_of).await
    }

    /// Makes the job of an occurrence and sets the time of the next one, in one transaction.
    /// `Conflict` if another server was first, or if the schedule was changed meanwhile.
    pub async fn fire_schedule(
        &self,
        row: &ScheduleRow,
        occurrence: &Occurrence,
        limits: QueueLimits,
    ) -> Result<(), StoreError> {
        let Occurrence { next_at, job, problem } = occurrence;
        let sql = format!(
            "UPDATE schedules SET next_at = $2, last_at = {}, \
             last_job = COALESCE($3, last_job), problem = $4 \
             WHERE id = $1 AND next_at = $5 AND is_paused = 0",
            self.clock()
        );
        let values = vec![
            row.id.as_str().into(),
            Value::time(*next_at),
            Value::text_maybe(job.as_ref().map(|job| job.id.as_str())),
            Value::text_maybe(problem.as_deref()),
            Value::time(row.next_at),
        ];
        let mut unit = vec![change(sql, values).or_else(StoreError::Conflict)];
        if let Some(job) = job {
            unit.push(turn_of(&job.owner));
            // A queue that is full keeps the schedule due: the unit is undone.
            unit.push(self.inserted(job, limits).or_else(StoreError::NotFound));
        }
        self.write(unit).await.map(drop)
    }

    /// Pauses a schedule, or resumes it with the time of its next occurrence. False if it does not
    /// exist.
    pub async fn pause_schedule(
        &self,
        owner: &str,
        id: &str,
        resumed: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE schedules SET is_paused = $3, next_at = COALESCE($4, next_at) \
                   WHERE owner = $1 AND id = $2";
        let paused = Value::boolean(resumed.is_none());
        let values = vec![owner.into(), id.into(), paused, Value::time_maybe(resumed)];
        Ok(self.change(change(sql, values)).await? > 0)
    }

    pub async fn delete_schedule(&self, owner: &str, id: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM schedules WHERE owner = $1 AND id = $2";
        Ok(self.change(change(sql, vec![owner.into(), id.into()])).await? > 0)
    }
}

fn schedule_of(mut row: Row) -> Result<ScheduleRow, StoreError> {
    Ok(ScheduleRow {
        id: row.text()?,
        owner: row.text()?,
        name: row.text_maybe()?,
        cron: row.text()?,
        zone: row.text()?,
        session_id: row.text_maybe()?,
        priority: row.number()?,
        retries: row.count()?,
        request: row.text()?,
        caller: row.text()?,
        is_paused: row.boolean()?,
        created_at: row.time()?,
        next_at: row.time()?,
        last_at: row.time_maybe()?,
        last_job: row.text_maybe()?,
        problem: row.text_maybe()?,
    })
}
