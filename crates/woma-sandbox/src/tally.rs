//! What a run produces, counted against its limits: kept up to there, then counted and dropped.

use std::time::Duration;

use tokio::time::Instant;

use crate::cell::Cell;
use crate::limits::Usage;
use crate::protocol::{Done, Frame, Violation};
use crate::spec::{Event, Exit, Outcome, State, Stream};

/// Output beyond its limit is read at full speed up to here, then slowly.
const FLOOD_BYTES: u64 = 4 * 1024 * 1024;
const FLOOD_PAUSE: Duration = Duration::from_millis(2);

/// Counts what a run produces against its limits.
pub(crate) struct Tally {
    output_bytes_left: u64,
    output_bytes_dropped: u64,
    displays_left: u32,
    display_bytes_left: u64,
    displays_dropped: u64,
    notes_left: u32,
    reads_left: u32,
}

impl Tally {
    pub(crate) fn new(cell: &Cell) -> Self {
        const NOTES_MAX: u32 = 100;
        /// Each is answered before the next, and only for ten milliseconds: half as many are honest.
        const READS_MAX: u32 = 1_000;
        Self {
            output_bytes_left: cell.limits.output_bytes,
            output_bytes_dropped: 0,
            displays_left: cell.limits.displays,
            display_bytes_left: cell.limits.display_bytes,
            displays_dropped: 0,
            notes_left: NOTES_MAX,
            reads_left: READS_MAX,
        }
    }

    /// Keeps the bytes, and says until when to pause.
    pub(crate) fn output(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Option<Instant> {
        self.keep(stream, bytes, on_event);
        (self.output_bytes_dropped > FLOOD_BYTES).then(|| Instant::now() + FLOOD_PAUSE)
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8], on_event: &mut (dyn FnMut(Event) + Send)) {
        let left = usize::try_from(self.output_bytes_left).unwrap_or(usize::MAX);
        let (kept, dropped) = bytes.split_at(bytes.len().min(left));
        self.output_bytes_left -= kept.len() as u64;
        self.output_bytes_dropped += dropped.len() as u64;
        if !kept.is_empty() {
            on_event(Event::Output { stream, bytes: kept.to_vec() });
        }
    }

    /// The kernel wants its output read.
    pub(crate) fn asked_to_read(&mut self) -> Result<(), Violation> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(Violation::TooMany("READ"))?;
        Ok(())
    }

    pub(crate) fn frame(
        &mut self,
        frame: Frame,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Result<(), Violation> {
        match frame {
            Frame::Display(display) => {
                let bytes = display.bytes_charged as u64;
                if self.displays_left == 0 || bytes > self.display_bytes_left {
                    self.displays_dropped += 1;
                } else {
                    self.displays_left -= 1;
                    self.display_bytes_left -= bytes;
                    on_event(Event::Display(display));
                }
                Ok(())
            }
            Frame::Note(note) => {
                if self.notes_left > 0 {
                    self.notes_left -= 1;
                    on_event(Event::Note(note));
                }
                Ok(())
            }
            Frame::Read => Err(Violation::OutOfTurn("READ")),
            Frame::Ready(_) => Err(Violation::OutOfTurn("READY")),
            Frame::Done(_) => Err(Violation::OutOfTurn("DONE")),
            Frame::Restored(_) => Err(Violation::OutOfTurn("RESTORED")),
        }
    }

    pub(crate) fn exit(
        &self,
        outcome: Outcome,
        state: State,
        started: Instant,
        usage: Option<Usage>,
        done: Option<Box<Done>>,
    ) -> Exit {
        Exit {
            outcome,
            state,
            wall: started.elapsed(),
            usage,
            done,
            output_bytes_dropped: self.output_bytes_dropped,
            displays_dropped: self.displays_dropped,
        }
    }
}
