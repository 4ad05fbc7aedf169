//! Checkpoints: the variables of a session, to be brought back. One per session, the latest.

use jiff::Timestamp;

use super::statement::{Row, Value, change, rows};
use super::{Forgotten, Store, StoreError};
use crate::blobs::Digest;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    pub owner: String,
    pub session_id: String,
    pub digest: Digest,
    pub size_bytes: u64,
    pub created_at: Timestamp,
    /// JSON: what is in it and what could not be, as whoever made it wants it back.
    pub summary: String,
}

const COLUMNS: &str = "owner, session_id, digest, size_bytes, created_at, summary";

impl Store {
    /// Takes the place of an older one. Where there is a newer one, it is a conflict.
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
        self.settle(&checkpoint.owner, &checkpoint.session_id).await?;
        self.change(change(sql, values).or_else(StoreError::Conflict)).await.map(drop)
    }

    pub async fn checkpoint(
        &self,
        owner: &str,
        session: &str,
    ) -> Result<Option<CheckpointRow>, StoreError> {
        if self.is_forgotten(owner, session, Forgotten::Emptied)? {
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
