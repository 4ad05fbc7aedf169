//! Characters of typography, where Python has one of its own for the same.

use super::Mended;
use super::scan::{Kind, Reading, scan};

/// Replaces them outside strings and comments; quotes only where they delimit a string.
pub(super) fn replace(source: &str) -> Option<Mended> {
    let scanned = scan(source, Reading { smart_quotes: true, ..Reading::default() });
    if scanned.unterminated.is_some() {
        return None;
    }
    let mut text = String::with_capacity(source.len());
    let mut quotes = 0;
    for piece in &scanned.pieces {
        let part = source.get(piece.range.clone())?;
        match piece.kind {
            Kind::Str => text.push_str(part),
            Kind::Comment => text.push_str(&part.replacen('＃', "#", usize::from(is_wide(part)))),
            Kind::Code => code(part, &mut text)?,
            Kind::Smart { quote, open, close } => {
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
    (text != source).then(|| Mended::new(text, "characters", sentence))
}

fn is_wide(comment: &str) -> bool {
    comment.starts_with('＃')
}

/// The quote that was meant, or the other one where the content has that.
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
                // At the start of a line nobody can tell how many columns they were meant to be.
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

/// What can stand for one thing only.
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

/// The digit or sign of half the width; Python itself does this for letters.
fn narrow(c: char) -> char {
    let is_full = matches!(c, '０'..='９') || (matches!(c, '！'..='～') && !c.is_alphanumeric());
    let half = u32::from(c).checked_sub(0xfee0).and_then(char::from_u32);
    half.filter(|_| is_full).unwrap_or(c)
}
