//! The output of one run, as it leaves the cell.
//!
//! Most runs are over before the runtime could have been asked to watch two pipes, and to be woken by
//! each byte and each closed end costs more than such a run. So the pipes are not watched at first:
//! what is in them is read when the kernel asks for it (READ) or is done. Those of a run that lasts
//! are watched.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::spec::{Event, Stream};
use crate::tally::Tally;

/// How long a run may take before its output is watched. The kernel asks for no READ when a run is
/// ten times as old (docs/PROTOCOL.md).
const WATCH_AFTER: Duration = Duration::from_millis(1);
/// Before another try, when descriptors were short.
const WATCH_AGAIN: Duration = Duration::from_millis(10);
const READ_BYTES: usize = 16 * 1024;
/// A pipe holds at most one mebibyte unless its owner had more privileges than a cell has; a process
/// that goes on writing must not keep a reply from being sent.
const DRAIN_BYTES_MAX: usize = 1024 * 1024;

/// The read ends of a run's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    stdout: Source,
    stderr: Source,
    /// When they are to be watched; `None` once they are.
    watch_at: Option<Instant>,
    /// Until when nothing is read, because there was too much.
    paused: Option<Instant>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    Unwatched(OwnedFd),
    Watched(pipe::Receiver),
    /// By everybody on the other side.
    Closed,
}

/// The write ends, which go to the kernel.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Pipes {
    pub(crate) fn open(started: Instant) -> io::Result<(Self, Ends)> {
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our ends: what the cell writes to may block.
        rustix::io::ioctl_fionbio(&out, true)?;
        rustix::io::ioctl_fionbio(&err, true)?;
        let pipes = Self {
            stdout: Source::Unwatched(out),
            stderr: Source::Unwatched(err),
            watch_at: Some(started + WATCH_AFTER),
            paused: None,
            buffer: Vec::new(),
        };
        Ok((pipes, Ends { stdout, stderr }))
    }

    /// When [`Pipes::tick`] has something to do.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.watch_at.into_iter().chain(self.paused).min()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.paused = self.paused.filter(|until| *until > now);
        if self.watch_at.is_some_and(|at| at <= now) {
            self.watch_at = None;
            for source in [&mut self.stdout, &mut self.stderr] {
                if let Err(error) = source.watch() {
                    tracing::warn!(%error, "output cannot be watched yet");
                    self.watch_at = Some(now + WATCH_AGAIN);
                }
            }
        }
    }

    /// Waits until one of those that are watched has something.
    pub(crate) async fn ready(&self) -> Stream {
        if self.paused.is_some() {
            return std::future::pending().await;
        }
        tokio::select! {
            biased;
            () = self.stdout.ready() => Stream::Stdout,
            () = self.stderr.ready() => Stream::Stderr,
        }
    }

    /// Reads once from one that is ready.
    pub(crate) fn take(
        &mut self,
        stream: Stream,
        tally: &mut Tally,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) {
        self.buffer.resize(READ_BYTES, 0);
        let source = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let Source::Watched(pipe) = source else { return };
        match pipe.try_read(&mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // An error on a pipe of ours cannot be; were it one, the stream would be over.
            Ok(0) | Err(_) => *source = Source::Closed,
            Ok(length) => {
                let bytes = self.buffer.get(..length).unwrap_or_default();
                self.paused = tally.output(stream, bytes, on_event);
            }
        }
    }

    /// Reads what is there now, because the kernel waits for it. Those that are watched are read
    /// anyway, and no faster.
    pub(crate) fn read(&mut self, tally: &mut Tally, on_event: &mut (dyn FnMut(Event) + Send)) {
        if self.watch_at.is_some() && self.paused.is_none() {
            self.paused = self.drain(tally, on_event);
        }
    }

    /// Reads what is left; gives back those that somebody still holds the other end of.
    pub(crate) fn finish(
        mut self,
        tally: &mut Tally,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> impl Iterator<Item = pipe::Receiver> {
        self.drain(tally, on_event);
        [self.stdout, self.stderr].into_iter().filter_map(|mut source| {
            if let Err(error) = source.watch() {
                tracing::warn!(%error, "what a run left behind writes to nobody");
            }
            match source {
                Source::Watched(pipe) => Some(pipe),
                Source::Unwatched(_) | Source::Closed => None,
            }
        })
    }

    /// Says until when to pause.
    fn drain(
        &mut self,
        tally: &mut Tally,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Option<Instant> {
        let mut pause = None;
        let sources = [(Stream::Stdout, &mut self.stdout), (Stream::Stderr, &mut self.stderr)];
        for (stream, source) in sources {
            let mut drained = 0;
            while drained < DRAIN_BYTES_MAX
                && let Some(pipe) = source.descriptor()
            {
                self.buffer.clear();
                self.buffer.reserve(READ_BYTES);
                // Past the runtime, which answers "not ready" until it has been told otherwise.
                match rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut self.buffer)) {
                    Err(Errno::AGAIN) => break,
                    Ok(0) | Err(_) => *source = Source::Closed,
                    Ok(length) => {
                        drained += length;
                        pause = tally.output(stream, &self.buffer, on_event);
                    }
                }
            }
        }
        pause
    }
}

impl Source {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Unwatched(pipe) => Some(pipe.as_fd()),
            Self::Watched(pipe) => Some(pipe.as_fd()),
            Self::Closed => None,
        }
    }

    /// One that cannot be watched stays as it is.
    fn watch(&mut self) -> io::Result<()> {
        if let Self::Unwatched(pipe) = self {
            *self = Self::Watched(pipe::Receiver::from_owned_fd(pipe.try_clone()?)?);
        }
        Ok(())
    }

    async fn ready(&self) {
        match self {
            // An error shows when it is read.
            Self::Watched(pipe) => pipe.readable().await.unwrap_or_default(),
            Self::Unwatched(_) | Self::Closed => std::future::pending().await,
        }
    }
}
