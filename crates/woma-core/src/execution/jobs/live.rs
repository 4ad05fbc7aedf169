//! Output of a run in progress: its beginning and its end, readable from any offset, and the
//! progress that it tells.

use std::collections::VecDeque;

use tokio::sync::watch;
use woma_sandbox::sync::lock;
use woma_sandbox::{Event, Stream};

use crate::storage::db::JobOutputRow;
use crate::text::{TextStream, settle};

/// Beginning of a job's output that is kept while it runs, and end of it, in bytes each.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
pub(crate) const TAIL_BYTES_MAX: usize = 64 * 1024;
/// Longest line that is looked at for progress, in bytes.
const LINE_BYTES_MAX: usize = 1024;
/// Characters of a progress message.
const MESSAGE_CHARS_MAX: usize = 200;

/// The output of a run in progress. Standard output and error are one text, in their order.
#[derive(Debug)]
pub(crate) struct Live {
    state: std::sync::Mutex<State>,
    /// Counts changes.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    streams: [StreamState; 2],
    head: String,
    head_chars: u64,
    tail: VecDeque<u8>,
    total_chars: u64,
    progress: Option<Progress>,
}

#[derive(Debug, Default)]
struct StreamState {
    decoder: TextStream,
    /// Whether it is over its limit, so that later events have its bytes again.
    is_held: bool,
    bars: ProgressReader,
}

/// Finds progress in the pieces of one stream.
#[derive(Debug, Default)]
pub struct ProgressReader {
    /// The line that goes on.
    line: String,
}

/// Progress as code tells it, by `progress()` or a bar of tqdm.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// From 0 to 1.
    pub fraction: f64,
    pub message: String,
}

/// Part of a job's output. All numbers are characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputPart {
    pub text: String,
    /// Offset of the part; later than the requested one if that is not kept.
    pub offset: u64,
    pub next_offset: u64,
    pub total_chars: u64,
    /// Characters between the requested offset and the part that are not kept.
    pub skipped: u64,
}

impl Default for Live {
    fn default() -> Self {
        Self { state: std::sync::Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Live {
    /// Takes the text of an event.
    pub(crate) fn add(&self, event: &Event) {
        let (stream, bytes, is_held) = match event {
            Event::Output { stream, bytes } => (*stream, bytes, false),
            Event::Held { stream, bytes } => (*stream, bytes, true),
            Event::Middle { .. } | Event::Gap { .. } | Event::Display(_) | Event::Note(_) => return,
        };
        let mut state = lock(&self.state);
        let index = usize::from(stream == Stream::Stderr);
        let Some(own) = state.streams.get_mut(index) else { return };
        if own.is_held && !is_held {
            return;
        }
        own.is_held |= is_held;
        let text = own.decoder.push(bytes);
        if let Some(progress) = own.bars.read(&text) {
            state.progress = Some(progress);
        }
        state.push(&text);
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Tells of the next changes.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Its stored form.
    pub(crate) fn row(&self) -> JobOutputRow {
        let state = lock(&self.state);
        let progress = state.progress.as_ref();
        JobOutputRow {
            head: state.head.clone(),
            tail: state.tail(),
            chars: state.total_chars,
            progress: progress.map(Progress::thousandths),
            progress_message: progress.map(|progress| progress.message.clone()),
        }
    }
}

impl State {
    fn push(&mut self, text: &str) {
        self.total_chars += text.chars().count() as u64;
        let mut rest = text;
        if self.tail.is_empty() && self.head.len() < HEAD_BYTES_MAX {
            let room = rest.floor_char_boundary(HEAD_BYTES_MAX - self.head.len());
            let (first, later) = rest.split_at(room);
            self.head.push_str(first);
            self.head_chars += first.chars().count() as u64;
            rest = later;
        }
        let rest = rest.as_bytes();
        let rest = rest.get(rest.len().saturating_sub(TAIL_BYTES_MAX)..).unwrap_or_default();
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES_MAX);
        self.tail.drain(..excess);
    }

    /// From the first whole character.
    fn tail(&self) -> String {
        let is_inside = |byte: &&u8| matches!(byte, 0x80..=0xBF);
        let broken = self.tail.iter().take_while(is_inside).count();
        let bytes: Vec<u8> = self.tail.iter().skip(broken).copied().collect();
        String::from_utf8(bytes).unwrap_or_default()
    }
}

/// The part of a stored output that begins at `offset`.
pub(crate) fn part(row: &JobOutputRow, offset: u64, limit_chars: usize) -> OutputPart {
    let count = |text: &str| text.chars().count() as u64;
    let head_chars = count(&row.head);
    let tail_start = row.chars.saturating_sub(count(&row.tail)).max(head_chars);
    let asked = offset.min(row.chars);
    let (text, start) = match asked < head_chars {
        true => (&row.head, asked),
        false => (&row.tail, asked.max(tail_start)),
    };
    let within = start - if asked < head_chars { 0 } else { tail_start };
    let within = usize::try_from(within).unwrap_or(usize::MAX);
    let text: String = text.chars().skip(within).take(limit_chars.max(1)).collect();
    let next_offset = start + count(&text);
    // A part that ends with the beginning goes on at the end, if nothing is between.
    OutputPart { text, offset: start, next_offset, total_chars: row.chars, skipped: start - asked }
}

/// The last lines of a stored output, as a terminal would show them.
pub(crate) fn last_lines(row: &JobOutputRow, chars_max: usize) -> String {
    let text = match row.tail.is_empty() {
        true => &row.head,
        false => &row.tail,
    };
    let start = text.ceil_char_boundary(text.len().saturating_sub(chars_max * 8));
    let settled = settle(text.get(start..).unwrap_or_default());
    let settled = settled.trim_end();
    let skipped = settled.chars().count().saturating_sub(chars_max);
    settled.chars().skip(skipped).collect()
}

impl Progress {
    fn thousandths(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let thousandths = (self.fraction.clamp(0.0, 1.0) * 1_000.0).round() as u64;
        thousandths
    }

    /// As it was stored.
    pub(crate) fn of_row(thousandths: Option<u64>, message: Option<&str>) -> Option<Self> {
        let fraction = f64::from(u32::try_from(thousandths?).unwrap_or(1_000)) / 1_000.0;
        Some(Self { fraction, message: message.unwrap_or_default().to_owned() })
    }
}

impl ProgressReader {
    /// The latest progress that the next piece of the stream tells.
    pub fn read(&mut self, text: &str) -> Option<Progress> {
        let mut found = None;
        for part in text.split_inclusive(['\r', '\n']) {
            let (said, is_ended) = match part.strip_suffix(['\r', '\n']) {
                Some(said) => (said, true),
                None => (part, false),
            };
            if self.line.len() + said.len() <= LINE_BYTES_MAX {
                self.line.push_str(said);
            }
            found = progress_of(&self.line).or(found);
            if is_ended {
                self.line.clear();
            }
        }
        found
    }
}

/// Progress of a line such as `reading:  40%|████      | 40/100 [00:01<00:02]`.
fn progress_of(line: &str) -> Option<Progress> {
    let (before, after) = line.split_once("%|")?;
    let start = before.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
    // What precedes may be a character of several bytes.
    let start = before.ceil_char_boundary(start);
    let percent: f64 = before.get(start..)?.parse().ok()?;
    if !(0.0..=100.0).contains(&percent) {
        return None;
    }
    let label = before.get(..start)?.trim().trim_end_matches(':');
    let rest = after.split_once('|').map_or("", |(_, rest)| rest).trim();
    let message = [label, rest].into_iter().filter(|part| !part.is_empty());
    let message = message.collect::<Vec<_>>().join(" ");
    let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
    Some(Progress { fraction: percent / 100.0, message })
}

#[cfg(test)]
mod tests {
    use woma_sandbox::{Event, Stream};

    use super::{HEAD_BYTES_MAX, Live, Progress, TAIL_BYTES_MAX, last_lines, part, progress_of};

    fn output(stream: Stream, text: &str) -> Event {
        Event::Output { stream, bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn both_streams_are_one_text_and_bytes_that_come_again_are_not_added_again() {
        let live = Live::default();
        live.add(&output(Stream::Stdout, "a"));
        live.add(&output(Stream::Stderr, "é"));
        let held = Event::Held { stream: Stream::Stdout, bytes: b"b".to_vec() };
        live.add(&held);
        live.add(&Event::Middle { stream: Stream::Stdout, bytes: b"b".to_vec() });
        live.add(&output(Stream::Stdout, "b"));
        live.add(&output(Stream::Stderr, "c"));
        assert_eq!(live.row().head, "aébc");
        assert_eq!(*live.watch().borrow(), 4);
    }

    #[test]
    fn the_beginning_and_the_end_are_kept_and_parts_add_up() {
        let live = Live::default();
        let line = format!("{}\n", "é".repeat(40));
        let mut all = String::new();
        while all.len() < 4 * (HEAD_BYTES_MAX + TAIL_BYTES_MAX) {
            live.add(&output(Stream::Stdout, &line));
            all.push_str(&line);
        }
        let row = live.row();
        assert!(row.head.len() <= HEAD_BYTES_MAX && row.tail.len() <= TAIL_BYTES_MAX);
        assert!(all.starts_with(&row.head) && all.ends_with(&row.tail));
        assert_eq!(row.chars, all.chars().count() as u64);
        let (mut offset, mut read, mut skipped) = (0, String::new(), 0);
        while offset < row.chars {
            let part = part(&row, offset, 1_000);
            assert_eq!(part.offset, offset + part.skipped);
            skipped += part.skipped;
            read.push_str(&part.text);
            offset = part.next_offset;
        }
        assert_eq!(read, format!("{}{}", row.head, row.tail));
        assert_eq!(skipped + read.chars().count() as u64, row.chars);
        let beyond = part(&row, u64::MAX, 9);
        assert_eq!((&*beyond.text, beyond.next_offset), ("", row.chars));
        assert_eq!(last_lines(&row, 41).chars().count(), 41);
    }

    #[test]
    fn progress_is_read_from_bars() {
        let table = [
            (" 40%|████      | 40/100 [00:01<00:02]", Some((0.4, "40/100 [00:01<00:02]"))),
            ("epoch é: 100%|██| 7/7", Some((1.0, "epoch é 7/7"))),
            (" 12.5%|█         | half", Some((0.125, "half"))),
            ("400%|x| y", None),
            ("40% of it", None),
            ("x%|y", None),
        ];
        for (line, found) in table {
            let found = found.map(|(fraction, message): (f64, &str)| Progress {
                fraction,
                message: message.to_owned(),
            });
            assert_eq!(progress_of(line), found, "{line}");
        }
        let live = Live::default();
        live.add(&output(Stream::Stderr, "\r 10%|█  | 1/10"));
        live.add(&output(Stream::Stderr, "\r 20%"));
        live.add(&output(Stream::Stderr, "|██ | 2/10"));
        let row = live.row();
        assert_eq!((row.progress, row.progress_message.as_deref()), (Some(200), Some("2/10")));
    }
}
