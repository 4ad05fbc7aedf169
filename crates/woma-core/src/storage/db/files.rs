//! Rows of stored files: name, owner, digest of the content, expiry.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::statement::{Conditions, Row, Statement, Value, change, rows};
use super::{Store, StoreError};
use crate::storage::blobs::Digest;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// Capability to download the file; no further permission is checked.
    pub id: Uuid,
    pub owner: String,
    pub session_id: Option<String>,
    /// Path in the session's folder.
    pub path: String,
    /// File name of the download.
    pub name: String,
    pub digest: Digest,
    pub size_bytes: u64,
    pub media_type: String,
    pub created_at: Timestamp,
    /// `None` never expires.
    pub expires_at: Option<Timestamp>,
    pub downloads: u64,
    pub is_chart: bool,
}

/// Files that were deleted from a session's folder, or changed there and not stored again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesLeft {
    pub(crate) owner: String,
    pub(crate) session_id: String,
    pub(crate) paths: Vec<String>,
    pub(crate) at: Timestamp,
}

const COLUMNS: &str = "id, owner, session_id, path, name, digest, size_bytes, media_type, \
     created_at, expires_at, downloads, is_chart";

impl Store {
    pub async fn put_file(&self, file: &FileRow) -> Result<(), StoreError> {
        self.write(vec![inserted(file)]).await.map(drop)
    }

    /// File by its capability, whatever its owner. Expired files are returned too, so that the
    /// caller can tell expired from unknown.
    pub async fn file(&self, id: Uuid) -> Result<Option<FileRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM files WHERE id = $1");
        let found = self.read_all(rows(sql, vec![id_of(id)]), file_of).await?;
        Ok(self.without_deleted(found).into_iter().next())
    }

    /// Files of an owner, latest first.
    pub async fn files(
        &self,
        owner: &str,
        session: Option<&str>,
        limit: u32,
    ) -> Result<Vec<FileRow>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("owner = $", owner.into());
        if let Some(session) = session {
            conditions.add("session_id = $", session.into());
        }
        let select = format!("SELECT {COLUMNS} FROM files");
        let (sql, values) = conditions.finish(&select, "ORDER BY created_at DESC, id DESC", limit);
        Ok(self.without_deleted(self.read_all(rows(sql, values), file_of).await?))
    }

    /// Latest versions of the files that a session's folder has, the first `limit` by path;
    /// those that were stored before `since` belong to an earlier session of the same name.
    pub(crate) async fn files_in_folder(
        &self,
        owner: &str,
        session: &str,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<FileRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY path \
             ORDER BY created_at DESC, id DESC) AS version FROM files WHERE owner = $1 \
             AND session_id = $2 AND created_at >= $3 AND is_chart = 0) AS latest \
             WHERE version = 1 AND left_at IS NULL ORDER BY path LIMIT $4"
        );
        let values =
            vec![owner.into(), session.into(), Value::time(since), i64::from(limit).into()];
        Ok(self.without_deleted(self.read_all(rows(sql, values), file_of).await?))
    }

    /// Records that files are no longer in their session's folder as they were stored.
    pub(crate) async fn mark_left(&self, left: &FilesLeft) -> Result<(), StoreError> {
        let FilesLeft { owner, session_id, paths, at } = left;
        let names = (0..paths.len()).map(|number| format!("${}", number + 4));
        let sql = format!(
            "UPDATE files SET left_at = $3 WHERE owner = $1 AND session_id = $2 \
             AND created_at <= $3 AND left_at IS NULL AND path IN ({})",
            names.collect::<Vec<_>>().join(", ")
        );
        let mut values = vec![owner.as_str().into(), session_id.as_str().into(), Value::time(*at)];
        values.extend(paths.iter().map(|path| Value::from(path.as_str())));
        self.change(change(sql, values)).await.map(drop)
    }

    /// Latest of the charts with this name.
    pub async fn latest_chart(
        &self,
        owner: &str,
        session: &str,
        name: &str,
    ) -> Result<Option<FileRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM files WHERE owner = $1 AND session_id = $2 AND name = $3 \
             AND is_chart = 1 ORDER BY created_at DESC, id DESC LIMIT 1"
        );
        let values = vec![owner.into(), session.into(), name.into()];
        let found = self.read_all(rows(sql, values), file_of).await?;
        Ok(self.without_deleted(found).into_iter().next())
    }

    pub async fn count_download(&self, id: Uuid) -> Result<(), StoreError> {
        let sql = "UPDATE files SET downloads = downloads + 1 WHERE id = $1";
        let counted = change(sql, vec![id_of(id)]).or_else(StoreError::NotFound);
        self.change(counted).await.map(drop)
    }

    /// Deletes the row of a file; returns whether it existed. [`crate::storage::blobs`] collects
    /// the content.
    pub async fn delete_file(&self, owner: &str, id: Uuid) -> Result<bool, StoreError> {
        let sql = "DELETE FROM files WHERE id = $1 AND owner = $2";
        Ok(self.change(change(sql, vec![id_of(id), owner.into()])).await? > 0)
    }

    /// Deletes up to `limit` files that expired before `before`; returns how many.
    pub async fn purge_files(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let sql = "DELETE FROM files WHERE id IN (SELECT id FROM files WHERE expires_at <= $1 \
             ORDER BY expires_at, id LIMIT $2)";
        self.change(change(sql, vec![Value::time(before), i64::from(limit).into()])).await
    }

    /// Storage used by the files, datasets, checkpoints and records of one owner.
    pub async fn owner_bytes(&self, owner: &str) -> Result<u64, StoreError> {
        let sql = "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM (\
             SELECT size_bytes FROM files WHERE owner = $1 UNION ALL \
             SELECT size_bytes FROM checkpoints WHERE owner = $1 UNION ALL \
             SELECT size_bytes FROM datasets WHERE owner = $1 UNION ALL \
             SELECT audit_bytes + execution_bytes FROM record_days WHERE owner = $1) AS kept";
        let sum = self.read_one(rows(sql, vec![owner.into()]), |mut row| row.count()).await?;
        Ok(sum.unwrap_or(0))
    }

    /// Whether a file, a dataset or a checkpoint refers to a blob.
    pub(crate) async fn is_in_use(&self, digest: Digest) -> Result<bool, StoreError> {
        let sql = "SELECT digest FROM files WHERE digest = $1 \
                   UNION SELECT digest FROM checkpoints WHERE digest = $1 \
                   UNION SELECT digest FROM datasets WHERE digest = $1";
        let found = rows(sql, vec![digest.to_string().as_str().into()]);
        Ok(self.read_one(found, digest_of).await?.is_some())
    }

    /// All blobs that files, datasets or checkpoints refer to.
    pub async fn digests_in_use(&self) -> Result<Vec<Digest>, StoreError> {
        let sql = "SELECT digest FROM files UNION SELECT digest FROM checkpoints \
                   UNION SELECT digest FROM datasets";
        self.read_all(rows(sql, vec![]), digest_of).await
    }
}

pub(super) fn inserted(file: &FileRow) -> Statement {
    let sql = format!(
        "INSERT INTO files ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
    );
    let values = vec![
        id_of(file.id),
        file.owner.as_str().into(),
        Value::text_maybe(file.session_id.as_deref()),
        file.path.as_str().into(),
        file.name.as_str().into(),
        file.digest.to_string().as_str().into(),
        Value::count(file.size_bytes),
        file.media_type.as_str().into(),
        Value::time(file.created_at),
        Value::time_maybe(file.expires_at),
        Value::count(file.downloads),
        Value::boolean(file.is_chart),
    ];
    change(sql, values)
}

fn id_of(id: Uuid) -> Value {
    id.to_string().as_str().into()
}

pub(super) fn digest_of(mut row: Row) -> Result<Digest, StoreError> {
    row.text()?.parse()
}

fn file_of(mut row: Row) -> Result<FileRow, StoreError> {
    let id = row.text()?;
    Ok(FileRow {
        id: id.parse().map_err(|_| StoreError::Corrupt(format!("`{id}` is not a file id")))?,
        owner: row.text()?,
        session_id: row.text_maybe()?,
        path: row.text()?,
        name: row.text()?,
        digest: row.text()?.parse()?,
        size_bytes: row.count()?,
        media_type: row.text()?,
        created_at: row.time()?,
        expires_at: row.time_maybe()?,
        downloads: row.count()?,
        is_chart: row.boolean()?,
    })
}
