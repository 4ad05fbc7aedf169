//! Output of a run, counted against its limits. Of output over its limit, the beginning and the end
//! are kept; the rest is counted, and passed on once.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::allocator;
use crate::cell::Cell;
use crate::limits::Usage;
use crate::protocol::{Done, Dropped, Frame, FrameBudget, Violation};
use crate::spec::{Event, Exit, Outcome, State, Stream};

/// Output beyond its limit that is read at full speed; more is read slowly.
const FLOOD_BYTES: u64 = 4 * 1024 * 1024;
const FLOOD_PAUSE: Duration = Duration::from_millis(2);
/// Part of the output limit that is reserved for the end, and its most in bytes.
const TAIL_PART: u64 = 4;
const TAIL_BYTES_MAX: u64 = 256 * 1024;
/// How far into the kept end a line may begin; what precedes it is dropped as well.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// How a run ended, by what was observed from outside.
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) state: State,
    /// The kernel's final message, if it sent one.
    pub(crate) done: Option<Box<Done>>,
}

impl Verdict {
    /// Verdict of a run whose kernel is gone.
    pub(crate) fn lost(outcome: Outcome) -> Self {
        Self { outcome, state: State::Lost, done: None }
    }
}

/// Ends of stdout and stderr, which share a limit.
#[derive(Debug, Default)]
struct Tails {
    streams: [Tail; 2],
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl Tails {
    /// Adds bytes; `on_event` gets those that give way.
    fn push(&mut self, stream: Stream, bytes: &[u8], on_event: &mut dyn FnMut(Event)) {
        let [stdout, stderr] = &mut self.streams;
        let own = if stream == Stream::Stdout { &mut *stdout } else { &mut *stderr };
        own.bytes.extend(bytes);
        let mut excess = (stdout.bytes.len() + stderr.bytes.len()).saturating_sub(self.bytes_max);
        // What is over its half gives way.
        for (stream, tail) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
            let over = tail.bytes.len().saturating_sub(self.bytes_max / 2);
            let gone = excess.min(over);
            if gone > 0 {
                on_event(Event::Middle { stream, bytes: tail.bytes.drain(..gone).collect() });
            }
            tail.dropped += gone as u64;
            excess -= gone;
        }
    }

    fn dropped(&self) -> u64 {
        self.streams.iter().map(|tail| tail.dropped).sum()
    }
}

impl Tail {
    /// The number of dropped bytes, and what is left from the beginning of a line or character;
    /// `on_event` gets what precedes that.
    fn take(&mut self, stream: Stream, on_event: &mut dyn FnMut(Event)) -> (u64, Vec<u8>) {
        let mut bytes: Vec<u8> = std::mem::take(&mut self.bytes).into();
        if self.dropped > 0 {
            let near = bytes.get(..bytes.len().min(LINE_BYTES_MAX)).unwrap_or_default();
            let line = near.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
            let is_inside = |byte: &&u8| matches!(byte, 0x80..=0xBF);
            let gone = line.unwrap_or_else(|| near.iter().take(3).take_while(is_inside).count());
            if gone > 0 {
                on_event(Event::Middle { stream, bytes: bytes.drain(..gone).collect() });
            }
            self.dropped += gone as u64;
        }
        (self.dropped, bytes)
    }
}

/// The last place up to `most` that is not within a character.
fn char_boundary(bytes: &[u8], most: usize) -> usize {
    /// Bytes of a character that may follow its first.
    const FOLLOWING_MAX: usize = 3;
    let is_inside = |place: &usize| matches!(bytes.get(*place), Some(0x80..=0xBF));
    let most = most.min(bytes.len());
    let least = most.saturating_sub(FOLLOWING_MAX);
    (least..=most).rev().find(|place| !is_inside(place)).unwrap_or(most)
}

/// Remaining output limits of a run.
pub(crate) struct RunBudget {
    output_bytes_left: u64,
    tails: Tails,
    displays_left: u32,
    display_bytes_left: u64,
    displays_dropped: u64,
    notes_left: u32,
    note_bytes_left: u64,
    reads_left: u32,
    /// Bytes received from the cell and kept.
    bytes_taken: u64,
}

impl RunBudget {
    pub(crate) fn new(cell: &Cell) -> Self {
        const NOTES_MAX: u32 = 100;
        /// Of all frames together.
        const NOTES_BYTES_MAX: u64 = 256 * 1024;
        /// Each READ is answered before the next, for ten milliseconds only: honest kernels send
        /// half as many.
        const READS_MAX: u32 = 1_000;
        let limit_bytes = cell.limits.output_bytes;
        let tail_bytes = usize::try_from((limit_bytes / TAIL_PART).min(TAIL_BYTES_MAX));
        let tail_bytes = tail_bytes.unwrap_or(0);
        Self {
            output_bytes_left: limit_bytes - tail_bytes as u64,
            tails: Tails { bytes_max: tail_bytes, ..Tails::default() },
            displays_left: cell.limits.displays,
            display_bytes_left: cell.limits.display_bytes,
            displays_dropped: 0,
            notes_left: NOTES_MAX,
            note_bytes_left: NOTES_BYTES_MAX,
            reads_left: READS_MAX,
            bytes_taken: 0,
        }
    }

    /// Keeps the bytes up to the limit. Returns the end of the pause, if one is needed.
    pub(crate) fn output(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Option<Instant> {
        self.keep(stream, bytes, on_event);
        (self.output_bytes_dropped() > FLOOD_BYTES).then(|| Instant::now() + FLOOD_PAUSE)
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8], on_event: &mut (dyn FnMut(Event) + Send)) {
        let left = usize::try_from(self.output_bytes_left).unwrap_or(usize::MAX);
        let (kept, later) = bytes.split_at(char_boundary(bytes, left));
        self.output_bytes_left -= kept.len() as u64;
        self.bytes_taken += kept.len() as u64;
        if !kept.is_empty() {
            on_event(Event::Output { stream, bytes: kept.to_vec() });
        }
        if !later.is_empty() {
            // From here on, nothing belongs to the beginning.
            self.output_bytes_left = 0;
            on_event(Event::Held { stream, bytes: later.to_vec() });
            self.tails.push(stream, later, on_event);
        }
    }

    fn output_bytes_dropped(&self) -> u64 {
        self.tails.dropped()
    }

    /// Sends the end of the output. Called when there is no more.
    pub(crate) fn finish_output(&mut self, on_event: &mut (dyn FnMut(Event) + Send)) {
        for (stream, tail) in
            [Stream::Stdout, Stream::Stderr].into_iter().zip(&mut self.tails.streams)
        {
            let (dropped, bytes) = tail.take(stream, on_event);
            if dropped > 0 {
                on_event(Event::Gap { stream, bytes: dropped });
            }
            self.bytes_taken += bytes.len() as u64;
            if !bytes.is_empty() {
                on_event(Event::Output { stream, bytes });
            }
        }
    }

    /// Counts a READ of the kernel.
    pub(crate) fn asked_to_read(&mut self) -> Result<(), Violation> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(Violation::TooMany("READ"))?;
        Ok(())
    }

    /// Budget of the next frame: a larger one is dropped before it is parsed.
    pub(crate) fn for_next_frame(&self) -> FrameBudget {
        FrameBudget {
            display_bytes: if self.displays_left > 0 { self.display_bytes_left } else { 0 },
            note_bytes: if self.notes_left > 0 { self.note_bytes_left } else { 0 },
        }
    }

    pub(crate) fn frame(
        &mut self,
        frame: Frame,
        on_event: &mut (dyn FnMut(Event) + Send),
    ) -> Result<(), Violation> {
        match frame {
            Frame::Display(display) => {
                self.displays_left = self.displays_left.saturating_sub(1);
                self.display_bytes_left =
                    self.display_bytes_left.saturating_sub(display.bytes_charged);
                self.bytes_taken += display.bytes_charged;
                on_event(Event::Display(display));
                Ok(())
            }
            Frame::Note(note) => {
                self.notes_left = self.notes_left.saturating_sub(1);
                self.note_bytes_left = self.note_bytes_left.saturating_sub(note.bytes_charged());
                on_event(Event::Note(note));
                Ok(())
            }
            Frame::Dropped(Dropped::Display) => {
                self.displays_dropped += 1;
                Ok(())
            }
            Frame::Dropped(Dropped::Note) | Frame::Pending => Ok(()),
            Frame::Read => Err(Violation::OutOfTurn("READ")),
            Frame::Ready(_) => Err(Violation::OutOfTurn("READY")),
            Frame::Done(_) => Err(Violation::OutOfTurn("DONE")),
            Frame::Restored(_) => Err(Violation::OutOfTurn("RESTORED")),
        }
    }

    pub(crate) fn exit(&self, verdict: Verdict, started: Instant, usage: Option<Usage>) -> Exit {
        let Verdict { outcome, state, done } = verdict;
        allocator::taken(self.bytes_taken);
        Exit {
            outcome,
            state,
            wall: started.elapsed(),
            usage,
            done,
            output_bytes_dropped: self.output_bytes_dropped(),
            displays_dropped: self.displays_dropped,
            children_killed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tails, char_boundary};
    use crate::spec::{Event, Stream};

    type Kept = [(u64, String); 2];

    fn tails(bytes_max: usize, writes: &[(Stream, &str)]) -> Kept {
        let mut tails = Tails { bytes_max, ..Tails::default() };
        for (stream, write) in writes {
            tails.push(*stream, write.as_bytes(), &mut |_| {});
        }
        tails.streams.map(|mut tail| {
            let (dropped, bytes) = tail.take(Stream::Stdout, &mut |_| {});
            (dropped, String::from_utf8(bytes).unwrap())
        })
    }

    fn tail(bytes_max: usize, writes: &[&str]) -> (u64, String) {
        let writes: Vec<_> = writes.iter().map(|write| (Stream::Stdout, *write)).collect();
        let [stdout, stderr] = tails(bytes_max, &writes);
        assert_eq!(stderr, (0, String::new()));
        stdout
    }

    #[test]
    fn the_last_bytes_are_kept_from_the_beginning_of_a_line() {
        assert_eq!(tail(10, &["ab", "cd\n", "ef"]), (0, "abcd\nef".to_owned()));
        assert_eq!(tail(10, &["0123456789"]), (0, "0123456789".to_owned()));
        assert_eq!(tail(10, &["one\ntwo\nthree\n"]), (8, "three\n".to_owned()));
        assert_eq!(tail(10, &["one\n", "two\n", "three\n"]), (8, "three\n".to_owned()));
        assert_eq!(tail(4, &["0123456789", "ab"]), (8, "89ab".to_owned()));
        assert_eq!(tail(0, &["ab", "c"]), (3, String::new()));
    }

    #[test]
    fn what_gives_way_precedes_what_is_kept() {
        for bytes_max in [0, 1, 5, 64] {
            let mut tails = Tails { bytes_max, ..Tails::default() };
            let lines: Vec<String> = (0..100).map(|n| format!("{n}\n")).collect();
            let written = lines.concat();
            let mut middle = Vec::new();
            let mut on_event = |event| {
                if let Event::Middle { stream: Stream::Stdout, bytes } = event {
                    middle.extend(bytes);
                }
            };
            for write in written.as_bytes().chunks(7) {
                tails.push(Stream::Stdout, write, &mut on_event);
            }
            let (dropped, kept) = tails.streams[0].take(Stream::Stdout, &mut on_event);
            assert_eq!(middle.len() as u64, dropped, "{bytes_max}");
            assert_eq!([middle, kept].concat(), written.as_bytes(), "{bytes_max}");
        }
        let boundaries: Vec<usize> =
            (0..6).map(|most| char_boundary("aé🐍".as_bytes(), most)).collect();
        assert_eq!(boundaries, [0, 1, 1, 3, 3, 3]);
    }

    #[test]
    fn no_character_is_cut() {
        assert_eq!(tail(4, &["aéé"]), (1, "éé".to_owned()));
        assert_eq!(tail(3, &["aéé"]), (3, "é".to_owned()));
        assert_eq!(tail(6, &["🐍🐍"]), (4, "🐍".to_owned()));
    }

    #[test]
    fn a_stream_over_its_half_gives_way() {
        let (out, err) = (Stream::Stdout, Stream::Stderr);
        let kept = |stdout: &str, stderr: &str| [stdout.to_owned(), stderr.to_owned()];
        let texts = |writes: &[(Stream, &str)]| tails(6, writes).map(|(_, text)| text);
        assert_eq!(texts(&[(out, "abcdef")]), kept("abcdef", ""));
        assert_eq!(texts(&[(out, "abcdef"), (err, "xy")]), kept("cdef", "xy"));
        assert_eq!(texts(&[(out, "abcdef"), (err, "uvwxyz")]), kept("def", "xyz"));
        assert_eq!(texts(&[(err, "uvwxyz"), (out, "abcd")]), kept("bcd", "xyz"));
        assert_eq!(texts(&[(err, "u"), (out, "abcdefgh")]), kept("defgh", "u"));
        let [(of_out, _), (of_err, _)] = tails(6, &[(out, "abcdefgh"), (err, "xy")]);
        assert_eq!((of_out, of_err), (4, 0));
    }
}
