//! Migrations: from an empty database, from any step, concurrently, never backwards.

use futures_util::future::join_all;
use tempfile::TempDir;
use woma_core::store::{Store, StoreError};

use crate::fixture::{self, Backend, Fixture, session};
use crate::postgres;

const TABLES: &str = include_str!("../../src/storage/db/migrations/both/tables.sql");
const KEYS: &str = include_str!("../../src/storage/db/migrations/both/keys.sql");
const RECORD_DAYS: &str = include_str!("../../src/storage/db/migrations/both/record_days.sql");
const LEASES: &str = include_str!("../../src/storage/db/migrations/both/leases.sql");
const FILES_LEFT: &str = include_str!("../../src/storage/db/migrations/both/files_left.sql");
const SESSION_LABELS: &str =
    include_str!("../../src/storage/db/migrations/both/session_labels.sql");
const AUDIT_CHAIN: &str = include_str!("../../src/storage/db/migrations/both/audit_chain.sql");
const JOBS: &str = include_str!("../../src/storage/db/migrations/both/jobs.sql");
const DATASETS: &str = include_str!("../../src/storage/db/migrations/both/datasets.sql");
const WEBHOOKS: &str = include_str!("../../src/storage/db/migrations/both/webhooks.sql");
const SESSION_NETWORK: &str =
    include_str!("../../src/storage/db/migrations/both/session_network.sql");
const SESSION_PACKAGES: &str =
    include_str!("../../src/storage/db/migrations/both/session_packages.sql");
const SESSION_ENVIRONMENT: &str =
    include_str!("../../src/storage/db/migrations/both/session_environment.sql");
const SESSION_SECRETS: &str =
    include_str!("../../src/storage/db/migrations/both/session_secrets.sql");
const SESSION_ISOLATION: &str =
    include_str!("../../src/storage/db/migrations/both/session_isolation.sql");
const SQLITE: [&str; 17] = [
    TABLES,
    include_str!("../../src/storage/db/migrations/sqlite/audit.sql"),
    KEYS,
    RECORD_DAYS,
    LEASES,
    FILES_LEFT,
    SESSION_LABELS,
    AUDIT_CHAIN,
    JOBS,
    DATASETS,
    WEBHOOKS,
    include_str!("../../src/storage/db/migrations/sqlite/job_counts.sql"),
    SESSION_NETWORK,
    SESSION_PACKAGES,
    SESSION_SECRETS,
    SESSION_ENVIRONMENT,
    SESSION_ISOLATION,
];
const POSTGRES: [&str; 18] = [
    TABLES,
    include_str!("../../src/storage/db/migrations/postgres/audit.sql"),
    include_str!("../../src/storage/db/migrations/postgres/blobs.sql"),
    KEYS,
    RECORD_DAYS,
    LEASES,
    FILES_LEFT,
    SESSION_LABELS,
    AUDIT_CHAIN,
    JOBS,
    DATASETS,
    WEBHOOKS,
    include_str!("../../src/storage/db/migrations/postgres/job_counts.sql"),
    SESSION_NETWORK,
    SESSION_PACKAGES,
    SESSION_SECRETS,
    SESSION_ENVIRONMENT,
    SESSION_ISOLATION,
];

pub(crate) async fn a_second_open_changes_nothing(fixture: Fixture) {
    fixture.store.put_session(&session("ann", "a")).await.unwrap();
    for _ in 0..2 {
        let store = Store::open(fixture.config()).await.unwrap();
        assert!(store.session("ann", "a").await.unwrap().is_some());
    }
}

pub(crate) async fn concurrent_opens_migrate_once(fixture: Fixture) {
    let folder = TempDir::new().unwrap();
    let database = match fixture.backend {
        Backend::Sqlite => String::new(),
        Backend::Postgres => postgres::shared().fresh(),
    };
    let open = async |number: usize| {
        let config = fixture::config(fixture.backend, &folder, &database);
        let store = Store::open(config).await.unwrap();
        store.put_session(&session("ann", &number.to_string())).await.unwrap();
        store
    };
    let stores = join_all((0..6).map(open)).await;
    for store in stores {
        assert_eq!(store.sessions("ann").await.unwrap().len(), 6);
    }
}

pub(crate) async fn each_step_may_be_the_last_before_a_crash(fixture: Fixture) {
    let steps: &[&str] = match fixture.backend {
        Backend::Sqlite => &SQLITE,
        Backend::Postgres => &POSTGRES,
    };
    for done in 0..=steps.len() {
        let folder = TempDir::new().unwrap();
        let database = match fixture.backend {
            Backend::Sqlite => String::new(),
            Backend::Postgres => postgres::shared().fresh(),
        };
        let raw = |sql: &str| fixture::raw(fixture.backend, &folder, &database, sql);
        raw(
            "CREATE TABLE schema_versions (version BIGINT PRIMARY KEY, applied_at BIGINT NOT NULL)",
        )
        .unwrap();
        for (index, step) in steps.iter().take(done).enumerate() {
            raw(step).unwrap();
            raw(&format!("INSERT INTO schema_versions VALUES ({}, 0)", index + 1)).unwrap();
        }
        // The database rolls an unfinished step back.
        if let Some(step) = steps.get(done) {
            raw(&format!("BEGIN; {step}; ROLLBACK")).unwrap();
        }
        let config = fixture::config(fixture.backend, &folder, &database);
        let store = Store::open(config).await.unwrap();
        store.put_session(&session("ann", "a")).await.unwrap();
        store.append_audit(&fixture::entry("ann", "x")).await.unwrap();
        raw("DELETE FROM audit").unwrap_err();
    }
}

pub(crate) async fn a_newer_store_is_refused(fixture: Fixture) {
    fixture.raw("INSERT INTO schema_versions VALUES (1000, 0)").unwrap();
    let error = Store::open(fixture.config()).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 1000, known: 2..=99 }), "{error}");
    assert!(!error.is_retryable());
}
