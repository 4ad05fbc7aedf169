//! Removal of terminal escape sequences from text.

use std::borrow::Cow;

/// Limit of a sequence in bytes; a longer one is treated as text.
const SEQUENCE_BYTES_MAX: usize = 4 * 1024;

/// Removes escape sequences and control characters.
///
/// Newline, tab, carriage return and backspace stay: [`super::settle`] applies the last two. Other
/// control characters are removed, because they have no glyph and NUL or bell disturb readers. An
/// unterminated sequence loses its introducer only, because the rest is probably text.
pub fn strip(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = Line { text: String::with_capacity(text.len()), start: 0, segment: 0 };
    let mut rest = text;
    while let Some((plain, control, after)) = split_at_control(rest) {
        line.push(plain);
        let (consumed, effect) = sequence(control, after);
        line.apply(effect);
        rest = after.get(consumed..).unwrap_or_default();
    }
    line.push(rest);
    Cow::Owned(line.text)
}

/// Effect of a sequence on plain text: progress bars erase before they write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    None,
    Return,
    EraseToEnd,
    EraseLine,
}

/// Text so far, with the start of its last line and of the segment after the last carriage return.
#[derive(Debug)]
struct Line {
    text: String,
    start: usize,
    segment: usize,
}

impl Line {
    fn push(&mut self, plain: &str) {
        if plain.is_empty() {
            return;
        }
        let before = self.text.len();
        self.text.push_str(plain);
        if let Some(newline) = plain.rfind('\n') {
            self.start = before + newline + 1;
            self.segment = self.start;
        }
        if let Some(after) = self.text.get(self.start.max(before)..)
            && let Some(carriage_return) = after.rfind('\r')
        {
            self.segment = self.start.max(before) + carriage_return + 1;
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Return => self.push("\r"),
            // Text before the last return is overwritten or erased here. Each character moves at
            // most once per return, so this stays linear.
            Effect::EraseToEnd => {
                self.text.drain(self.start..self.segment);
                self.segment = self.start;
            }
            Effect::EraseLine => {
                self.text.truncate(self.start);
                self.segment = self.start;
            }
        }
    }
}

fn is_control(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\t' | '\r' | '\u{8}')
}

fn split_at_control(text: &str) -> Option<(&str, char, &str)> {
    let at = text.find(is_control)?;
    let (plain, from) = text.split_at_checked(at)?;
    let mut characters = from.chars();
    let control = characters.next()?;
    Some((plain, control, characters.as_str()))
}

/// Length in bytes of a sequence after its control character, and its effect.
fn sequence(control: char, after: &str) -> (usize, Effect) {
    match control {
        '\u{1b}' => match after.bytes().next() {
            Some(b'[') => control_sequence(after, 1),
            Some(b']' | b'P' | b'X' | b'^' | b'_') => (control_string(after, 1), Effect::None),
            _ => (short_sequence(after), Effect::None),
        },
        '\u{9b}' => control_sequence(after, 0),
        '\u{9d}' | '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => {
            (control_string(after, 0), Effect::None)
        }
        _ => (0, Effect::None),
    }
}

/// CSI: parameters, intermediates, one final byte.
fn control_sequence(after: &str, introducer: usize) -> (usize, Effect) {
    let body = after.as_bytes().get(introducer..).unwrap_or_default();
    let inner = |byte: &&u8| matches!(byte, 0x20..=0x3f);
    let length = body.iter().take(SEQUENCE_BYTES_MAX).take_while(inner).count();
    let (parameters, last) = (body.get(..length).unwrap_or_default(), body.get(length));
    let effect = match (last, parameters) {
        (Some(b'K'), b"" | b"0") => Effect::EraseToEnd,
        (Some(b'K'), b"2") => Effect::EraseLine,
        (Some(b'G'), b"" | b"0" | b"1") => Effect::Return,
        (Some(0x40..=0x7e), _) => Effect::None,
        _ => return (introducer, Effect::None),
    };
    (introducer + length + 1, effect)
}

/// OSC, DCS, SOS, PM, APC: any text up to a bell or a string terminator. A newline or another
/// sequence ends the search, so no byte is searched twice.
fn control_string(after: &str, introducer: usize) -> usize {
    let body = after.get(introducer..).unwrap_or_default();
    for (at, character) in body.char_indices() {
        let end = introducer + at + character.len_utf8();
        match character {
            '\u{7}' | '\u{9c}' => return end,
            '\u{1b}' if after.get(end..).is_some_and(|rest| rest.starts_with('\\')) => {
                return end + 1;
            }
            '\n' | '\u{18}' | '\u{1a}' | '\u{1b}' | '\u{80}'..='\u{9f}' => break,
            _ if at >= SEQUENCE_BYTES_MAX => break,
            _ => {}
        }
    }
    introducer
}

/// ESC, intermediates, one final byte: character sets, keypad modes, saving the cursor.
fn short_sequence(after: &str) -> usize {
    const INTERMEDIATES_MAX: usize = 4;
    let inner = |byte: &u8| matches!(byte, 0x20..=0x2f);
    let length = after.bytes().take(INTERMEDIATES_MAX).take_while(inner).count();
    match after.as_bytes().get(length) {
        Some(0x30..=0x7e) => length + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::{SEQUENCE_BYTES_MAX, is_control, strip};
    use crate::text::settle;

    #[test]
    fn removes_sequences_and_keeps_text() {
        for (written, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}[38;2;1;2;3mx\u{1b}[?25l", "x"),
            ("\u{9b}1mbold\u{9b}0m", "bold"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]8;;https://a.example\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{9d}0;title\u{9c}x", "x"),
            ("\u{1b}Pq#0;2\u{1b}\\x", "x"),
            ("\u{1b}_Gf=100;AAAA\u{1b}\\x", "x"),
            ("\u{1b}(Bx\u{1b}7y\u{1b}8\u{1b}=z\u{1b}c", "xyz"),
            ("a\0b\u{7}c\u{b}d\u{7f}e\u{85}f", "abcdef"),
            ("10%\r20%\u{8}", "10%\r20%\u{8}"),
            ("é\u{1b}[1mü€\u{1b}[0m😀", "éü€😀"),
        ] {
            assert_eq!(strip(written), shown, "{written:?}");
        }
        assert!(matches!(strip("a\nb\r"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_unterminated_sequence_removes_no_text() {
        for (written, shown) in [
            ("a\u{1b}", "a"),
            ("a\u{1b}[", "a"),
            ("a\u{1b}[31", "a31"),
            ("a\u{1b}[31\nb", "a31\nb"),
            ("a\u{1b}[3é", "a3é"),
            ("a\u{1b}é", "aé"),
            ("a\u{1b}]0;title", "a0;title"),
            ("a\u{1b}]0;title\nb\u{7}c", "a0;title\nbc"),
            ("a\u{1b}]0;one\u{1b}]0;two\u{7}b", "a0;oneb"),
            ("a\u{1b}]0;\u{1b}[1mb", "a0;b"),
        ] {
            assert_eq!(strip(written), shown, "{written:?}");
        }
        let long = "x".repeat(SEQUENCE_BYTES_MAX + 10);
        assert_eq!(strip(&format!("\u{1b}]{long}\u{7}y")), format!("{long}y"));
        let short = "x".repeat(SEQUENCE_BYTES_MAX - 10);
        assert_eq!(strip(&format!("\u{1b}]{short}\u{7}y")), "y");
        let digits = "1".repeat(SEQUENCE_BYTES_MAX + 10);
        assert_eq!(strip(&format!("\u{1b}[{digits}m")), format!("{digits}m"));
    }

    #[test]
    fn an_erased_line_shows_its_last_state() {
        for (written, shown) in [
            ("a long line\r\u{1b}[Kshort\n", "short\n"),
            ("a long line\rshort\u{1b}[K\n", "short\n"),
            ("a long line\u{1b}[2K\rshort\n", "short\n"),
            ("a long line\r\u{1b}[2Kshort\n", "short\n"),
            ("a long line\u{1b}[1G\u{1b}[0Kshort\n", "short\n"),
            ("kept\u{1b}[K\nkept too\r\u{1b}[Knext", "kept\nnext"),
            ("one\ntwo\u{1b}[2Kthree", "one\nthree"),
        ] {
            assert_eq!(settle(&strip(written)), shown, "{written:?}");
        }
    }

    #[test]
    fn strip_takes_linear_time() {
        let mut bars = String::new();
        for percent in 0..100_000 {
            write!(bars, "{percent}\r\u{1b}[K").unwrap();
        }
        assert_eq!(strip(&bars), "");
        assert_eq!(strip(&"\u{1b}]".repeat(500_000)), "");
        assert_eq!(strip(&"\u{9d}".repeat(500_000)), "");
    }

    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("\u{1b}".to_owned()),
            Just("\u{1b}[".to_owned()),
            Just("\u{1b}[2K".to_owned()),
            Just("\u{1b}[K".to_owned()),
            Just("\u{1b}]".to_owned()),
            Just("\u{1b}\\".to_owned()),
            Just("\u{9b}".to_owned()),
            Just("\u{9c}".to_owned()),
            Just("\r".to_owned()),
            Just("\n".to_owned()),
            Just("\u{7}".to_owned()),
            "[ -~é€😀]{0,4}",
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn strip_leaves_no_control_characters(text in pieces()) {
            let stripped = strip(&text);
            prop_assert!(!stripped.contains(is_control));
            prop_assert_eq!(strip(&stripped), stripped.as_ref());
            prop_assert_eq!(
                stripped.matches('\n').count(), text.matches('\n').count(), "lines are kept"
            );
        }

        #[test]
        fn plain_text_is_unchanged(text in "[ -~é€😀\n\t\r]{0,80}") {
            prop_assert_eq!(strip(&text), text.as_str());
        }
    }
}
