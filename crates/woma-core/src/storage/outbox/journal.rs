//! The outbox file: one JSON value per line, locked while its server runs.
//!
//! A line that was appended survives a killed server; a synced one also survives loss of power.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::storage::db::ExecutionRow;
use crate::storage::durable;

/// Largest outbox file that is read at start.
const READ_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// File size from which delivered lines are dropped while others wait, in bytes.
const COMPACT_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Deserialize)]
enum Line {
    Begun(Box<ExecutionRow>),
    Entry(u64, Entry),
    Delivered(u64),
}

/// Borrowed form of [`Line`], for writing.
#[derive(Serialize)]
#[serde(rename = "Line")]
pub(super) enum LineRef<'a> {
    /// An execution began. Without an end it is lost.
    Begun(&'a ExecutionRow),
    /// An entry with its number. A later line with the same number replaces it.
    Entry(u64, &'a Entry),
    /// The database has all entries with smaller numbers.
    Delivered(u64),
}

/// Content of an outbox file.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Executions that began and did not end.
    pub(super) running: BTreeMap<String, Box<ExecutionRow>>,
    /// Entries that the database may not have, by number.
    pub(super) waiting: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Arc<File>,
    bytes: u64,
    /// Size after the file was last rewritten.
    rewritten_bytes: u64,
}

impl Journal {
    /// Opens and reads a file; `None` if a running server has it.
    pub(super) fn open(path: &Path) -> io::Result<Option<(Self, Content)>> {
        let is_new = !path.exists();
        let Some(mut file) = locked(path)? else { return Ok(None) };
        if is_new {
            durable::sync_folder_of(path)?;
        }
        let (content, bytes) = read(&mut file)?;
        let (path, file) = (path.to_owned(), Arc::new(file));
        Ok(Some((Self { path, file, bytes, rewritten_bytes: bytes }, content)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, to sync it without a lock on the outbox.
    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(super) fn append(&mut self, line: &LineRef<'_>) -> io::Result<()> {
        let bytes = encoded(line)?;
        // One call: a line is whole, or torn at the end of the file by a full disk.
        let written = self.file.as_ref().write_all(&bytes);
        if written.is_ok() {
            self.bytes += bytes.len() as u64;
        } else {
            // A torn line must not corrupt the next one.
            self.file.set_len(self.bytes)?;
        }
        written
    }

    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        (self.bytes, self.rewritten_bytes) = (0, 0);
        Ok(())
    }

    /// Whether most of a large file may be dropped.
    pub(super) fn is_due(&self) -> bool {
        self.bytes > COMPACT_BYTES && self.bytes > self.rewritten_bytes.saturating_mul(2)
    }

    /// Replaces the file by these lines. A crash leaves the old file or the new one.
    pub(super) fn rewrite<'a>(
        &mut self,
        mut lines: impl Iterator<Item = LineRef<'a>>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        lines.try_for_each(|line| encoded(&line).map(|line| bytes.extend(line)))?;
        let mut renamed = self.path.as_os_str().to_owned();
        renamed.push(".new");
        let renamed = PathBuf::from(renamed);
        // One that a killed server left.
        fs::remove_file(&renamed).or_else(missing_is_fine)?;
        let Some(file) = locked(&renamed)? else {
            return Err(io::Error::other("another process has the new outbox file"));
        };
        (&file).write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&renamed, &self.path)?;
        durable::sync_folder_of(&self.path)?;
        let size = bytes.len() as u64;
        (self.file, self.bytes, self.rewritten_bytes) = (Arc::new(file), size, size);
        Ok(())
    }
}

fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn encoded(line: &LineRef<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Opens and locks a file; `None` if a running server holds the lock.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn read(file: &mut File) -> io::Result<(Content, u64)> {
    if file.metadata()?.len() > READ_BYTES_MAX {
        return Err(io::Error::other("the outbox file is too large to read"));
    }
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    let mut content = Content::default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(line) => content.add(line),
            Err(error) => {
                tracing::warn!(%error, "A line of the outbox cannot be parsed; it is skipped");
            }
        }
    }
    file.set_len(whole as u64)?;
    Ok((content, whole as u64))
}

impl Content {
    fn add(&mut self, line: Line) {
        match line {
            Line::Begun(row) => {
                self.running.insert(row.id.clone(), row);
            }
            Line::Entry(number, entry) => {
                if let Entry::Execution(ended) = &entry {
                    self.running.remove(&ended.row.id);
                }
                self.waiting.insert(number, entry);
            }
            Line::Delivered(number) => self.waiting = self.waiting.split_off(&number),
        }
    }
}
