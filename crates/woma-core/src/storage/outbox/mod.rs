//! Outbox: records that must reach the database, kept in a file until it has them.
//!
//! A commit waits for the disk, and a database may be unreachable for minutes; a reply waits for
//! neither. Executions, sessions, checkpoints, deletions and audit entries are therefore appended to
//! a file first (`journal.rs`) and delivered in the background, in the order in which they were
//! appended (`delivery.rs`). After a crash, the file shows what the database may lack, and which
//! executions were lost.
//!
//! Servers that share a data folder have one file each; the others take over the file of a server
//! that was killed.

mod delivery;
mod entry;
mod journal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use self::delivery::Numbered;
use self::entry::Slot;
pub(crate) use self::entry::{Ended, Entry};
use self::journal::{Content, Journal, LineRef};
use crate::storage::db::{AuditEntry, ExecutionRow, ExecutionStatus, Store};
use woma_sandbox::sync::lock;

/// How long a reply waits for delivery. It waits for nothing while deliveries fail.
pub(crate) const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);
/// Entries that may wait for an unreachable database; further ones are refused with an error.
const WAITING_MAX: usize = 20_000;
/// Servers that can share a data folder.
const SERVERS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Outbox {
    store: Store,
    /// Path of the first server's file; those of the others have a number as extension.
    path: PathBuf,
    inner: Mutex<Inner>,
    /// Wakes the delivery task.
    accepted: Arc<Notify>,
    /// Delivers at once, for a caller that waits.
    deliver_now: Arc<Notify>,
    /// The database has all entries with smaller numbers, or has rejected them.
    delivered: watch::Sender<u64>,
    /// Whether the last delivery failed for a reason that passes.
    is_failing: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    journal: Journal,
    /// Executions that began and have not ended.
    running: BTreeMap<String, Box<ExecutionRow>>,
    waiting: BTreeMap<u64, Arc<Entry>>,
    /// Waiting entries that a later one may replace.
    slots: BTreeMap<Slot, u64>,
    /// Number of the next entry.
    next: u64,
    /// Entries with smaller numbers are being delivered.
    in_flight: u64,
}

impl Outbox {
    /// Opens the outbox and takes over the files of servers that no longer run.
    pub(crate) fn open(path: &Path, store: Store) -> io::Result<Arc<Self>> {
        let outbox = Arc::new(Self::open_first_free(path, store.clone())?);
        outbox.take_over()?;
        tokio::spawn(delivery::run(Arc::downgrade(&outbox), store));
        Ok(outbox)
    }

    fn open_first_free(path: &Path, store: Store) -> io::Result<Self> {
        for number in 0..SERVERS_MAX {
            let Some((journal, content)) = Journal::open(&numbered(path, number))? else {
                continue;
            };
            let next = content.waiting.keys().next_back().map_or(0, |last| last + 1);
            let (running, waiting, slots) = Default::default();
            let inner = Inner { journal, running, waiting, slots, next, in_flight: 0 };
            let outbox = Self {
                store,
                path: path.to_owned(),
                inner: Mutex::new(inner),
                accepted: Arc::default(),
                deliver_now: Arc::default(),
                delivered: watch::Sender::new(next),
                is_failing: AtomicBool::new(false),
            };
            outbox.recover(content)?;
            return Ok(outbox);
        }
        Err(io::Error::other("too many servers share the data folder"))
    }

    /// Takes in what an earlier server left in the file that is now ours: its lines stay, those of
    /// lost executions are added.
    fn recover(&self, content: Content) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        if let Some(first) = content.waiting.keys().next() {
            self.delivered.send_replace(*first);
        }
        for (number, entry) in content.waiting {
            inner.insert(number, Arc::new(entry), &self.store);
        }
        for row in content.running.into_values() {
            inner.accept(Entry::Execution(Box::new(lost(*row))), &self.store)?;
        }
        drop(inner);
        self.accepted.notify_one();
        Ok(())
    }

    /// Moves the entries of servers that were killed into our file.
    fn take_over(&self) -> io::Result<()> {
        let own = lock(&self.inner).journal.path().to_owned();
        for number in 0..SERVERS_MAX {
            let path = numbered(&self.path, number);
            if path == own || !path.exists() {
                continue;
            }
            let Some((mut journal, content)) = Journal::open(&path)? else { continue };
            if journal.bytes() == 0 {
                continue;
            }
            let mut inner = lock(&self.inner);
            let entries = content.waiting.into_values();
            let lost = content.running.into_values();
            let lost = lost.map(|row| Entry::Execution(Box::new(self::lost(*row))));
            for entry in entries.chain(lost) {
                inner.accept(entry, &self.store)?;
            }
            let file = inner.journal.file();
            drop(inner);
            // Synced before the other file is emptied: a crash in between repeats an entry, and
            // loses none.
            file.sync_data()?;
            journal.clear()?;
            self.accepted.notify_one();
        }
        Ok(())
    }

    /// As [`Outbox::take_over`], on a thread that may wait for the disk.
    async fn take_over_in_background(self: &Arc<Self>) {
        let outbox = Arc::clone(self);
        let taken = tokio::task::spawn_blocking(move || outbox.take_over()).await;
        if let Ok(Err(error)) = taken {
            tracing::warn!(%error, "The outbox of a killed server could not be read");
        }
    }

    /// Takes in what killed servers have left, and waits for a moment until the database has it.
    pub(crate) async fn take_over_now(self: &Arc<Self>) {
        self.take_over_in_background().await;
        self.settle_in_time().await;
    }

    /// Appends the begin of an execution. Without an end it is recorded as lost at the next start.
    pub(crate) fn begin(&self, row: &ExecutionRow) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.running.insert(row.id.clone(), Box::new(row.clone()));
        inner.journal.append(&LineRef::Begun(row))
    }

    /// Appends the end of an execution. A full disk does not keep it from the database, but a crash
    /// then loses it.
    pub(crate) fn end(&self, ended: Ended) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.running.remove(&ended.row.id);
        inner.check_space()?;
        let entry = Arc::new(Entry::Execution(Box::new(ended)));
        let number = inner.take_number();
        let written = inner.journal.append(&LineRef::Entry(number, &entry));
        inner.insert(number, entry, &self.store);
        drop(inner);
        self.accepted.notify_one();
        written
    }

    /// Appends an entry. It then survives a crash of the server.
    pub(crate) fn push(&self, entry: Entry) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.check_space()?;
        inner.accept(entry, &self.store)?;
        drop(inner);
        self.accepted.notify_one();
        Ok(())
    }

    /// Appends entries together and syncs them. They then survive loss of power too.
    pub(crate) async fn push_synced(&self, entries: Vec<Entry>) -> io::Result<()> {
        let file = {
            let mut inner = lock(&self.inner);
            inner.check_space()?;
            for entry in entries {
                inner.accept(entry, &self.store)?;
            }
            inner.journal.file()
        };
        self.accepted.notify_one();
        tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)?
    }

    /// Number of entries that the database does not have yet.
    pub(crate) fn waiting(&self) -> u64 {
        lock(&self.inner).waiting.len() as u64
    }

    /// Waits until the database has every entry that was accepted before this call.
    async fn settle(&self) {
        let next = lock(&self.inner).next;
        let mut delivered = self.delivered.subscribe();
        if *delivered.borrow() < next {
            self.deliver_now.notify_one();
        }
        // The sender is a field of `self`, so it cannot be closed here.
        delivered.wait_for(|delivered| *delivered >= next).await.map(drop).unwrap_or_default();
    }

    /// Waits for a moment until the database has every entry that was accepted before this call.
    /// Undelivered entries stay in the file.
    pub(crate) async fn settle_in_time(&self) {
        if !self.is_failing.load(Ordering::Relaxed) {
            tokio::time::timeout(SETTLE_TIME_MAX, self.settle()).await.unwrap_or_default();
        }
    }

    /// The next entries to deliver; they are not replaced any more.
    fn next_batch(&self, most: usize) -> Vec<Numbered> {
        let mut inner = lock(&self.inner);
        let batch: Vec<Numbered> = inner
            .waiting
            .iter()
            .take(most)
            .map(|(number, entry)| (*number, Arc::clone(entry)))
            .collect();
        if let Some((last, _)) = batch.last() {
            inner.in_flight = last + 1;
        }
        batch
    }

    /// Drops delivered entries from memory and, when it pays, from the file.
    fn delivered(&self, batch: &[Numbered], is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
        let mut inner = lock(&self.inner);
        for (number, entry) in batch {
            inner.waiting.remove(number);
            if let Entry::Deletion(row) = entry.as_ref() {
                self.store.pending_deletions().remove(row);
            }
        }
        let Inner { waiting, slots, next, .. } = &mut *inner;
        let first = waiting.keys().next().copied().unwrap_or(*next);
        slots.retain(|_, number| *number >= first);
        if !batch.is_empty()
            && let Err(error) = inner.drop_delivered(first)
        {
            tracing::warn!(%error, "The outbox file could not be compacted");
        }
        drop(inner);
        // Last: a caller that waits for this may stop the server.
        self.delivered.send_replace(first);
    }
}

impl Inner {
    fn check_space(&self) -> io::Result<()> {
        if self.waiting.len() < WAITING_MAX {
            return Ok(());
        }
        Err(io::Error::other("too many records wait for the database"))
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Appends an entry to the file and then to the queue. Entries of an earlier server are accepted
    /// beyond the limit: otherwise a full outbox would keep the next server from starting.
    fn accept(&mut self, entry: Entry, store: &Store) -> io::Result<()> {
        if entry.is_deleted(store) {
            return Ok(());
        }
        let replaced = entry.slot().and_then(|slot| self.slots.get(&slot).copied());
        let replaced = replaced.filter(|number| *number >= self.in_flight);
        let number = replaced.unwrap_or(self.next);
        self.journal.append(&LineRef::Entry(number, &entry))?;
        self.next = self.next.max(number + 1);
        self.insert(number, Arc::new(entry), store);
        Ok(())
    }

    fn insert(&mut self, number: u64, entry: Arc<Entry>, store: &Store) {
        if let Entry::Deletion(row) = entry.as_ref() {
            for slot in Slot::deleted_by(row) {
                self.slots.remove(&slot);
            }
            store.pending_deletions().add(row);
        }
        if let Some(slot) = entry.slot() {
            self.slots.insert(slot, number);
        }
        self.waiting.insert(number, entry);
    }

    /// Marks entries below `first` as delivered in the file, or drops them.
    fn drop_delivered(&mut self, first: u64) -> io::Result<()> {
        if self.waiting.is_empty() && self.running.is_empty() {
            return self.journal.clear();
        }
        if !self.journal.is_due() {
            return self.journal.append(&LineRef::Delivered(first));
        }
        let Self { journal, running, waiting, .. } = self;
        let begun = running.values().map(|row| LineRef::Begun(row));
        let entries = waiting.iter().map(|(number, entry)| LineRef::Entry(*number, entry));
        journal.rewrite(begun.chain(entries))
    }
}

/// File of the server with that number.
fn numbered(path: &Path, number: usize) -> PathBuf {
    match number {
        0 => path.to_owned(),
        _ => path.with_extension(number.to_string()),
    }
}

/// Record of an execution whose server ended while it ran.
fn lost(row: ExecutionRow) -> Ended {
    let now = Timestamp::now();
    let detail = serde_json::json!({ "reason": "the server ended while it ran" });
    let audit = AuditEntry::of_execution(&row, now, "execution_lost", &detail);
    let (status, ended_at) = (ExecutionStatus::Lost, Some(now));
    let row = ExecutionRow { status, ended_at, outcome: Some("lost".to_owned()), ..row };
    Ended { row, audit, events: Vec::new() }
}
