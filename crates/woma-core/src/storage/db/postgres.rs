//! `PostgreSQL`: a connection pool that tolerates an unreachable database.
//!
//! A call has two seconds for a connection and five in all. A connection that broke, or whose
//! caller was dropped in the middle, is closed and never reused. A unit that failed before its
//! `COMMIT` was sent is retried on another connection: it cannot have been applied.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow, Postgres};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Executor as _, Row as _, TypeInfo as _,
};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::chain::Heads;
use super::statement::{Answer, Row, Statement, Value};
use super::{CALL_MAX, StoreError, migrate};
use crate::net::tls;

/// Time limit to get a connection.
const ACQUIRE_MAX: Duration = Duration::from_secs(2);
/// Pause between two attempts of one call.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two attempts to migrate.
const MIGRATE_PAUSE: Duration = Duration::from_millis(500);
/// How long a start waits for the database before it continues without.
const START_MAX: Duration = Duration::from_secs(3);
const IDLE_MAX: Duration = Duration::from_secs(300);
/// Connections opened concurrently. Authentication costs CPU: with all at once, each may miss its
/// time limit, and retries would never succeed.
const CONNECTING_MAX: usize = 2;
/// Time limit of a statement on the database's side, so that no lock outlives its call.
const STATEMENT_MAX: &str = "SET statement_timeout = 5000";

/// Parameters accepted in a URL. Others are dropped: the driver would log them with their values.
const PARAMETERS: [&str; 15] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
    "ssl",
];

#[derive(Clone)]
pub(super) struct Pg {
    pool: PgPool,
    connecting: Arc<Semaphore>,
    readiness: watch::Receiver<Readiness>,
    /// Held by a unit that appends to the audit trail. Such units wait for each other in the
    /// database anyway, and would keep connections from others meanwhile.
    appending: Arc<tokio::sync::Mutex<()>>,
    /// Aborted with the last handle.
    _migration: Arc<Migration>,
}

#[derive(Debug, Clone)]
enum Readiness {
    Unknown,
    Ready,
    Not(StoreError),
}

/// Background task that migrates the database as soon as it is reachable.
struct Migration(tokio::task::AbortHandle);

impl Drop for Migration {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Pg {
    /// Opens the pool, also while the database is unreachable; refuses a newer schema, and tables of
    /// another program.
    pub(super) async fn open(url: &str, connections_max: u32) -> Result<Self, StoreError> {
        let options = parse(url)?.application_name("woma").disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(ACQUIRE_MAX)
            .idle_timeout(IDLE_MAX)
            .test_before_acquire(true)
            .after_connect(|connection, _| {
                // Not a URL parameter: connection poolers reject parameters that they do not know.
                Box::pin(async { connection.execute(STATEMENT_MAX).await.map(drop) })
            })
            .connect_lazy_with(options);
        let (announce, mut readiness) = watch::channel(Readiness::Unknown);
        let migration = tokio::spawn(migrate_when_reachable(pool.clone(), announce)).abort_handle();
        let first = readiness.wait_for(|state| !matches!(state, Readiness::Unknown));
        let first = tokio::time::timeout(START_MAX, first).await;
        if let Ok(Ok(state)) = &first
            && let Readiness::Not(error @ (StoreError::Newer { .. } | StoreError::ForeignTables(_))) =
                &**state
        {
            migration.abort();
            return Err(error.clone());
        }
        drop(first);
        let connecting = Arc::new(Semaphore::new(CONNECTING_MAX));
        let (appending, migration) = (Arc::default(), Arc::new(Migration(migration)));
        Ok(Self { pool, connecting, readiness, appending, _migration: migration })
    }

    /// Runs a unit in one transaction.
    pub(super) async fn run(&self, unit: &[Statement]) -> Result<Vec<Answer>, StoreError> {
        let work = async {
            self.ready().await?;
            let _turn = match unit.iter().any(|statement| statement.chain.is_some()) {
                true => Some(self.appending.lock().await),
                false => None,
            };
            let retry_until = Instant::now() + ACQUIRE_MAX;
            loop {
                let error = match self.attempt(unit).await {
                    Ok(answers) => return Ok(answers),
                    Err(Failure::Refused(error) | Failure::Unknown(error)) => return Err(error),
                    Err(Failure::NotDone(error)) => error,
                };
                if Instant::now() >= retry_until {
                    return Err(error);
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        match tokio::time::timeout(CALL_MAX, work).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::timed_out()),
        }
    }

    async fn attempt(&self, unit: &[Statement]) -> Result<Vec<Answer>, Failure> {
        let mut connection = self.connection().await.map_err(Failure::NotDone)?;
        let result = connection.unit(unit).await;
        if let Ok(_) | Err(Failure::Refused(_)) = result {
            connection.give_back();
        }
        result
    }

    /// Takes a connection from the pool, for work that the caller limits in time.
    pub(super) async fn connection(&self) -> Result<PooledConnection, StoreError> {
        let options = self.pool.options();
        let must_connect =
            self.pool.num_idle() == 0 && self.pool.size() < options.get_max_connections();
        let _permit = if must_connect { Some(self.connect_permit().await?) } else { None };
        let connection = self.pool.acquire().await;
        let connection = connection.map_err(|error| StoreError::of_postgres(&error))?;
        Ok(PooledConnection(Some(connection)))
    }

    async fn connect_permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        match tokio::time::timeout(ACQUIRE_MAX, self.connecting.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(StoreError::no_connection()),
        }
    }

    /// Waits until the tables are migrated.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        let mut readiness = self.readiness.clone();
        let ready = readiness.wait_for(|state| matches!(state, Readiness::Ready));
        if let Ok(Ok(_)) = tokio::time::timeout(ACQUIRE_MAX, ready).await {
            return Ok(());
        }
        Err(self.why_not_ready().unwrap_or_else(StoreError::no_connection))
    }

    pub(super) fn why_not_ready(&self) -> Option<StoreError> {
        match &*self.readiness.borrow() {
            Readiness::Not(error) => Some(error.clone()),
            _ => None,
        }
    }
}

/// Migrates the tables as soon as the database is reachable.
async fn migrate_when_reachable(pool: PgPool, announce: watch::Sender<Readiness>) {
    loop {
        match migrate::postgres(&pool).await {
            Ok(()) => {
                announce.send_replace(Readiness::Ready);
                return;
            }
            Err(error) => {
                let is_news = match &*announce.borrow() {
                    Readiness::Not(last) => *last != error,
                    _ => true,
                };
                if is_news {
                    tracing::warn!(%error, "The database is not ready; the server retries");
                }
                announce.send_replace(Readiness::Not(error));
            }
        }
        tokio::time::sleep(MIGRATE_PAUSE).await;
    }
}

/// Parses a URL; accepts all schemes and parameters of the earlier systems.
pub(super) fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    let (scheme, rest) = url.trim().split_once("://").ok_or(StoreError::BadUrl(
        "it does not begin with postgres://, postgresql:// or postgresql+asyncpg://",
    ))?;
    let base = scheme.split_once('+').map_or(scheme, |(base, _)| base);
    if !base.eq_ignore_ascii_case("postgres") && !base.eq_ignore_ascii_case("postgresql") {
        return Err(StoreError::BadUrl("its scheme is not PostgreSQL"));
    }
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    check_files(query)?;
    let kept = query.split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        match key {
            "ssl" => Some(format!("sslmode={}", if value == "true" { "require" } else { value })),
            key if PARAMETERS.contains(&key) || key.starts_with("options[") => {
                Some(pair.to_owned())
            }
            key => {
                tracing::warn!(key, "The database URL has an unknown parameter; it is ignored");
                None
            }
        }
    });
    let query = kept.collect::<Vec<_>>().join("&");
    let url = format!("postgres://{address}?{query}");
    url.parse().map_err(|_| StoreError::BadUrl("it is not a valid URL"))
}

/// Checks at start that files named in the URL are readable; the driver would not name them.
fn check_files(query: &str) -> Result<(), StoreError> {
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let unread = match key.as_ref() {
            "sslrootcert" => "the file of its sslrootcert cannot be read, or has no certificate",
            "sslcert" => "the file of its sslcert cannot be read, or has no certificate",
            "sslkey" => "the file of its sslkey cannot be read",
            _ => continue,
        };
        let path = Path::new(value.as_ref());
        let is_read = match key.as_ref() {
            "sslkey" => std::fs::File::open(path).is_ok(),
            _ => tls::roots(Some(path)).is_ok(),
        };
        if !is_read {
            return Err(StoreError::BadUrl(unread));
        }
    }
    Ok(())
}

/// Connection that returns to the pool only through [`PooledConnection::give_back`].
pub(super) struct PooledConnection(Option<PoolConnection<Postgres>>);

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

enum Failure {
    /// Rejected by the database and rolled back; the connection is clean.
    Refused(StoreError),
    /// The connection broke before `COMMIT` was sent.
    NotDone(StoreError),
    /// The connection broke when the unit may have been committed.
    Unknown(StoreError),
}

impl PooledConnection {
    pub(super) fn give_back(mut self) {
        self.0 = None;
    }

    async fn unit(&mut self, unit: &[Statement]) -> Result<Vec<Answer>, Failure> {
        if let [alone] = unit
            && alone.chain.is_none()
        {
            let result = self.step(alone).await;
            return match result {
                Ok(answer) => Ok(vec![answer]),
                Err(error) if is_broken(&error) && !alone.has_rows => Err(Failure::Unknown(error)),
                Err(error) if is_broken(&error) => Err(Failure::NotDone(error)),
                Err(error) => Err(Failure::Refused(error)),
            };
        }
        self.raw("BEGIN").await.map_err(Failure::NotDone)?;
        let answers = match self.steps(unit).await {
            Ok(answers) => answers,
            Err(error) if is_broken(&error) => return Err(Failure::NotDone(error)),
            Err(error) => {
                self.raw("ROLLBACK").await.map_err(|_| Failure::Unknown(error.clone()))?;
                return Err(Failure::Refused(error));
            }
        };
        self.raw("COMMIT").await.map_err(Failure::Unknown)?;
        Ok(answers)
    }

    /// Runs the statements of a unit; rows of the audit trail get their places.
    async fn steps(&mut self, unit: &[Statement]) -> Result<Vec<Answer>, StoreError> {
        let mut heads = Heads::default();
        let mut answers = Vec::with_capacity(unit.len());
        for statement in unit {
            if let Some(lock) = heads.lock(statement) {
                let answer = self.step(&lock).await?;
                heads.locked(statement, answer)?;
            }
            let Some((linked, link)) = heads.linked(statement) else {
                answers.push(self.step(statement).await?);
                continue;
            };
            let answer = self.step(&linked).await?;
            if answer.touched > 0 {
                heads.appended(statement, link);
            }
            answers.push(answer);
        }
        for write in heads.moved() {
            self.step(&write).await?;
        }
        Ok(answers)
    }

    pub(super) async fn raw(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let done = sqlx::raw_sql(sql).execute(connection).await;
        done.map(drop).map_err(|error| StoreError::of_postgres(&error))
    }

    pub(super) async fn step(&mut self, statement: &Statement) -> Result<Answer, StoreError> {
        let connection = self.connection()?;
        let answer = step(connection, statement).await;
        statement.check(answer.map_err(|error| StoreError::of_postgres(&error))?)
    }

    fn connection(&mut self) -> Result<&mut sqlx::PgConnection, StoreError> {
        let connection = self.0.as_deref_mut();
        connection.ok_or_else(|| {
            StoreError::Internal("the connection was returned to the pool".to_owned())
        })
    }
}

fn is_broken(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_))
}

pub(super) async fn step(
    connection: &mut sqlx::PgConnection,
    statement: &Statement,
) -> Result<Answer, sqlx::Error> {
    let mut query = sqlx::query::<Postgres>(AssertSqlSafe(statement.sql.clone())).persistent(true);
    for value in &statement.values {
        query = bind(query, value);
    }
    if !statement.has_rows {
        let done = query.execute(connection).await?;
        return Ok(Answer { touched: done.rows_affected(), rows: Vec::new() });
    }
    let rows = query.fetch_all(connection).await?;
    let rows = rows.iter().map(row_of).collect::<Result<_, _>>()?;
    Ok(Answer { touched: 0, rows })
}

type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

fn bind<'q>(query: Query<'q>, value: &'q Value) -> Query<'q> {
    match value {
        Value::Number(number) => query.bind(*number),
        Value::Text(text) => query.bind(text.as_deref()),
        Value::Bytes(bytes) => query.bind(bytes.as_deref()),
    }
}

fn row_of(row: &PgRow) -> Result<Row, sqlx::Error> {
    let values = row.columns().iter().enumerate().map(|(index, column)| {
        Ok(match column.type_info().name() {
            "INT8" => Value::Number(row.try_get(index)?),
            "INT4" => Value::Number(row.try_get::<Option<i32>, _>(index)?.map(i64::from)),
            "BYTEA" => Value::Bytes(row.try_get(index)?),
            _ => Value::Text(row.try_get(index)?),
        })
    });
    Ok(Row::new(values.collect::<Result<_, sqlx::Error>>()?))
}
