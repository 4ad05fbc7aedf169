//! Schema migrations: numbered steps, each in its own transaction.
//!
//! A step and its row in `schema_versions` are committed together, under a lock that ends with the
//! transaction. Any number of servers may therefore start at once, and a killed one leaves no
//! partial step. A released step is never changed; a change is a new step.

use rusqlite::{Connection, TransactionBehavior};
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};

use super::StoreError;

/// Steps that both databases take word for word.
const TABLES: &str = include_str!("migrations/both/tables.sql");
const KEYS: &str = include_str!("migrations/both/keys.sql");
const RECORD_DAYS: &str = include_str!("migrations/both/record_days.sql");
const LEASES: &str = include_str!("migrations/both/leases.sql");
const FILES_LEFT: &str = include_str!("migrations/both/files_left.sql");
const SESSION_LABELS: &str = include_str!("migrations/both/session_labels.sql");
const SESSION_PACKAGES: &str = include_str!("migrations/both/session_packages.sql");
const AUDIT_CHAIN: &str = include_str!("migrations/both/audit_chain.sql");
const JOBS: &str = include_str!("migrations/both/jobs.sql");
const DATASETS: &str = include_str!("migrations/both/datasets.sql");
const WEBHOOKS: &str = include_str!("migrations/both/webhooks.sql");
const SESSION_ENVIRONMENT: &str = include_str!("migrations/both/session_environment.sql");
const SESSION_ISOLATION: &str = include_str!("migrations/both/session_isolation.sql");
const SESSION_NETWORK: &str = include_str!("migrations/both/session_network.sql");
const SESSION_SECRETS: &str = include_str!("migrations/both/session_secrets.sql");

/// Step n migrates to version n.
const SQLITE: [&str; 17] = [
    TABLES,
    include_str!("migrations/sqlite/audit.sql"),
    KEYS,
    RECORD_DAYS,
    LEASES,
    FILES_LEFT,
    SESSION_LABELS,
    AUDIT_CHAIN,
    JOBS,
    DATASETS,
    WEBHOOKS,
    include_str!("migrations/sqlite/job_counts.sql"),
    SESSION_NETWORK,
    SESSION_PACKAGES,
    SESSION_SECRETS,
    SESSION_ENVIRONMENT,
    SESSION_ISOLATION,
];
const POSTGRES: [&str; 18] = [
    TABLES,
    include_str!("migrations/postgres/audit.sql"),
    include_str!("migrations/postgres/blobs.sql"),
    KEYS,
    RECORD_DAYS,
    LEASES,
    FILES_LEFT,
    SESSION_LABELS,
    AUDIT_CHAIN,
    JOBS,
    DATASETS,
    WEBHOOKS,
    include_str!("migrations/postgres/job_counts.sql"),
    SESSION_NETWORK,
    SESSION_PACKAGES,
    SESSION_SECRETS,
    SESSION_ENVIRONMENT,
    SESSION_ISOLATION,
];

const VERSIONS_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_versions \
     (version BIGINT PRIMARY KEY, applied_at BIGINT NOT NULL)";
const VERSION: &str = "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM schema_versions";
const APPLIED: &str = "INSERT INTO schema_versions (version, applied_at) VALUES ($1, $2)";
/// Advisory lock; the number is arbitrary and used for nothing else in this database.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7738212549)";

/// Tables that the first step creates, and that are there before it: those of another program.
const FOREIGN: &str = "SELECT CAST(table_name AS TEXT) FROM information_schema.tables \
     WHERE table_schema = current_schema() AND table_name IN ('sessions', 'executions', 'files', \
     'checkpoints') ORDER BY table_name LIMIT 1";

fn version_of(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}

fn check(found: i64, known: i64) -> Result<(), StoreError> {
    if found > known { Err(StoreError::Newer { found, known }) } else { Ok(()) }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

pub(super) fn sqlite(connection: &mut Connection) -> Result<(), StoreError> {
    loop {
        let behavior = TransactionBehavior::Immediate;
        let step = connection.transaction_with_behavior(behavior);
        let step = step.map_err(|error| StoreError::of_sqlite(&error))?;
        let is_done = sqlite_step(&step)?;
        step.commit().map_err(|error| StoreError::of_sqlite(&error))?;
        if is_done {
            return Ok(());
        }
    }
}

/// Applies the next step; returns whether the schema is up to date.
fn sqlite_step(step: &Connection) -> Result<bool, StoreError> {
    let failed = |error: rusqlite::Error| StoreError::of_sqlite(&error);
    step.execute(VERSIONS_TABLE, []).map_err(failed)?;
    let found: i64 = step.query_row(VERSION, [], |row| row.get(0)).map_err(failed)?;
    check(found, version_of(&SQLITE))?;
    let Some(sql) = usize::try_from(found).ok().and_then(|found| SQLITE.get(found)) else {
        return Ok(true);
    };
    step.execute_batch(sql).map_err(failed)?;
    step.execute(APPLIED, [found + 1, now()]).map_err(failed)?;
    Ok(false)
}

pub(super) async fn postgres(pool: &PgPool) -> Result<(), StoreError> {
    let failed = |error: sqlx::Error| StoreError::of_postgres(&error);
    // Detached from the pool: a step may take longer than a call.
    let mut connection = pool.acquire().await.map_err(failed)?.detach();
    connection.execute("SET statement_timeout = 0").await.map_err(failed)?;
    while !postgres_step(&mut connection).await? {}
    if let Err(error) = connection.close().await {
        tracing::debug!(error = %StoreError::of_postgres(&error), "A connection did not close");
    }
    Ok(())
}

/// Creates the schema that the URL names by `search_path`, if it does not exist.
async fn make_schema(connection: &mut PgConnection) -> Result<(), StoreError> {
    let failed = |error: sqlx::Error| StoreError::of_postgres(&error);
    let sql = "SELECT CAST(current_schema() AS TEXT), current_setting('search_path')";
    let row = connection.fetch_one(sql).await.map_err(failed)?;
    let (current, path): (Option<String>, String) =
        (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    let first = path.split(',').next().unwrap_or_default().trim();
    let is_plain = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    if current.is_some() || !is_plain(first) {
        return Ok(());
    }
    let sql = format!("CREATE SCHEMA IF NOT EXISTS {first}");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map_err(failed)?;
    Ok(())
}

async fn postgres_step(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let failed = |error: sqlx::Error| StoreError::of_postgres(&error);
    let mut step = connection.begin().await.map_err(failed)?;
    step.execute(LOCK).await.map_err(failed)?;
    make_schema(&mut step).await?;
    step.execute(VERSIONS_TABLE).await.map_err(failed)?;
    let found = step.fetch_one(VERSION).await.map_err(failed)?;
    let found: i64 = found.try_get(0).map_err(failed)?;
    check(found, version_of(&POSTGRES))?;
    if found == 0
        && let Some(foreign) = step.fetch_optional(FOREIGN).await.map_err(failed)?
    {
        return Err(StoreError::ForeignTables(foreign.try_get(0).map_err(failed)?));
    }
    let Some(sql) = usize::try_from(found).ok().and_then(|found| POSTGRES.get(found)) else {
        step.rollback().await.map_err(failed)?;
        return Ok(true);
    };
    sqlx::raw_sql(*sql).execute(&mut *step).await.map_err(failed)?;
    let applied = sqlx::query(APPLIED).bind(found + 1).bind(now());
    applied.execute(&mut *step).await.map_err(failed)?;
    step.commit().await.map_err(failed)?;
    Ok(false)
}
