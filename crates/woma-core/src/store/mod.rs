//! What survives a crash: sessions, executions, files, checkpoints, keys, the audit trail.
//!
//! `SQLite` in the data directory, or `PostgreSQL` where `DATABASE_URL` names one. SQL is in this
//! folder and nowhere else. Keys of callers are here for servers that share a database; each has a
//! file of them ([`crate::keys`]), which must work while the database is away.
//!
//! A call is a *unit*: a list of [`statement::Statement`]s that happen together or not at all. That
//! is the whole interface between the files that know tables and the two that know databases, so
//! each query is written once.
//!
//! `PostgreSQL` is spoken through `sqlx`, without its macros: its pool, its TLS and its reading of
//! addresses are what we would otherwise have to assemble from four crates. `SQLite` is spoken
//! through `rusqlite`: sqlx crosses to another thread and back for each statement, `BEGIN` and
//! `COMMIT` included, while a unit here is one message to one thread, and units that come together
//! share one commit. Writing sits in the path of each execution.

mod audit;
mod checkpoints;
mod chunks;
mod error;
mod executions;
mod files;
mod forgotten;
mod keys;
mod migrate;
mod postgres;
mod sessions;
mod sqlite;
mod statement;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::lock::lock;
pub use audit::{AuditEntry, AuditFilter, AuditRow, Purged, SECURITY_EVENT};
pub use checkpoints::CheckpointRow;
pub(crate) use chunks::CHUNK_BYTES;
pub use error::StoreError;
pub use executions::{ExecutionRow, ExecutionStatus};
pub use files::FileRow;
pub use forgotten::Forgotten;
pub use keys::KeyRow;
pub use sessions::{SessionRow, SessionState};
use statement::{Answer, Row, Statement, change, rows};

/// No call takes longer, whatever the database does.
const CALL_MAX: Duration = Duration::from_secs(5);
/// What somebody waits for who can go on without it: a disk may be busy for that long.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same where that was too short the last time: it is not waited for again and again.
const PATIENCE_LOST: Duration = Duration::from_millis(500);
/// Health is asked often, and by somebody with a time limit of his own.
const HEALTH_MAX: Duration = Duration::from_secs(1);

/// Where the store is. `Debug` does not show the address: it has a password in it.
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

/// The handle, cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Backend,
    /// Of the last call that failed by the store's own fault, until one works.
    trouble: Arc<Mutex<Option<StoreError>>>,
    /// Whoever could go on without an answer has, the last time.
    is_given_up: Arc<AtomicBool>,
    /// What was written without being waited for.
    later: TaskTracker,
    /// Sessions that are forgotten, though the database may not know it yet.
    marks: Arc<forgotten::Marks>,
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

/// A write that is under way. It is done whether or not anybody waits for it, as long as the server
/// lives: until it has settled, a crash may lose it.
#[must_use = "whether it was written is known to who waits for it"]
#[derive(Debug)]
pub struct Pending(tokio::task::JoinHandle<Result<(), StoreError>>);

impl Pending {
    /// Waits until it is durable.
    pub async fn settled(self) -> Result<(), StoreError> {
        match self.0.await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Internal(error.to_string())),
        }
    }
}

impl Store {
    /// Makes the tables where there are none. A `PostgreSQL` that is not there is no error: calls
    /// fail until it is.
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
        let (trouble, is_given_up, marks) = Default::default();
        Ok(Self { backend, trouble, is_given_up, later: TaskTracker::new(), marks })
    }

    pub fn backend_name(&self) -> &'static str {
        match self.backend {
            Backend::Sqlite(_) => "sqlite",
            Backend::Postgres(_) => "postgresql",
        }
    }

    /// Asks the database, for a second at most. After a failed write, writing is what is tried.
    pub async fn health(&self) -> StoreHealth {
        let last = lock(&self.trouble).clone();
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
            Err(_) => Err(self.silence()),
        };
        let backend = self.backend_name();
        match result {
            Ok(()) => StoreHealth { backend, is_healthy: true, last_error: None },
            Err(error) => {
                StoreHealth { backend, is_healthy: false, last_error: Some(error.to_string()) }
            }
        }
    }

    /// Whether the last call failed by the store's own fault.
    pub(crate) fn is_in_trouble(&self) -> bool {
        lock(&self.trouble).is_some()
    }

    /// For what a reply can go on without: waits for a store that is slow, and hardly for one that
    /// was waited for in vain the last time.
    pub(crate) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let is_given_up = self.is_given_up.load(Ordering::Relaxed);
        self.within(if is_given_up { PATIENCE_LOST } else { PATIENCE }, call).await
    }

    /// For what would be lost: waits for a store that is slow, however often.
    pub(crate) async fn in_any_case<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.within(PATIENCE, call).await
    }

    async fn within<T>(
        &self,
        patience: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let waited = tokio::time::timeout(patience, call).await;
        self.is_given_up.store(waited.is_err(), Ordering::Relaxed);
        waited.unwrap_or_else(|_| Err(self.silence()))
    }

    /// Why it says nothing, as far as that is known.
    fn silence(&self) -> StoreError {
        let known = match &self.backend {
            Backend::Postgres(pg) => pg.why_not_ready(),
            Backend::Sqlite(_) => None,
        };
        known.unwrap_or_else(|| StoreError::Unavailable("it took too long".to_owned()))
    }

    /// At the end of a server: waits for what is written in the background, five seconds at most.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.later.close();
        let settled = tokio::time::timeout(CALL_MAX, self.later.wait()).await;
        self.later.reopen();
        settled.map_err(|_| StoreError::Unavailable("it took too long".to_owned()))
    }

    pub(crate) async fn write(&self, unit: Vec<Statement>) -> Result<Vec<Answer>, StoreError> {
        let result = match &self.backend {
            Backend::Sqlite(sqlite) => match sqlite.submit(unit, true) {
                Ok(reply) => answered(reply).await,
                Err(error) => Err(error),
            },
            // Boxed: those who use the other one would carry its four kilobytes along.
            Backend::Postgres(pg) => Box::pin(pg.run(&unit)).await,
        };
        self.noted(result)
    }

    /// Takes its place among the writes now, and is done without being waited for.
    fn write_later(&self, unit: Vec<Statement>) -> Pending {
        let store = self.clone();
        match &self.backend {
            Backend::Postgres(_) => {
                Pending(self.later.spawn(async move { store.write(unit).await.map(drop) }))
            }
            Backend::Sqlite(sqlite) => {
                let reply = sqlite.submit(unit, false);
                Pending(self.later.spawn(async move {
                    let result = match reply {
                        Ok(reply) => answered(reply).await,
                        Err(error) => Err(error),
                    };
                    store.noted(result).map(drop)
                }))
            }
        }
    }

    pub(crate) async fn read(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        let result = match &self.backend {
            Backend::Sqlite(sqlite) => {
                match tokio::time::timeout(CALL_MAX, sqlite.read(statement)).await {
                    Ok(result) => result.map(|answer| vec![answer]),
                    Err(_) => Err(StoreError::Unavailable("it took too long".to_owned())),
                }
            }
            Backend::Postgres(pg) => Box::pin(pg.run(&[statement])).await,
        };
        // A disk that is full can still be read: that is no sign that it has space again.
        let is_news = match (&result, &*lock(&self.trouble)) {
            (Ok(_), Some(trouble)) => matches!(trouble, StoreError::Unavailable(_)),
            _ => true,
        };
        let result = if is_news { self.noted(result) } else { result };
        Ok(result?.into_iter().next().map(|answer| answer.rows).unwrap_or_default())
    }

    /// The first row, read as `parse` says.
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

    /// Does one statement, and says how many rows it touched.
    async fn change(&self, statement: Statement) -> Result<u64, StoreError> {
        let answers = self.write(vec![statement]).await?;
        Ok(answers.first().map_or(0, |answer| answer.touched))
    }

    /// Does statements of which the last has rows.
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
            Err(error) if error.is_of_store() => *lock(&self.trouble) = Some(error.clone()),
            Err(_) | Ok(_) => *lock(&self.trouble) = None,
        }
        result
    }
}

async fn answered(reply: sqlite::Reply) -> Result<Vec<Answer>, StoreError> {
    match tokio::time::timeout(CALL_MAX, reply).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(StoreError::Internal("its writer has ended".to_owned())),
        Err(_) => Err(StoreError::Unavailable("it took too long".to_owned())),
    }
}
