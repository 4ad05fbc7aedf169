//! Entries of the outbox, and how each is written to the database.

use serde::{Deserialize, Serialize};

use crate::storage::db::{
    AuditEntry, CheckpointRow, Deletion, DeletionRow, ExecutionRow, FilesLeft, SessionRow, Store,
    StoreError,
};

/// A record that must reach the database. The serialized names are the format of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Entry {
    Execution(Box<Ended>),
    Session(Box<SessionRow>),
    Checkpoint(Box<CheckpointRow>),
    Deletion(DeletionRow),
    Audit(Box<AuditEntry>),
    FilesLeft(FilesLeft),
}

/// End of an execution, with its entries for the audit trail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) row: ExecutionRow,
    pub(crate) audit: AuditEntry,
    /// Security events; each becomes an audit row.
    pub(crate) events: Vec<AuditEntry>,
}

/// A row of which only the last version matters: a later entry replaces an earlier one that still
/// waits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    owner: String,
    session_id: String,
    what: Deletion,
}

impl Slot {
    fn of(owner: &str, session_id: &str, what: Deletion) -> Self {
        Self { owner: owner.to_owned(), session_id: session_id.to_owned(), what }
    }

    /// Rows that may not be replaced across a deletion.
    pub(super) fn deleted_by(deletion: &DeletionRow) -> [Self; 2] {
        let of = |what| Self::of(&deletion.owner, &deletion.session_id, what);
        [of(Deletion::Session), of(Deletion::Checkpoint)]
    }
}

impl Entry {
    pub(super) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Session(row) => Some(Slot::of(&row.owner, &row.id, Deletion::Session)),
            Self::Checkpoint(row) => {
                Some(Slot::of(&row.owner, &row.session_id, Deletion::Checkpoint))
            }
            Self::Execution(_) | Self::Deletion(_) | Self::Audit(_) | Self::FilesLeft(_) => None,
        }
    }

    /// Whether a deletion that waits covers this row: it came too late.
    pub(super) fn is_deleted(&self, store: &Store) -> bool {
        let pending = store.pending_deletions();
        match self {
            Self::Session(row) => {
                pending.covers(&row.owner, &row.id, Deletion::Session, row.created_at)
            }
            Self::Checkpoint(row) => {
                let what = Deletion::Checkpoint;
                pending.covers(&row.owner, &row.session_id, what, row.created_at)
            }
            Self::Execution(_) | Self::Deletion(_) | Self::Audit(_) | Self::FilesLeft(_) => false,
        }
    }

    /// Writes the record to the database. Writing it again changes nothing, except for an audit
    /// entry, which has no key.
    pub(super) async fn deliver(&self, store: &Store) -> Result<(), StoreError> {
        let delivered = match self {
            Self::Execution(ended) => {
                let Ended { row, audit, events } = ended.as_ref();
                match store.finish(row, audit).await {
                    Ok(()) => append_all(store, events).await,
                    other => other,
                }
            }
            Self::Session(row) => store.put_session(row).await,
            Self::Checkpoint(row) => put_checkpoint(store, row).await,
            Self::Deletion(row) => store.delete(row).await,
            Self::Audit(entry) => store.append_audit(entry).await,
            Self::FilesLeft(left) => store.mark_left(left).await,
        };
        match delivered {
            // It was delivered before a crash that left it in the file.
            Err(StoreError::Conflict) => Ok(()),
            delivered => delivered,
        }
    }
}

pub(super) async fn append_all(store: &Store, entries: &[AuditEntry]) -> Result<(), StoreError> {
    for entry in entries {
        store.append_audit(entry).await?;
    }
    Ok(())
}

/// Replaces the checkpoint of a session, also one that a clock ahead of ours has dated.
async fn put_checkpoint(store: &Store, row: &CheckpointRow) -> Result<(), StoreError> {
    match store.put_checkpoint(row).await {
        Err(StoreError::Conflict) => {}
        put => return put,
    }
    match store.checkpoint(&row.owner, &row.session_id).await? {
        Some(last) if last.digest == row.digest => Ok(()),
        Some(last) => {
            let created_at = row.created_at.max(last.created_at);
            store.put_checkpoint(&CheckpointRow { created_at, ..row.clone() }).await
        }
        None => store.put_checkpoint(row).await,
    }
}
