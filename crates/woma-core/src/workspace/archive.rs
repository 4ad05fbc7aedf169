//! A folder as one file: a zip whose entries are stored as they are, made while it is sent.

use std::io::{self, Read as _};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use jiff::Timestamp;
use jiff::tz::Offset;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use woma_sandbox::workspace::{Bounds, Entry, Folder, Kind, Listing, WorkspacePath};

use super::files::{blocking, trouble};
use crate::error::Error;
use crate::shares::Permit;

/// Files of one archive.
const ENTRIES_MAX: u64 = 10_000;
/// Bytes of one archive: sizes and places in it have 32 bits.
const BYTES_MAX: u64 = 2 << 30;
/// A file up to this size is read before its header is written, which then tells its size, as some
/// readers want it.
const SMALL_BYTES_MAX: u64 = 4 * 1024 * 1024;
const PIECE_BYTES: usize = 256 * 1024;
/// Time in which an archive is packed and sent: until then it has a place among the writers.
const TIME_MAX: Duration = Duration::from_hours(1);
/// Pieces that wait for the network.
const PIECES_MAX: usize = 4;

/// A zip on its way out; an error in it means that it is not whole.
pub struct Archive {
    /// Suggested file name.
    pub name: String,
    pub pieces: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Archive").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Packs a folder, or what is below one of its folders. Hidden files are left out.
pub(crate) async fn pack(
    folder: Arc<Folder>,
    below: Option<WorkspacePath>,
    name: String,
    place: Permit,
) -> Result<Archive, Error> {
    let bounds = Bounds { entries: ENTRIES_MAX, ..Bounds::default() };
    let (folder, entries) = blocking(move || {
        // Files beside the folder that is asked for do not count.
        let listing = match &below {
            None => folder.list(bounds)?,
            Some(below) => listed(&folder, below, bounds)?,
        };
        let plain = |entry: &Entry| entry.kind == Kind::File && entry.addressable;
        let entries: Vec<Entry> = listing.entries.into_iter().filter(plain).collect();
        let bytes: u64 = entries.iter().map(|entry| entry.size_bytes).sum();
        if !listing.complete || bytes > BYTES_MAX {
            return Err(Error::ArchiveTooLarge { files: ENTRIES_MAX, bytes: BYTES_MAX });
        }
        Ok((folder, entries))
    })
    .await?;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let mut zip = Zip::new(sender, Instant::now() + TIME_MAX);
    let packed = tokio::task::spawn_blocking(move || {
        let packed = zip.write(&folder, &entries);
        drop(place);
        packed
    });
    let pieces = unfold((receiver, Some(packed)), |(mut receiver, packed)| async {
        if let Some(piece) = receiver.recv().await {
            return Some((Ok(piece), (receiver, packed)));
        }
        // Whether that was all of it, the thread knows.
        let error = packed?.await.map_err(io::Error::other).flatten().err()?;
        Some((Err(error), (receiver, None)))
    });
    Ok(Archive { name, pieces: Box::pin(pieces) })
}

/// Lists the entries below one of its folders.
fn listed(folder: &Folder, below: &WorkspacePath, bounds: Bounds) -> Result<Listing, Error> {
    folder.list_below(below, bounds).map_err(|error| match trouble(error, below) {
        Error::NoFile { path, .. } | Error::NotPlain(path) => Error::NoFolder(path),
        other => other,
    })
}

struct Zip {
    sender: mpsc::Sender<Bytes>,
    runtime: Handle,
    deadline: Instant,
    sent: u64,
    /// The directory at the end, as it grows.
    directory: Vec<u8>,
    count: u16,
}

/// Header of an entry.
struct Header<'a> {
    name: &'a str,
    stamp: [u16; 2],
    /// The sizes follow the content.
    is_open: bool,
    crc: u32,
    size: u32,
}

impl Zip {
    /// Within a runtime, which a thread that sends needs for its deadline.
    fn new(sender: mpsc::Sender<Bytes>, deadline: Instant) -> Self {
        let runtime = Handle::current();
        Self { sender, runtime, deadline, sent: 0, directory: Vec::new(), count: 0 }
    }

    fn write(&mut self, folder: &Folder, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let Ok(path) = WorkspacePath::parse(&format!("./{}", entry.path)) else { continue };
            match folder.open(&path) {
                Ok((file, metadata)) => self.file(entry, file, metadata.len())?,
                // The session goes on meanwhile: what is gone is gone.
                Err(error) => tracing::debug!(%error, "a file is left out of an archive"),
            }
        }
        let (start, length) = (small(self.sent)?, small(self.directory.len() as u64)?);
        let directory = std::mem::take(&mut self.directory);
        self.send(directory)?;
        let mut end = Vec::new();
        put32(&mut end, &[0x0605_4b50]);
        put16(&mut end, &[0, 0, self.count, self.count]);
        put32(&mut end, &[length, start]);
        put16(&mut end, &[0]);
        self.send(end)
    }

    fn file(&mut self, entry: &Entry, file: std::fs::File, size: u64) -> io::Result<()> {
        let start = small(self.sent)?;
        let stamp = stamp(entry.modified);
        let name = entry.path.as_str();
        let header = if size <= SMALL_BYTES_MAX {
            let mut bytes = Vec::new();
            file.take(SMALL_BYTES_MAX).read_to_end(&mut bytes)?;
            let (crc, size) = (crc32fast::hash(&bytes), small(bytes.len() as u64)?);
            let header = Header { name, stamp, is_open: false, crc, size };
            self.send(header.local())?;
            self.send(bytes)?;
            header
        } else {
            self.send(Header { name, stamp, is_open: true, crc: 0, size: 0 }.local())?;
            let (crc, size) = self.content(file)?;
            let mut after = Vec::new();
            put32(&mut after, &[0x0807_4b50, crc, size, size]);
            self.send(after)?;
            Header { name, stamp, is_open: true, crc, size }
        };
        header.list(&mut self.directory, start);
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    fn content(&mut self, mut file: std::fs::File) -> io::Result<(u32, u32)> {
        let (mut hasher, mut size) = (crc32fast::Hasher::new(), 0_u64);
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            if piece.is_empty() {
                return Ok((hasher.finalize(), small(size)?));
            }
            hasher.update(&piece);
            size += piece.len() as u64;
            self.send(piece)?;
        }
    }

    fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.sent += bytes.len() as u64;
        // Names and headers come on top of what was counted before.
        if self.sent > BYTES_MAX + BYTES_MAX / 2 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let sent = timeout_at(self.deadline, self.sender.send(bytes.into()));
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }
}

impl Header<'_> {
    /// Names are UTF-8; bit 3 says that sizes come later.
    fn flags(&self) -> u16 {
        if self.is_open { 0x0808 } else { 0x0800 }
    }

    fn name_length(&self) -> u16 {
        u16::try_from(self.name.len()).unwrap_or(u16::MAX)
    }

    fn local(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put32(&mut bytes, &[0x0403_4b50]);
        put16(&mut bytes, &[20, self.flags(), 0, self.stamp[0], self.stamp[1]]);
        put32(&mut bytes, &[self.crc, self.size, self.size]);
        put16(&mut bytes, &[self.name_length(), 0]);
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    fn list(&self, directory: &mut Vec<u8>, start: u32) {
        const UNIX: u16 = 3 << 8;
        const PLAIN_FILE: u32 = 0o100_644 << 16;
        put32(directory, &[0x0201_4b50]);
        put16(directory, &[UNIX + 20, 20, self.flags(), 0, self.stamp[0], self.stamp[1]]);
        put32(directory, &[self.crc, self.size, self.size]);
        put16(directory, &[self.name_length(), 0, 0, 0, 0]);
        put32(directory, &[PLAIN_FILE, start]);
        directory.extend_from_slice(self.name.as_bytes());
    }
}

fn put16(bytes: &mut Vec<u8>, numbers: &[u16]) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn put32(bytes: &mut Vec<u8>, numbers: &[u32]) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn small(number: u64) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

/// Time and date, as they were written in 1989.
fn stamp(modified: SystemTime) -> [u16; 2] {
    let time = Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH);
    let time = Offset::UTC.to_datetime(time);
    let part = |number: i8| u16::try_from(number).unwrap_or(0);
    match u16::try_from(time.year() - 1980) {
        Ok(years) if years < 128 => [
            (part(time.hour()) << 11) | (part(time.minute()) << 5) | (part(time.second()) / 2),
            (years << 9) | (part(time.month()) << 5) | part(time.day()),
        ],
        // The first day that there was.
        _ => [0, (1 << 5) | 1],
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::Zip;

    #[tokio::test]
    async fn a_reader_that_is_too_slow_ends_the_archive() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut zip = Zip::new(sender, Instant::now());
        let sent = tokio::task::spawn_blocking(move || {
            zip.send(b"first".to_vec())?;
            zip.send(b"second".to_vec())
        });
        assert_eq!(sent.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(receiver.recv().await.as_deref(), Some(&b"first"[..]));
        assert_eq!(receiver.recv().await, None, "nothing of the second one");
    }
}
