//! The host's end of the kernel socket: receives frames, sends runs.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::protocol::{Decoder, Frame, FrameBudget, RawFrame, Violation};

/// Most bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of dropped frames that are read at full speed; more are read slowly, like output.
const FLOOD_BYTES: u64 = 4 * 1024 * 1024;
const FLOOD_PAUSE: Duration = Duration::from_millis(2);
/// Long frames of all cells that are decoded at the same time. Others wait, which delays their
/// senders.
static LONG_FRAMES: Semaphore = Semaphore::const_new(2);

#[derive(Debug)]
pub(crate) struct FrameReader {
    stream: UnixStream,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// A long frame that is being decoded on another task.
    long: Option<JoinHandle<Result<Frame, Violation>>>,
    /// Dropped bytes at the time of the last frame sent to the kernel.
    dropped_before: u64,
    pause_until: Option<Instant>,
}

impl FrameReader {
    /// `socket` must be non-blocking.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let stream = UnixStream::from_std(socket.into())?;
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            buffer: vec![0; READ_BYTES],
            long: None,
            dropped_before: 0,
            pause_until: None,
        })
    }

    /// Whether a long frame has arrived that is not decoded yet: anything read elsewhere is
    /// younger.
    pub(crate) fn has_pending(&self) -> bool {
        self.long.is_some()
    }

    /// The next frame; `None` at the end of the stream. Cancel safe: bytes are stored as soon as
    /// they are read.
    pub(crate) async fn next(&mut self, budget: FrameBudget) -> io::Result<Option<Frame>> {
        // A burst of small frames must not block other tasks.
        tokio::task::coop::consume_budget().await;
        loop {
            if let Some(long) = &mut self.long {
                let decoded = long.await;
                self.long = None;
                return decoded.map_err(io::Error::other)?.map(Some).map_err(io::Error::other);
            }
            match self.decoder.take(budget).map_err(io::Error::other)? {
                Some(RawFrame::Long { kind, bytes, start }) => {
                    let whole = RawFrame::Long { kind, bytes, start };
                    self.long = Some(tokio::spawn(decode_apart(whole)));
                    return Ok(Some(Frame::Pending));
                }
                Some(whole) => return whole.decode().map(Some).map_err(io::Error::other),
                None => {}
            }
            if let Some(pause) = self.pause_until {
                sleep_until(pause).await;
                self.pause_until = None;
            }
            let length = self.stream.read(&mut self.buffer).await?;
            if length == 0 {
                return Ok(None);
            }
            self.decoder.push(self.buffer.get(..length).unwrap_or_default());
            let is_flood = self.decoder.bytes_dropped() - self.dropped_before > FLOOD_BYTES;
            self.pause_until = is_flood.then(|| Instant::now() + FLOOD_PAUSE);
        }
    }

    /// Sends a frame; the descriptors travel with its first byte.
    pub(crate) async fn send(&mut self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.dropped_before = self.decoder.bytes_dropped();
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::Error::other("too many descriptors"));
            }
            let slices = [IoSlice::new(frame)];
            let flags = SendFlags::NOSIGNAL;
            Ok(sendmsg(self.stream.as_fd(), &slices, &mut ancillary, flags)?)
        };
        let sent = self.stream.async_io(Interest::WRITABLE, send).await?;
        self.stream.write_all(frame.get(sent..).unwrap_or_default()).await
    }
}

async fn decode_apart(whole: RawFrame<'static>) -> Result<Frame, Violation> {
    // The semaphore is never closed.
    let permit = LONG_FRAMES.acquire().await;
    let decoded = tokio::task::spawn_blocking(move || whole.decode()).await;
    drop(permit);
    decoded.unwrap_or(Err(Violation::Lost))
}
