//! The tables of Power Interpreter, read for an import. Nothing in its database is changed.
//!
//! Names of tables and columns are those of its version 1.8; all of them are checked before
//! anything is read. Times without a zone are in UTC.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Executor as _};

use super::StoreError;
use super::postgres::{parse, step};
use super::statement::{Row, Statement, rows};

/// Time limit to connect.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Tables and the columns that are read.
const TABLES: [(&str, &[&str]); 2] = [
    (
        "sandbox_files",
        &[
            "id",
            "session_id",
            "filename",
            "mime_type",
            "checksum",
            "content",
            "created_at",
            "expires_at",
            "download_count",
        ],
    ),
    ("sessions", &["id", "name", "description", "created_at", "updated_at", "is_active"]),
];
/// Tables that an import does not take over; only their rows are counted.
const LEFT_BEHIND: [&str; 3] = ["jobs", "datasets", "execution_logs"];

/// Open connection to a database of Power Interpreter; all reads see the same moment.
#[derive(Debug)]
pub(crate) struct PowerInterpreter(PgConnection);

/// Row of `sessions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceSession {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) updated_at: Option<Timestamp>,
    pub(crate) is_active: bool,
}

/// Row of `sandbox_files` without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFile {
    pub(crate) id: String,
    pub(crate) session_id: String,
    pub(crate) name: String,
    pub(crate) media_type: Option<String>,
    /// SHA-256 in hexadecimal digits.
    pub(crate) checksum: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) downloads: u64,
}

/// Failure to read a database of Power Interpreter.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the database of --from cannot be read: {0}")]
    Unreadable(#[from] StoreError),
    #[error(
        "the database of --from is not that of a Power Interpreter that can be read: {0}; its \
         tables are expected in the schema that the address names, as version 1.8 has them"
    )]
    Schema(String),
}

impl PowerInterpreter {
    /// Connects, and checks that every table and column is there.
    pub(crate) async fn open(url: &str) -> Result<Self, SourceError> {
        let failed = |error: sqlx::Error| StoreError::of_postgres(&error);
        let options = parse(url)?.application_name("woma import").disable_statement_logging();
        let connected = tokio::time::timeout(CONNECT_MAX, options.connect()).await;
        let mut connection = connected.map_err(|_| StoreError::timed_out())?.map_err(failed)?;
        let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
        connection.execute(begin).await.map_err(failed)?;
        let mut source = Self(connection);
        for (table, columns) in TABLES {
            source.check(table, columns).await?;
        }
        Ok(source)
    }

    async fn check(&mut self, table: &str, columns: &[&str]) -> Result<(), SourceError> {
        let found = self.columns(table).await?;
        if found.is_empty() {
            return Err(SourceError::Schema(format!("the table `{table}` is missing")));
        }
        match columns.iter().find(|column| !found.iter().any(|name| name == *column)) {
            Some(column) => {
                let missing = format!("the table `{table}` has no column `{column}`");
                Err(SourceError::Schema(missing))
            }
            None => Ok(()),
        }
    }

    async fn columns(&mut self, table: &str) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT CAST(column_name AS TEXT) FROM information_schema.columns \
             WHERE table_schema = current_schema() AND table_name = $1";
        self.read(rows(sql, vec![table.into()]), |mut row| row.text()).await
    }

    pub(crate) async fn sessions(&mut self) -> Result<Vec<SourceSession>, SourceError> {
        let sql = format!(
            "SELECT CAST(id AS TEXT), CAST(name AS TEXT), CAST(description AS TEXT), {}, {}, \
             CASE WHEN COALESCE(is_active, TRUE) THEN 1 ELSE 0 END FROM sessions ORDER BY id",
            microseconds("created_at"),
            microseconds("updated_at")
        );
        let session = |mut row: Row| {
            Ok(SourceSession {
                id: row.text()?,
                name: row.text()?,
                description: row.text_maybe()?,
                created_at: row.time_maybe()?,
                updated_at: row.time_maybe()?,
                is_active: row.boolean()?,
            })
        };
        Ok(self.read(rows(sql, Vec::new()), session).await?)
    }

    /// Files by session, oldest first.
    pub(crate) async fn files(&mut self) -> Result<Vec<SourceFile>, SourceError> {
        let sql = format!(
            "SELECT CAST(id AS TEXT), CAST(session_id AS TEXT), CAST(filename AS TEXT), \
             CAST(mime_type AS TEXT), CAST(checksum AS TEXT), \
             CAST(octet_length(content) AS BIGINT), {}, {}, \
             CAST(COALESCE(download_count, 0) AS BIGINT) FROM sandbox_files \
             ORDER BY sandbox_files.session_id, sandbox_files.created_at, sandbox_files.id",
            microseconds("created_at"),
            microseconds("expires_at")
        );
        let file = |mut row: Row| {
            Ok(SourceFile {
                id: row.text()?,
                session_id: row.text()?,
                name: row.text()?,
                media_type: row.text_maybe()?,
                checksum: row.text_maybe()?,
                size_bytes: row.count()?,
                created_at: row.time_maybe()?,
                expires_at: row.time_maybe()?,
                downloads: row.count()?,
            })
        };
        Ok(self.read(rows(sql, Vec::new()), file).await?)
    }

    pub(crate) async fn content(&mut self, id: &str) -> Result<Vec<u8>, SourceError> {
        let sql = "SELECT content FROM sandbox_files WHERE CAST(id AS TEXT) = $1";
        let found = self.read(rows(sql, vec![id.into()]), |mut row| row.bytes()).await?;
        Ok(found.into_iter().next().ok_or(StoreError::NotFound)?)
    }

    /// Tables that are not taken over, with the numbers of their rows; empty ones are left out.
    pub(crate) async fn left_behind(&mut self) -> Result<Vec<(&'static str, u64)>, SourceError> {
        let mut counts = Vec::new();
        for table in LEFT_BEHIND {
            if self.columns(table).await?.is_empty() {
                continue;
            }
            let sql = format!("SELECT count(*) FROM {table}");
            let counted = self.read(rows(sql, Vec::new()), |mut row| row.count()).await?;
            let count = counted.into_iter().next().unwrap_or(0);
            counts.extend((count > 0).then_some((table, count)));
        }
        Ok(counts)
    }

    async fn read<T>(
        &mut self,
        statement: Statement,
        parse: fn(Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let answer = step(&mut self.0, &statement).await;
        let answer = answer.map_err(|error| StoreError::of_postgres(&error))?;
        answer.rows.into_iter().map(parse).collect()
    }
}

fn microseconds(column: &str) -> String {
    format!("CAST(extract(epoch FROM {column}) * 1000000 AS BIGINT)")
}
