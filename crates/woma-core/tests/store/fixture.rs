//! A fresh store on either database, and sample rows.

use std::path::PathBuf;

use jiff::Timestamp;
use tempfile::TempDir;
use uuid::Uuid;
use woma_core::blobs::Digest;
use woma_core::store::{
    AuditEntry, CheckpointRow, Deletion, DeletionRow, ExecutionRow, ExecutionStatus, FileRow,
    SessionRow, Store, StoreConfig, StoreError,
};

use crate::bucket::Bucket;
use crate::postgres;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

pub(crate) struct Fixture {
    pub(crate) backend: Backend,
    pub(crate) store: Store,
    pub(crate) folder: TempDir,
    /// Name of the `PostgreSQL` database.
    pub(crate) database: String,
    /// Bucket of its blobs, if they are in one.
    pub(crate) bucket: Option<Bucket>,
}

impl Fixture {
    pub(crate) async fn new(backend: Backend) -> Self {
        let folder = TempDir::new().unwrap();
        let database = match backend {
            Backend::Sqlite => String::new(),
            Backend::Postgres => postgres::shared().fresh(),
        };
        let config = config(backend, &folder, &database);
        let store = Store::open(config).await.unwrap();
        Self { backend, store, folder, database, bucket: None }
    }

    pub(crate) fn config(&self) -> StoreConfig {
        config(self.backend, &self.folder, &self.database)
    }

    /// Row of an execution that runs. The server writes only ended ones; earlier versions wrote
    /// both.
    pub(crate) fn plant_running(&self, owner: &str, session: &str, id: &str) {
        let row = running(owner, session, id);
        self.raw(&format!(
            "INSERT INTO executions (id, owner, session_id, server, started_at, status, \
             code_sha256) VALUES ('{id}', '{owner}', '{session}', '{}', {}, 'running', '{}')",
            row.server,
            row.started_at.as_microsecond(),
            row.code_sha256,
        ))
        .unwrap();
    }

    /// Executes SQL beside the store.
    pub(crate) fn raw(&self, sql: &str) -> Result<(), String> {
        raw(self.backend, &self.folder, &self.database, sql)
    }

    /// The number that a query beside the store returns.
    pub(crate) fn count(&self, sql: &str) -> i64 {
        match self.backend {
            Backend::Sqlite => {
                let connection = rusqlite::Connection::open(file(&self.folder)).unwrap();
                connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
                connection.query_row(sql, [], |row| row.get(0)).unwrap()
            }
            Backend::Postgres => {
                let text = postgres::shared().sql(&self.database, sql).unwrap();
                text.trim().parse().unwrap()
            }
        }
    }
}

pub(crate) fn raw(
    backend: Backend,
    folder: &TempDir,
    database: &str,
    sql: &str,
) -> Result<(), String> {
    match backend {
        Backend::Sqlite => {
            let connection = rusqlite::Connection::open(file(folder)).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
            connection.execute_batch(sql).map_err(|error| error.to_string())
        }
        Backend::Postgres => postgres::shared().sql(database, sql).map(drop),
    }
}

pub(crate) fn config(backend: Backend, folder: &TempDir, database: &str) -> StoreConfig {
    match backend {
        Backend::Sqlite => StoreConfig::Sqlite { file: file(folder) },
        Backend::Postgres => {
            let url = postgres::shared().url(database);
            StoreConfig::Postgres { url, connections_max: 8 }
        }
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("woma.db")
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Time by its second.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// Second at which [`deleted`] deletes: later than all sample rows.
pub(crate) const LATE: i64 = 1_000;

pub(crate) fn deleted(owner: &str, session: &str, what: Deletion) -> DeletionRow {
    let (owner, session_id) = (owner.to_owned(), session.to_owned());
    DeletionRow { owner, session_id, what, at: at(LATE) }
}

pub(crate) fn session(owner: &str, id: &str) -> SessionRow {
    SessionRow {
        owner: owner.to_owned(),
        id: id.to_owned(),
        name: None,
        description: None,
        policy: None,
        lease_server: None,
        created_at: at(0),
        last_used_at: at(0),
        execution_count: 0,
        labels: None,
        lifetime_s: None,
        network: Some("data.example".to_owned()),
        packages: None,
        environment: Some("small".to_owned()),
        secrets: Some("KEY".to_owned()),
        isolation: Some("container".to_owned()),
    }
}

pub(crate) fn running(owner: &str, session: &str, id: &str) -> ExecutionRow {
    ExecutionRow {
        id: id.to_owned(),
        owner: owner.to_owned(),
        session_id: Some(session.to_owned()),
        server: "one".to_owned(),
        started_at: at(0),
        ended_at: None,
        status: ExecutionStatus::Running,
        outcome: None,
        error_category: None,
        code_sha256: Digest::of(b"6 * 7").to_string(),
        code_text: None,
        wall_ms: None,
        cpu_ms: None,
        memory_peak_bytes: None,
        output_bytes: None,
        files_count: None,
        client: None,
    }
}

pub(crate) fn finished(mut execution: ExecutionRow) -> ExecutionRow {
    execution.status = ExecutionStatus::Finished;
    execution.ended_at = Some(at(5));
    execution.outcome = Some("completed".to_owned());
    execution.wall_ms = Some(12);
    execution.cpu_ms = Some(10);
    execution.memory_peak_bytes = Some(u64::from(u32::MAX) * 2);
    execution.output_bytes = Some(3);
    execution.files_count = Some(1);
    execution
}

/// Records the end of an execution, as the outbox does.
pub(crate) async fn finish(
    store: &Store,
    execution: &ExecutionRow,
    audit: &AuditEntry,
) -> Result<(), StoreError> {
    store.finish(execution, audit).await
}

/// Execution by its id, if the owner has it.
pub(crate) async fn execution(store: &Store, owner: &str, id: &str) -> Option<ExecutionRow> {
    let rows = store.executions(owner, None, u32::MAX, None).await.unwrap();
    rows.into_iter().find(|row| row.id == id)
}

pub(crate) fn file_row(owner: &str, session: &str, name: &str) -> FileRow {
    FileRow {
        id: Uuid::new_v4(),
        owner: owner.to_owned(),
        session_id: Some(session.to_owned()),
        path: format!("out/{name}"),
        name: name.to_owned(),
        digest: Digest::of(name.as_bytes()),
        size_bytes: 100,
        media_type: "text/csv".to_owned(),
        created_at: at(0),
        expires_at: Some(at(100)),
        downloads: 0,
        is_chart: false,
    }
}

pub(crate) fn checkpoint(owner: &str, session: &str) -> CheckpointRow {
    CheckpointRow {
        owner: owner.to_owned(),
        session_id: session.to_owned(),
        digest: Digest::of(b"variables"),
        size_bytes: 9,
        created_at: at(1),
        summary: "{\"names\":[\"x\"]}".to_owned(),
    }
}

pub(crate) fn entry(owner: &str, action: &str) -> AuditEntry {
    AuditEntry {
        at: at(0),
        owner: owner.to_owned(),
        action: action.to_owned(),
        session_id: None,
        execution_id: None,
        detail: "{}".to_owned(),
    }
}
