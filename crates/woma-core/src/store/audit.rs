//! The audit trail: rows are added, never changed, and deleted by age only. Triggers in the
//! database hold it to that, whoever speaks to it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::statement::{Conditions, Row, Statement, Value, change, rows};
use super::{Store, StoreError};

/// The action of rows that tell of an attack or something that looks like one.
pub const SECURITY_EVENT: &str = "security_event";

/// What is added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub owner: String,
    pub action: String,
    pub session_id: Option<String>,
    pub execution_id: Option<String>,
    /// JSON.
    pub detail: String,
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Grows with each row; has gaps.
    pub seq: i64,
    pub entry: AuditEntry,
}

/// Which rows are wanted: those that fit everything that is given.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub owner: Option<String>,
    pub session_id: Option<String>,
    pub action: Option<String>,
    pub since: Option<Timestamp>,
    /// Not including it.
    pub until: Option<Timestamp>,
    /// Only rows below this number, to go on with a list.
    pub before: Option<i64>,
}

/// What retention took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    pub audit: u64,
    pub executions: u64,
}

/// Rows of each kind that one purge takes, so that no writer waits for it for long.
const PURGE_ROWS_MAX: i64 = 10_000;
/// What of the trail may go: not what belongs to code that still runs.
const PURGE_AUDIT: &str = "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit AS old \
     WHERE at < $1 AND NOT EXISTS (SELECT 1 FROM executions \
     WHERE executions.id = old.execution_id AND executions.status = 'running') \
     ORDER BY at LIMIT $2)";
const PURGE_EXECUTIONS: &str = "DELETE FROM executions WHERE id IN (SELECT id FROM executions \
     WHERE status <> 'running' AND ended_at < $1 ORDER BY ended_at LIMIT $2)";

impl Store {
    pub async fn append_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        self.write(vec![appended(entry)]).await.map(drop)
    }

    /// Latest first.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let mut conditions = Conditions::default();
        let texts = [
            ("owner = $", &filter.owner),
            ("session_id = $", &filter.session_id),
            ("action = $", &filter.action),
        ];
        for (condition, text) in texts {
            if let Some(text) = text {
                conditions.add(condition, text.as_str().into());
            }
        }
        if let Some(since) = filter.since {
            conditions.add("at >= $", Value::time(since));
        }
        if let Some(until) = filter.until {
            conditions.add("at < $", Value::time(until));
        }
        if let Some(before) = filter.before {
            conditions.add("seq < $", before.into());
        }
        let select = "SELECT seq, at, owner, action, session_id, execution_id, detail FROM audit";
        let (sql, values) = conditions.finish(select, "ORDER BY seq DESC", limit);
        self.read_all(rows(sql, values), audit_of).await
    }

    /// Deletes the trail before `before`, and executions that ended before it. What still runs is
    /// left alone. That it was done is a row of the trail. It takes 10 000 of each at most: ask
    /// again until there is nothing left.
    pub async fn purge(&self, before: Timestamp, now: Timestamp) -> Result<Purged, StoreError> {
        let done = AuditEntry {
            at: now,
            owner: String::new(),
            action: "audit_purged".to_owned(),
            session_id: None,
            execution_id: None,
            detail: format!("{{\"before\":\"{before}\"}}"),
        };
        let old = || vec![Value::time(before), PURGE_ROWS_MAX.into()];
        let unit = vec![
            change("INSERT INTO audit_purge (before) VALUES ($1)", vec![Value::time(before)]),
            change(PURGE_AUDIT, old()),
            change("DELETE FROM audit_purge", vec![]),
            change(PURGE_EXECUTIONS, old()),
            appended(&done),
        ];
        let answers = self.write(unit).await?;
        let touched = |index: usize| answers.get(index).map_or(0, |answer| answer.touched);
        Ok(Purged { audit: touched(1), executions: touched(3) })
    }
}

pub(super) fn appended(entry: &AuditEntry) -> Statement {
    let sql = "INSERT INTO audit (at, owner, action, session_id, execution_id, detail) \
         VALUES ($1, $2, $3, $4, $5, $6)";
    let values = vec![
        Value::time(entry.at),
        entry.owner.as_str().into(),
        entry.action.as_str().into(),
        Value::text_maybe(entry.session_id.as_deref()),
        Value::text_maybe(entry.execution_id.as_deref()),
        entry.detail.as_str().into(),
    ];
    change(sql, values)
}

fn audit_of(mut row: Row) -> Result<AuditRow, StoreError> {
    let seq = row.number()?;
    let entry = AuditEntry {
        at: row.time()?,
        owner: row.text()?,
        action: row.text()?,
        session_id: row.text_maybe()?,
        execution_id: row.text_maybe()?,
        detail: row.text()?,
    };
    Ok(AuditRow { seq, entry })
}
