//! `SQLite` in the data folder: one writer thread, a few connections for reads.
//!
//! Group commit: units that arrive during a commit share the next transaction, each behind a
//! savepoint, so that a failed unit rolls back only itself. A reply means that the commit is on the
//! disk (`synchronous = FULL`).

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql};
use tokio::sync::{Semaphore, oneshot};

use super::chain::Heads;
use super::statement::{Answer, Row, Statement, Value};
use super::{StoreError, migrate};
use crate::storage::durable;
use woma_sandbox::sync::lock;

/// Units queued for the writer. Backpressure: further units fail at once.
const QUEUE_MAX: usize = 4096;
/// Units in one transaction.
const GROUP_MAX: usize = 256;
const READERS_MAX: usize = 4;
const STATEMENTS_CACHED: usize = 64;
/// How long another process may lock the file.
const BUSY_MAX: Duration = Duration::from_secs(2);
const PROBE_BYTES: usize = 256 * 1024;
/// Size to which the write-ahead log is truncated after a checkpoint.
const LOG_BYTES_KEPT: i64 = 16 * 1024 * 1024;

pub(super) type Reply = oneshot::Receiver<Result<Vec<Answer>, StoreError>>;

struct Unit {
    statements: Vec<Statement>,
    reply: oneshot::Sender<Result<Vec<Answer>, StoreError>>,
}

#[derive(Debug, Clone)]
pub(super) struct Sqlite {
    writer: SyncSender<Unit>,
    readers: Arc<Readers>,
}

#[derive(Debug)]
struct Readers {
    file: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Sqlite {
    /// Creates the file if it is missing and migrates its tables. Blocks.
    pub(super) fn open(file: &Path) -> Result<Self, StoreError> {
        create(file)?;
        let mut connection = connect(file)?;
        prepare(&connection).map_err(|error| StoreError::of_sqlite(&error))?;
        migrate::sqlite(&mut connection)?;
        let (writer, inbox) = sync_channel(QUEUE_MAX);
        std::thread::Builder::new()
            .name("woma-store".to_owned())
            .spawn(move || serve(&connection, &inbox))
            .map_err(|error| StoreError::of_io(&error))?;
        let readers = Readers {
            file: file.to_owned(),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(READERS_MAX)),
        };
        Ok(Self { writer, readers: Arc::new(readers) })
    }

    /// Queues a unit. Units run in the order of submission, whether or not the reply is
    /// awaited.
    pub(super) fn submit(&self, statements: Vec<Statement>) -> Result<Reply, StoreError> {
        let (reply, answer) = oneshot::channel();
        match self.writer.try_send(Unit { statements, reply }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => {
                Err(StoreError::Unavailable("too many writes are queued".to_owned()))
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(StoreError::Internal("its writer thread has ended".to_owned()))
            }
        }
    }

    /// Checks that the disk has free space again. A small write would not: `SQLite` reuses space
    /// that its log already has.
    pub(super) async fn probe_space(&self) -> Result<(), StoreError> {
        let probe = self.readers.file.with_extension("probe");
        let written = tokio::task::spawn_blocking(move || {
            let written = std::fs::write(&probe, vec![0; PROBE_BYTES]);
            // A partial file must not take space on a full disk.
            let removed = std::fs::remove_file(&probe);
            written.and(removed).map_err(|error| StoreError::of_io(&error))
        });
        written.await.map_err(|error| StoreError::Internal(error.to_string()))?
    }

    pub(super) async fn read(&self, statement: Statement) -> Result<Answer, StoreError> {
        let permit = Arc::clone(&self.readers.permits).acquire_owned().await;
        let permit = permit.map_err(|error| StoreError::Internal(error.to_string()))?;
        let shared = Arc::clone(&self.readers);
        let work = tokio::task::spawn_blocking(move || {
            let idle = lock(&shared.idle).pop();
            let connection = match idle {
                Some(connection) => connection,
                None => open_reader(&shared.file)?,
            };
            let answer = run(&connection, &statement);
            // A connection that failed is dropped; a new one sees the current file.
            if answer.is_ok() {
                lock(&shared.idle).push(connection);
            }
            // Held until here: a disk that hangs must not accumulate threads.
            drop(permit);
            answer
        });
        work.await.map_err(|error| StoreError::Internal(error.to_string()))?
    }
}

/// Creates the file, so that an unusable folder gets a clear error. Its entry is durable.
fn create(file: &Path) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| match StoreError::of_io(&error) {
        StoreError::NotFound => StoreError::Unavailable("its folder does not exist".to_owned()),
        other => other,
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let opened = options.open(file).map_err(failed)?;
    opened.sync_all().map_err(failed)?;
    if let Some(folder) = file.parent() {
        durable::sync_folder(folder).map_err(failed)?;
    }
    Ok(())
}

fn connect(file: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags);
    let connection = connection.map_err(|error| StoreError::of_sqlite(&error))?;
    connection.busy_timeout(BUSY_MAX).map_err(|error| StoreError::of_sqlite(&error))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    Ok(connection)
}

/// Sets WAL, so that readers and the writer do not block each other, and FULL, so that a commit
/// survives a power loss.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))?;
    // Savepoints cover a few pages; a temporary file would write each of them twice.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Code in the schema of a damaged or foreign file must not run.
    connection.pragma_update(None, "trusted_schema", false)
}

fn open_reader(file: &Path) -> Result<Connection, StoreError> {
    let connection = connect(file)?;
    let set = connection.pragma_update(None, "query_only", true);
    set.map_err(|error| StoreError::of_sqlite(&error))?;
    Ok(connection)
}

/// Writer thread. It ends when the last handle to the store is dropped.
fn serve(connection: &Connection, inbox: &Receiver<Unit>) {
    while let Ok(first) = inbox.recv() {
        let group = gather(first, inbox);
        let answers = commit(connection, &group);
        for (unit, answer) in group.into_iter().zip(answers) {
            // The receiver may be gone: the caller left, or never waited.
            drop(unit.reply.send(answer));
        }
    }
}

/// Collects the units that are queued.
fn gather(first: Unit, inbox: &Receiver<Unit>) -> Vec<Unit> {
    let queued = inbox.try_iter().take(GROUP_MAX - 1);
    std::iter::once(first).chain(queued).collect()
}

fn commit(connection: &Connection, group: &[Unit]) -> Vec<Result<Vec<Answer>, StoreError>> {
    match transaction(connection, group) {
        Ok(answers) => answers,
        Err(error) => {
            if !connection.is_autocommit()
                && let Err(error) = connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "A transaction could not be rolled back");
            }
            group.iter().map(|_| Err(error.clone())).collect()
        }
    }
}

/// Runs all units in one transaction. An error means that no unit was committed.
fn transaction(
    connection: &Connection,
    group: &[Unit],
) -> Result<Vec<Result<Vec<Answer>, StoreError>>, StoreError> {
    let batch = |sql: &str| {
        let done = connection.prepare_cached(sql).and_then(|mut sql| sql.execute([]));
        done.map(drop).map_err(|error| StoreError::of_sqlite(&error))
    };
    batch("BEGIN IMMEDIATE")?;
    let mut answers = Vec::with_capacity(group.len());
    for unit in group {
        batch("SAVEPOINT unit")?;
        let answer = run_all(connection, &unit.statements);
        if let Err(error) = &answer {
            // A full disk aborts the whole transaction, with the other units in it.
            if connection.is_autocommit() {
                return Err(error.clone());
            }
            batch("ROLLBACK TO unit")?;
        }
        batch("RELEASE unit")?;
        answers.push(answer);
    }
    batch("COMMIT")?;
    Ok(answers)
}

/// Runs the statements of a unit; rows of the audit trail get their places.
fn run_all(connection: &Connection, unit: &[Statement]) -> Result<Vec<Answer>, StoreError> {
    let mut heads = Heads::default();
    let mut answers = Vec::with_capacity(unit.len());
    for statement in unit {
        if let Some(lock) = heads.lock(statement) {
            heads.locked(statement, run(connection, &lock)?)?;
        }
        let Some((linked, link)) = heads.linked(statement) else {
            answers.push(run(connection, statement)?);
            continue;
        };
        let answer = run(connection, &linked)?;
        if answer.touched > 0 {
            heads.appended(statement, link);
        }
        answers.push(answer);
    }
    heads.moved().iter().try_for_each(|write| run(connection, write).map(drop))?;
    Ok(answers)
}

fn run(connection: &Connection, statement: &Statement) -> Result<Answer, StoreError> {
    let answer = query(connection, statement).map_err(|error| StoreError::of_sqlite(&error))?;
    statement.check(answer)
}

fn query(connection: &Connection, statement: &Statement) -> rusqlite::Result<Answer> {
    // SQLite reads `$2` as a named parameter, numbered by first use.
    let mut prepared = connection.prepare_cached(&statement.sql.replace('$', "?"))?;
    let values = rusqlite::params_from_iter(&statement.values);
    if !statement.has_rows {
        let touched = prepared.execute(values)?;
        return Ok(Answer { touched: touched as u64, rows: Vec::new() });
    }
    let width = prepared.column_count();
    let mut cursor = prepared.query(values)?;
    let mut rows = Vec::new();
    while let Some(row) = cursor.next()? {
        let values = (0..width).map(|index| row.get_ref(index).map(value_of));
        rows.push(Row::new(values.collect::<rusqlite::Result<_>>()?));
    }
    Ok(Answer { touched: 0, rows })
}

fn value_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Text(None),
        ValueRef::Integer(number) => Value::Number(Some(number)),
        ValueRef::Real(_) => Value::Number(None),
        ValueRef::Text(text) => Value::Text(Some(String::from_utf8_lossy(text).into_owned())),
        ValueRef::Blob(bytes) => Value::Bytes(Some(bytes.to_vec())),
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Number(Some(number)) => ValueRef::Integer(*number),
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(Some(bytes)) => ValueRef::Blob(bytes),
            Self::Number(None) | Self::Text(None) | Self::Bytes(None) => ValueRef::Null,
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}
