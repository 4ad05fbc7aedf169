//! Output of programs, made readable for people and models. Pure functions over untrusted input;
//! knows no other room.

pub mod ansi;
pub mod budget;
pub mod near;
pub mod pictures;
pub mod warnings;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Texts of an execution that can be read in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
    Traceback,
    Result,
    // Of earlier runs of the session, after their end. A doc comment would split the schema.
    Late,
}

impl OutputStream {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Traceback => "traceback",
            Self::Result => "result",
            Self::Late => "late",
        }
    }
}

/// Page of a text. All numbers are characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page {
    pub text: String,
    /// Offset of the page: the requested one, or the end of a shorter text.
    pub offset: u64,
    /// Offset of the next page; `None` at the end.
    pub next_offset: Option<u64>,
    pub total_chars: u64,
}

/// Displayed form of a text: without escape sequences, settled, repetitions folded. Offsets of
/// [`budget::fit`] refer to this form, so [`page`] must get this form too.
pub fn readable(text: &str) -> Cow<'_, str> {
    let stripped = ansi::strip(text);
    if stripped.contains(['\r', '\u{8}']) {
        return Cow::Owned(warnings::fold(&settle(&stripped)).into_owned());
    }
    match stripped {
        Cow::Borrowed(text) => warnings::fold(text),
        Cow::Owned(text) => match warnings::fold(&text) {
            Cow::Borrowed(_) => Cow::Owned(text),
            Cow::Owned(folded) => Cow::Owned(folded),
        },
    }
}

/// Page of at most `limit_chars` characters. A limit of 0 counts as 1, so that following
/// `next_offset` always ends.
pub fn page(text: &str, offset_chars: u64, limit_chars: usize) -> Page {
    let total = count_chars(text);
    let offset = usize::try_from(offset_chars).unwrap_or(usize::MAX).min(total);
    let end = offset.saturating_add(limit_chars.max(1)).min(total);
    let after = text.get(byte_of_char(text, offset)..).unwrap_or_default();
    let part = after.get(..byte_of_char(after, end - offset)).unwrap_or_default();
    Page {
        text: part.to_owned(),
        offset: offset as u64,
        next_offset: (end < total).then_some(end as u64),
        total_chars: total as u64,
    }
}

fn count_chars(text: &str) -> usize {
    text.chars().count()
}

/// Byte offset of a character; the end of a shorter text.
fn byte_of_char(text: &str, index: usize) -> usize {
    if text.is_ascii() {
        return index.min(text.len());
    }
    text.char_indices().nth(index).map_or(text.len(), |(byte, _)| byte)
}

/// Number with separators: `123,456`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Applies carriage returns and backspaces as a terminal does, so that a progress bar shows its
/// last state only.
pub fn settle(text: &str) -> String {
    if !text.contains(['\r', '\u{8}']) {
        return text.to_owned();
    }
    let mut settled = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line.strip_suffix('\r').unwrap_or(line), "\n"),
            None => (line, ""),
        };
        settled.push_str(&settle_line(line));
        settled.push_str(end);
    }
    settled
}

/// Offsets of a text, which ascend, as offsets of its settled form. An offset within a line with
/// control characters moves to the end of that line.
pub fn settled_offsets(text: &str, offsets: &[usize]) -> Vec<usize> {
    if !text.contains(['\r', '\u{8}']) {
        return offsets.to_vec();
    }
    let (mut start, mut settled_start, mut settled) = (0, 0, Vec::with_capacity(offsets.len()));
    let mut lines = text.split_inclusive('\n').map(|line| (line.len(), settle(line).len()));
    let mut line = lines.next();
    for offset in offsets {
        while let Some((length, settled_length)) = line
            && start + length <= *offset
        {
            (start, settled_start) = (start + length, settled_start + settled_length);
            line = lines.next();
        }
        let is_within = *offset > start;
        let rest = line.filter(|_| is_within).map_or(0, |(_, settled_length)| settled_length);
        settled.push(settled_start + rest);
    }
    settled
}

fn settle_line(line: &str) -> String {
    if !line.contains(['\r', '\u{8}']) {
        return line.to_owned();
    }
    let mut cells: Vec<char> = Vec::new();
    let mut cursor: usize = 0;
    for character in line.chars() {
        match character {
            '\r' => cursor = 0,
            '\u{8}' => cursor = cursor.saturating_sub(1),
            other => {
                if let Some(cell) = cells.get_mut(cursor) {
                    *cell = other;
                } else {
                    cells.push(other);
                }
                cursor += 1;
            }
        }
    }
    // Programs overwrite the rest of a longer line with spaces.
    let text: String = cells.into_iter().collect();
    text.trim_end_matches(' ').to_owned()
}

/// Incremental UTF-8 decoder: joins characters that are split between pieces.
#[derive(Debug, Default)]
pub struct TextStream {
    /// Start of an incomplete character; at most three bytes.
    pending: Vec<u8>,
}

impl TextStream {
    /// Adds bytes; returns the text that is complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let complete = complete_length(&self.pending);
        let rest = self.pending.split_off(complete);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }

    /// Returns the incomplete rest at the end of the input.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Number of bytes before an incomplete character at the end.
fn complete_length(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3)..bytes.len();
    for start in tail.rev() {
        let Some(byte) = bytes.get(start) else { break };
        let needed = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return bytes.len(),
        };
        return if bytes.len() - start < needed { start } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{TextStream, grouped, page, readable, settle, settled_offsets};

    #[test]
    fn readable_applies_all_steps() {
        let line = "\u{1b}[33ma warning of some length that comes often\u{1b}[0m\r\n";
        assert_eq!(
            readable(&format!("10%\r\u{1b}[K100%\n{}", line.repeat(8))),
            "100%\na warning of some length that comes often\n[the line above came 7 more times]\n"
        );
        assert_eq!(readable("\u{1b}[1mbold\u{1b}[0m"), "bold");
    }

    #[test]
    fn offsets_follow_the_settled_text() {
        assert_eq!(settled_offsets("ab\ncd", &[0, 1, 3, 5]), [0, 1, 3, 5]);
        // Settled: "20%\nend\n", with the bar and its line end as one line.
        let text = "10%\r20%\nend\n";
        assert_eq!(settle(text), "20%\nend\n");
        assert_eq!(settled_offsets(text, &[0, 3, 7, 8, 9, 12, 12]), [0, 4, 4, 4, 8, 8, 8]);
        assert_eq!(settled_offsets("\r", &[1]), [0]);
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (123_456, "123,456"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(number), shown);
        }
    }

    #[test]
    fn pages_report_their_offsets() {
        for (offset, limit, text, at, next) in [
            (0, 3, "aé€", 0, Some(3)),
            (2, 2, "€😀", 2, Some(4)),
            (3, 2, "😀z", 3, None),
            (5, 10, "", 5, None),
            (u64::MAX, usize::MAX, "", 5, None),
            (1, 0, "é", 1, Some(2)),
        ] {
            let page = page("aé€😀z", offset, limit);
            assert_eq!((page.text.as_str(), page.offset, page.next_offset), (text, at, next));
            assert_eq!(page.total_chars, 5);
        }
    }

    proptest! {
        #[test]
        fn pages_add_up_to_the_text(text in "[a-zé€😀\n]{0,60}", limit in 1_usize..20) {
            let (mut joined, mut offset) = (String::new(), Some(0));
            while let Some(from) = offset {
                let page = page(&text, from, limit);
                prop_assert!(page.text.chars().count() <= limit);
                joined.push_str(&page.text);
                offset = page.next_offset;
            }
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn readable_never_panics(text in any::<String>()) {
            let left = readable(&text).contains(['\r', '\u{8}', '\u{1b}']);
            prop_assert!(!left);
        }
    }

    #[test]
    fn settle_matches_a_terminal() {
        for (written, shown) in [
            ("plain\ntext", "plain\ntext"),
            ("10%\r50%\r100%\n", "100%\n"),
            ("long line\rshort\n", "shortline\n"),
            ("abc\r\n", "abc\n"),
            ("ab\u{8}c", "ac"),
            ("\u{8}\u{8}x", "x"),
            ("12345\r     \rok\n", "ok\n"),
            ("a\rb\nc\rd", "b\nd"),
            ("é\rü", "ü"),
        ] {
            assert_eq!(settle(written), shown, "{written:?}");
        }
    }

    #[test]
    fn split_characters_are_joined() {
        let text = "aé€😀z";
        for cut in 0..=text.len() {
            let (left, right) = text.as_bytes().split_at(cut);
            let mut stream = TextStream::default();
            let joined = stream.push(left) + &stream.push(right) + &stream.finish();
            assert_eq!(joined, text, "cut at {cut}");
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_at_once() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(b"\xff\xfe"), "\u{fffd}\u{fffd}");
        assert_eq!(stream.push(b"\xe2\x82"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }
}
