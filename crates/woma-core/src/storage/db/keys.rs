//! Rows of API keys, for servers that share a database. Requests are checked against each server's
//! key file, not against this table.

use jiff::Timestamp;

use super::statement::{Row, Value, change, rows};
use super::{Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub id: String,
    /// Digest of its secret, in hexadecimal.
    pub sha256: String,
    /// Name, quotas and expiry as JSON.
    pub about: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

const COLUMNS: &str = "id, sha256, about, created_at, revoked_at";

impl Store {
    /// Adds or revokes a key. A revocation is final, and nothing else of a key changes.
    pub async fn put_key(&self, key: &KeyRow) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO keys ({COLUMNS}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE \
             SET revoked_at = COALESCE(keys.revoked_at, excluded.revoked_at)"
        );
        let values = vec![
            key.id.as_str().into(),
            key.sha256.as_str().into(),
            key.about.as_str().into(),
            Value::time(key.created_at),
            Value::time_maybe(key.revoked_at),
        ];
        self.change(change(sql, values)).await.map(drop)
    }

    /// Numbers of keys and of revoked keys. Neither decreases, so a change shows in them.
    pub(crate) async fn keys_mark(&self) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT COUNT(*), COUNT(revoked_at) FROM keys";
        let mark = |mut row: Row| Ok((row.count()?, row.count()?));
        Ok(self.read_one(rows(sql, Vec::new()), mark).await?.unwrap_or_default())
    }

    /// All keys in order of creation.
    pub async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM keys ORDER BY created_at, id");
        self.read_all(rows(sql, Vec::new()), key_of).await
    }
}

fn key_of(mut row: Row) -> Result<KeyRow, StoreError> {
    Ok(KeyRow {
        id: row.text()?,
        sha256: row.text()?,
        about: row.text()?,
        created_at: row.time()?,
        revoked_at: row.time_maybe()?,
    })
}
