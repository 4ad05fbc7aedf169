//! The database: sessions, executions, files, datasets, checkpoints, keys, the audit trail.
//!
//! `SQLite` in the data folder, or `PostgreSQL` if `DATABASE_URL` is set. All SQL is in this
//! folder. Keys of callers are stored here for servers that share a database; each server also has
//! a key file, which works while the database is unreachable.
//!
//! A call is a *unit*: a list of [`statement::Statement`]s that run in one transaction. Units are
//! the whole interface between the files that know tables and the two that know databases, so each
//! query is written once.
//!
//! `PostgreSQL` uses `sqlx` without its macros: its pool, TLS and URL parser would otherwise take
//! four crates. `SQLite` uses `rusqlite`: sqlx crosses to another thread and back for each
//! statement, `BEGIN` and `COMMIT` included, while a unit here is one message to one thread, and
//! concurrent units share one commit. Writes are on the path of every execution.

mod adopt;
mod audit;
mod audit_check;
mod audit_purge;
mod chain;
mod checkpoints;
mod chunks;
mod datasets;
mod deletions;
mod error;
mod executions;
mod files;
mod jobs;
mod keys;
mod leases;
mod migrate;
mod postgres;
mod power_interpreter;
mod records;
mod schedules;
mod sessions;
mod sqlite;
mod statement;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use audit::bounded;
pub use audit::{AuditEntry, AuditFilter, AuditRow, SECURITY_EVENT};
pub use audit_check::{AuditCheck, AuditHead, AuditProblem, CheckedChain, Tampering};
pub use audit_purge::{AUDIT_PURGED, Purged};
pub use checkpoints::CheckpointRow;
pub(crate) use chunks::CHUNK_BYTES;
pub use datasets::DatasetRow;
pub(crate) use datasets::{DatasetsMark, name_key};
pub(crate) use deletions::PendingDeletions;
pub use deletions::{Deletion, DeletionRow};
pub use error::StoreError;
pub use executions::{ExecutionRow, ExecutionStatus};
pub use files::FileRow;
pub(crate) use files::FilesLeft;
pub use jobs::{
    ClaimedJob, JOB_LEASE, JobEnd, JobFilter, JobKind, JobOutputRow, JobRow, JobState, NewJob,
    QueueLimits, Queued, Webhook, WebhookClaim, WebhookEnd, WebhookRow, WebhookState,
};
pub use keys::KeyRow;
pub use leases::LEASE;
pub(crate) use leases::{process_name, shares_folder};
pub use power_interpreter::SourceError;
pub(crate) use power_interpreter::{PowerInterpreter, SourceFile, SourceSession};
use records::Trail;
pub use records::{AUDIT_LEFT_OUT, AUDIT_LIMITED};
pub use schedules::{Occurrence, ScheduleRow};
pub use sessions::SessionRow;
use statement::{Answer, Row, Statement, change, rows};
use woma_sandbox::sync::lock;

/// Time limit of one call.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Time limit of a call whose result is optional: a disk may be busy for that long.
const OPTIONAL_MAX: Duration = Duration::from_secs(3);
/// Time limit of an optional call after the previous one timed out.
const OPTIONAL_RETRY_MAX: Duration = Duration::from_millis(500);
/// How often it is looked whether a store that was away has answered.
const AWAY_POLL: Duration = Duration::from_millis(50);
/// Time limit of a health check: probes are frequent and have time limits of their own.
const HEALTH_MAX: Duration = Duration::from_secs(1);

/// Location of the store. `Debug` omits the URL because it may contain a password.
#[derive(Clone)]
pub enum StoreConfig {
    Sqlite { file: PathBuf },
    Postgres { url: String, connections_max: u32 },
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { file } => formatter.debug_struct("Sqlite").field("file", file).finish(),
            Self::Postgres { connections_max, .. } => formatter
                .debug_struct("Postgres")
                .field("connections_max", connections_max)
                .finish_non_exhaustive(),
        }
    }
}

/// Handle to the database, cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Backend,
    /// Last failure of the store itself, until a call succeeds.
    last_failure: Arc<Mutex<Option<StoreError>>>,
    /// Whether the previous optional call timed out.
    has_timed_out: Arc<AtomicBool>,
    /// Deletions that wait in the outbox.
    deletions: Arc<PendingDeletions>,
    /// Limit of the audit trail of one caller and day, in bytes.
    audit_day_bytes: i64,
    /// Chain of the audit trail that this store writes.
    audit_chain: Arc<str>,
}

#[derive(Clone)]
enum Backend {
    Sqlite(sqlite::Sqlite),
    Postgres(postgres::Pg),
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("backend", &self.backend_name()).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHealth {
    /// `sqlite` or `postgresql`.
    pub backend: &'static str,
    pub is_healthy: bool,
    pub last_error: Option<String>,
}

impl Store {
    /// Opens the store and migrates its tables. An unreachable `PostgreSQL` is not an error: calls
    /// fail until it answers.
    pub async fn open(config: StoreConfig) -> Result<Self, StoreError> {
        let backend = match config {
            StoreConfig::Sqlite { file } => {
                let opened = tokio::task::spawn_blocking(move || sqlite::Sqlite::open(&file));
                let opened =
                    opened.await.map_err(|error| StoreError::Internal(error.to_string()))?;
                Backend::Sqlite(opened?)
            }
            StoreConfig::Postgres { url, connections_max } => {
                Backend::Postgres(postgres::Pg::open(&url, connections_max).await?)
            }
        };
        let (last_failure, has_timed_out, deletions) = Default::default();
        let (audit_day_bytes, audit_chain) = (i64::MAX, Arc::from("local"));
        Ok(Self { backend, last_failure, has_timed_out, deletions, audit_day_bytes, audit_chain })
    }

    /// Sets the audit limit of one caller and day.
    #[must_use]
    pub fn with_audit_day_bytes(self, bytes: u64) -> Self {
        Self { audit_day_bytes: i64::try_from(bytes).unwrap_or(i64::MAX), ..self }
    }

    /// Names the chain of the audit trail that this store writes: the server's id.
    #[must_use]
    pub fn with_audit_chain(self, chain: &str) -> Self {
        Self { audit_chain: Arc::from(chain), ..self }
    }

    fn trail(&self) -> Trail<'_> {
        Trail { chain: &self.audit_chain, limit: self.audit_day_bytes }
    }

    pub fn backend_name(&self) -> &'static str {
        match self.backend {
            Backend::Sqlite(_) => "sqlite",
            Backend::Postgres(_) => "postgresql",
        }
    }

    /// Whether servers with other data folders may use this database too.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.backend, Backend::Postgres(_))
    }

    /// Probes the database for at most a second: with a write if the last write failed.
    pub async fn health(&self) -> StoreHealth {
        let last = lock(&self.last_failure).clone();
        let probe = async {
            match last {
                None | Some(StoreError::Unavailable(_)) => {
                    self.read(rows("SELECT version FROM schema_versions", vec![])).await.map(drop)
                }
                Some(_) => {
                    if let Backend::Sqlite(sqlite) = &self.backend {
                        sqlite.probe_space().await?;
                    }
                    let sql = "UPDATE schema_versions SET applied_at = applied_at";
                    self.write(vec![change(sql, vec![])]).await.map(drop)
                }
            }
        };
        let result = match tokio::time::timeout(HEALTH_MAX, probe).await {
            Ok(result) => result,
            Err(_) => Err(self.timed_out()),
        };
        let backend = self.backend_name();
        match result {
            Ok(()) => StoreHealth { backend, is_healthy: true, last_error: None },
            Err(error) => {
                StoreHealth { backend, is_healthy: false, last_error: Some(error.to_string()) }
            }
        }
    }

    /// Runs a call whose result is optional: waits for a slow store, and only briefly after the
    /// previous call timed out.
    pub(crate) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let has_timed_out = self.has_timed_out.load(Ordering::Relaxed);
        self.within(if has_timed_out { OPTIONAL_RETRY_MAX } else { OPTIONAL_MAX }, call).await
    }

    /// As [`Store::in_time`]; while the store is known to be away, waits briefly for other calls to
    /// find it, and makes none: many calls that give up would take the connections of those that
    /// do not.
    pub(crate) async fn in_time_unless_away<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let found = async {
            while matches!(*lock(&self.last_failure), Some(StoreError::Unavailable(_))) {
                tokio::time::sleep(AWAY_POLL).await;
            }
        };
        match tokio::time::timeout(OPTIONAL_RETRY_MAX, found).await {
            Ok(()) => self.in_time(call).await,
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Runs a call whose result would be lost otherwise: always waits for a slow store.
    pub(crate) async fn in_any_case<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.within(OPTIONAL_MAX, call).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let waited = tokio::time::timeout(limit, call).await;
        self.has_timed_out.store(waited.is_err(), Ordering::Relaxed);
        waited.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// Error of a call that timed out, with the cause if it is known.
    pub(crate) fn timed_out(&self) -> StoreError {
        let known = match &self.backend {
            Backend::Postgres(pg) => pg.why_not_ready(),
            Backend::Sqlite(_) => None,
        };
        known.unwrap_or_else(StoreError::timed_out)
    }

    pub(crate) async fn write(&self, unit: Vec<Statement>) -> Result<Vec<Answer>, StoreError> {
        let result = match &self.backend {
            Backend::Sqlite(sqlite) => match sqlite.submit(unit) {
                Ok(reply) => answered(reply).await,
                Err(error) => Err(error),
            },
            // Boxed: the future takes four kilobytes, which callers of SQLite need not hold.
            Backend::Postgres(pg) => Box::pin(pg.run(&unit)).await,
        };
        self.noted(result)
    }

    pub(crate) async fn read(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        let result = match &self.backend {
            Backend::Sqlite(sqlite) => {
                match tokio::time::timeout(CALL_MAX, sqlite.read(statement)).await {
                    Ok(result) => result.map(|answer| vec![answer]),
                    Err(_) => Err(StoreError::timed_out()),
                }
            }
            Backend::Postgres(pg) => Box::pin(pg.run(&[statement])).await,
        };
        // A full disk can still be read: a successful read does not clear that failure.
        let is_relevant = match (&result, &*lock(&self.last_failure)) {
            (Ok(_), Some(failure)) => matches!(failure, StoreError::Unavailable(_)),
            _ => true,
        };
        let result = if is_relevant { self.noted(result) } else { result };
        Ok(result?.into_iter().next().map(|answer| answer.rows).unwrap_or_default())
    }

    /// Reads the first row.
    async fn read_one<T>(
        &self,
        statement: Statement,
        parse: fn(Row) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.read(statement).await?.into_iter().next().map(parse).transpose()
    }

    async fn read_all<T>(
        &self,
        statement: Statement,
        parse: fn(Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.read(statement).await?.into_iter().map(parse).collect()
    }

    /// Runs one statement and returns the number of rows it changed.
    async fn change(&self, statement: Statement) -> Result<u64, StoreError> {
        let answers = self.write(vec![statement]).await?;
        Ok(answers.first().map_or(0, |answer| answer.touched))
    }

    /// Runs a unit whose last statement returns rows.
    async fn write_for_rows<T>(
        &self,
        unit: Vec<Statement>,
        parse: fn(Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let last = self.write(unit).await?.pop().unwrap_or_default();
        last.rows.into_iter().map(parse).collect()
    }

    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        match &result {
            Err(error) if error.is_of_store() => *lock(&self.last_failure) = Some(error.clone()),
            Err(_) | Ok(_) => *lock(&self.last_failure) = None,
        }
        result
    }
}

async fn answered(reply: sqlite::Reply) -> Result<Vec<Answer>, StoreError> {
    match tokio::time::timeout(CALL_MAX, reply).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(StoreError::Internal("its writer has ended".to_owned())),
        Err(_) => Err(StoreError::timed_out()),
    }
}
