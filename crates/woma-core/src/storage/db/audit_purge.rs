//! Retention of the audit trail and of executions. Of a chain, the beginning is deleted, and a row at
//! its end says through which position, with the hash of the last row that went: the rest of the
//! chain can still be checked.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::records::{self, Trail};
use super::statement::{Statement, Value, change, rows};
use super::{Store, StoreError};

/// Action of the row that a purge leaves.
pub const AUDIT_PURGED: &str = "audit_purged";

/// Limit of rows per table and purge, so that writers do not wait long.
const PURGE_ROWS_MAX: i64 = 10_000;
/// Rows of earlier purges that may go alone: each purge leaves one, which must not go on for ever.
const PURGED_ROWS_MIN: i64 = 100;

const PERMIT: &str = "INSERT INTO audit_purge (before) VALUES ($1)";
const REVOKE: &str = "DELETE FROM audit_purge";
const CHAINS: &str = "SELECT chain, position FROM audit_heads WHERE chain <> '' ORDER BY chain";
const FIRST: &str = "SELECT position FROM audit WHERE chain = $1 ORDER BY position LIMIT 1";
/// The first row that must stay: a young one, or one of a running execution.
const FIRST_KEPT: &str = "SELECT position FROM audit AS old WHERE chain = $1 AND (at >= $2 OR EXISTS \
     (SELECT 1 FROM executions WHERE executions.id = old.execution_id \
     AND executions.status = 'running')) ORDER BY position LIMIT 1";
const COUNT: &str = "SELECT COUNT(*) FROM audit WHERE chain = $1 AND position <= $2 \
     AND action <> 'audit_purged'";
const HASH: &str = "SELECT hash FROM audit WHERE chain = $1 AND position = $2";
const PURGE_CHAIN: &str = "DELETE FROM audit WHERE chain = $1 AND position <= $2";
/// Rows from before there were chains. Skips entries of running executions.
const PURGE_UNCHAINED: &str = "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit AS old \
     WHERE chain IS NULL AND at < $1 AND NOT EXISTS (SELECT 1 FROM executions \
     WHERE executions.id = old.execution_id AND executions.status = 'running') \
     ORDER BY at LIMIT $2)";
const PURGE_EXECUTIONS: &str = "DELETE FROM executions WHERE id IN (SELECT id FROM executions \
     WHERE status <> 'running' AND ended_at < $1 ORDER BY ended_at LIMIT $2)";
/// Counters of past days.
const PURGE_DAYS: &str = "DELETE FROM record_days WHERE day < $1";

/// Rows deleted by retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    pub audit: u64,
    pub executions: u64,
}

/// Detail of the row that a purge leaves in a chain.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Anchor {
    before: String,
    /// Number of rows that went.
    rows: i64,
    /// Last position that went, and the hash of its row.
    pub(super) through: i64,
    pub(super) hash: String,
}

impl Store {
    /// Deletes audit rows older than `before` and executions that ended before it, except those of
    /// running executions. What goes is audited. One call deletes at most 10 000 rows per chain and
    /// table: repeat until none are left.
    pub async fn purge(&self, before: Timestamp, now: Timestamp) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        for mut row in self.read(rows(CHAINS, vec![])).await? {
            let (chain, last) = (row.text()?, row.number()?);
            purged.audit += self.purge_chain(&chain, last, before, now).await?;
        }
        let old = || vec![Value::time(before), PURGE_ROWS_MAX.into()];
        let unchained = vec![
            change(PERMIT, vec![Value::time(before)]),
            change(PURGE_UNCHAINED, old()).or_else(StoreError::NotFound),
            change(REVOKE, vec![]),
            self.purge_note("audit", before, now),
        ];
        purged.audit += self.write_if_any(unchained, 1).await?;
        let executions = vec![
            change(PURGE_EXECUTIONS, old()).or_else(StoreError::NotFound),
            self.purge_note("executions", before, now),
        ];
        purged.executions += self.write_if_any(executions, 0).await?;
        self.change(change(PURGE_DAYS, vec![records::day_of(before).into()])).await?;
        Ok(purged)
    }

    /// Deletes the beginning of a chain, up to the first row that must stay.
    async fn purge_chain(
        &self,
        chain: &str,
        last: i64,
        before: Timestamp,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let number = async |sql: &'static str, values: Vec<Value>| {
            let found = self.read(rows(sql, values)).await?.into_iter().next();
            found.map(|mut row| row.number()).transpose()
        };
        let Some(first) = number(FIRST, vec![chain.into()]).await? else { return Ok(0) };
        let kept = number(FIRST_KEPT, vec![chain.into(), Value::time(before)]).await?;
        let through = kept.map_or(last, |kept| kept - 1).min(first + PURGE_ROWS_MAX - 1);
        let count = through - first + 1;
        let others = number(COUNT, vec![chain.into(), through.into()]).await?.unwrap_or(0);
        if count <= 0 || (others == 0 && count < PURGED_ROWS_MIN) {
            return Ok(0);
        }
        let found = self.read(rows(HASH, vec![chain.into(), through.into()])).await?;
        // A chain with a gap is left as it is: it is evidence.
        let Some(mut found) = found.into_iter().next() else { return Ok(0) };
        let anchor =
            Anchor { before: before.to_string(), rows: count, through, hash: found.text()? };
        let detail = serde_json::to_string(&anchor)
            .map_err(|error| StoreError::Internal(error.to_string()))?;
        let entry = records::of_trail(now, "", AUDIT_PURGED, detail);
        let unit = vec![
            change(PERMIT, vec![Value::time(before)]),
            change(PURGE_CHAIN, vec![chain.into(), through.into()]).or_else(StoreError::NotFound),
            change(REVOKE, vec![]),
            records::appended(&entry, Trail { chain, limit: i64::MAX }),
        ];
        self.write_if_any(unit, 1).await
    }

    fn purge_note(&self, what: &str, before: Timestamp, now: Timestamp) -> Statement {
        let detail = format!("{{\"before\":\"{before}\",\"records\":\"{what}\"}}");
        let entry = records::of_trail(now, "", AUDIT_PURGED, detail);
        records::appended(&entry, self.trail().unlimited())
    }

    /// Runs a unit that fails with `NotFound` if there is nothing to delete, which is no error here.
    /// Returns how many rows the statement with that index has deleted.
    async fn write_if_any(&self, unit: Vec<Statement>, index: usize) -> Result<u64, StoreError> {
        match self.write(unit).await {
            Ok(answers) => Ok(answers.get(index).map_or(0, |answer| answer.touched)),
            Err(StoreError::NotFound) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
