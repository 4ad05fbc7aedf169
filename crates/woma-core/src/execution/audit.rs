//! The audit trail: one row for each execution and each change by a caller, and one for each
//! security event.

use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use woma_sandbox::Outcome as RunOutcome;

use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{ErrorCategory, Execution, ExecutionId, Outcome, SessionId, hex};
use crate::storage::db::{
    AuditCheck, AuditEntry, AuditFilter, AuditHead, AuditRow, ExecutionRow, ExecutionStatus,
    SECURITY_EVENT, Store, StoreError,
};
use crate::storage::layout::{Storage, StorageSettings};
use crate::storage::outbox::Ended;

/// The record of an execution that begins, written before the code runs.
pub(crate) fn begun(
    storage: &Storage,
    id: &ExecutionId,
    caller: &Caller,
    session: Option<&SessionId>,
    source: &str,
) -> ExecutionRow {
    ExecutionRow {
        id: id.as_str().to_owned(),
        owner: caller.id.as_str().to_owned(),
        session_id: session.map(|session| session.as_str().to_owned()),
        server: storage.server.clone(),
        started_at: Timestamp::now(),
        ended_at: None,
        status: ExecutionStatus::Running,
        outcome: None,
        error_category: None,
        code_sha256: hex(&Sha256::digest(source.as_bytes())),
        code_text: storage.settings.keeps_code.then(|| source.to_owned()),
        wall_ms: None,
        cpu_ms: None,
        memory_peak_bytes: None,
        output_bytes: None,
        files_count: None,
        client: Some(caller.name.clone()),
    }
}

/// The record of an execution whose reply is known.
pub(crate) fn ended(begun: ExecutionRow, execution: &Execution) -> Ended {
    let now = Timestamp::now();
    let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).ok();
    let files = &execution.files;
    let output = execution.stdout.len() + execution.stderr.len();
    let row = ExecutionRow {
        session_id: execution.session.as_ref().map(|session| session.as_str().to_owned()),
        ended_at: Some(now),
        status: ExecutionStatus::Finished,
        outcome: Some(execution.outcome.name().to_owned()),
        error_category: execution.error_category.map(|category| category.name().to_owned()),
        wall_ms: milliseconds(execution.wall),
        cpu_ms: execution.usage.and_then(|usage| milliseconds(usage.cpu)),
        memory_peak_bytes: execution.usage.map(|usage| usage.memory_peak_bytes),
        output_bytes: Some(output as u64 + execution.output_bytes_dropped),
        files_count: Some((files.added.len() + files.modified.len()) as u64),
        ..begun
    };
    let detail = json!({
        "outcome": execution.outcome.name(),
        "error": execution.error.as_ref().map(|error| &error.name),
        "category": execution.error_category,
        "code_sha256": row.code_sha256,
        "wall_ms": row.wall_ms,
        "cpu_ms": row.cpu_ms,
        "memory_peak_bytes": row.memory_peak_bytes,
        "files": {
            "added": files.added, "modified": files.modified, "deleted": files.deleted,
        },
        "events": execution.events.len(),
    });
    let events = execution.events.iter().map(|event| {
        let detail = json!({
            "event": event.event, "action": event.action, "subject": event.subject,
            "line": event.line, "message": event.message,
        });
        AuditEntry::of_execution(&row, now, SECURITY_EVENT, &detail)
    });
    let (audit, events) =
        (AuditEntry::of_execution(&row, now, "execute", &detail), events.collect());
    Ended { row, audit, events }
}

/// The record of a call that never became an execution.
pub(crate) fn failed(begun: ExecutionRow, error: &Error) -> Ended {
    let now = Timestamp::now();
    let detail = json!({ "outcome": "refused", "code": error.code().name() });
    let audit = AuditEntry::of_execution(&begun, now, "execute", &detail);
    let row = ExecutionRow {
        ended_at: Some(now),
        status: ExecutionStatus::Finished,
        outcome: Some("refused".to_owned()),
        error_category: Some(ErrorCategory::Internal.name().to_owned()),
        ..begun
    };
    Ended { row, audit, events: Vec::new() }
}

/// The trail as the store has it, for the operator at the machine. It may be read while a server
/// writes it.
pub async fn read_audit(
    settings: &StorageSettings,
    filter: &AuditFilter,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let store = Store::open(settings.store()).await?;
    store.audit(filter, limit).await
}

/// Checks the hash chains of the trail, and that the rows of the known heads are the same.
pub async fn check_audit(
    settings: &StorageSettings,
    known: &[AuditHead],
) -> Result<AuditCheck, StoreError> {
    Store::open(settings.store()).await?.check_audit(known).await
}

/// The last row of each chain of the trail.
pub async fn audit_heads(settings: &StorageSettings) -> Result<Vec<AuditHead>, StoreError> {
    Store::open(settings.store()).await?.audit_heads().await
}

/// Logs how an execution ended, with its security events.
pub(super) fn log(caller: &Caller, execution: &Execution) {
    let wall_seconds = execution.wall.as_secs_f64();
    let session = execution.session.as_ref().map_or("", |session| session.as_str());
    if let Outcome::Ran(RunOutcome::TimedOut(_)) = execution.outcome {
        let limit = execution.timeout.as_secs_f64();
        tracing::warn!(id = %execution.id, "Execution timeout after {limit}s");
    }
    for event in &execution.events {
        tracing::warn!(
            target: "woma::audit",
            id = %execution.id,
            caller = %caller.id,
            session,
            event = event.event.name(),
            action = event.action.name(),
            subject = event.subject,
            line = event.line,
            "Security event: {}",
            event.message
        );
    }
    tracing::info!(
        target: "woma::audit",
        id = %execution.id,
        caller = %caller.id,
        session,
        outcome = execution.outcome.name(),
        "Execution completed in {wall_seconds:.2}s"
    );
}
