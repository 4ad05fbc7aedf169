//! Claims on jobs: taken with a lease, renewed, ended once, taken from servers that died.

use std::time::Duration;

use super::COLUMNS;
use super::{
    ClaimedJob, JOB_LEASE, JobEnd, JobOutputRow, JobState, OWNERS_MAX, claimed_of, microseconds,
    output_values, state_of, webhooks,
};
use crate::storage::db::leases::own_pattern;
use crate::storage::db::statement::{Row, Value, change, rows};
use crate::storage::db::{Backend, Store, StoreError};

impl Store {
    /// Callers with a job that this server may run now, in the order in which they are served.
    pub async fn job_owners(&self, server: &str) -> Result<Vec<String>, StoreError> {
        let sql = format!(
            "SELECT owner FROM job_turns AS turns WHERE waiting_jobs > 0 AND EXISTS (SELECT 1 \
             FROM jobs WHERE jobs.owner = turns.owner AND {claimable}) ORDER BY turn, owner LIMIT $2",
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
             lease_until = NULL, {webhook} \
             WHERE id = $1 AND server = $2 AND state = 'running'",
            webhook = webhooks::due_when(now, "1 = 1"),
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
             server = CASE WHEN {again} THEN NULL ELSE server END, lease_until = NULL, {webhook} \
             WHERE state = 'running' AND lease_until < {now} AND server <> $1 \
             RETURNING id, state",
            webhook = webhooks::due_when(now, &format!("NOT ({again})")),
        );
        let reaped = |mut row: Row| Ok((row.text()?, state_of(&row.text()?)?));
        self.write_for_rows(vec![rows(sql, vec![server.into(), error.into()])], reaped).await
    }
}
