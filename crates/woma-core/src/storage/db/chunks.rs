//! Blobs in `PostgreSQL`: chunks of a megabyte, written in one transaction. `SQLite` stores no
//! blobs: its data folder holds them as files.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use jiff::Timestamp;

use super::statement::{Row, Value, change, rows};
use super::{Backend, CALL_MAX, Store, StoreError, postgres};
use crate::storage::blobs::Digest;

pub(crate) const CHUNK_BYTES: u64 = 1024 * 1024;
/// Time limit to write a whole blob; longer than that of a call, which each of its steps has.
const BLOB_MAX: Duration = Duration::from_secs(60);

/// Blob without its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlobRow {
    pub(crate) digest: Digest,
    pub(crate) touched_at: Timestamp,
}

impl Store {
    /// Creation time of the first table in microseconds: identifies the database to all its
    /// servers.
    pub(crate) async fn created_at(&self) -> Result<i64, StoreError> {
        let sql = "SELECT applied_at FROM schema_versions WHERE version = 1";
        let found = self.read_one(rows(sql, vec![]), |mut row| row.time()).await?;
        found.map(Timestamp::as_microsecond).ok_or(StoreError::NotFound)
    }

    pub(crate) async fn blob_size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT size_bytes FROM blobs WHERE digest = $1";
        self.read_one(rows(sql, vec![value_of(digest)]), |mut row| row.count()).await
    }

    /// Protects a blob from collection for a while; returns whether it exists.
    pub(crate) async fn touch_blob(
        &self,
        digest: Digest,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE blobs SET touched_at = $2 WHERE digest = $1";
        Ok(self.change(change(sql, vec![value_of(digest), Value::time(now)])).await? > 0)
    }

    pub(crate) async fn put_blob(
        &self,
        digest: Digest,
        size_bytes: u64,
        now: Timestamp,
        content: File,
    ) -> Result<(), StoreError> {
        let Backend::Postgres(pg) = &self.backend else {
            return Err(StoreError::Internal("SQLite does not store blobs".to_owned()));
        };
        let work = async {
            pg.ready().await?;
            let mut connection = pg.connection().await?;
            in_step(connection.raw("BEGIN")).await?;
            let sql = "INSERT INTO blobs (digest, size_bytes, touched_at) VALUES ($1, $2, $3) \
                 ON CONFLICT (digest) DO NOTHING";
            let values = vec![value_of(digest), Value::count(size_bytes), Value::time(now)];
            let is_new = in_step(connection.step(&change(sql, values))).await?.touched > 0;
            if is_new {
                write_chunks(&mut connection, digest, content).await?;
            } else {
                let sql = "UPDATE blobs SET touched_at = $2 WHERE digest = $1";
                let touch = change(sql, vec![value_of(digest), Value::time(now)]);
                in_step(connection.step(&touch)).await?;
            }
            in_step(connection.raw("COMMIT")).await?;
            connection.give_back();
            Ok(())
        };
        let result = match tokio::time::timeout(BLOB_MAX, work).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::timed_out()),
        };
        self.noted(result)
    }

    /// Chunk `number`; `None` after the last.
    pub(crate) async fn blob_chunk(
        &self,
        digest: Digest,
        number: i64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT bytes FROM blob_chunks WHERE digest = $1 AND number = $2";
        let values = vec![value_of(digest), number.into()];
        self.read_one(rows(sql, values), |mut row| row.bytes()).await
    }

    /// Deletes a blob unless it was touched since; returns whether it was deleted.
    pub(crate) async fn delete_blob(
        &self,
        digest: Digest,
        untouched_since: Timestamp,
    ) -> Result<bool, StoreError> {
        let sql = "DELETE FROM blobs WHERE digest = $1 AND touched_at < $2";
        let values = vec![value_of(digest), Value::time(untouched_since)];
        Ok(self.change(change(sql, values)).await? > 0)
    }

    pub(crate) async fn blobs(&self) -> Result<Vec<BlobRow>, StoreError> {
        self.read_all(rows("SELECT digest, touched_at FROM blobs", vec![]), blob_of).await
    }
}

async fn write_chunks(
    connection: &mut postgres::PooledConnection,
    digest: Digest,
    mut content: File,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO blob_chunks (digest, number, bytes) VALUES ($1, $2, $3)";
    for number in 0_i64.. {
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            let read = (&content).take(CHUNK_BYTES).read_to_end(&mut bytes);
            read.map(|_| (bytes, content))
        });
        let read = read.await.map_err(|error| StoreError::Internal(error.to_string()))?;
        let (bytes, rest) = read.map_err(|error| StoreError::of_io(&error))?;
        content = rest;
        if bytes.is_empty() {
            break;
        }
        let values = vec![value_of(digest), number.into(), Value::Bytes(Some(bytes))];
        in_step(connection.step(&change(sql, values))).await?;
    }
    Ok(())
}

/// One step of writing a blob. A database that has fallen silent must not hold it for the time of a
/// whole blob: a run waits for the addresses of its files.
async fn in_step<T>(step: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let done = tokio::time::timeout(CALL_MAX, step).await;
    done.unwrap_or_else(|_| Err(StoreError::timed_out()))
}

fn value_of(digest: Digest) -> Value {
    digest.to_string().as_str().into()
}

fn blob_of(mut row: Row) -> Result<BlobRow, StoreError> {
    Ok(BlobRow { digest: row.text()?.parse()?, touched_at: row.time()? })
}
