//! The audit trail and the records of executions.

use jiff::Timestamp;

use super::Service;
use crate::error::Error;
use crate::model::SessionId;
use crate::model::caller::{Caller, Scope};
use crate::storage::db::{AuditEntry, AuditFilter, AuditRow, ExecutionRow, bounded};
use crate::storage::outbox::Entry;
use crate::workspace::Workspaces;

/// Rows of one answer: a page, and one more that tells whether it is the last.
const ROWS_MAX: u32 = 1_001;

impl Service {
    /// Records what a caller did besides running code, in the log and in the audit trail.
    pub(crate) fn note(
        &self,
        caller: &Caller,
        action: &'static str,
        session: Option<&SessionId>,
        detail: &serde_json::Value,
    ) {
        self.record(audit_entry(caller, action, session, detail));
    }

    /// Writes an entry to the log and to the audit trail.
    pub(super) fn record(&self, entry: AuditEntry) {
        match &self.workspaces {
            Some(workspaces) => record(workspaces, entry),
            None => log(&entry),
        }
    }

    /// The trail, latest first. Callers see their own part of it; an administrator sees all.
    pub async fn audit(
        &self,
        caller: &Caller,
        mut filter: AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, Error> {
        if !caller.scopes.allows(Scope::Admin) {
            caller.may_read()?;
            filter.owner = Some(caller.id.as_str().to_owned());
        }
        let Some(workspaces) = &self.workspaces else { return Ok(Vec::new()) };
        workspaces.storage.outbox.settle_in_time().await;
        Ok(workspaces.storage.db.audit(&filter, limit.clamp(1, ROWS_MAX)).await?)
    }

    /// A caller's executions, latest first.
    pub async fn executions(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        limit: u32,
        before: Option<&str>,
    ) -> Result<Vec<ExecutionRow>, Error> {
        caller.may_read()?;
        let Some(workspaces) = &self.workspaces else { return Ok(Vec::new()) };
        workspaces.storage.outbox.settle_in_time().await;
        let session = session.map(SessionId::as_str);
        let limit = limit.clamp(1, ROWS_MAX);
        Ok(workspaces.storage.db.executions(caller.id.as_str(), session, limit, before).await?)
    }

    /// One execution of a caller that has ended.
    pub async fn execution(&self, caller: &Caller, id: &str) -> Result<ExecutionRow, Error> {
        caller.may_read()?;
        let unknown = || Error::NoExecution(id.chars().take(64).collect());
        let Some(workspaces) = &self.workspaces else { return Err(unknown()) };
        workspaces.storage.outbox.settle_in_time().await;
        let found = workspaces.storage.db.execution(caller.id.as_str(), id).await?;
        found.ok_or_else(unknown)
    }
}

/// Entry of the audit trail for something that a caller does now.
pub(super) fn audit_entry(
    caller: &Caller,
    action: &'static str,
    session: Option<&SessionId>,
    detail: &serde_json::Value,
) -> AuditEntry {
    AuditEntry {
        at: Timestamp::now(),
        owner: caller.id.as_str().to_owned(),
        action: action.to_owned(),
        session_id: session.map(|session| session.as_str().to_owned()),
        execution_id: None,
        detail: bounded(detail),
    }
}

/// Writes an entry to the log and to the audit trail.
pub(super) fn record(workspaces: &Workspaces, entry: AuditEntry) {
    log(&entry);
    if let Err(error) = workspaces.storage.outbox.push(Entry::Audit(Box::new(entry))) {
        tracing::error!(%error, "The audit trail could not be written");
    }
}

/// Writes an entry of the audit trail to the log.
pub(super) fn log(entry: &AuditEntry) {
    let AuditEntry { owner, action, session_id, detail, .. } = entry;
    let session = session_id.as_deref().unwrap_or_default();
    tracing::info!(target: "woma::audit", caller = owner, session, action, %detail, "Done");
}
