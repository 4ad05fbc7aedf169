//! Typographic characters that have an equivalent in Python.

use super::Repaired;
use super::scan::{PieceKind, Reading, scan};

/// Replaces them outside strings and comments; quotes only if they delimit a string.
pub(super) fn replace(source: &str) -> Option<Repaired> {
    let scanned = scan(source, Reading { smart_quotes: true, ..Reading::default() });
    if scanned.unterminated.is_some() {
        return None;
    }
    let mut text = String::with_capacity(source.len());
    let mut quotes = 0;
    for piece in &scanned.pieces {
        let part = source.get(piece.range.clone())?;
        match piece.kind {
            PieceKind::Str => text.push_str(part),
            PieceKind::Comment => {
                text.push_str(&part.replacen('＃', "#", usize::from(is_wide(part))));
            }
            PieceKind::Code => code(part, &mut text)?,
            PieceKind::Smart { quote, open, close } => {
                let delimiters = source.get(piece.range.start..open)?.chars().count();
                let content = source.get(open..close)?;
                let delimiter = delimiter(quote, content, delimiters)?;
                text.extend([&delimiter, content, &delimiter]);
                quotes += 1;
            }
        }
    }
    let sentence = match quotes {
        0 => {
            "Characters that Python does not know, such as wide or invisible spaces, were replaced."
        }
        _ => "Typographic quotes around strings were replaced by plain ones.",
    };
    (text != source).then(|| Repaired::new(text, "characters", sentence))
}

fn is_wide(comment: &str) -> bool {
    comment.starts_with('＃')
}

/// The intended quote, or the other one if the content contains it.
fn delimiter(quote: char, content: &str, count: usize) -> Option<String> {
    let other = if quote == '"' { '\'' } else { '"' };
    let free = [quote, other].into_iter().find(|quote| !content.contains(*quote))?;
    Some(free.to_string().repeat(count))
}

fn code(part: &str, text: &mut String) -> Option<()> {
    for c in part.chars() {
        match c {
            '\u{a0}' | '\u{202f}' => text.push(' '),
            '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{205f}' | '\u{3000}' => {
                // At the start of a line, the intended number of columns is unknown.
                if text.is_empty() || text.ends_with(['\n', ' ', '\t']) {
                    return None;
                }
                text.push(' ');
            }
            _ if is_invisible(c) => {}
            _ => match plain(c) {
                Some(plain) => text.push_str(plain),
                None => text.push(narrow(c)),
            },
        }
    }
    Some(())
}

/// Unambiguous equivalent of a character.
fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{2212}' | '\u{2010}' | '\u{2011}' | '\u{2013}' => "-",
        '≤' => "<=",
        '≥' => ">=",
        '≠' => "!=",
        '→' => "->",
        '…' => "...",
        '、' => ",",
        _ => return None,
    })
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'
        | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The half-width digit or sign; Python itself normalizes letters.
fn narrow(c: char) -> char {
    let is_full = matches!(c, '０'..='９') || (matches!(c, '！'..='～') && !c.is_alphanumeric());
    let half = u32::from(c).checked_sub(0xfee0).and_then(char::from_u32);
    half.filter(|_| is_full).unwrap_or(c)
}
