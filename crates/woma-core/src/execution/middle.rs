//! The middle of an output, in a file: read in pages, and removed with its owner.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use woma_sandbox::protocol::Note;

use crate::model::ExecutionId;
use crate::text::{self, Page, grouped, readable};
use crate::workspace::quota::Grant;

/// Bytes of a file after which the characters before them are noted.
const BLOCK_BYTES: usize = 64 * 1024;
/// Most bytes of a character.
const CHAR_BYTES_MAX: u64 = 4;

/// Reasons for which a part is lost, as they are told.
const WHY_LOST: &str = "disk limit reached, or disk too slow";

/// Middles of both streams, where there are any.
#[derive(Debug, Default)]
pub(crate) struct Middles {
    pub(crate) stdout: Option<Arc<Middle>>,
    pub(crate) stderr: Option<Arc<Middle>>,
    /// Limit of the run, and of all earlier ones of its session.
    pub(crate) bytes_max: u64,
}

/// The middle of one stream, in a file that goes with it. Its text is UTF-8.
#[derive(Debug)]
pub(crate) struct Middle {
    path: PathBuf,
    pub(crate) bytes: u64,
    chars: u64,
    /// Characters before each block of the file.
    blocks: Vec<u64>,
    /// Bytes of output that are not in the file.
    pub(super) lost: u64,
    /// The right to its bytes, if the caller's storage is limited.
    pub(super) grant: Option<Grant>,
}

impl Middle {
    pub(super) fn new(path: PathBuf, grant: Option<Grant>) -> Self {
        Self { path, bytes: 0, chars: 0, blocks: vec![0], lost: 0, grant }
    }

    /// Counts the characters of bytes that were added to the file.
    pub(super) fn count(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let in_block = usize::try_from(self.bytes % BLOCK_BYTES as u64).unwrap_or(0);
            let (block, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - in_block));
            self.bytes += block.len() as u64;
            self.chars += block.iter().filter(|byte| is_start(**byte)).count() as u64;
            if self.bytes.is_multiple_of(BLOCK_BYTES as u64) {
                self.blocks.push(self.chars);
            }
            bytes = rest;
        }
    }

    /// So many characters from `offset` on, or fewer at the end.
    fn read(&self, offset: u64, count: u64) -> io::Result<String> {
        let block = self.blocks.partition_point(|before| *before <= offset).saturating_sub(1);
        let before = self.blocks.get(block).copied().unwrap_or(0);
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(block as u64 * BLOCK_BYTES as u64))?;
        let wanted = BLOCK_BYTES as u64 + count.saturating_add(1).saturating_mul(CHAR_BYTES_MAX);
        let mut bytes = Vec::new();
        file.take(wanted).read_to_end(&mut bytes)?;
        let mut starts = bytes.iter().enumerate().filter(|(_, byte)| is_start(**byte));
        let mut start_of = |skipped: u64| {
            let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
            starts.nth(skipped).map(|(index, _)| index)
        };
        let Some(first) = start_of(offset - before) else { return Ok(String::new()) };
        let end = match count.checked_sub(1) {
            None => first,
            Some(more) => start_of(more).unwrap_or(bytes.len()),
        };
        let part = bytes.get(first..end).unwrap_or_default();
        Ok(String::from_utf8_lossy(part).into_owned())
    }

    /// A page of the whole output. `head` and `tail` are the parts before and after the middle.
    pub(crate) fn page(
        &self,
        head: &str,
        tail: &str,
        offset: u64,
        limit: usize,
    ) -> io::Result<Page> {
        let head = readable(head);
        let lost = match self.lost {
            0 => String::new(),
            lost => format!("\n[{} bytes of output were lost here]\n", grouped(lost)),
        };
        let tail = format!("{lost}{}", readable(tail));
        let length = |text: &str| text.chars().count() as u64;
        let (head_chars, tail_chars) = (length(&head), length(&tail));
        let total_chars = head_chars + self.chars + tail_chars;
        let offset = offset.min(total_chars);
        let end = offset.saturating_add(limit.max(1) as u64).min(total_chars);
        let within = |start: u64, chars: u64| {
            let from = offset.clamp(start, start + chars) - start;
            let to = end.clamp(start, start + chars) - start;
            (from, to - from)
        };
        let cut = |text: &str, (from, count): (u64, u64)| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count == 0 { String::new() } else { text::page(text, from, count).text }
        };
        let (from, count) = within(head_chars, self.chars);
        let middle = if count == 0 { String::new() } else { self.read(from, count)? };
        let text = [
            cut(&head, within(0, head_chars)),
            readable(&middle).into_owned(),
            cut(&tail, within(head_chars + self.chars, tail_chars)),
        ];
        let next_offset = (end < total_chars).then_some(end);
        Ok(Page { text: text.concat(), offset, next_offset, total_chars })
    }
}

/// The file goes in the background: removing a large one takes time.
impl Drop for Middle {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        let remove = move || {
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!(%error, "the middle of an output could not be removed");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl Middles {
    pub(crate) fn is_empty(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    pub(crate) fn bytes(&self) -> u64 {
        [&self.stdout, &self.stderr].into_iter().flatten().map(|middle| middle.bytes).sum()
    }

    /// Notes of a reply about the output that it leaves out.
    pub(crate) fn notes(&self, id: &ExecutionId) -> Vec<Note> {
        let streams = [("stdout", &self.stdout), ("stderr", &self.stderr)];
        let note = |(name, middle): (&str, &Option<Arc<Middle>>)| {
            let middle = middle.as_ref()?;
            let has = match middle.lost {
                0 => format!("the whole {name}, also what is left out"),
                lost => format!("more of {name}; {} bytes are lost: {WHY_LOST}", grouped(lost)),
            };
            let text = format!("read_output(execution_id=\"{id}\", stream=\"{name}\") has {has}");
            let code = "output_kept".to_owned();
            Some(Note { code, text, subject: None, line: None })
        };
        streams.into_iter().filter_map(note).collect()
    }
}

fn is_start(byte: u8) -> bool {
    !matches!(byte, 0x80..=0xBF)
}
