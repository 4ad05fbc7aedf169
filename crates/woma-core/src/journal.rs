//! What was begun and what came of it: written down before a reply is sent, and carried into the
//! store afterwards.
//!
//! A commit waits for the disk, and a database may be away for minutes; a reply waits for neither.
//! So each execution is a line when it begins and a line when it ends, in a file that a killed server
//! leaves as it is. What is in the file and not yet in the store is brought there by a task, in
//! groups, for as long as it takes. At the next start the file tells which executions were lost.
//!
//! Servers that share a data folder have a file each, which is locked while its server lives.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, watch};

use crate::lock::lock;
use crate::store::{AuditEntry, ExecutionRow, ExecutionStatus, Store, StoreError};

/// Ended executions that may wait for a store that is away; more are not recorded, and it is said.
const WAITING_MAX: u64 = 20_000;
/// Executions that are brought to the store together.
const GROUP_MAX: usize = 512;
/// How long the first of a group waits for others, unless somebody wants to read them: a commit for
/// each run would cost the runs.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// From this size on, lines of executions that have long ended are dropped while others run.
const COMPACT_BYTES: u64 = 4 * 1024 * 1024;
/// Servers that can share a data folder.
const SERVERS_MAX: usize = 64;
/// Longest journal that is read at a start.
const READ_BYTES_MAX: u64 = 1024 * 1024 * 1024;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// How an execution ended, with what the audit trail says of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) row: ExecutionRow,
    pub(crate) audit: AuditEntry,
    /// Each with a row of its own in the trail.
    pub(crate) events: Vec<AuditEntry>,
}

#[derive(Deserialize)]
enum Line {
    Begun(Box<ExecutionRow>),
    Ended(Box<Ended>),
}

/// The same, of what somebody else has.
#[derive(Serialize)]
#[serde(rename = "Line")]
enum LineOf<'a> {
    Begun(&'a ExecutionRow),
    Ended(&'a Ended),
}

#[derive(Debug)]
pub(crate) struct Journal {
    inner: Mutex<Inner>,
    queue: mpsc::UnboundedSender<Ended>,
    /// Somebody wants to read what is on its way.
    hurry: Arc<Notify>,
    /// How many have reached the store, or never will.
    carried: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    bytes: u64,
    /// Begun, and not ended.
    running: BTreeMap<String, Box<ExecutionRow>>,
    /// Ended since the start, and left by servers before.
    ended: u64,
}

impl Journal {
    /// Opens the journal, and brings what servers that are gone left in theirs to the store.
    pub(crate) fn open(path: &Path, store: Store) -> io::Result<Arc<Self>> {
        let (mut own, mut left) = (None, Vec::new());
        for number in 0..SERVERS_MAX {
            let path = match number {
                0 => path.to_owned(),
                _ => path.with_extension(number.to_string()),
            };
            if own.is_some() && !path.exists() {
                break;
            }
            let Some(mut file) = locked(&path)? else { continue };
            let (ended, bytes) = read(&mut file)?;
            match &mut own {
                None => {
                    let running = BTreeMap::new();
                    own = Some(Inner { file, bytes, running, ended: 0 });
                }
                // It moves to ours, and is there twice rather than not at all.
                Some(own) => {
                    ended.iter().try_for_each(|ended| own.append(&LineOf::Ended(ended)))?;
                    file.set_len(0)?;
                }
            }
            left.extend(ended);
        }
        let mut inner = own.ok_or_else(|| io::Error::other("too many servers share the folder"))?;
        inner.ended = left.len() as u64;
        let (queue, incoming) = mpsc::unbounded_channel();
        let (hurry, carried) = (Arc::default(), watch::Sender::default());
        let journal = Arc::new(Self { inner: Mutex::new(inner), queue, hurry, carried });
        for ended in left {
            // The task below has the other end.
            journal.queue.send(ended).unwrap_or_default();
        }
        tokio::spawn(carry(Arc::downgrade(&journal), store, incoming));
        Ok(journal)
    }

    pub(crate) fn begin(&self, row: &ExecutionRow) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.running.insert(row.id.clone(), Box::new(row.clone()));
        inner.append(&LineOf::Begun(row))
    }

    /// After this, the execution is recorded whatever becomes of the server.
    pub(crate) fn end(&self, ended: Ended) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.running.remove(&ended.row.id);
        if inner.ended - *self.carried.borrow() >= WAITING_MAX {
            return Err(io::Error::other("too many records wait for the store"));
        }
        let written = inner.append(&LineOf::Ended(&ended));
        inner.ended += 1;
        self.queue.send(ended).unwrap_or_default();
        written
    }

    /// Records that are not in the store yet.
    pub(crate) fn waiting(&self) -> u64 {
        lock(&self.inner).ended - *self.carried.borrow()
    }

    /// Waits until the store has what ended before this call.
    pub(crate) async fn settle(&self) {
        let ended = lock(&self.inner).ended;
        let mut carried = self.carried.subscribe();
        if *carried.borrow() < ended {
            self.hurry.notify_one();
        }
        // An error says that there is no journal any more, and we are its method.
        carried.wait_for(|carried| *carried >= ended).await.map(drop).unwrap_or_default();
    }

    fn carried(&self, count: usize) {
        let mut inner = lock(&self.inner);
        let carried = *self.carried.borrow() + count as u64;
        let is_due = inner.running.is_empty() || inner.bytes > COMPACT_BYTES;
        if inner.ended == carried
            && inner.bytes > 0
            && is_due
            && let Err(error) = inner.compact()
        {
            tracing::warn!(%error, "The journal could not be shortened");
        }
        // Last: who waits for this may end the server.
        self.carried.send_replace(carried);
    }
}

impl Inner {
    fn append(&mut self, line: &LineOf<'_>) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        // In one call: a line is whole, or torn at the very end by a disk that is full.
        let written = self.file.write_all(&bytes);
        if written.is_ok() {
            self.bytes += bytes.len() as u64;
        } else {
            // What was torn must not spoil the line that follows.
            self.file.set_len(self.bytes)?;
        }
        written
    }

    /// Keeps what is running, and nothing else. A server that is killed meanwhile has lost only
    /// lines of executions that did not end.
    fn compact(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.bytes = 0;
        let running = std::mem::take(&mut self.running);
        let kept = running.values().try_for_each(|row| self.append(&LineOf::Begun(row)));
        self.running = running;
        kept
    }
}

/// The file, unless a server that lives has it.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// What ended and may not be in the store, and what began and never ended.
fn read(file: &mut File) -> io::Result<(Vec<Ended>, u64)> {
    let length = file.metadata()?.len();
    if length > READ_BYTES_MAX {
        return Err(io::Error::other("the journal is too long to be read"));
    }
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    let (mut running, mut ended) = (BTreeMap::new(), Vec::new());
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(Line::Begun(row)) => {
                running.insert(row.id.clone(), *row);
            }
            Ok(Line::Ended(end)) => {
                running.remove(&end.row.id);
                ended.push(*end);
            }
            Err(error) => tracing::warn!(%error, "A line of the journal cannot be read"),
        }
    }
    ended.extend(running.into_values().map(lost));
    file.set_len(whole as u64)?;
    Ok((ended, whole as u64))
}

/// The server that ran it is gone, and nobody knows how far it came.
fn lost(row: ExecutionRow) -> Ended {
    let now = Timestamp::now();
    let detail = serde_json::json!({ "reason": "the server ended while it ran" });
    let audit = crate::audit::entry(&row, now, "execution_lost", &detail);
    let (status, ended_at) = (ExecutionStatus::Lost, Some(now));
    let row = ExecutionRow { status, ended_at, outcome: Some("lost".to_owned()), ..row };
    Ended { row, audit, events: Vec::new() }
}

/// Ends with the journal.
async fn carry(
    journal: std::sync::Weak<Journal>,
    store: Store,
    mut incoming: mpsc::UnboundedReceiver<Ended>,
) {
    let Some(hurry) = journal.upgrade().map(|journal| Arc::clone(&journal.hurry)) else { return };
    let mut group = Vec::new();
    while let Some(first) = incoming.recv().await {
        group.push(first);
        tokio::select! {
            () = tokio::time::sleep(GATHER_TIME) => {}
            () = hurry.notified() => {}
        }
        while group.len() < GROUP_MAX
            && let Ok(next) = incoming.try_recv()
        {
            group.push(next);
        }
        let count = group.len();
        let mut pause = RETRY_FIRST;
        loop {
            group = carry_once(&store, group).await;
            if group.is_empty() {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
            if journal.strong_count() == 0 {
                return;
            }
        }
        let Some(journal) = journal.upgrade() else { return };
        journal.carried(count);
    }
}

/// Returns those for which another try is worth while.
async fn carry_once(store: &Store, group: Vec<Ended>) -> Vec<Ended> {
    match store.finish_all(group.iter().map(|ended| (&ended.row, &ended.audit))).await {
        Ok(()) => {
            for ended in &group {
                append(store, &ended.events).await;
            }
            Vec::new()
        }
        Err(error) if error.is_passing() => group,
        // One of them cannot be recorded: the others are not to blame.
        Err(_) => carry_each(store, group).await,
    }
}

async fn carry_each(store: &Store, group: Vec<Ended>) -> Vec<Ended> {
    let pending: Vec<_> =
        group.iter().map(|ended| store.finish_later(&ended.row, &[], &ended.audit)).collect();
    let mut again = Vec::new();
    for (ended, pending) in group.into_iter().zip(pending) {
        match pending.settled().await {
            Ok(()) => append(store, &ended.events).await,
            // It was carried before a crash that kept it in the journal.
            Err(StoreError::Conflict) => {}
            Err(error) if error.is_passing() => again.push(ended),
            Err(error) => {
                tracing::error!(%error, id = ended.row.id, "An execution could not be recorded");
            }
        }
    }
    again
}

async fn append(store: &Store, events: &[AuditEntry]) {
    for event in events {
        if let Err(error) = store.append_audit(event).await {
            tracing::error!(%error, "A security event could not be recorded");
        }
    }
}
