//! Rows of datasets: name, owner, columns, digest of the Parquet content.

use jiff::Timestamp;
use uuid::Uuid;

use super::statement::{Row, Value, change, rows};
use super::{Store, StoreError};
use crate::storage::blobs::Digest;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetRow {
    pub id: Uuid,
    pub owner: String,
    /// As its caller wrote it; unique among the caller's datasets without regard to case.
    pub name: String,
    pub digest: Digest,
    pub size_bytes: u64,
    pub row_count: u64,
    pub column_count: u64,
    /// JSON, opaque to the store: names and types of the columns.
    pub columns: String,
    /// Format of the file that it was loaded from.
    pub format: String,
    /// Session of that file, and its path there.
    pub session_id: Option<String>,
    pub source: Option<String>,
    pub created_at: Timestamp,
}

/// A number of datasets, their size and the latest of them: it changes when any of them does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatasetsMark {
    count: u64,
    bytes: u64,
    latest: u64,
}

const COLUMNS: &str = "id, owner, name, digest, size_bytes, row_count, column_count, column_info, \
     format, session_id, source, created_at";

/// Name by which datasets are compared.
pub(crate) fn name_key(name: &str) -> String {
    name.to_lowercase()
}

impl Store {
    /// Stores a dataset; one of the same name is replaced.
    pub async fn put_dataset(&self, dataset: &DatasetRow) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO datasets ({COLUMNS}, name_key) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
             ON CONFLICT (owner, name_key) DO UPDATE SET id = excluded.id, name = excluded.name, \
             digest = excluded.digest, size_bytes = excluded.size_bytes, \
             row_count = excluded.row_count, \
             column_count = excluded.column_count, column_info = excluded.column_info, \
             format = excluded.format, session_id = excluded.session_id, \
             source = excluded.source, created_at = excluded.created_at"
        );
        let values = vec![
            dataset.id.to_string().as_str().into(),
            dataset.owner.as_str().into(),
            dataset.name.as_str().into(),
            dataset.digest.to_string().as_str().into(),
            Value::count(dataset.size_bytes),
            Value::count(dataset.row_count),
            Value::count(dataset.column_count),
            dataset.columns.as_str().into(),
            dataset.format.as_str().into(),
            Value::text_maybe(dataset.session_id.as_deref()),
            Value::text_maybe(dataset.source.as_deref()),
            Value::time(dataset.created_at),
            name_key(&dataset.name).as_str().into(),
        ];
        self.change(change(sql, values)).await.map(drop)
    }

    /// A dataset by its name, in any case.
    pub async fn dataset(&self, owner: &str, name: &str) -> Result<Option<DatasetRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM datasets WHERE owner = $1 AND name_key = $2");
        let values = vec![owner.into(), name_key(name).as_str().into()];
        self.read_one(rows(sql, values), dataset_of).await
    }

    /// Datasets of an owner by name, the first `limit` after the name `after`.
    pub async fn datasets(
        &self,
        owner: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<DatasetRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM datasets WHERE owner = $1 AND name_key > $2 \
             ORDER BY name_key LIMIT $3"
        );
        let after = after.map(name_key).unwrap_or_default();
        let values = vec![owner.into(), after.as_str().into(), i64::from(limit).into()];
        self.read_all(rows(sql, values), dataset_of).await
    }

    /// Names and ids of the datasets of an owner, the first `limit` of them.
    pub(crate) async fn dataset_names(
        &self,
        owner: &str,
        limit: u32,
    ) -> Result<Vec<(String, Uuid)>, StoreError> {
        let sql = "SELECT name, id FROM datasets WHERE owner = $1 ORDER BY name_key LIMIT $2";
        let values = vec![owner.into(), i64::from(limit).into()];
        self.read_all(rows(sql, values), |mut row| Ok((row.text()?, id_of(&row.text()?)?))).await
    }

    pub async fn count_datasets(&self, owner: &str) -> Result<u64, StoreError> {
        let sql = "SELECT COUNT(*) FROM datasets WHERE owner = $1";
        let count = self.read_one(rows(sql, vec![owner.into()]), |mut row| row.count()).await?;
        Ok(count.unwrap_or(0))
    }

    /// Deletes the row of a dataset; returns whether it existed.
    pub async fn drop_dataset(&self, owner: &str, name: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM datasets WHERE owner = $1 AND name_key = $2";
        let values = vec![owner.into(), name_key(name).as_str().into()];
        Ok(self.change(change(sql, values)).await? > 0)
    }

    /// Owners that have a dataset.
    pub(crate) async fn dataset_owners(&self) -> Result<Vec<String>, StoreError> {
        self.read_all(rows("SELECT DISTINCT owner FROM datasets", vec![]), |mut row| row.text())
            .await
    }

    pub(crate) async fn datasets_mark(&self) -> Result<Option<DatasetsMark>, StoreError> {
        let sql = "SELECT COUNT(*), CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT), \
                   COALESCE(MAX(created_at), 0) FROM datasets";
        self.read_one(rows(sql, vec![]), |mut row| {
            Ok(DatasetsMark { count: row.count()?, bytes: row.count()?, latest: row.count()? })
        })
        .await
    }
}

fn id_of(id: &str) -> Result<Uuid, StoreError> {
    id.parse().map_err(|_| StoreError::Corrupt(format!("`{id}` is not a dataset id")))
}

fn dataset_of(mut row: Row) -> Result<DatasetRow, StoreError> {
    Ok(DatasetRow {
        id: id_of(&row.text()?)?,
        owner: row.text()?,
        name: row.text()?,
        digest: row.text()?.parse()?,
        size_bytes: row.count()?,
        row_count: row.count()?,
        column_count: row.count()?,
        columns: row.text()?,
        format: row.text()?,
        session_id: row.text_maybe()?,
        source: row.text_maybe()?,
        created_at: row.time()?,
    })
}
