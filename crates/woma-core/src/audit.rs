//! Who did what: one row for each execution and each change that a caller makes, and one for each
//! security event.

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::caller::{Caller, Scope};
use crate::journal::Ended;
use crate::keys::hex;
use crate::model::{Execution, ExecutionId, SessionId};
use crate::store::{
    AuditEntry, AuditFilter, AuditRow, ExecutionRow, ExecutionStatus, SECURITY_EVENT, Store,
    StoreError,
};
use crate::vault::{Vault, VaultSettings};
use crate::{Error, Service};

/// Rows of one answer.
const ROWS_MAX: u32 = 1_000;

impl Vault {
    /// Written down before the code runs.
    pub(crate) fn begun(
        &self,
        id: &ExecutionId,
        caller: &Caller,
        session: Option<&SessionId>,
        source: &str,
    ) -> ExecutionRow {
        ExecutionRow {
            id: id.as_str().to_owned(),
            owner: caller.id.as_str().to_owned(),
            session_id: session.map(|session| session.as_str().to_owned()),
            server: self.server.clone(),
            started_at: Timestamp::now(),
            ended_at: None,
            status: ExecutionStatus::Running,
            outcome: None,
            error_category: None,
            code_sha256: hex(&Sha256::digest(source.as_bytes())),
            code_text: self.settings.keeps_code.then(|| source.to_owned()),
            wall_ms: None,
            cpu_ms: None,
            memory_peak_bytes: None,
            output_bytes: None,
            files_count: None,
            request_id: None,
            client: Some(caller.name.clone()),
        }
    }
}

/// What is recorded of an execution once its reply is known.
pub(crate) fn ended(begun: ExecutionRow, execution: &Execution) -> Ended {
    let now = Timestamp::now();
    let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).ok();
    let files = &execution.files;
    let output = execution.stdout.len() + execution.stderr.len();
    let row = ExecutionRow {
        session_id: execution.session.as_ref().map(|session| session.as_str().to_owned()),
        ended_at: Some(now),
        status: ExecutionStatus::Finished,
        outcome: Some(execution.outcome.to_owned()),
        error_category: execution.error_category.map(str::to_owned),
        wall_ms: milliseconds(execution.wall),
        cpu_ms: execution.usage.and_then(|usage| milliseconds(usage.cpu)),
        memory_peak_bytes: execution.usage.map(|usage| usage.memory_peak_bytes),
        output_bytes: Some(output as u64 + execution.output_bytes_dropped),
        files_count: Some((files.added.len() + files.modified.len()) as u64),
        ..begun
    };
    let detail = json!({
        "outcome": execution.outcome,
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
        entry(&row, now, SECURITY_EVENT, &detail)
    });
    let (audit, events) = (entry(&row, now, "execute", &detail), events.collect());
    Ended { row, audit, events }
}

/// What the trail says of an execution.
pub(crate) fn entry(row: &ExecutionRow, at: Timestamp, action: &str, detail: &Value) -> AuditEntry {
    AuditEntry {
        at,
        owner: row.owner.clone(),
        action: action.to_owned(),
        session_id: row.session_id.clone(),
        execution_id: Some(row.id.clone()),
        detail: detail.to_string(),
    }
}

/// What is recorded of a call that never became an execution.
pub(crate) fn failed(begun: ExecutionRow, error: &Error) -> Ended {
    let now = Timestamp::now();
    let detail = json!({ "outcome": "refused", "code": error.code().name() });
    let audit = entry(&begun, now, "execute", &detail);
    let row = ExecutionRow {
        ended_at: Some(now),
        status: ExecutionStatus::Finished,
        outcome: Some("refused".to_owned()),
        error_category: Some("internal".to_owned()),
        ..begun
    };
    Ended { row, audit, events: Vec::new() }
}

/// The trail as the store has it, for the operator at the machine. It may be read while a server
/// writes it.
pub async fn read_audit(
    settings: &VaultSettings,
    filter: &AuditFilter,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let store = Store::open(settings.store()).await?;
    store.audit(filter, limit).await
}

impl Service {
    /// Writes down something that a caller did besides running code. A store that is away is no
    /// reason to refuse it: the log has it.
    pub(crate) fn note(
        &self,
        caller: &Caller,
        action: &'static str,
        session: Option<&SessionId>,
        detail: &serde_json::Value,
    ) {
        let session_name = session.map_or("", |session| session.as_str());
        tracing::info!(
            target: "woma::audit", caller = %caller.id, session = session_name, action, %detail,
            "Done"
        );
        let Some(vault) = &self.shared.vault else { return };
        let entry = AuditEntry {
            at: Timestamp::now(),
            owner: caller.id.as_str().to_owned(),
            action: action.to_owned(),
            session_id: session.map(|session| session.as_str().to_owned()),
            execution_id: None,
            detail: detail.to_string(),
        };
        let store = vault.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.append_audit(&entry).await {
                tracing::error!(%error, action, "The audit trail could not be written");
            }
        });
    }

    /// The trail, latest first. Callers see their own part of it; an administrator sees all.
    pub async fn audit(
        &self,
        caller: &Caller,
        mut filter: AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, Error> {
        if !caller.scopes.allows(Scope::Admin) {
            crate::service::may_read(caller)?;
            filter.owner = Some(caller.id.as_str().to_owned());
        }
        let Some(vault) = &self.shared.vault else { return Ok(Vec::new()) };
        vault.catch_up().await;
        Ok(vault.store.audit(&filter, limit.clamp(1, ROWS_MAX)).await?)
    }

    /// A caller's executions, latest first.
    pub async fn executions(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        limit: u32,
        before: Option<&str>,
    ) -> Result<Vec<ExecutionRow>, Error> {
        crate::service::may_read(caller)?;
        let Some(vault) = &self.shared.vault else { return Ok(Vec::new()) };
        vault.catch_up().await;
        let session = session.map(SessionId::as_str);
        let limit = limit.clamp(1, ROWS_MAX);
        Ok(vault.store.executions(caller.id.as_str(), session, limit, before).await?)
    }
}
