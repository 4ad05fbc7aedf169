//! Rows of checkpoints, which hold a session's variables. Each session has at most one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::statement::{Row, Value, change, rows};
use super::{Deletion, Store, StoreError};
use crate::storage::blobs::Digest;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRow {
    pub owner: String,
    pub session_id: String,
    pub digest: Digest,
    pub size_bytes: u64,
    pub created_at: Timestamp,
    /// JSON, opaque to the store: saved and skipped variables.
    pub summary: String,
}

const COLUMNS: &str = "owner, session_id, digest, size_bytes, created_at, summary";

impl Store {
    /// Replaces an older checkpoint. A newer one is a conflict.
    pub async fn put_checkpoint(&self, checkpoint: &CheckpointRow) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO checkpoints ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (owner, session_id) DO UPDATE SET digest = excluded.digest, \
             size_bytes = excluded.size_bytes, created_at = excluded.created_at, \
             summary = excluded.summary WHERE checkpoints.created_at <= excluded.created_at"
        );
        let values = vec![
            checkpoint.owner.as_str().into(),
            checkpoint.session_id.as_str().into(),
            checkpoint.digest.to_string().as_str().into(),
            Value::count(checkpoint.size_bytes),
            Value::time(checkpoint.created_at),
            checkpoint.summary.as_str().into(),
        ];
        self.change(change(sql, values).or_else(StoreError::Conflict)).await.map(drop)
    }

    pub async fn checkpoint(
        &self,
        owner: &str,
        session: &str,
    ) -> Result<Option<CheckpointRow>, StoreError> {
        if self.deletions.has(owner, session, Deletion::Checkpoint) {
            return Ok(None);
        }
        let sql = format!("SELECT {COLUMNS} FROM checkpoints WHERE owner = $1 AND session_id = $2");
        self.read_one(rows(sql, vec![owner.into(), session.into()]), checkpoint_of).await
    }
}

fn checkpoint_of(mut row: Row) -> Result<CheckpointRow, StoreError> {
    Ok(CheckpointRow {
        owner: row.text()?,
        session_id: row.text()?,
        digest: row.text()?.parse()?,
        size_bytes: row.count()?,
        created_at: row.time()?,
        summary: row.text()?,
    })
}
