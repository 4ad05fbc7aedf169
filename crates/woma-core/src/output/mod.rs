//! What programs write, as people and models want to read it. Pure functions, for input of any kind.

pub mod ansi;
pub mod budget;
pub mod pictures;
pub mod warnings;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The texts of an execution that can be read on in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
    Traceback,
    Result,
}

impl OutputStream {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Traceback => "traceback",
            Self::Result => "result",
        }
    }
}

/// A part of a text, and where it goes on. All numbers are characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page {
    pub text: String,
    /// Where the part begins: as asked for, or the end of a shorter text.
    pub offset: u64,
    /// Where the next part begins; `None` at the end.
    pub next_offset: Option<u64>,
    pub total_chars: u64,
}

/// The text as it is shown: without escape sequences, settled, repeats folded. Every offset that
/// [`budget::fit`] gives is one of this text, so that [`page`] must be given this one too.
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

/// At most so many characters from there on. A limit of none is a limit of one: who follows
/// `next_offset` always arrives.
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

/// Where the character of this number begins, in bytes; the end of a shorter text.
fn byte_of_char(text: &str, index: usize) -> usize {
    if text.is_ascii() {
        return index.min(text.len());
    }
    text.char_indices().nth(index).map_or(text.len(), |(byte, _)| byte)
}

/// A number as people read it: `123,456`.
fn grouped(number: u64) -> String {
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

/// Text as it would stand on a terminal at the end: carriage returns and backspaces done, so that a
/// progress bar is its last state and not a thousand of them.
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
    // What a shorter line left of a longer one is mostly the blanks that programs write over it.
    let text: String = cells.into_iter().collect();
    text.trim_end_matches(' ').to_owned()
}

/// Bytes that arrive in pieces, as text: a character cut in two by a piece's end is put together.
#[derive(Debug, Default)]
pub struct TextStream {
    /// The beginning of a character whose end has not come yet; at most three bytes.
    pending: Vec<u8>,
}

impl TextStream {
    /// The text that is complete with these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let complete = complete_length(&self.pending);
        let rest = self.pending.split_off(complete);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// How many of the bytes do not belong to an unfinished character at the end.
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

    use super::{TextStream, grouped, page, readable, settle};

    #[test]
    fn readable_text_has_all_of_it_done() {
        let line = "\u{1b}[33ma warning of some length that comes often\u{1b}[0m\r\n";
        assert_eq!(
            readable(&format!("10%\r\u{1b}[K100%\n{}", line.repeat(8))),
            "100%\na warning of some length that comes often\n[the line above came 7 more times]\n"
        );
        assert_eq!(readable("\u{1b}[1mbold\u{1b}[0m"), "bold");
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
    fn a_page_says_where_it_is() {
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
        fn pages_in_a_row_are_the_text(text in "[a-zé€😀\n]{0,60}", limit in 1_usize..20) {
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
        fn any_text_can_be_made_readable(text in any::<String>()) {
            let left = readable(&text).contains(['\r', '\u{8}', '\u{1b}']);
            prop_assert!(!left);
        }
    }

    #[test]
    fn settled_text_is_what_a_terminal_shows() {
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
    fn a_character_cut_in_two_is_put_together() {
        let text = "aé€😀z";
        for cut in 0..=text.len() {
            let (left, right) = text.as_bytes().split_at(cut);
            let mut stream = TextStream::default();
            let joined = stream.push(left) + &stream.push(right) + &stream.finish();
            assert_eq!(joined, text, "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_not_wait() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(b"\xff\xfe"), "\u{fffd}\u{fffd}");
        assert_eq!(stream.push(b"\xe2\x82"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }
}
