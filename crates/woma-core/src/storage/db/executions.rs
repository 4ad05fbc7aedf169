//! Rows of executions: finished, or lost with the server that ran them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::records::{Days, Trail, appended};
use super::statement::{Conditions, Row, Statement, Value, change, rows};
use super::{AuditEntry, Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionRow {
    pub id: String,
    pub owner: String,
    pub session_id: Option<String>,
    /// The server that ran it.
    pub server: String,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub status: ExecutionStatus,
    pub outcome: Option<String>,
    pub error_category: Option<String>,
    /// Digest of the code, in hexadecimal.
    pub code_sha256: String,
    /// Stored only if the operator enables it.
    pub code_text: Option<String>,
    pub wall_ms: Option<u64>,
    pub cpu_ms: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub output_bytes: Option<u64>,
    pub files_count: Option<u64>,
    pub client: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutionStatus {
    Running,
    Finished,
    /// Its server ended while it ran.
    Lost,
}

impl ExecutionStatus {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Lost => "lost",
        }
    }

    fn parse(name: &str) -> Result<Self, StoreError> {
        match name {
            "running" => Ok(Self::Running),
            "finished" => Ok(Self::Finished),
            "lost" => Ok(Self::Lost),
            other => Err(StoreError::Corrupt(format!("`{other}` is not an execution status"))),
        }
    }
}

const COLUMNS: &str = "id, owner, session_id, server, started_at, ended_at, status, outcome, \
     error_category, code_sha256, code_text, wall_ms, cpu_ms, memory_peak_bytes, output_bytes, \
     files_count, client";
const PARAMETERS: &str =
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17";

/// Built once, because each run needs it.
static FINISH: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO executions ({COLUMNS}) VALUES ({PARAMETERS}) \
         ON CONFLICT (id) DO UPDATE SET ended_at = excluded.ended_at, status = excluded.status, \
         outcome = excluded.outcome, error_category = excluded.error_category, \
         wall_ms = excluded.wall_ms, cpu_ms = excluded.cpu_ms, \
         memory_peak_bytes = excluded.memory_peak_bytes, output_bytes = excluded.output_bytes, \
         files_count = excluded.files_count \
         WHERE executions.status <> 'finished' AND executions.owner = excluded.owner"
    )
});

impl Store {
    /// Records the end of an execution with its audit row, and counts it in its session. An
    /// execution that has already ended is a conflict.
    pub async fn finish(
        &self,
        execution: &ExecutionRow,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.write(finished(execution, audit, self.trail())).await.map(drop)
    }

    /// Records many executions in one transaction.
    pub(crate) async fn finish_all(
        &self,
        ended: impl Iterator<Item = (&ExecutionRow, &AuditEntry)>,
    ) -> Result<(), StoreError> {
        let (mut unit, mut uses, trail) = (Vec::new(), BTreeMap::new(), self.trail());
        let mut days = Days::default();
        for (execution, audit) in ended {
            unit.extend([recorded(execution), appended(audit, trail)]);
            days = days.execution(execution).audit(audit);
            if let Some(used) = Use::of(execution) {
                uses.entry(used.session).or_insert(Use { count: 0, ..used }).add(&used);
            }
        }
        unit.extend(uses.into_values().map(Use::counted));
        unit.extend(days.counted(trail));
        self.write(unit).await.map(drop)
    }

    pub async fn execution(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<ExecutionRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM executions WHERE owner = $1 AND id = $2");
        self.read_one(rows(sql, vec![owner.into(), id.into()]), execution_of).await
    }

    /// Executions of an owner, latest first; with `before`, those that precede it.
    pub async fn executions(
        &self,
        owner: &str,
        session: Option<&str>,
        limit: u32,
        before: Option<&str>,
    ) -> Result<Vec<ExecutionRow>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("owner = $", owner.into());
        if let Some(session) = session {
            conditions.add("session_id = $", session.into());
        }
        if let Some(before) = before {
            conditions.add(
                "(started_at, id) < (SELECT started_at, id FROM executions AS last \
                 WHERE last.owner = $1 AND last.id = $",
                before.into(),
            );
            conditions.text.push(')');
        }
        let (sql, values) = conditions.finish(
            &format!("SELECT {COLUMNS} FROM executions"),
            "ORDER BY started_at DESC, id DESC",
            limit,
        );
        self.read_all(rows(sql, values), execution_of).await
    }
}

fn finished(execution: &ExecutionRow, audit: &AuditEntry, trail: Trail<'_>) -> Vec<Statement> {
    let mut unit = vec![recorded(execution)];
    unit.extend(Use::of(execution).map(Use::counted));
    unit.push(appended(audit, trail));
    unit.extend(Days::default().execution(execution).audit(audit).counted(trail));
    unit
}

fn recorded(execution: &ExecutionRow) -> Statement {
    change(FINISH.as_str(), values_of(execution)).or_else(StoreError::Conflict)
}

/// Update of a session's counter and last use by its executions.
#[derive(Debug, Clone, Copy)]
struct Use<'a> {
    /// Owner and id of the session.
    session: (&'a str, &'a str),
    count: i64,
    last: Timestamp,
}

impl<'a> Use<'a> {
    fn of(execution: &'a ExecutionRow) -> Option<Self> {
        let session = (execution.owner.as_str(), execution.session_id.as_deref()?);
        let last = execution.ended_at.unwrap_or(execution.started_at);
        Some(Self { session, count: 1, last })
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.last = self.last.max(other.last);
    }

    fn counted(self) -> Statement {
        let (owner, id) = self.session;
        change(
            "UPDATE sessions SET execution_count = execution_count + $4, \
             last_used_at = CASE WHEN $3 > last_used_at THEN $3 ELSE last_used_at END \
             WHERE owner = $1 AND id = $2",
            vec![owner.into(), id.into(), Value::time(self.last), self.count.into()],
        )
    }
}

fn values_of(execution: &ExecutionRow) -> Vec<Value> {
    vec![
        execution.id.as_str().into(),
        execution.owner.as_str().into(),
        Value::text_maybe(execution.session_id.as_deref()),
        execution.server.as_str().into(),
        Value::time(execution.started_at),
        Value::time_maybe(execution.ended_at),
        execution.status.name().into(),
        Value::text_maybe(execution.outcome.as_deref()),
        Value::text_maybe(execution.error_category.as_deref()),
        execution.code_sha256.as_str().into(),
        Value::text_maybe(execution.code_text.as_deref()),
        Value::count_maybe(execution.wall_ms),
        Value::count_maybe(execution.cpu_ms),
        Value::count_maybe(execution.memory_peak_bytes),
        Value::count_maybe(execution.output_bytes),
        Value::count_maybe(execution.files_count),
        Value::text_maybe(execution.client.as_deref()),
    ]
}

fn execution_of(mut row: Row) -> Result<ExecutionRow, StoreError> {
    Ok(ExecutionRow {
        id: row.text()?,
        owner: row.text()?,
        session_id: row.text_maybe()?,
        server: row.text()?,
        started_at: row.time()?,
        ended_at: row.time_maybe()?,
        status: ExecutionStatus::parse(&row.text()?)?,
        outcome: row.text_maybe()?,
        error_category: row.text_maybe()?,
        code_sha256: row.text()?,
        code_text: row.text_maybe()?,
        wall_ms: row.count_maybe()?,
        cpu_ms: row.count_maybe()?,
        memory_peak_bytes: row.count_maybe()?,
        output_bytes: row.count_maybe()?,
        files_count: row.count_maybe()?,
        client: row.text_maybe()?,
    })
}
