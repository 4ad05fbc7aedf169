//! Folding of repeated lines and repeated warnings.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::grouped;

/// Number of equal consecutive lines from which they are folded.
const EQUAL_LINES_MIN: u64 = 4;
/// Limit of distinct warnings; further ones are not folded.
const DISTINCT_WARNINGS_MAX: usize = 4_096;
/// Limit of lines of one warning: location, message, and line of source.
const WARNING_LINES_MAX: usize = 12;
/// End of every warning's name.
const WARNING: &str = "Warning:";

/// Shows repeated text once, followed by a line with the number of repetitions.
///
/// Four or more equal consecutive lines are folded. A Python warning is folded wherever it recurs,
/// because other warnings are usually in between. Text is folded only if it gets shorter, and
/// nothing else is removed.
pub fn fold(text: &str) -> Cow<'_, str> {
    let mut warnings = count_warnings(text);
    let mut folded = Folded { source: text, copied: 0, text: String::new() };
    let mut run: Option<Run<'_>> = None;
    for block in blocks(text) {
        let warning = if block.is_warning { warnings.get_mut(block.content) } else { None };
        let warning = warning.filter(|warning| warning.marker.is_some());
        let joins = run.as_ref().is_some_and(|run| run.first.content == block.content);
        if joins && let Some(run) = &mut run {
            run.end = block.range.end;
            run.repeats += 1;
            continue;
        }
        folded.end_run(run.take());
        match warning {
            Some(Warning { shown: true, .. }) => folded.replace(block.range, ""),
            Some(warning) => {
                warning.shown = true;
                let end = block.range.end;
                folded.replace(end..end, warning.marker.as_deref().unwrap_or_default());
            }
            None => run = Some(Run { end: block.range.end, repeats: 0, first: block }),
        }
    }
    folded.end_run(run);
    folded.finish()
}

/// Line, or warning with its line of source.
#[derive(Debug, Clone)]
struct Block<'text> {
    /// Without its final newline, which the last line of a text may lack.
    content: &'text str,
    range: Range<usize>,
    lines: usize,
    is_warning: bool,
}

impl Block<'_> {
    /// Line that replaces the repetitions, if it is shorter.
    fn marker(&self, repeats: u64) -> Option<String> {
        let times = match repeats {
            1 => "once more".to_owned(),
            more => format!("{} more times", grouped(more)),
        };
        let marker = match self.lines {
            1 => format!("[the line above came {times}]\n"),
            lines => format!("[the {lines} lines above came {times}]\n"),
        };
        let saved = u64::try_from(self.content.len() + 1).ok()?.saturating_mul(repeats);
        u64::try_from(marker.len()).is_ok_and(|length| length < saved).then_some(marker)
    }
}

/// Equal consecutive blocks.
#[derive(Debug)]
struct Run<'text> {
    first: Block<'text>,
    repeats: u64,
    end: usize,
}

#[derive(Debug)]
struct Warning {
    /// `None` if folding saves nothing.
    marker: Option<String>,
    shown: bool,
}

/// Folded text of the source up to `copied`.
#[derive(Debug)]
struct Folded<'text> {
    source: &'text str,
    copied: usize,
    text: String,
}

impl<'text> Folded<'text> {
    fn replace(&mut self, range: Range<usize>, replacement: &str) {
        self.text.push_str(self.source.get(self.copied..range.start).unwrap_or_default());
        self.text.push_str(replacement);
        self.copied = range.end;
    }

    fn end_run(&mut self, run: Option<Run<'_>>) {
        let Some(run) = run.filter(|run| run.repeats + 1 >= EQUAL_LINES_MIN) else { return };
        let Some(marker) = run.first.marker(run.repeats) else { return };
        let ends_line = self.source.get(..run.end).is_some_and(|text| text.ends_with('\n'));
        let marker = if ends_line { marker.as_str() } else { marker.trim_end_matches('\n') };
        self.replace(run.first.range.end..run.end, marker);
    }

    fn finish(mut self) -> Cow<'text, str> {
        if self.copied == 0 {
            return Cow::Borrowed(self.source);
        }
        self.replace(self.source.len()..self.source.len(), "");
        Cow::Owned(self.text)
    }
}

fn count_warnings(text: &str) -> HashMap<&str, Warning> {
    let mut counts: HashMap<&str, (u64, Block<'_>)> = HashMap::new();
    if !text.contains(WARNING) {
        return HashMap::new();
    }
    for block in blocks(text).filter(|block| block.is_warning) {
        if let Some((times, _)) = counts.get_mut(block.content) {
            *times += 1;
        } else if counts.len() < DISTINCT_WARNINGS_MAX {
            counts.insert(block.content, (1, block));
        }
    }
    let warning = |(content, (times, block)): (_, (u64, Block<'_>))| {
        (content, Warning { marker: block.marker(times - 1), shown: false })
    };
    counts.into_iter().map(warning).collect()
}

/// Splits text into lines and warnings.
fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let first = rest.split_inclusive('\n').next()?;
        let is_warning = is_warning(first);
        let (lines, length) = if is_warning { extent_of_warning(rest) } else { (1, first.len()) };
        let range = start..start + length;
        start = range.end;
        let content = rest.get(..length)?;
        let content = content.strip_suffix('\n').unwrap_or(content);
        Some(Block { content, range, lines, is_warning })
    })
}

/// Lines and bytes of the warning at the start, with its line of source if there is one.
fn extent_of_warning(text: &str) -> (usize, usize) {
    let mut length = 0;
    for (index, line) in text.split_inclusive('\n').take(WARNING_LINES_MAX).enumerate() {
        if index > 0 && is_warning(line) {
            break;
        }
        length += line.len();
        if index > 0 && is_source_line(line) {
            return (index + 1, length);
        }
    }
    (1, text.find('\n').map_or(text.len(), |newline| newline + 1))
}

/// Whether a line has the form `file:line: SomeWarning: …` of Python.
fn is_warning(line: &str) -> bool {
    // A full search costs more than this check on most lines.
    if line.len() <= WARNING.len() {
        return false;
    }
    let Some((before, _)) = line.split_once(WARNING) else { return false };
    let before =
        before.trim_end_matches(|character: char| character.is_alphanumeric() || character == '_');
    let Some(location) = before.strip_suffix(": ") else { return false };
    let file = location.trim_end_matches(|character: char| character.is_ascii_digit());
    file.len() < location.len() && file.len() > 1 && file.ends_with(':')
}

/// Whether it is a line of source, which Python indents by exactly two spaces.
fn is_source_line(line: &str) -> bool {
    line.strip_prefix("  ").is_some_and(|source| !source.starts_with(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::fold;

    const ONE: &str = "/lib/a.py:12: RuntimeWarning: divide by zero encountered\n  x = a / b\n";
    const TWO: &str = "/lib/b.py:7: FutureWarning: this goes away in 3.0\n";
    const LONG: &str = "<cell>:3: SettingWithCopyWarning: \nA value is set on a copy.\n\nSee the \
                        caveats\n  frame['a'] = 1\n";

    #[test]
    fn repetitions_are_folded() {
        let line = "the same line, and rather long\n";
        for (written, shown) in [
            (line.repeat(13), format!("{line}[the line above came 12 more times]\n")),
            (
                format!("a\n{}b", line.repeat(2_000)),
                format!("a\n{line}[the line above came 1,999 more times]\nb"),
            ),
            (
                line.repeat(5).trim_end().to_owned(),
                format!("{line}[the line above came 4 more times]"),
            ),
            (ONE.repeat(3), format!("{ONE}[the 2 lines above came 2 more times]\n")),
            (LONG.repeat(2), format!("{LONG}[the 5 lines above came once more]\n")),
            (
                format!("{ONE}{TWO}{ONE}{TWO}{ONE}"),
                format!(
                    "{ONE}[the 2 lines above came 2 more times]\n{TWO}[the line above came once \
                     more]\n"
                ),
            ),
            (
                format!("{ONE}epoch 1\n{ONE}epoch 2\n{}", ONE.trim_end()),
                format!("{ONE}[the 2 lines above came 2 more times]\nepoch 1\nepoch 2\n"),
            ),
        ] {
            assert_eq!(fold(&written), shown, "{written:?}");
        }
    }

    #[test]
    fn other_text_is_unchanged() {
        let line = "the same line, and rather long to write it again\n";
        for written in [
            String::new(),
            "\n\n\n\n\n\n".to_owned(),
            "0\n0\n0\n0\n0\n".to_owned(),
            line.repeat(3),
            format!("{line}other\n").repeat(10),
            format!("{ONE}{TWO}{LONG}"),
            "no.py: UserWarning: without a line, twice\n".repeat(2),
            "a UserWarning: in a sentence of some length\n".repeat(3),
        ] {
            assert!(matches!(fold(&written), Cow::Borrowed(_)), "{written:?}");
            assert_eq!(fold(&written), written);
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just(ONE.to_owned()),
            Just(TWO.to_owned()),
            Just(LONG.to_owned()),
            Just(TWO.trim_end().to_owned()),
            Just("an ordinary line that comes again and again\n".to_owned()),
            "[a-c ]{0,3}\n",
            Just("é\n".to_owned()),
        ];
        let run = (piece, 1_usize..7).prop_map(|(piece, times)| piece.repeat(times));
        prop::collection::vec(run, 0..12).prop_map(|runs| runs.concat())
    }

    proptest! {
        #[test]
        fn folding_shortens_and_loses_no_line(text in texts()) {
            let folded = fold(&text);
            prop_assert!(folded.len() <= text.len());
            for line in text.lines() {
                prop_assert!(folded.lines().any(|kept| kept == line), "{line:?} is gone");
            }
        }

        #[test]
        fn counts_are_correct(times in 4_usize..200, before in 0_usize..3) {
            let line = "one line of a length worth folding\n";
            let text = format!("{}{}", "x\n".repeat(before), line.repeat(times));
            let marker = format!("[the line above came {} more times]\n", times - 1);
            prop_assert_eq!(fold(&text), format!("{}{line}{marker}", "x\n".repeat(before)));
        }
    }
}
