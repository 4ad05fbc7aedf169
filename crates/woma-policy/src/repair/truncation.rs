//! Code that is truncated.
//!
//! A text counts as truncated if a short addition makes it a valid program, and if its end requires
//! a continuation: other errors cannot be repaired by additions at the end.

use super::scan::{Open, PieceKind, Reading, Scan, scan};
use crate::syntax::{Python, parses};

/// Candidates for what is missing at the end, before the brackets are closed.
const FILLERS: [&str; 6] = ["", "_", " _", ": _", "_: _", " _ in _"];
/// Candidates for what is missing after the brackets.
const TAILS: [&str; 6] = ["", ": pass", "\npass", " = _", " else _", " import _"];
/// For a longer last statement, only the likeliest candidates are tried.
const LONG_BYTES: usize = 64 * 1024;

/// Words that require a continuation.
const WORDS: [&str; 21] = [
    "and", "as", "assert", "await", "class", "def", "del", "elif", "except", "for", "from",
    "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "with",
];

/// Describes the end: `inside a bracket ( that was opened in line 3`.
pub(super) fn place(source: &str, python: Python) -> Option<String> {
    let text = source.trim_end();
    let scanned = scan(text, Reading::default());
    if scanned.unterminated.is_some() || scanned.unmatched.is_some() {
        return None;
    }
    // A string that extends over its line's end lacks only its quote.
    let is_line = matches!(scanned.open.last(), Some(Open::Text { quote, .. }) if quote.len() == 1);
    if is_line && text.ends_with([')', ']', '}']) {
        return None;
    }
    let open_try = open_try(text);
    let in_try = || open_try.map(|(line, _)| format!("inside the `try` of line {line}"));
    let place = opened(text, &scanned).or_else(|| ended(text, &scanned)).or_else(in_try)?;
    let handler = open_try.map(|(_, margin)| format!("\n{}except: pass", " ".repeat(margin)));
    let at = last_statement(text, &scanned);
    let (head, tail) = text.split_at_checked(at)?;
    (parses(head, python) && completes(tail, &scanned, handler.as_deref(), python)).then_some(place)
}

/// Start of the last statement without indentation.
fn last_statement(text: &str, scanned: &Scan) -> usize {
    let outermost = scanned.open.first().map_or(text.len(), |open| match open {
        Open::Bracket { at, .. } | Open::Text { at, .. } => *at,
    });
    let mut start = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let is_part = line.starts_with([' ', '\t', '#', '\n', '\r', ')', ']', '}', '@', '"', '\''])
            || ["else", "elif", "except", "finally"].iter().any(|word| line.starts_with(word))
            || scanned.starts_in_string(at);
        if !is_part && at <= outermost {
            start = at;
        }
        at += line.len();
    }
    start
}

/// The last `try` without a handler: its line and indentation.
fn open_try(text: &str) -> Option<(usize, usize)> {
    let mut open = None;
    for (index, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let margin = line.len() - code.len();
        if code.trim_end() == "try:" {
            open = Some((index + 1, margin));
        } else if open.is_some_and(|(_, of_try)| margin <= of_try) && !code.is_empty() {
            open = None;
        }
    }
    open
}

fn opened(text: &str, scanned: &Scan) -> Option<String> {
    // The open string, otherwise the innermost bracket.
    let at = match scanned.open.last()? {
        Open::Bracket { at, .. } | Open::Text { at, .. } => *at,
    };
    let line = text.get(..at)?.matches('\n').count() + 1;
    let what = match scanned.open.last()? {
        Open::Text { quote, .. } => format!("a string whose {quote}"),
        Open::Bracket { bracket, .. } => format!("a bracket `{bracket}` that"),
    };
    Some(format!("inside {what} was opened in line {line}"))
}

/// End of the text, if it requires a continuation.
fn ended(text: &str, scanned: &Scan) -> Option<String> {
    let piece = scanned.pieces.iter().rfind(|piece| {
        let is_blank = text.get(piece.range.clone()).is_none_or(|part| part.trim().is_empty());
        piece.kind != PieceKind::Comment && !is_blank
    })?;
    if piece.kind != PieceKind::Code {
        return None;
    }
    let code = text.get(piece.range.clone())?.trim_end();
    let word = code.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
    // Increment operators of other languages.
    if code.ends_with("++") || code.ends_with("--") {
        return None;
    }
    if WORDS.contains(&word) {
        return Some(format!("after `{word}`"));
    }
    match code.chars().next_back()? {
        ':' => Some("after `:`, without the block that must follow".to_owned()),
        '\\' => Some("after a backslash".to_owned()),
        c @ ('=' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '&' | '|' | '^' | '.' | ',' | '@'
        | '~') => Some(format!("after `{c}`")),
        _ => None,
    }
}

/// Whether an addition makes it a valid program. The number of attempts is bounded.
fn completes(text: &str, scanned: &Scan, handler: Option<&str>, python: Python) -> bool {
    let is_string = matches!(scanned.open.last(), Some(Open::Text { .. }));
    let mut text = text.to_owned();
    let last_line = text.rsplit('\n').next().unwrap_or_default();
    if !is_string && (text.ends_with('\\') || last_line.contains('#')) {
        text.push('\n');
    }
    let closers: String = scanned.open.iter().rev().map(closer).collect();
    let block = format!("\n{}pass", " ".repeat(indentation(&text) + 1));
    let (fillers, tails) = match text.len() > LONG_BYTES {
        true => (&FILLERS[..2], &TAILS[..2]),
        false => (&FILLERS[..], &TAILS[..]),
    };
    let fillers = if is_string { &FILLERS[..1] } else { fillers };
    let handler = handler.unwrap_or_default();
    fillers.iter().any(|filler| {
        let mut tails = tails.iter().copied().chain([block.as_str()]);
        tails.any(|tail| parses(&format!("{text}{filler}{closers}{tail}{handler}"), python))
    })
}

fn closer(open: &Open) -> String {
    match open {
        Open::Text { quote, .. } => quote.clone(),
        Open::Bracket { bracket, .. } => match bracket {
            '(' => ")".to_owned(),
            '[' => "]".to_owned(),
            _ => "}".to_owned(),
        },
    }
}

/// Indentation of the last line, in characters.
fn indentation(text: &str) -> usize {
    let line = text.trim_end().rsplit('\n').next().unwrap_or_default();
    line.len() - line.trim_start().len()
}
