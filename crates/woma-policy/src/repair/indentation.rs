//! Code that is indented as a whole.

use super::Repaired;
use super::scan::{PieceKind, Reading, Scan, scan};

/// Most stray spaces before the first line alone.
const STRAY_SPACES_MAX: usize = 3;

/// Removes the indentation of all lines. Contents of strings are kept.
pub(super) fn dedent(source: &str) -> Option<Repaired> {
    let lines = lines(source);
    let mut statements = lines.iter().filter(|line| line.is_statement);
    let first = statements.next()?;
    let second = statements.next();
    let first_margin = margin(first.text);
    let second_margin = second.map_or("", |line| margin(line.text));
    if first_margin.is_empty() {
        if second_margin.is_empty() || first.opens_block {
            return None;
        }
        let text = shift(&lines, second_margin, first.number + 1)?;
        let sentence = "All lines after the first were indented; they were moved to the left.";
        return Some(Repaired::new(text, "indentation", sentence));
    }
    if second.is_some() && second_margin.is_empty() {
        let is_stray = !first.opens_block
            && first_margin.len() <= STRAY_SPACES_MAX
            && first_margin.bytes().all(|byte| byte == b' ');
        let text = source.replacen(first_margin, "", 1);
        let sentence = "The spaces before the first line were left out.";
        return is_stray.then(|| Repaired::new(text, "indentation", sentence));
    }
    let text = shift(&lines, first_margin, 0)?;
    let sentence = "All lines were indented; they were moved to the left.";
    Some(Repaired::new(text, "indentation", sentence))
}

struct Line<'a> {
    number: usize,
    /// Including its line ending.
    text: &'a str,
    /// First line of a statement; not blank, not a comment.
    is_statement: bool,
    is_in_string: bool,
    /// Ends with a colon.
    opens_block: bool,
}

fn lines(source: &str) -> Vec<Line<'_>> {
    let scanned = scan(source, Reading::default());
    let mut brackets = Brackets::default();
    let mut lines = Vec::new();
    let mut start = 0;
    let mut is_continued = false;
    for (number, text) in source.split_inclusive('\n').enumerate() {
        let is_in_string = scanned.starts_in_string(start);
        let is_code = !text.trim().is_empty() && !text.trim_start().starts_with('#');
        let is_statement = is_code && !is_in_string && !is_continued && !brackets.is_inside();
        let code = brackets.read(source, &scanned, start..start + text.len());
        is_continued = code.ends_with('\\');
        let opens_block = code.ends_with(':');
        lines.push(Line { number, text, is_statement, is_in_string, opens_block });
        start += text.len();
    }
    lines
}

/// Depth of brackets, updated line by line.
#[derive(Default)]
struct Brackets {
    depth: usize,
    piece: usize,
}

impl Brackets {
    fn is_inside(&self) -> bool {
        self.depth > 0
    }

    /// Counts brackets of the line, and returns the last code in it.
    fn read<'a>(
        &mut self,
        source: &'a str,
        scanned: &Scan,
        line: std::ops::Range<usize>,
    ) -> &'a str {
        let mut last = "";
        while let Some(piece) = scanned.pieces.get(self.piece) {
            let start = piece.range.start.max(line.start);
            let end = piece.range.end.min(line.end);
            if start >= end {
                break;
            }
            let part = source.get(start..end).unwrap_or_default();
            match piece.kind {
                PieceKind::Code => {
                    self.count(part);
                    last = if part.trim().is_empty() { last } else { part.trim_end() };
                }
                PieceKind::Comment => {}
                _ => last = "",
            }
            if piece.range.end > line.end {
                break;
            }
            self.piece += 1;
        }
        last
    }

    fn count(&mut self, code: &str) {
        for byte in code.bytes() {
            match byte {
                b'(' | b'[' | b'{' => self.depth += 1,
                b')' | b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }
}

fn margin(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Removes the margin from this line on; every statement must have it.
fn shift(lines: &[Line<'_>], margin: &str, from: usize) -> Option<String> {
    let mut text = String::new();
    for line in lines {
        if line.is_in_string || line.number < from {
            text.push_str(line.text);
            continue;
        }
        match line.text.strip_prefix(margin) {
            Some(rest) => text.push_str(rest),
            None if line.is_statement => return None,
            None => {
                // Comments, blank lines and lines in brackets may have any indentation.
                let shared = line.text.bytes().zip(margin.bytes()).take_while(|(a, b)| a == b);
                text.push_str(&line.text[shared.count()..]);
            }
        }
    }
    Some(text)
}
