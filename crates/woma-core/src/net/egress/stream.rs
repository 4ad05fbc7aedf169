//! Streams of a room: counted, and with bytes that were read ahead.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::Room;
use super::refusal::Why;
use crate::shares::Permit;

/// How often a connection is looked at for being idle, as a part of the time that it may be.
const IDLE_LOOKS: u32 = 4;

/// A connection of a room, among those that may be open at once.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) room: Arc<Room>,
    _permit: Permit,
    sent: AtomicU64,
    received: AtomicU64,
    /// Whether the session's limit of bytes holds: the reason of a refusal may be told beyond it.
    is_limited: AtomicBool,
    /// Ends the connection, with everything that it has led to.
    pub(super) closed: CancellationToken,
}

impl Ticket {
    /// A place among the connections of the session and of its caller.
    pub(super) fn take(room: &Arc<Room>, closed: &CancellationToken) -> Result<Arc<Self>, Why> {
        let settings = &room.egress.settings;
        let permit = room.egress.connections.take(&room.owner).ok_or_else(|| Why::Connections {
            limit: room.egress.connections.most(&room.owner),
            whose: "caller",
        })?;
        let open = &room.network.meter.open;
        let limit = settings.session_connections_max;
        let grown = open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < limit).then_some(open + 1)
        });
        if grown.is_err() {
            return Err(Why::Connections { limit, whose: "session" });
        }
        Ok(Arc::new(Self {
            room: Arc::clone(room),
            _permit: permit,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            is_limited: AtomicBool::new(true),
            closed: closed.child_token(),
        }))
    }

    fn activity(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).wrapping_add(self.received.load(Ordering::Relaxed))
    }

    /// Returns when no byte has moved for the longest time that a connection may be idle.
    pub(super) async fn idle(&self) {
        let idle_max = self.room.egress.settings.idle_max;
        let tick = (idle_max / IDLE_LOOKS).max(Duration::from_millis(10));
        let (mut last, mut since) = (self.activity(), Instant::now());
        loop {
            tokio::time::sleep(tick).await;
            let now = self.activity();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= idle_max {
                return;
            }
        }
    }

    /// Lets a last answer pass.
    pub(super) fn lift_limit(&self) {
        self.is_limited.store(false, Ordering::Relaxed);
    }

    fn count(&self, mine: &AtomicU64, all: &AtomicU64, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        mine.fetch_add(bytes, Ordering::Relaxed);
        all.fetch_add(bytes, Ordering::Relaxed);
        match self.room.egress.settings.session_bytes_max {
            Some(limit)
                if self.room.network.meter.bytes() > limit
                    && self.is_limited.load(Ordering::Relaxed) =>
            {
                Err(io::Error::other("the session has reached its limit of traffic"))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.closed.cancel();
        self.room.network.meter.open.fetch_sub(1, Ordering::Relaxed);
        let metrics = &self.room.egress.metrics;
        metrics.move_egress("sent", self.sent.load(Ordering::Relaxed));
        metrics.move_egress("received", self.received.load(Ordering::Relaxed));
    }
}

/// The room's end of a connection, whose bytes are counted.
#[derive(Debug)]
pub(super) struct Counted<S> {
    pub(super) inner: S,
    pub(super) ticket: Arc<Ticket>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let ticket = &self.ticket;
        let read = buffer.filled().len() - before;
        Poll::Ready(ticket.count(&ticket.sent, &ticket.room.network.meter.sent, read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        let ticket = &self.ticket;
        ticket.count(&ticket.received, &ticket.room.network.meter.received, written)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// A stream with bytes that were read ahead.
#[derive(Debug)]
pub(super) struct Ahead<S> {
    bytes: Bytes,
    inner: S,
}

impl<S> Ahead<S> {
    pub(super) fn new(bytes: impl Into<Bytes>, inner: S) -> Self {
        Self { bytes: bytes.into(), inner }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Pin::new(&mut self.inner).poll_read(context, buffer);
        }
        let length = self.bytes.len().min(buffer.remaining());
        buffer.put_slice(self.bytes.get(..length).unwrap_or_default());
        self.bytes.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
