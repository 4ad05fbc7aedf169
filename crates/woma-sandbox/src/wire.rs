//! The kernel socket as the host uses it: frames come out of it, runs go into it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::protocol::{Decoder, Frame};

/// Most bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct FrameReader {
    stream: UnixStream,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl FrameReader {
    /// `socket` must not block.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let stream = UnixStream::from_std(socket.into())?;
        Ok(Self { stream, decoder: Decoder::default(), buffer: vec![0; READ_BYTES] })
    }

    /// The next frame; `None` at the end of the stream. Can be dropped at any time: bytes are only
    /// taken from the socket together with being kept.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(violation) => return Err(io::Error::other(violation)),
            }
            let length = self.stream.read(&mut self.buffer).await?;
            if length == 0 {
                return Ok(None);
            }
            self.decoder.push(self.buffer.get(..length).unwrap_or_default());
        }
    }

    /// Writes a frame; the descriptors travel with its first byte.
    pub(crate) async fn send(&mut self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
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
