//! `SQLite` in the data directory: one thread that writes, a few connections that read.
//!
//! Writers wait for the disk once per group: whatever comes while a commit is under way is one
//! transaction afterwards, each unit behind a savepoint, so that one that fails takes only itself
//! back. An answer means that the commit is on the disk (`synchronous = FULL`). Units for which
//! nobody waits are held back a moment: the begin and the end of a short execution are then one
//! commit, and it is made when the reply is already on its way.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql};
use tokio::sync::{Semaphore, oneshot};

use super::statement::{Answer, Row, Statement, Value};
use super::{StoreError, migrate};
use crate::lock::lock;

/// Units that wait for the writer. More is an error at once, not a longer queue.
const QUEUE_MAX: usize = 4096;
/// Units that become one transaction.
const GROUP_MAX: usize = 256;
/// How long a unit that nobody waits for may wait for company.
const COMPANY_MAX: Duration = Duration::from_millis(5);
const READERS_MAX: usize = 4;
const STATEMENTS_CACHED: usize = 64;
/// How long another process may hold the file.
const BUSY_MAX: Duration = Duration::from_secs(2);
const PROBE_BYTES: usize = 256 * 1024;
/// The log is cut back to this after a checkpoint.
const LOG_BYTES_KEPT: i64 = 16 * 1024 * 1024;

pub(super) type Reply = oneshot::Receiver<Result<Vec<Answer>, StoreError>>;

struct Unit {
    statements: Vec<Statement>,
    is_awaited: bool,
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
    places: Arc<Semaphore>,
}

impl Sqlite {
    /// Blocks: makes the file where there is none, and brings its tables up to date.
    pub(super) fn open(file: &Path) -> Result<Self, StoreError> {
        make(file)?;
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
            places: Arc::new(Semaphore::new(READERS_MAX)),
        };
        Ok(Self { writer, readers: Arc::new(readers) })
    }

    /// Puts a unit in the line. Units are done in the order of their coming, whether or not
    /// anybody waits for the reply.
    pub(super) fn submit(
        &self,
        statements: Vec<Statement>,
        is_awaited: bool,
    ) -> Result<Reply, StoreError> {
        let (reply, answer) = oneshot::channel();
        match self.writer.try_send(Unit { statements, is_awaited, reply }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => {
                Err(StoreError::Unavailable("too many writes wait".to_owned()))
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(StoreError::Internal("its writer has ended".to_owned()))
            }
        }
    }

    /// Whether there is space again for more than a page. `SQLite` would write into what its log
    /// has already, and find that there is.
    pub(super) async fn probe_space(&self) -> Result<(), StoreError> {
        let probe = self.readers.file.with_extension("probe");
        let written = tokio::task::spawn_blocking(move || {
            let written = std::fs::write(&probe, vec![0; PROBE_BYTES]);
            // What a full disk left of it is in the way of others.
            let removed = std::fs::remove_file(&probe);
            written.and(removed).map_err(|error| StoreError::of_io(&error))
        });
        written.await.map_err(|error| StoreError::Internal(error.to_string()))?
    }

    pub(super) async fn read(&self, statement: Statement) -> Result<Answer, StoreError> {
        let place = Arc::clone(&self.readers.places).acquire_owned().await;
        let place = place.map_err(|error| StoreError::Internal(error.to_string()))?;
        let shared = Arc::clone(&self.readers);
        let work = tokio::task::spawn_blocking(move || {
            let idle = lock(&shared.idle).pop();
            let connection = match idle {
                Some(connection) => connection,
                None => open_reader(&shared.file)?,
            };
            let answer = run(&connection, &statement);
            // One that failed is not used again: its successor sees what the file is now.
            if answer.is_ok() {
                lock(&shared.idle).push(connection);
            }
            // Not before: a disk that hangs must not gather threads.
            drop(place);
            answer
        });
        work.await.map_err(|error| StoreError::Internal(error.to_string()))?
    }
}

/// Makes the file, so that what is wrong with its place has a name. Its entry is durable.
fn make(file: &Path) -> Result<(), StoreError> {
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
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
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

/// WAL so that readers and the writer do not wait for each other; FULL so that a commit outlives
/// a loss of power.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))?;
    // What a savepoint may take back is a few pages; in a file, each of them would be written twice.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Code that came from a damaged or foreign file must not run.
    connection.pragma_update(None, "trusted_schema", false)
}

fn open_reader(file: &Path) -> Result<Connection, StoreError> {
    let connection = connect(file)?;
    let set = connection.pragma_update(None, "query_only", true);
    set.map_err(|error| StoreError::of_sqlite(&error))?;
    Ok(connection)
}

/// The writer's thread. It ends when the last handle of the store is gone.
fn serve(connection: &Connection, inbox: &Receiver<Unit>) {
    while let Ok(first) = inbox.recv() {
        let group = gather(first, inbox);
        let answers = commit(connection, &group);
        for (unit, answer) in group.into_iter().zip(answers) {
            // Nobody waits: the caller went away, or never wanted to know.
            drop(unit.reply.send(answer));
        }
    }
}

/// What is there; and a moment more, as long as nobody waits.
fn gather(first: Unit, inbox: &Receiver<Unit>) -> Vec<Unit> {
    let deadline = Instant::now() + COMPANY_MAX;
    let mut is_awaited = first.is_awaited;
    let mut group = vec![first];
    while group.len() < GROUP_MAX {
        let patience = match is_awaited {
            true => Duration::ZERO,
            false => deadline.saturating_duration_since(Instant::now()),
        };
        match inbox.recv_timeout(patience) {
            Ok(unit) => {
                is_awaited |= unit.is_awaited;
                group.push(unit);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    group
}

fn commit(connection: &Connection, group: &[Unit]) -> Vec<Result<Vec<Answer>, StoreError>> {
    match transaction(connection, group) {
        Ok(answers) => answers,
        Err(error) => {
            if !connection.is_autocommit()
                && let Err(error) = connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "A transaction could not be taken back");
            }
            group.iter().map(|_| Err(error.clone())).collect()
        }
    }
}

/// One transaction of all units. An error is one that no unit survives.
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
        let steps = unit.statements.iter();
        let answer: Result<Vec<_>, _> = steps.map(|step| run(connection, step)).collect();
        if let Err(error) = &answer {
            // A full disk ends the transaction, and with it what others wrote in it.
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

fn run(connection: &Connection, statement: &Statement) -> Result<Answer, StoreError> {
    let answer = query(connection, statement).map_err(|error| StoreError::of_sqlite(&error))?;
    statement.judge(answer)
}

fn query(connection: &Connection, statement: &Statement) -> rusqlite::Result<Answer> {
    // `$2` would be a name here, and names are counted as they come.
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
