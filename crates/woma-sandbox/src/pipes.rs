//! Output of one run, as it leaves the cell.
//!
//! Most runs end before the runtime could have registered two pipes, and being woken by each byte
//! and each closed end would cost more than such a run. So at first the pipes are not registered:
//! they are read when the kernel sends READ or DONE. Pipes of longer runs are registered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::budget::RunBudget;
use crate::spec::{Event, Stream};

/// Age of a run at which its output is watched. The kernel sends no READ once a run is ten times as
/// old (docs/PROTOCOL.md).
const WATCH_AFTER: Duration = Duration::from_millis(1);
/// Delay before the next attempt after a lack of descriptors.
const WATCH_AGAIN: Duration = Duration::from_millis(10);
const READ_BYTES: usize = 16 * 1024;
/// Most bytes read from a pipe at the end of a run. A pipe holds at most one mebibyte unless its
/// owner had more privileges than a cell has; a process that keeps writing must not delay the
/// reply.
const DRAIN_BYTES_MAX: usize = 1024 * 1024;

/// Read ends of a run's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    stdout: Source,
    stderr: Source,
    /// Time at which to start watching; `None` once they are watched.
    watch_at: Option<Instant>,
    /// End of a pause in reading, after too much output.
    paused: Option<Instant>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    Unwatched(OwnedFd),
    Watched(pipe::Receiver),
    /// All write ends are closed.
    Closed,
}

/// Write ends, passed to the kernel.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Pipes {
    pub(crate) fn open(started: Instant) -> io::Result<(Self, Ends)> {
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our ends: the cell's writes may block.
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

    /// Time at which [`Pipes::tick`] must be called.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.watch_at.into_iter().chain(self.paused).min()
    }

    /// Ends a pause and starts watching, if due.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.paused = self.paused.filter(|until| *until > now);
        if self.watch_at.is_some_and(|at| at <= now) {
            self.watch_at = None;
            for source in [&mut self.stdout, &mut self.stderr] {
                if let Err(error) = source.watch() {
                    tracing::warn!(%error, "cannot watch a run's output; trying again");
                    self.watch_at = Some(now + WATCH_AGAIN);
                }
            }
        }
    }

    /// Waits until a watched pipe is readable.
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

    /// Reads once from a readable pipe.
    pub(crate) fn take(
        &mut self,
        stream: Stream,
        budget: &mut RunBudget,
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
            // An error on our own pipe cannot happen; it would mean the end of the stream.
            Ok(0) | Err(_) => *source = Source::Closed,
            Ok(length) => {
                let bytes = self.buffer.get(..length).unwrap_or_default();
                self.paused = budget.output(stream, bytes, on_event);
            }
        }
    }

    /// Reads all available output, because the kernel waits for it. Watched pipes are read anyway,
    /// and no faster.
    pub(crate) fn read(
        &mut self,
        budget: &mut RunBudget,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) {
        if self.watch_at.is_some() && self.paused.is_none() {
            self.paused = self.drain(budget, on_event);
        }
    }

    /// Reads the remaining output; returns the pipes whose write ends are still open.
    pub(crate) fn finish(
        mut self,
        budget: &mut RunBudget,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> impl Iterator<Item = pipe::Receiver> {
        self.drain(budget, on_event);
        [self.stdout, self.stderr].into_iter().filter_map(|mut source| {
            if let Err(error) = source.watch() {
                tracing::warn!(%error, "cannot watch a pipe left open by a run; its output is lost");
            }
            match source {
                Source::Watched(pipe) => Some(pipe),
                Source::Unwatched(_) | Source::Closed => None,
            }
        })
    }

    /// Reads all available output. Returns the end of the pause, if one is needed.
    fn drain(
        &mut self,
        budget: &mut RunBudget,
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
                // Bypasses the runtime, which reports "not ready" until it is notified.
                match rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut self.buffer)) {
                    Err(Errno::AGAIN) => break,
                    Ok(0) | Err(_) => *source = Source::Closed,
                    Ok(length) => {
                        drained += length;
                        pause = budget.output(stream, &self.buffer, on_event);
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

    /// On failure the source stays unwatched.
    fn watch(&mut self) -> io::Result<()> {
        if let Self::Unwatched(pipe) = self {
            *self = Self::Watched(pipe::Receiver::from_owned_fd(pipe.try_clone()?)?);
        }
        Ok(())
    }

    async fn ready(&self) {
        match self {
            // A read will report the error.
            Self::Watched(pipe) => pipe.readable().await.unwrap_or_default(),
            Self::Unwatched(_) | Self::Closed => std::future::pending().await,
        }
    }
}
