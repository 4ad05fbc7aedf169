//! Context budget: all texts of an execution within one limit of characters.
//!
//! Cut text is not lost: each cut names the offset to continue from, in characters of
//! [`super::readable`].

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;

use super::{OutputStream, byte_of_char, count_chars, grouped, readable};

/// Default limit of the output that a model sees of one execution.
pub const CONTEXT_CHARS: usize = 25_000;
/// Length of an exception's message that is kept at its start, and again at its end.
const EXCEPTION_CHARS_MAX: usize = 2_000;
/// Distance up to which a cut moves to the end of a line.
const LINE_END_CHARS_MAX: usize = 200;
/// Limit of an id in markers; ids of the server are shorter.
const EXECUTION_ID_BYTES_MAX: usize = 128;

/// Texts of an execution as stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Texts<'text> {
    pub stdout: &'text str,
    pub stderr: &'text str,
    pub traceback: Option<&'text str>,
    pub result: Option<&'text str>,
}

/// Readable texts within the limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fitted {
    pub stdout: String,
    pub stderr: String,
    pub traceback: Option<String>,
    pub result: Option<String>,
    /// Gaps, ordered by field and then by position.
    pub cut: Vec<Cut>,
}

/// Gap in a text. All numbers are characters of the complete readable text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cut {
    pub stream: OutputStream,
    pub chars_total: u64,
    /// End of the text before the gap: the offset to continue from.
    pub head_end_char: u64,
    /// Start of the text after the gap.
    pub tail_start_char: u64,
}

/// Fits all texts into `limit_chars` characters, including markers.
///
/// Small texts stay whole; large ones share the rest, each with its head and its tail. The message
/// of an exception has priority.
pub fn fit(texts: &Texts<'_>, execution_id: &str, limit_chars: usize) -> Fitted {
    let stdout = Source::new(OutputStream::Stdout, texts.stdout);
    let stderr = Source::new(OutputStream::Stderr, texts.stderr);
    let traceback = Source::new(OutputStream::Traceback, texts.traceback.unwrap_or_default());
    let result = Source::new(OutputStream::Result, texts.result.unwrap_or_default());
    let lengths = [stdout.chars, stderr.chars, traceback.chars, result.chars];
    let floor = traceback.exception_room().min(limit_chars / 2);
    let [for_stdout, for_stderr, for_traceback, for_result] = shares(lengths, floor, limit_chars);

    let mut cut = Vec::new();
    let mut fit = |source: Source<'_>, share| source.fit(execution_id, share, &mut cut);
    Fitted {
        stdout: fit(stdout, for_stdout),
        stderr: fit(stderr, for_stderr),
        traceback: texts.traceback.map(|_| fit(traceback, for_traceback)),
        result: texts.result.map(|_| fit(result, for_result)),
        cut,
    }
}

/// Characters for each text; the third is the traceback, which gets at least its floor.
fn shares(lengths: [usize; 4], traceback_floor: usize, limit: usize) -> [usize; 4] {
    let level = level(lengths, limit);
    let [stdout, stderr, traceback, result] = lengths;
    if traceback.min(level) >= traceback_floor {
        return lengths.map(|length| length.min(level));
    }
    let level = self::level([stdout, stderr, 0, result], limit - traceback_floor);
    [stdout.min(level), stderr.min(level), traceback_floor, result.min(level)]
}

/// Length to which longer texts must be cut for all of them to fit.
fn level(mut lengths: [usize; 4], limit: usize) -> usize {
    lengths.sort_unstable();
    let mut left = limit;
    for (index, length) in lengths.into_iter().enumerate() {
        let fair = left / (lengths.len() - index);
        if length > fair {
            return fair;
        }
        left -= length;
    }
    usize::MAX
}

#[derive(Debug)]
struct Source<'text> {
    stream: OutputStream,
    text: Cow<'text, str>,
    chars: usize,
    /// Start of the exception's message in a traceback, in characters.
    exception: Option<usize>,
}

impl<'text> Source<'text> {
    fn new(stream: OutputStream, text: &'text str) -> Self {
        let text = readable(text);
        let exception = (stream == OutputStream::Traceback).then(|| exception_start(&text));
        Self { stream, chars: count_chars(&text), exception, text }
    }

    /// Characters that the exception needs: its start, its end, and the markers.
    fn exception_room(&self) -> usize {
        const MARKERS: usize = 300;
        let said = self.exception.map_or(0, |start| self.chars - start);
        (said.min(2 * EXCEPTION_CHARS_MAX) + MARKERS).min(self.chars)
    }

    fn fit(self, execution_id: &str, share: usize, cut: &mut Vec<Cut>) -> String {
        if self.chars <= share {
            return self.text.into_owned();
        }
        let marker = Marker::choose(self.stream, execution_id, self.chars, share);
        let pieces = self.pieces(share, marker.room);
        let mut shown = String::with_capacity(share.saturating_mul(2));
        let mut shown_to = None;
        for piece in pieces.into_iter().map(|piece| self.align(piece)) {
            if let Some(before) = shown_to {
                cut.push(self.gap(before..piece.start));
                marker.write(&mut shown, before..piece.start);
            }
            let end = byte_of_char(&self.text, piece.end);
            let start = byte_of_char(&self.text, piece.start);
            shown.push_str(self.text.get(start..end).unwrap_or_default());
            shown_to = Some(piece.end);
        }
        if let Some(before) = shown_to.filter(|end| *end < self.chars) {
            cut.push(self.gap(before..self.chars));
        }
        shown
    }

    /// Ranges of characters to keep, so that they fit into the share with a marker for each gap.
    fn pieces(&self, share: usize, marker: usize) -> Vec<Range<usize>> {
        let total = self.chars;
        let Some(room) = share.checked_sub(marker).filter(|room| *room > marker) else {
            return vec![Range { start: 0, end: share }];
        };
        let Some(exception) = self.exception else {
            let head = room * 6 / 10;
            return vec![0..head, total - (room - head)..total];
        };
        if total - exception <= room {
            let tail = (total - exception).max(room * 3 / 4);
            return vec![0..room - tail, total - tail..total];
        }
        // The message is too long: its start names the exception, its end may hold the cause.
        let room = room.saturating_sub(marker);
        let (head, end) = (room * 2 / 10, room * 3 / 10);
        let beginning = room - head - end;
        if exception <= head + marker {
            return vec![0..head + marker + beginning, total - end..total];
        }
        vec![0..head, exception..exception + beginning, total - end..total]
    }

    /// Shrinks a piece to whole lines, if a line end is near.
    fn align(&self, piece: Range<usize>) -> Range<usize> {
        let from = byte_of_char(&self.text, piece.start);
        let to = byte_of_char(&self.text, piece.end);
        let near = LINE_END_CHARS_MAX.min(piece.len() / 4);
        let before = self.text.get(..from).unwrap_or_default();
        let inside = self.text.get(from..to).unwrap_or_default();
        let mut aligned = piece;
        if !before.is_empty() && !before.ends_with('\n') {
            let newline = inside.chars().take(near).position(|character| character == '\n');
            aligned.start += newline.map_or(0, |newline| newline + 1);
        }
        if aligned.end < self.chars {
            let newline = inside.chars().rev().take(near).position(|character| character == '\n');
            aligned.end -= newline.unwrap_or(0);
        }
        aligned
    }

    fn gap(&self, gap: Range<usize>) -> Cut {
        Cut {
            stream: self.stream,
            chars_total: self.chars as u64,
            head_end_char: gap.start as u64,
            tail_start_char: gap.end as u64,
        }
    }
}

/// Line that marks a gap.
#[derive(Debug)]
struct Marker<'text> {
    stream: OutputStream,
    /// `None` if there is no space for the call that continues.
    execution_id: Option<&'text str>,
    /// Maximum length in characters, with the newlines around it.
    room: usize,
}

impl<'text> Marker<'text> {
    fn choose(
        stream: OutputStream,
        execution_id: &'text str,
        chars_total: usize,
        share: usize,
    ) -> Self {
        let newlines = 2;
        let mut marker = Self { stream, execution_id: Some(execution_id), room: 0 };
        // Numbers in a marker have at most as many digits as the length of the text.
        marker.room = count_chars(&marker.line(chars_total, chars_total)) + newlines;
        if execution_id.len() > EXECUTION_ID_BYTES_MAX || marker.room * 6 > share {
            marker.execution_id = None;
            marker.room = count_chars(&marker.line(chars_total, chars_total)) + newlines;
        }
        marker
    }

    fn line(&self, offset: usize, missing: usize) -> String {
        let missing = grouped(missing as u64);
        match self.execution_id {
            Some(id) => format!(
                "[… {missing} characters cut: read_output(execution_id=\"{id}\", stream=\"{}\", \
                 offset={offset}) …]",
                self.stream.name()
            ),
            None => format!("[… {missing} characters cut …]"),
        }
    }

    fn write(&self, shown: &mut String, gap: Range<usize>) {
        if !shown.is_empty() && !shown.ends_with('\n') {
            shown.push('\n');
        }
        shown.push_str(&self.line(gap.start, gap.len()));
        shown.push('\n');
    }
}

/// Offset of the first line after the last frame, in characters; 0 without a frame.
fn exception_start(traceback: &str) -> usize {
    let mut start = traceback.rfind("\n  File \"").map_or(0, |newline| newline + 1);
    for line in traceback.get(start..).unwrap_or_default().split_inclusive('\n') {
        if !line.starts_with(char::is_whitespace) {
            break;
        }
        start += line.len();
    }
    count_chars(traceback.get(..start).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::{CONTEXT_CHARS, Cut, Fitted, Texts, fit};
    use crate::text::{OutputStream, byte_of_char, page, readable};

    const ID: &str = "0b6d3a52-7c55-4a8e-9d0c-3f1f0f3f9d11";

    fn lines(count: usize) -> String {
        (0..count).fold(String::new(), |mut text, number| {
            writeln!(text, "line {number} of what a program prints").unwrap();
            text
        })
    }

    fn traceback(frames: usize, said: &str) -> String {
        let mut text = "Traceback (most recent call last):\n".to_owned();
        for number in 0..frames {
            write!(text, "  File \"<cell 1>\", line {number}, in f{number}\n    f()\n").unwrap();
        }
        text + said
    }

    fn total(fitted: &Fitted) -> usize {
        let optional = [&fitted.traceback, &fitted.result].into_iter().flatten();
        [&fitted.stdout, &fitted.stderr]
            .into_iter()
            .chain(optional)
            .map(|t| t.chars().count())
            .sum()
    }

    fn slice(text: &str, start: u64, end: u64) -> &str {
        let byte = |at: u64| byte_of_char(text, usize::try_from(at).unwrap());
        &text[byte(start)..byte(end)]
    }

    /// Checks a shown text against the complete one and the gaps.
    fn check(stream: OutputStream, written: &str, shown: &str, fitted: &Fitted) {
        let whole = readable(written);
        let (mut rest, mut at) = (shown, 0);
        for cut in fitted.cut.iter().filter(|cut| cut.stream == stream) {
            assert_eq!(cut.chars_total, whole.chars().count() as u64);
            assert!(at <= cut.head_end_char && cut.head_end_char < cut.tail_start_char, "{cut:?}");
            rest = rest
                .strip_prefix(slice(&whole, at, cut.head_end_char))
                .expect("the head is unchanged");
            rest = rest.strip_prefix('\n').unwrap_or(rest);
            let (marker, after) = rest.split_once('\n').expect("a marker is a line");
            assert!(marker.starts_with("[… ") && marker.ends_with(" …]"), "{marker}");
            if marker.contains("read_output") {
                let offset = format!("offset={}) …]", cut.head_end_char);
                assert!(marker.contains(&offset), "{marker}");
                let gap = usize::try_from(cut.tail_start_char - cut.head_end_char).unwrap();
                let missing = page(&whole, cut.head_end_char, gap);
                assert_eq!(missing.text, slice(&whole, cut.head_end_char, cut.tail_start_char));
            }
            (rest, at) = (after, cut.tail_start_char);
        }
        assert_eq!(rest, slice(&whole, at, whole.chars().count() as u64), "the tail is a suffix");
    }

    fn check_all(texts: &Texts<'_>, fitted: &Fitted) {
        check(OutputStream::Stdout, texts.stdout, &fitted.stdout, fitted);
        check(OutputStream::Stderr, texts.stderr, &fitted.stderr, fitted);
        for (stream, written, shown) in [
            (OutputStream::Traceback, texts.traceback, &fitted.traceback),
            (OutputStream::Result, texts.result, &fitted.result),
        ] {
            assert_eq!(written.is_some(), shown.is_some());
            check(
                stream,
                written.unwrap_or_default(),
                shown.as_deref().unwrap_or_default(),
                fitted,
            );
        }
    }

    #[test]
    fn texts_within_the_limit_are_whole() {
        let texts =
            Texts { stdout: "a\u{1b}[1mb", stderr: "10%\r20%", traceback: None, result: Some("4") };
        let fitted = fit(&texts, ID, CONTEXT_CHARS);
        let expected = Fitted {
            stdout: "ab".to_owned(),
            stderr: "20%".to_owned(),
            result: Some("4".to_owned()),
            ..Fitted::default()
        };
        assert_eq!(fitted, expected);
    }

    #[test]
    fn a_long_text_keeps_head_and_tail_in_whole_lines() {
        let stdout = lines(5_000);
        let texts = Texts { stdout: &stdout, result: Some("42"), ..Texts::default() };
        let fitted = fit(&texts, ID, CONTEXT_CHARS);
        check_all(&texts, &fitted);
        assert_eq!(fitted.result.as_deref(), Some("42"));
        assert!(total(&fitted) > CONTEXT_CHARS - 500, "unused limit: {}", total(&fitted));
        let cut = fitted.cut[0];
        assert!((14_700..15_000).contains(&cut.head_end_char), "{cut:?}");
        let marker = format!(
            "\n[… {},{:03} characters cut: read_output(execution_id=\"{ID}\", stream=\"stdout\", \
             offset={}) …]\nline ",
            (cut.tail_start_char - cut.head_end_char) / 1_000,
            (cut.tail_start_char - cut.head_end_char) % 1_000,
            cut.head_end_char
        );
        assert!(fitted.stdout.contains(&marker), "{marker}");
        assert!(fitted.stdout.ends_with("line 4999 of what a program prints\n"));
    }

    #[test]
    fn large_texts_share_the_limit_and_small_ones_stay_whole() {
        let (stdout, result) = ("x".repeat(100_000), "é".repeat(90_000));
        let stderr = lines(50);
        let texts =
            Texts { stdout: &stdout, stderr: &stderr, result: Some(&result), traceback: None };
        let fitted = fit(&texts, ID, CONTEXT_CHARS);
        check_all(&texts, &fitted);
        assert_eq!(fitted.stderr, stderr);
        let (one, other) = (fitted.stdout.chars().count(), fitted.result.unwrap().chars().count());
        assert!(one.abs_diff(other) < 20 && one > 11_000, "{one} and {other}");
    }

    #[test]
    fn exception_messages_are_kept() {
        let flood = "y".repeat(60_000);
        let said = format!("ValueError: it began {} and ended\n", "x".repeat(1_900));
        let book = format!("KeyError: it began {} and ended\n", "é".repeat(60_000));
        let many = format!("ValidationError: it began\n{}\n\n  and ended\n", lines(2_000));
        for (frames, said) in [(2, &said), (1_500, &said), (1, &book), (1_500, &book), (900, &many)]
        {
            let raised = traceback(frames, said);
            let texts = Texts {
                stdout: &flood,
                stderr: &flood,
                traceback: Some(&raised),
                result: Some(&flood),
            };
            for limit in [1_000, 4_000, 6_000, CONTEXT_CHARS] {
                let fitted = fit(&texts, ID, limit);
                check_all(&texts, &fitted);
                let shown = fitted.traceback.as_deref().unwrap();
                assert!(shown.starts_with("Traceback (most"), "{frames} {limit}");
                assert!(shown.contains("Error: it began"), "{frames} {limit}");
                assert!(shown.ends_with(" and ended\n"), "{frames} {limit}");
                assert!(said.len() > 2_000 || limit < 6_000 || shown.contains(said.as_str()));
                assert!(total(&fitted) <= limit);
            }
        }
    }

    #[test]
    fn tiny_limits_hold() {
        let stdout = lines(100);
        let raised = traceback(20, "ValueError: no\n");
        let texts = Texts { stdout: &stdout, traceback: Some(&raised), ..Texts::default() };
        for limit in 0..1_000 {
            let fitted = fit(&texts, &"i".repeat(2_000), limit);
            assert!(total(&fitted) <= limit, "{limit}");
        }
    }

    #[test]
    fn a_limit_without_space_for_a_marker_keeps_the_head_and_tells_the_gap() {
        let stdout = "x".repeat(100);
        let texts = Texts { stdout: &stdout, ..Texts::default() };
        let fitted = fit(&texts, ID, 20);
        assert_eq!(fitted.stdout, stdout[..20]);
        let stream = OutputStream::Stdout;
        let gap = Cut { stream, chars_total: 100, head_end_char: 20, tail_start_char: 100 };
        assert_eq!(fitted.cut, [gap]);
    }

    fn written() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            3 => (0_usize..60).prop_map(lines),
            2 => (0_usize..4_000).prop_map(|length| "é€".repeat(length)),
            1 => (0_usize..50, "[a-zé\n ]{0,40}").prop_map(|(frames, said)| traceback(frames, &said)),
            1 => "[a-z\u{1b}\\[\r\n;K0-9]{0,200}",
            1 => Just("\n".repeat(500)),
        ];
        prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn all_texts_fit_and_gaps_are_correct(
            stdout in written(),
            stderr in written(),
            raised in prop::option::of(written()),
            result in prop::option::of(written()),
            limit in 1_000_usize..30_000,
            id in "[a-z0-9-]{1,40}",
        ) {
            let texts = Texts {
                stdout: &stdout,
                stderr: &stderr,
                traceback: raised.as_deref(),
                result: result.as_deref(),
            };
            let fitted = fit(&texts, &id, limit);
            check_all(&texts, &fitted);
            prop_assert!(total(&fitted) <= limit);
            let optional = [texts.traceback, texts.result].into_iter().flatten();
            let all = [texts.stdout, texts.stderr].into_iter().chain(optional);
            let whole: usize = all.map(|text| readable(text).chars().count()).sum();
            prop_assert_eq!(whole <= limit, fitted.cut.is_empty());
        }

        #[test]
        fn a_short_exception_is_whole_at_every_limit(
            frames in 0_usize..400,
            said in "[A-Z][a-z]{3,10}Error: [a-zé ]{0,300}",
            flood in 0_usize..40_000,
            limit in 1_000_usize..30_000,
        ) {
            let raised = traceback(frames, &said);
            let flood = "z".repeat(flood);
            let texts = Texts {
                stdout: &flood,
                stderr: &flood,
                traceback: Some(&raised),
                result: Some(&flood),
            };
            prop_assert!(fit(&texts, ID, limit).traceback.unwrap().ends_with(&said));
        }
    }
}
