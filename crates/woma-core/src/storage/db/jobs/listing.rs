//! Jobs as they are read, cancelled and purged.

use jiff::Timestamp;

use super::{COLUMNS, JobFilter, JobOutputRow, JobRow, job_of, webhooks};
use crate::storage::db::statement::{Conditions, Row, Statement, Value, change, rows};
use crate::storage::db::{Store, StoreError};

impl Store {
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
        let now = self.clock();
        let waiting = format!(
            "UPDATE jobs SET state = 'cancelled', ended_at = {now}, cancel_requested = 1, \
             {webhook} WHERE {which} AND state = 'pending'",
            webhook = webhooks::due_when(now, "1 = 1"),
        );
        let running = format!(
            "UPDATE jobs SET cancel_requested = 1 WHERE {which} AND state = 'running' \
             AND cancel_requested = 0"
        );
        vec![change(waiting, key()), change(running, key())]
    }

    /// Jobs that wait, of all callers and of one, and undelivered webhooks of that one.
    pub async fn pending_jobs(&self, owner: &str) -> Result<(u64, u64, u64), StoreError> {
        let sql = format!(
            "SELECT CAST(COALESCE(SUM(waiting_jobs), 0) AS BIGINT), CAST(COALESCE(SUM(CASE WHEN \
             owner = $2 THEN waiting_jobs ELSE 0 END), 0) AS BIGINT), {} FROM job_turns",
            webhooks::DUE_OF_OWNER
        );
        let counts = |mut row: Row| Ok((row.count()?, row.count()?, row.count()?));
        // The condition names its owner `$2`.
        let values = vec![owner.into(), owner.into()];
        Ok(self.read_one(rows(sql, values), counts).await?.unwrap_or_default())
    }

    /// Deletes jobs that ended before `before`, and of each owner the oldest ended ones beyond
    /// `kept_bytes_max`, unless a webhook is still due. Returns their number.
    pub async fn purge_jobs(
        &self,
        before: Timestamp,
        kept_bytes_max: u64,
    ) -> Result<u64, StoreError> {
        let old = "DELETE FROM jobs WHERE ended_at < $1 AND webhook_due_at IS NULL";
        let over = "DELETE FROM jobs WHERE webhook_due_at IS NULL AND id IN (SELECT id FROM (SELECT id, \
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
