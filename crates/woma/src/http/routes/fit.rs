//! Limit of one reply to a megabyte: longer parts are truncated, with the offset to read on.

use std::io;

use serde::Serialize;
use woma_core::Representation;
use woma_core::text::{OutputStream, readable};

use crate::api::reply::{Reply, Truncated};

/// Longest reply, in bytes of JSON, with space for an envelope.
const REPLY_BYTES_MAX: usize = 1_000_000 - 1_000;

/// Limits of the parts of a reply that is too long, in bytes of JSON.
const TRACEBACK_BYTES: usize = 60_000;
const RESULT_BYTES: usize = 60_000;
const DISPLAYS_BYTES: usize = 200_000;
const NAMES_BYTES: usize = 60_000;
const SENTENCE_BYTES: usize = 10_000;

/// Room for the parts of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Whole,
    /// The text streams and the traceback are in the reply twice.
    Halved,
}

impl Room {
    fn stdout_bytes(self) -> usize {
        match self {
            Self::Whole => 330_000,
            Self::Halved => 165_000,
        }
    }

    fn stderr_bytes(self) -> usize {
        match self {
            Self::Whole => 140_000,
            Self::Halved => 70_000,
        }
    }

    /// Bytes of JSON that are added to the measured ones.
    fn repeated_bytes(self, reply: &Reply) -> usize {
        match self {
            Self::Whole => 0,
            Self::Halved => {
                size(&reply.stdout) + size(&reply.stderr) + 2 * size(&reply.error_traceback)
            }
        }
    }
}

/// Truncates a reply that is too long. Most replies are only measured.
pub(crate) fn fit(reply: &mut Reply, room: Room) {
    let least = size_lower_bound(reply);
    if least <= REPLY_BYTES_MAX && size(reply) + room.repeated_bytes(reply) <= REPLY_BYTES_MAX {
        return;
    }
    let mut truncated = Vec::new();
    let mut cut_stream = |text: &mut String, stream: OutputStream, bytes_max: usize| {
        // Offsets count characters of the readable text, as `read_output` does.
        *text = readable(text).into_owned();
        if let Some((chars_total, next_offset)) = cut(text, bytes_max) {
            let stream = stream.name().to_owned();
            truncated.push(Truncated { stream, chars_total, next_offset });
        }
    };
    cut_stream(&mut reply.stdout, OutputStream::Stdout, room.stdout_bytes());
    cut_stream(&mut reply.stderr, OutputStream::Stderr, room.stderr_bytes());
    if let Some(traceback) = &mut reply.error_traceback {
        cut_stream(traceback, OutputStream::Traceback, TRACEBACK_BYTES);
    }
    if size(&reply.result) > RESULT_BYTES {
        let mut text = reply.result.take().map(|result| result.to_readable()).unwrap_or_default();
        cut_stream(&mut text, OutputStream::Result, RESULT_BYTES);
        reply.result = Some(Representation::text(text));
    }
    reply.truncated.extend(truncated);
    fit_rest(reply);
}

fn fit_rest(reply: &mut Reply) {
    let sentences = reply.error_message.iter_mut().chain(&mut reply.warnings);
    for sentence in sentences.chain(reply.error.as_mut().map(|error| &mut error.message)) {
        cut(sentence, SENTENCE_BYTES);
    }
    reply.warnings.truncate(10);
    if size(&reply.variable_types) > NAMES_BYTES || size(&reply.variables) > NAMES_BYTES {
        reply.variable_types.clear();
        while size(&reply.variables) > NAMES_BYTES {
            reply.variables.truncate(reply.variables.len() / 2);
        }
        reply.warnings.push("some variable names are omitted: too long".to_owned());
    }
    let mut budget = DISPLAYS_BYTES;
    let mut left_out = 0_usize;
    for shown in &mut reply.displays {
        shown.data.retain(|media_type, value| {
            // A lower bound above the budget saves the exact measurement.
            let is_longer = value.bytes_least() > budget;
            let bytes = if is_longer { usize::MAX } else { size(media_type) + size(value) };
            let fits = bytes <= budget;
            budget -= if fits { bytes } else { 0 };
            left_out += usize::from(!fits);
            fits
        });
        let metadata = shown.metadata.as_ref();
        let is_longer = metadata.is_some_and(|metadata| metadata.bytes_least() > SENTENCE_BYTES);
        if is_longer || size(&shown.metadata) + size(&shown.id) > SENTENCE_BYTES / 10 {
            shown.metadata = None;
            shown.id = None;
        }
    }
    if left_out > 0 {
        reply.warnings.push(format!(
            "{left_out} representations of displayed objects are omitted from `displays`: the limit \
             of a reply is 1 MB; `inline_images` links to pictures"
        ));
    }
}

/// Truncates a text. If it was too long, returns its characters before and after.
fn cut(text: &mut String, bytes_max: usize) -> Option<(u64, u64)> {
    let (mut bytes, mut kept_chars) = (2_usize, 0_u64);
    for (index, character) in text.char_indices() {
        bytes += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        };
        if bytes > bytes_max {
            let total = kept_chars + text.get(index..)?.chars().count() as u64;
            text.truncate(index);
            return Some((total, kept_chars));
        }
        kept_chars += 1;
    }
    None
}

/// Lower bound of a reply's size, in bytes of JSON. Avoids serializing megabytes only to count
/// them.
fn size_lower_bound(reply: &Reply) -> usize {
    let shown = reply.displays.iter().flat_map(|shown| shown.data.values());
    let shown: usize = shown.map(Representation::bytes_least).sum();
    let metadata = reply.displays.iter().filter_map(|shown| shown.metadata.as_ref());
    let metadata: usize = metadata.map(Representation::bytes_least).sum();
    reply.stdout.len() + reply.stderr.len() + shown + metadata
}

/// Size in bytes of JSON.
fn size(value: &impl Serialize) -> usize {
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{cut, size};

    #[test]
    fn truncated_text_fills_its_limit_exactly() {
        for text in ["a".repeat(1000), "\0".repeat(1000), "é\n\"\\".repeat(250), "😀".repeat(400)]
        {
            for bytes_max in [2, 3, 50, 999] {
                let mut kept = text.clone();
                let (total, next) = cut(&mut kept, bytes_max).unwrap();
                assert!(size(&kept) <= bytes_max, "{}", size(&kept));
                assert!(size(&kept) + 6 > bytes_max, "{}", size(&kept));
                assert_eq!(total, text.chars().count() as u64);
                assert_eq!(next, kept.chars().count() as u64);
            }
            let (mut whole, bytes) = (text.clone(), size(&text));
            assert_eq!(cut(&mut whole, bytes), None);
            assert_eq!(whole, text);
        }
    }
}
