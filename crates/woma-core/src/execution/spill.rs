//! Output between the beginning and the end that a reply keeps: written to a file while the code
//! runs.
//!
//! Blocking threads write, one piece at a time, so that a slow disk delays no other call. What they
//! cannot take in is counted as lost: the queue is full, a limit is reached, the disk is at its
//! reserve, or it fails. From the first loss on, nothing more of the stream is written: the file is
//! a beginning.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use woma_sandbox::workspace::Reserve;
use woma_sandbox::{Cell, Stream};

use super::Executor;
use super::middle::{Middle, Middles};
use super::request::Admitted;
use crate::model::ExecutionId;
use crate::model::caller::CallerId;
use crate::text::TextStream;
use crate::workspace::Workspaces;
use crate::workspace::quota::{FRESH, Meter, StorageLimit};

/// Part of what a session's files leave of its disk limit that the output of a run may take; its
/// earlier runs may take as much.
const SPILLED_PART: u64 = 2;
/// Bytes that are written at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces of a stream that wait for the disk: 8 MiB.
const PIECES_MAX: usize = 128;

/// Place of the middle of a run's output, and its limits.
#[derive(Debug)]
pub(crate) struct SpillPlan {
    /// Folder of its files, which exists.
    pub(crate) folder: PathBuf,
    pub(crate) bytes_max: u64,
    pub(crate) reserve: Arc<Reserve>,
    /// Of the caller, if its storage is limited.
    quota: Option<Quota>,
}

/// Storage limit of a caller, which its outputs share with its files.
#[derive(Debug, Clone)]
struct Quota {
    workspaces: Arc<Workspaces>,
    owner: CallerId,
    limit: StorageLimit,
}

/// The middle of a run's output, on its way to the disk.
#[derive(Debug)]
pub(crate) struct Spill {
    stdout: StreamSpill,
    stderr: StreamSpill,
    bytes_max: u64,
}

#[derive(Debug)]
struct StreamSpill {
    target: Option<Target>,
    writer: Option<Writer>,
    pending: Vec<u8>,
    lost: u64,
}

#[derive(Debug, Clone)]
struct Target {
    path: PathBuf,
    /// Bytes that both streams may still write.
    left: Arc<AtomicU64>,
    reserve: Arc<Reserve>,
    quota: Option<Quota>,
}

#[derive(Debug)]
struct Writer {
    pieces: mpsc::Sender<Vec<u8>>,
    end: JoinHandle<io::Result<Middle>>,
}

/// A file that is being written.
#[derive(Debug)]
struct Writing {
    /// `None` if it could not be made.
    file: Option<File>,
    left: Arc<AtomicU64>,
    reserve: Arc<Reserve>,
    /// Bytes that the caller's outputs may have together.
    share_max: u64,
    decoder: TextStream,
    middle: Middle,
}

impl Executor {
    /// The middle of a run's output; without storage, it is lost.
    pub(super) fn spill(&self, cell: &Cell, admitted: &Admitted) -> Spill {
        let is_wanted = admitted.request.capture_output;
        let plan = is_wanted.then(|| self.spill_plan(cell, admitted)).flatten();
        Spill::new(plan.as_ref(), &admitted.id)
    }

    fn spill_plan(&self, cell: &Cell, admitted: &Admitted) -> Option<SpillPlan> {
        let workspaces = self.workspaces.as_ref()?;
        let used = cell.allowance().map_or(0, |allowance| allowance.found().bytes);
        let left = self.settings.limits.workspace().bytes.saturating_sub(used);
        let quota = workspaces.storage_of(&admitted.caller).map(|limit| Quota {
            workspaces: Arc::clone(workspaces),
            owner: admitted.caller.id.clone(),
            limit,
        });
        Some(SpillPlan {
            folder: workspaces.storage.spare_folders(),
            bytes_max: left / SPILLED_PART,
            reserve: Arc::clone(&workspaces.storage.sessions_reserve),
            quota,
        })
    }
}

impl Quota {
    /// Counter of the caller's outputs, and what its files and checkpoints leave for them.
    async fn share(&self) -> (Meter, u64) {
        let meter = self.workspaces.meters.of(format!("outputs of {}", self.owner));
        let left = match self.workspaces.used_by(&self.owner, FRESH).await {
            Ok(used) => self.limit.bytes.saturating_sub(used),
            Err(error) => {
                tracing::warn!(%error, "What a caller has stored could not be counted");
                0
            }
        };
        (meter, left)
    }
}

impl Spill {
    /// Without a plan, everything is lost.
    pub(crate) fn new(plan: Option<&SpillPlan>, id: &ExecutionId) -> Self {
        let bytes_max = plan.map_or(0, |plan| plan.bytes_max);
        let left = Arc::new(AtomicU64::new(bytes_max));
        let stream = |name: &str| {
            let target = plan.map(|plan| Target {
                path: plan.folder.join(format!("output-{id}-{name}")),
                left: Arc::clone(&left),
                reserve: Arc::clone(&plan.reserve),
                quota: plan.quota.clone(),
            });
            StreamSpill { target, writer: None, pending: Vec::new(), lost: 0 }
        };
        Self { stdout: stream("stdout"), stderr: stream("stderr"), bytes_max }
    }

    /// Whether it is kept anywhere.
    pub(crate) fn is_planned(&self) -> bool {
        self.stdout.target.is_some()
    }

    /// Takes bytes in, without waiting.
    pub(crate) fn add(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.add(bytes),
            Stream::Stderr => self.stderr.add(bytes),
        }
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(self) -> Middles {
        let stdout = self.stdout.finish().await.map(Arc::new);
        let stderr = self.stderr.finish().await.map(Arc::new);
        Middles { stdout, stderr, bytes_max: self.bytes_max }
    }
}

impl StreamSpill {
    fn add(&mut self, bytes: &[u8]) {
        if self.lost > 0 || self.target.is_none() {
            self.lost += bytes.len() as u64;
            return;
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < PIECE_BYTES {
            return;
        }
        let piece = std::mem::take(&mut self.pending);
        let length = piece.len() as u64;
        if self.writer().is_none_or(|writer| writer.pieces.try_send(piece).is_err()) {
            self.lost += length;
        }
    }

    fn writer(&mut self) -> Option<&Writer> {
        if self.writer.is_none() {
            let target = self.target.clone()?;
            let (pieces, receiver) = mpsc::channel(PIECES_MAX);
            let end = tokio::spawn(write(target, receiver));
            self.writer = Some(Writer { pieces, end });
        }
        self.writer.as_ref()
    }

    async fn finish(mut self) -> Option<Middle> {
        let (rest, lost) = (std::mem::take(&mut self.pending), self.lost);
        if !rest.is_empty() && lost == 0 {
            // The last piece waits for its turn; a writer that has ended tells why by its result.
            self.writer()?.pieces.send(rest).await.unwrap_or_default();
        }
        let Writer { pieces, end } = self.writer?;
        drop(pieces);
        match end.await.map_err(io::Error::other).flatten() {
            Ok(mut middle) => {
                middle.lost += lost;
                Some(middle)
            }
            Err(error) => {
                tracing::warn!(%error, "The middle of an output could not be written");
                None
            }
        }
    }
}

/// Holds a blocking thread only while a piece is written: a run may print for an hour.
async fn write(target: Target, mut pieces: mpsc::Receiver<Vec<u8>>) -> io::Result<Middle> {
    let share = match &target.quota {
        Some(quota) => Some(quota.share().await),
        None => None,
    };
    let mut writing = on_disk(move || Writing::begin(target, share)).await?;
    while let Some(piece) = pieces.recv().await {
        writing = on_disk(move || writing.add(&piece)).await?;
    }
    on_disk(move || writing.end()).await
}

async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

impl Writing {
    fn begin(target: Target, share: Option<(Meter, u64)>) -> Self {
        let Target { path, left, reserve, .. } = target;
        // `create_new` follows no link.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.inspect_err(|error| {
            tracing::warn!(%error, "A file for the middle of an output could not be made");
        });
        let share_max = share.as_ref().map_or(u64::MAX, |(_, bytes_max)| *bytes_max);
        let grant = share.and_then(|(meter, _)| meter.take(0, u64::MAX));
        let middle = Middle::new(path, grant);
        let decoder = TextStream::default();
        Self { file: file.ok(), left, reserve, share_max, decoder, middle }
    }

    fn add(mut self, piece: &[u8]) -> Self {
        let text = self.decoder.push(piece);
        self.append(&text, piece.len() as u64);
        self
    }

    /// Adds the text of so many bytes of output, or counts them as lost.
    fn append(&mut self, text: &str, bytes: u64) {
        let is_written = self.middle.lost == 0
            && self.takes(text.len() as u64)
            && self.file.as_mut().is_some_and(|file| {
                let written = file.write_all(text.as_bytes());
                written.inspect_err(|error| tracing::warn!(%error, "An output is lost")).is_ok()
            });
        if is_written {
            self.middle.count(text.as_bytes());
        } else {
            self.middle.lost += bytes;
        }
    }

    /// Whether there is room for so many bytes more.
    fn takes(&mut self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        let share_max = self.share_max;
        !self.reserve.refuses(bytes)
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
            && self.middle.grant.as_mut().is_none_or(|grant| grant.grow(bytes, share_max))
    }

    fn end(mut self) -> Middle {
        let rest = self.decoder.finish();
        if !rest.is_empty() {
            self.append(&rest, rest.len() as u64);
        }
        self.middle
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use woma_sandbox::Stream;
    use woma_sandbox::workspace::{Reserve, ReserveSize};

    use super::{Middle, Spill, SpillPlan, Target, Writing};
    use crate::model::ExecutionId;
    use crate::workspace::quota::Meter;

    async fn spilled(folder: &Path, bytes_max: u64, pieces: &[&[u8]]) -> Option<Arc<Middle>> {
        let reserve = Reserve::new(folder.to_owned(), ReserveSize::Bytes(0));
        let plan = SpillPlan {
            folder: folder.to_owned(),
            bytes_max,
            reserve: Arc::new(reserve),
            quota: None,
        };
        let mut spill = Spill::new(Some(&plan), &ExecutionId::mint());
        for piece in pieces {
            spill.add(Stream::Stdout, piece);
        }
        spill.finish().await.stdout
    }

    /// The whole output, read in pages of this size.
    fn read(middle: &Middle, limit: usize) -> String {
        let (mut text, mut offset) = (String::new(), 0);
        loop {
            let page = middle.page("head\n", "tail\n", offset, limit).unwrap();
            assert!(page.text.chars().count() <= limit && page.offset == offset);
            text.push_str(&page.text);
            match page.next_offset {
                Some(next) => offset = next,
                None => return text,
            }
        }
    }

    #[tokio::test]
    async fn pages_of_the_whole_add_up_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let lines: Vec<String> = (0..30_000).map(|n| format!("é{n}\n")).collect();
        let lines = lines.concat();
        // Characters are split between pieces.
        let pieces: Vec<&[u8]> = lines.as_bytes().chunks(1_001).collect();
        let middle = spilled(folder.path(), 1 << 30, &pieces).await.unwrap();
        assert_eq!((middle.bytes, middle.lost), (lines.len() as u64, 0));
        let whole = format!("head\n{lines}tail\n");
        for limit in [997, 25_000, 1 << 20] {
            assert!(read(&middle, limit) == whole, "pages of {limit}");
        }
        let page = middle.page("head\n", "tail\n", u64::MAX, 5).unwrap();
        assert_eq!((page.text.as_str(), page.next_offset), ("", None));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_counted_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let piece = vec![b'x'; super::PIECE_BYTES];
        let pieces = [&*piece, &*piece, &*piece];
        let middle = spilled(folder.path(), 2 * piece.len() as u64 + 10, &pieces).await.unwrap();
        assert_eq!((middle.bytes, middle.lost), (2 * 65_536, 65_536));
        let whole = read(&middle, 50_000);
        assert!(whole.ends_with("x\n[65,536 bytes of output were lost here]\ntail\n"));
        let middles = super::Middles { stdout: Some(middle), ..Default::default() };
        let note = &middles.notes(&ExecutionId::mint())[0].text;
        assert!(note.contains("; 65,536 bytes are lost: "), "{note}");
    }

    #[tokio::test]
    async fn nothing_is_written_below_the_reserve_or_without_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = Reserve::new(folder.path().to_owned(), ReserveSize::Percent(100.0));
        let plan = SpillPlan {
            folder: folder.path().to_owned(),
            bytes_max: 1 << 30,
            reserve: Arc::new(reserve),
            quota: None,
        };
        let mut spill = Spill::new(Some(&plan), &ExecutionId::mint());
        spill.add(Stream::Stderr, b"abc");
        let middle = spill.finish().await.stderr.unwrap();
        assert_eq!((middle.bytes, middle.lost), (0, 3));
        let mut spill = Spill::new(None, &ExecutionId::mint());
        spill.add(Stream::Stderr, b"abc");
        assert!(spill.finish().await.stderr.is_none());
    }

    #[tokio::test]
    async fn output_that_finds_the_queue_full_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let piece = vec![b'x'; super::PIECE_BYTES];
        // The writer has no turn on this thread before all of them are added.
        let pieces = vec![&*piece; super::PIECES_MAX + 2];
        let middle = spilled(folder.path(), 1 << 30, &pieces).await.unwrap();
        let kept = (super::PIECES_MAX * piece.len()) as u64;
        assert_eq!((middle.bytes, middle.lost), (kept, 2 * piece.len() as u64));
    }

    /// A file that is written while the caller's outputs may have so many bytes together.
    fn writing(folder: &Path, name: &str, meter: &Meter, share_max: u64) -> Writing {
        let reserve = Arc::new(Reserve::new(folder.to_owned(), ReserveSize::Bytes(0)));
        let left = Arc::new(AtomicU64::new(1 << 30));
        let target = Target { path: folder.join(name), left, reserve, quota: None };
        Writing::begin(target, Some((meter.clone(), share_max)))
    }

    #[test]
    fn outputs_of_a_caller_share_its_storage() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Meter::default();
        let first = writing(folder.path(), "first", &meter, 10).add(b"sixsix").end();
        let second = writing(folder.path(), "second", &meter, 10).add(b"five5").end();
        assert_eq!((first.lost, second.lost, meter.used()), (0, 5, 6));
        drop(first);
        let third = writing(folder.path(), "third", &meter, 10).add(b"five5").end();
        assert_eq!((third.lost, meter.used()), (0, 5));
    }

    #[test]
    fn a_file_that_is_in_the_way_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (other, link) = (folder.path().join("other"), folder.path().join("link"));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let middle = writing(folder.path(), "link", &Meter::default(), 10).add(b"abc").end();
        assert_eq!((middle.bytes, middle.lost), (0, 3));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    }
}
