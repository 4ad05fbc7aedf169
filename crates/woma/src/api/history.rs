//! Records of a session and of the server: checkpoints, executions, the audit trail.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use woma_core::store::{AuditFilter, AuditRow, ExecutionRow};
use woma_core::{Caller, Checkpointed, SessionId};

use super::arguments::{Arguments, Problem};
use super::error::Envelope;
use super::listing::{page, rows};
use super::reply::NotRestored;
use super::state::AppState;

/// Rows of a reply without `limit`.
const ROWS: usize = 100;

/// Variables that were saved.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckpointReply {
    success: bool,
    session_id: String,
    saved: Vec<String>,
    not_saved: Vec<NotRestored>,
    size_bytes: u64,
}

impl CheckpointReply {
    pub(crate) fn new(session: &SessionId, made: Checkpointed) -> Self {
        Self {
            success: true,
            session_id: session.to_string(),
            saved: made.saved,
            not_saved: made.skipped.into_iter().map(NotRestored::from).collect(),
            size_bytes: made.bytes,
        }
    }
}

/// One row of the audit trail.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditBody {
    /// Grows with each row; has gaps.
    pub(crate) seq: i64,
    pub(crate) at: String,
    /// Caller that acted.
    pub(crate) owner: String,
    /// `execute`, `security_event`, `create_session`, …
    pub(crate) action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) execution_id: Option<String>,
    pub(crate) detail: Value,
}

impl From<AuditRow> for AuditBody {
    fn from(AuditRow { seq, entry }: AuditRow) -> Self {
        Self {
            seq,
            at: entry.at.to_string(),
            owner: entry.owner,
            action: entry.action,
            session_id: entry.session_id,
            execution_id: entry.execution_id,
            detail: serde_json::from_str(&entry.detail).unwrap_or(Value::String(entry.detail)),
        }
    }
}

/// Rows, latest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditTrail {
    audit: Vec<AuditBody>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next: Option<String>,
}

/// Record of one execution, without its output.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExecutionBody {
    execution_id: String,
    session_id: Option<String>,
    started_at: String,
    ended_at: Option<String>,
    /// `finished`, or `lost` with the server that ran it.
    status: &'static str,
    outcome: Option<String>,
    error_category: Option<String>,
    code_sha256: String,
    /// Stored only if the operator has enabled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    code: Option<String>,
    wall_ms: Option<u64>,
    cpu_ms: Option<u64>,
    memory_peak_bytes: Option<u64>,
    output_bytes: Option<u64>,
    files: Option<u64>,
}

impl From<ExecutionRow> for ExecutionBody {
    fn from(row: ExecutionRow) -> Self {
        Self {
            execution_id: row.id,
            session_id: row.session_id,
            started_at: row.started_at.to_string(),
            ended_at: row.ended_at.map(|time| time.to_string()),
            status: row.status.name(),
            outcome: row.outcome,
            error_category: row.error_category,
            code_sha256: row.code_sha256,
            code: row.code_text,
            wall_ms: row.wall_ms,
            cpu_ms: row.cpu_ms,
            memory_peak_bytes: row.memory_peak_bytes,
            output_bytes: row.output_bytes,
            files: row.files_count,
        }
    }
}

/// Executions, latest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Executions {
    executions: Vec<ExecutionBody>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next: Option<String>,
}

pub(crate) async fn audit(
    state: &AppState,
    caller: &Caller,
    mut query: Arguments,
) -> Result<AuditTrail, Envelope> {
    let filter = AuditFilter {
        owner: query.text(&["owner"])?,
        session_id: query.text(&["session_id"])?,
        action: query.text(&["action"])?,
        since: time(&mut query, "since")?,
        until: time(&mut query, "until")?,
        before: query.count(&["cursor", "before"])?.and_then(|seq| i64::try_from(seq).ok()),
    };
    let limit = limit(&mut query)?;
    let rows = state.service.audit(caller, filter, one_more(limit)).await?;
    let (rows, next) = page(rows, limit, |row| row.seq.to_string());
    Ok(AuditTrail { audit: rows.into_iter().map(AuditBody::from).collect(), next })
}

pub(crate) async fn executions(
    state: &AppState,
    caller: &Caller,
    mut query: Arguments,
) -> Result<Executions, Envelope> {
    let session = query.text(&["session_id"])?;
    let session = session.as_deref().map(SessionId::parse).transpose()?;
    let (limit, before) = (limit(&mut query)?, query.text(&["cursor", "before"])?);
    let service = &state.service;
    let (session, before) = (session.as_ref(), before.as_deref());
    let rows = service.executions(caller, session, one_more(limit), before).await?;
    let (rows, next) = page(rows, limit, |row| row.id.clone());
    Ok(Executions { executions: rows.into_iter().map(ExecutionBody::from).collect(), next })
}

/// One execution that has ended.
pub(crate) async fn execution(
    state: &AppState,
    caller: &Caller,
    id: &str,
) -> Result<ExecutionBody, Envelope> {
    Ok(state.service.execution(caller, id).await?.into())
}

fn limit(query: &mut Arguments) -> Result<usize, Problem> {
    query.count(&["limit"])?.map_or(Ok(ROWS), rows)
}

/// One row more than a page has tells whether it is the last.
fn one_more(limit: usize) -> u32 {
    u32::try_from(limit + 1).unwrap_or(u32::MAX)
}

fn time(query: &mut Arguments, name: &'static str) -> Result<Option<jiff::Timestamp>, Problem> {
    let Some(text) = query.text(&[name])? else { return Ok(None) };
    let wrong = |_| Problem::Wrong {
        name,
        expected: "a time such as 2026-01-31T12:00:00Z",
        got: format!("{:?}", text.chars().take(40).collect::<String>()),
    };
    text.parse().map(Some).map_err(wrong)
}
