//! What programs write, as people want to read it.

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
    use super::{TextStream, settle};

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
