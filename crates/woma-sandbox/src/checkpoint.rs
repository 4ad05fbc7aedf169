//! Checkpoints of variables: a stream of bytes from one cell to another.
//!
//! The stream is written and read by Python inside cells (docs/PROTOCOL.md). Here it is hostile
//! data: it is counted and passed on, and only its size-limited trailer is parsed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use crate::cell::{Cell, Life};
use crate::memory_pressure;
use crate::protocol::{
    CheckpointFrame, Frame, FrameBudget, RestoreFrame, Restored, Saved, decode_saved,
    encode_checkpoint, encode_restore,
};
use crate::spec::Guard;

/// First bytes of a stream.
const MAGIC: &[u8] = b"WOMAVARS";
/// Last bytes of a stream, after its trailer and the trailer's length.
const END: &[u8] = b"WOMADONE";
const TRAILER_BYTES_MAX: usize = 1024 * 1024;
const TAIL_BYTES_MAX: usize = TRAILER_BYTES_MAX + 4 + END.len();
/// Size of a stream beyond its variables: trailer, sources, header.
const EXTRA_BYTES: u64 = 4 * 1024 * 1024;
const READ_BYTES: usize = 256 * 1024;
const PIPE_BYTES: usize = 1024 * 1024;
/// Additional time of the reader over the writer.
const GRACE: Duration = Duration::from_millis(500);
/// Longest time until an idle kernel reads a frame.
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
/// Upper bound of all wall limits.
const WALL_MAX: Duration = Duration::from_secs(3_600);
/// Interval of memory probes.
const TICK: Duration = Duration::from_millis(100);

/// Limits of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointLimits {
    /// Bytes of all variables together; the smallest are saved first.
    pub bytes_max: u64,
    pub variable_bytes_max: u64,
    /// Wall time; half of it is for finding out what can be saved.
    pub wall: Duration,
}

/// Parameters of restoring a session.
#[derive(Debug, Clone)]
pub struct Restore {
    /// Wall limit; a slower kernel is killed.
    pub wall: Duration,
    /// Number of the session's last run.
    pub execution_count: u64,
    /// Guard of the next run: it must be set before functions are restored to apply to them.
    pub guard: Option<Arc<Guard>>,
}

/// Why variables could not be saved or restored.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("the session's kernel has ended")]
    Dead,
    #[error("a checkpoint of this session is being written already")]
    Busy,
    #[error("it took longer than {0:?}")]
    TimedOut(Duration),
    #[error("it is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    #[error("the session ran out of memory")]
    OutOfMemory,
    #[error("it ended in the middle")]
    Incomplete,
    /// Reported by the kernel, in its words.
    #[error("{0}")]
    Refused(String),
    #[error("the kernel broke the protocol: {0}")]
    Protocol(String),
    #[error("the kernel cannot be reached")]
    Channel(#[source] io::Error),
    #[error("saved variables cannot be written or read")]
    Storage(#[source] io::Error),
}

impl Cell {
    /// Saves the session's variables. The sink holds a complete checkpoint only if this returns
    /// `Ok`; otherwise the session continues unharmed, and the written data is useless.
    pub async fn checkpoint(
        &mut self,
        limits: CheckpointLimits,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
    ) -> Result<Saved, CheckpointError> {
        self.start_checkpoint(limits).await?.write_to(sink).await
    }

    /// Starts saving the variables as they are now. The result does not need the cell, which can
    /// run code meanwhile; stopping that run aborts the checkpoint too.
    pub async fn start_checkpoint(
        &mut self,
        limits: CheckpointLimits,
    ) -> Result<Checkpointing, CheckpointError> {
        if !self.is_alive() {
            return Err(CheckpointError::Dead);
        }
        if self.checkpoint.as_ref().is_some_and(|last| last.strong_count() > 0) {
            return Err(CheckpointError::Busy);
        }
        let CheckpointLimits { bytes_max, variable_bytes_max, wall } = limits;
        let wall = wall.min(WALL_MAX);
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        let frame = CheckpointFrame { bytes_max, variable_bytes_max, wall_ms };
        let frame = encode_checkpoint(&frame);
        let frame = frame.map_err(|error| CheckpointError::Protocol(error.to_string()))?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(not_reached)?;
        rustix::io::ioctl_fionbio(&read, true).map_err(not_reached)?;
        enlarge(&read);
        let pipe = pipe::Receiver::from_owned_fd(read).map_err(CheckpointError::Channel)?;
        self.send_frame(&frame, write.as_fd()).await?;
        let turn = Arc::new(());
        self.checkpoint = Some(Arc::downgrade(&turn));
        Ok(Checkpointing { pipe, limits, deadline: Instant::now() + wall + GRACE, _turn: turn })
    }

    /// Restores variables saved by another cell, before the first run. After an error the cell can
    /// only be dropped: its state is unknown.
    pub async fn restore(
        &mut self,
        source: &mut (dyn AsyncRead + Unpin + Send),
        restore: Restore,
    ) -> Result<Restored, CheckpointError> {
        if !self.is_alive() {
            return Err(CheckpointError::Dead);
        }
        self.expect_writing();
        let Restore { wall, execution_count, guard } = restore;
        let deadline = Instant::now() + wall.min(WALL_MAX);
        let frame = encode_restore(&RestoreFrame { execution_count, guard });
        let frame = frame.map_err(|error| CheckpointError::Protocol(error.to_string()))?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(not_reached)?;
        rustix::io::ioctl_fionbio(&write, true).map_err(not_reached)?;
        enlarge(&write);
        let pipe = pipe::Sender::from_owned_fd(write).map_err(CheckpointError::Channel)?;
        self.send_frame(&frame, read.as_fd()).await?;
        drop(read);
        self.life = Life::Running;
        let answered = timeout_at(deadline, await_restored(self, source, pipe)).await;
        let answered = answered.unwrap_or(Err(CheckpointError::TimedOut(wall)));
        match &answered {
            Ok(_) => self.life = Life::Idle,
            Err(_) => self.kill(),
        }
        answered
    }

    /// Sends a frame to the idle kernel, which reads it at once.
    async fn send_frame(
        &mut self,
        frame: &[u8],
        fd: BorrowedFd<'_>,
    ) -> Result<(), CheckpointError> {
        self.life = Life::Running;
        match timeout(SEND_TIME_MAX, self.frames.send(frame, &[fd])).await {
            Ok(Ok(())) => {
                self.life = Life::Idle;
                Ok(())
            }
            Ok(Err(error)) => {
                self.kill();
                Err(CheckpointError::Channel(error))
            }
            Err(_) => {
                self.kill();
                Err(CheckpointError::TimedOut(SEND_TIME_MAX))
            }
        }
    }
}

/// A checkpoint in progress. Dropping it aborts it.
#[derive(Debug)]
pub struct Checkpointing {
    pipe: pipe::Receiver,
    limits: CheckpointLimits,
    deadline: Instant,
    _turn: Arc<()>,
}

impl Checkpointing {
    /// Copies the stream to its end.
    pub async fn write_to(
        mut self,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
    ) -> Result<Saved, CheckpointError> {
        let CheckpointLimits { bytes_max, wall, .. } = self.limits;
        let tail = timeout_at(self.deadline, pass_on(&mut self.pipe, sink, bytes_max)).await;
        let tail = tail.unwrap_or(Err(CheckpointError::TimedOut(wall)))?;
        let saved = trailer(&tail).ok_or(CheckpointError::Incomplete)?;
        match saved.error {
            Some(reason) => Err(CheckpointError::Refused(reason)),
            None => Ok(saved),
        }
    }
}

/// Copies the stream and returns its end, which contains the trailer.
async fn pass_on(
    pipe: &mut pipe::Receiver,
    sink: &mut (dyn AsyncWrite + Unpin + Send),
    bytes_max: u64,
) -> Result<Vec<u8>, CheckpointError> {
    let mut left = bytes_max.saturating_add(EXTRA_BYTES);
    let mut buffer = vec![0; READ_BYTES];
    let mut tail = Vec::new();
    let mut begun = false;
    loop {
        let length = pipe.read(&mut buffer).await.map_err(CheckpointError::Channel)?;
        let bytes = buffer.get(..length).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        left = left.checked_sub(length as u64).ok_or(CheckpointError::TooLarge { bytes_max })?;
        // The header is one small write, which a pipe does not split.
        if !begun && !bytes.starts_with(MAGIC) {
            return Err(CheckpointError::Protocol("not a stream of variables".to_owned()));
        }
        begun = true;
        sink.write_all(bytes).await.map_err(CheckpointError::Storage)?;
        tail.extend_from_slice(bytes);
        if tail.len() > 2 * TAIL_BYTES_MAX {
            tail.drain(..tail.len() - TAIL_BYTES_MAX);
        }
    }
    sink.flush().await.map_err(CheckpointError::Storage)?;
    Ok(tail)
}

/// Decodes the trailer at the end of a stream; `None` if the stream does not end in one.
fn trailer(tail: &[u8]) -> Option<Saved> {
    let (rest, length) = tail.strip_suffix(END)?.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let at = rest.len().checked_sub(length).filter(|_| length <= TRAILER_BYTES_MAX)?;
    decode_saved(rest.get(at..)?)
}

/// Feeds the kernel and waits for its reply.
async fn await_restored(
    cell: &mut Cell,
    source: &mut (dyn AsyncRead + Unpin + Send),
    pipe: pipe::Sender,
) -> Result<Restored, CheckpointError> {
    let mut feeding = pin!(feed(source, pipe));
    let mut fed = false;
    let mut looks = interval(TICK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            frame = cell.frames.next(FrameBudget::NONE) => match frame {
                Ok(Some(Frame::Restored(restored))) => return Ok(restored),
                // Restoring a variable may run code that is refused something, or that displays
                // objects.
                Ok(Some(
                    Frame::Pending | Frame::Dropped(_) | Frame::Note(_) | Frame::Display(_),
                )) => {}
                Ok(Some(Frame::Ready(_) | Frame::Done(_) | Frame::Read)) => {
                    return Err(CheckpointError::Protocol("a frame out of turn".to_owned()));
                }
                Ok(None) => return Err(ended(cell)),
                Err(error) => return Err(CheckpointError::Protocol(error.to_string())),
            },
            _ = cell.room.kernel.readable() => return Err(ended(cell)),
            done = &mut feeding, if !fed => {
                done.map_err(CheckpointError::Storage)?;
                fed = true;
            }
            _ = looks.tick() => {
                let status = memory_pressure::probe_memory(cell).await.unwrap_or_default();
                if !memory_pressure::respond(cell, status).await {
                    return Err(CheckpointError::OutOfMemory);
                }
            }
        }
    }
}

fn ended(cell: &Cell) -> CheckpointError {
    if cell.room.group.is_some() && cell.usage().out_of_memory_kills > cell.earlier_kills {
        CheckpointError::OutOfMemory
    } else {
        CheckpointError::Incomplete
    }
}

/// Copies the stream into the pipe. If the kernel stops reading, its reply says why.
async fn feed(
    source: &mut (dyn AsyncRead + Unpin + Send),
    mut pipe: pipe::Sender,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = source.read(&mut buffer).await?;
        let bytes = buffer.get(..length).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        if let Err(error) = pipe.write_all(bytes).await {
            tracing::debug!(%error, "a kernel stopped reading its variables");
            return Ok(());
        }
    }
}

/// Enlarges a pipe, for fewer wake-ups. Failure has no other effect.
fn enlarge(pipe: impl AsFd) {
    if let Err(error) = fcntl_setpipe_size(pipe, PIPE_BYTES) {
        tracing::debug!(%error, "cannot enlarge a pipe");
    }
}

fn not_reached(error: rustix::io::Errno) -> CheckpointError {
    CheckpointError::Channel(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(trailer: &[u8], length: usize) -> Vec<u8> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        [b"anything", trailer, &length.to_be_bytes(), END].concat()
    }

    #[test]
    fn rejects_incomplete_trailers() {
        let good = br#"{"saved":["x"],"skipped":[],"bytes":5,"error":null}"#;
        let saved = trailer(&ending(good, good.len()));
        assert_eq!(saved.map(|saved| (saved.saved, saved.bytes)), Some((vec!["x".to_owned()], 5)));
        for tail in [
            Vec::new(),
            END.to_vec(),
            ending(good, good.len())[..20].to_vec(),
            ending(good, good.len() + 1),
            ending(good, usize::MAX),
            ending(b"", 0),
            ending(b"[]", 2),
        ] {
            assert_eq!(trailer(&tail), None, "{tail:?}");
        }
    }

    #[test]
    fn truncates_long_trailers() {
        let missing = serde_json::json!({"name": "ä".repeat(5_000), "reason": "x".repeat(5_000)});
        let body = serde_json::json!({
            "saved": vec!["n"; 5_000], "skipped": vec![missing; 2], "bytes": 1, "error": null,
        });
        let body = body.to_string();
        let saved = trailer(&ending(body.as_bytes(), body.len())).unwrap_or_default();
        assert_eq!((saved.saved.len(), saved.skipped.len()), (1_000, 2));
        assert!(
            saved.skipped.iter().all(|one| one.name.len() == 1_000 && one.reason.len() == 1_000)
        );
    }

    async fn passed(bytes: Vec<u8>, bytes_max: u64) -> Result<Vec<u8>, CheckpointError> {
        let (mut writer, mut reader) = pipe::pipe().map_err(CheckpointError::Channel)?;
        let writing = tokio::spawn(async move { writer.write_all(&bytes).await });
        let mut sink = Vec::new();
        let passed = pass_on(&mut reader, &mut sink, bytes_max).await;
        drop(reader);
        if let Err(error) = writing.await {
            panic!("{error}");
        }
        passed.map(|_| sink)
    }

    #[tokio::test]
    async fn copies_a_stream_up_to_its_limit() {
        let long = [MAGIC, &vec![7; 6 * 1024 * 1024]].concat();
        let at_most = long.len() as u64 - EXTRA_BYTES;
        assert!(matches!(passed(long.clone(), at_most).await, Ok(sink) if sink == long));
        let refused = passed(long.clone(), at_most - 1).await;
        assert!(matches!(refused, Err(CheckpointError::TooLarge { .. })), "{refused:?}");
        let refused = passed(b"junk".to_vec(), 100).await;
        assert!(matches!(refused, Err(CheckpointError::Protocol(_))), "{refused:?}");
        assert!(matches!(passed(Vec::new(), 100).await, Ok(sink) if sink.is_empty()));
    }
}
