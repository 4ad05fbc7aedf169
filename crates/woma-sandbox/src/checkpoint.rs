//! Variables that outlive their kernel: a stream of bytes out of one cell and into another.
//!
//! The stream is written and read by Python inside cells (docs/PROTOCOL.md). Here it is so many
//! hostile bytes: they are counted, passed on, and looked at only in their bounded trailer.

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
use crate::limits::watchdog;
use crate::protocol::{
    CheckpointFrame, Frame, RestoreFrame, Restored, Saved, decode_saved, encode_checkpoint,
    encode_restore,
};
use crate::spec::Guard;

/// What every stream begins with.
const MAGIC: &[u8] = b"WOMAVARS";
/// What every stream ends with, after its trailer and the trailer's length.
const END: &[u8] = b"WOMADONE";
const TRAILER_BYTES_MAX: usize = 1024 * 1024;
const TAIL_BYTES_MAX: usize = TRAILER_BYTES_MAX + 4 + END.len();
/// What a stream has beyond the variables: trailer, sources, header.
const EXTRA_BYTES: u64 = 4 * 1024 * 1024;
const READ_BYTES: usize = 256 * 1024;
const PIPE_BYTES: usize = 1024 * 1024;
/// How much longer than its writer the reader waits.
const GRACE: Duration = Duration::from_millis(500);
/// How long a kernel that runs nothing may take to hear us.
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
/// Nothing is waited for longer than this, whatever is asked for.
const WALL_MAX: Duration = Duration::from_secs(3_600);
/// How often memory is looked at where no cgroup holds it.
const TICK: Duration = Duration::from_millis(100);

/// How much of a session is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointLimits {
    /// Of all variables together; the smallest go first.
    pub bytes_max: u64,
    pub variable_bytes_max: u64,
    /// Half of it is for finding out what can be saved.
    pub wall: Duration,
}

/// How a session goes on.
#[derive(Debug, Clone)]
pub struct Restore {
    /// A kernel that takes longer is killed.
    pub wall: Duration,
    /// Of the session's last run; the next one has the next number.
    pub execution_count: u64,
    /// Of the next run: functions that come back obey guards from then on, or never do.
    pub guard: Option<Arc<Guard>>,
}

/// Why variables could not be saved or brought back.
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
    /// Said by the kernel, in its words.
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
    /// Saves the session's variables. The sink has a whole checkpoint only if this returns `Ok`;
    /// otherwise the session goes on unharmed and what was written is worth nothing.
    pub async fn checkpoint(
        &mut self,
        limits: CheckpointLimits,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
    ) -> Result<Saved, CheckpointError> {
        self.start_checkpoint(limits).await?.write_to(sink).await
    }

    /// Has the variables saved as they are now. What comes back does not need the cell, which can
    /// run code meanwhile; a run that must be stopped ends the checkpoint too.
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
        self.tell(&frame, write.as_fd()).await?;
        let turn = Arc::new(());
        self.checkpoint = Some(Arc::downgrade(&turn));
        Ok(Checkpointing { pipe, limits, deadline: Instant::now() + wall + GRACE, _turn: turn })
    }

    /// Brings back, before the first run, what another cell has saved. After an error the cell can
    /// only be dropped: nobody knows what of it is there.
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
        self.tell(&frame, read.as_fd()).await?;
        drop(read);
        self.life = Life::Running;
        let answered = timeout_at(deadline, answer(self, source, pipe)).await;
        let answered = answered.unwrap_or(Err(CheckpointError::TimedOut(wall)));
        match &answered {
            Ok(_) => self.life = Life::Idle,
            Err(_) => self.kill(),
        }
        answered
    }

    /// Sends a frame that the kernel, which runs nothing, reads at once.
    async fn tell(&mut self, frame: &[u8], fd: BorrowedFd<'_>) -> Result<(), CheckpointError> {
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

/// A checkpoint that is being written in a cell. Dropping it ends it.
#[derive(Debug)]
pub struct Checkpointing {
    pipe: pipe::Receiver,
    limits: CheckpointLimits,
    deadline: Instant,
    _turn: Arc<()>,
}

impl Checkpointing {
    /// Passes the stream on, to its end.
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

/// Copies the stream and returns its end, in which the trailer is.
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
        // A header is one small write, which a pipe keeps together.
        if !begun && !bytes.starts_with(MAGIC) {
            return Err(CheckpointError::Protocol("these are no variables".to_owned()));
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

/// The trailer at the end of a stream, if that is how it ends.
fn trailer(tail: &[u8]) -> Option<Saved> {
    let (rest, length) = tail.strip_suffix(END)?.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let at = rest.len().checked_sub(length).filter(|_| length <= TRAILER_BYTES_MAX)?;
    decode_saved(rest.get(at..)?)
}

/// Feeds the kernel and waits for what it says, while it may still say it.
async fn answer(
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
            frame = cell.frames.next() => match frame {
                Ok(Some(Frame::Restored(restored))) => return Ok(restored),
                // A variable may have something refused to it, or show itself, when it is made.
                Ok(Some(Frame::Note(_) | Frame::Display(_))) => {}
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
            _ = looks.tick(), if cell.room.group.is_none() => {
                let roots = [cell.room.init_pid, cell.room.kernel_pid];
                let enough = cell.limits.memory_bytes;
                let look = move || watchdog::memory_bytes(&watchdog::descendants(&roots), enough);
                // A look that panicked saw nothing.
                if tokio::task::spawn_blocking(look).await.unwrap_or(0) > enough {
                    return Err(CheckpointError::OutOfMemory);
                }
            }
        }
    }
}

fn ended(cell: &Cell) -> CheckpointError {
    if cell.room.group.is_some() && cell.usage().out_of_memory_kills > cell.kills_seen {
        CheckpointError::OutOfMemory
    } else {
        CheckpointError::Incomplete
    }
}

/// Copies the stream into the pipe. A kernel that reads no further has its reasons, and tells them.
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
            tracing::debug!(%error, "a kernel has stopped reading its variables");
            return Ok(());
        }
    }
}

/// A larger pipe means fewer turns; the system may refuse, and nothing else changes.
fn enlarge(pipe: impl AsFd) {
    if let Err(error) = fcntl_setpipe_size(pipe, PIPE_BYTES) {
        tracing::debug!(%error, "a pipe keeps its size");
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
    fn only_a_whole_trailer_is_one() {
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
    fn what_a_trailer_says_is_bounded() {
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
    async fn a_stream_is_passed_on_up_to_its_limit() {
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
