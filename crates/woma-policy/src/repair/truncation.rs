//! Code that stops in the middle.
//!
//! It is truncated if something short behind its end makes a program of it, and if what it ends
//! with asks for more: an error anywhere else cannot be mended by adding to the end.

use super::scan::{Kind, Open, Reading, Scan, scan};
use crate::syntax::{Python, parses};

/// What may be missing behind the last sign, before the brackets are closed.
const FILLERS: [&str; 6] = ["", "_", " _", ": _", "_: _", " _ in _"];
/// What may be missing behind the brackets.
const TAILS: [&str; 6] = ["", ": pass", "\npass", " = _", " else _", " import _"];
/// A last statement that is longer is tried with the likeliest ends only.
const LONG_BYTES: usize = 64 * 1024;

/// Words that something must follow.
const WORDS: [&str; 21] = [
    "and", "as", "assert", "await", "class", "def", "del", "elif", "except", "for", "from",
    "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "with",
];

/// Where it ends, in words: `inside a bracket ( that was opened in line 3`.
pub(super) fn place(source: &str, python: Python) -> Option<String> {
    let text = source.trim_end();
    let scanned = scan(text, Reading::default());
    if scanned.unterminated.is_some() || scanned.unmatched.is_some() {
        return None;
    }
    // A string that swallowed the end of its line lacks its quote, and nothing else.
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

/// Where the last statement that stands at the margin starts.
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

/// The last `try` that nothing handles: its line and how far it is indented.
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
    // The string that is open, else the innermost bracket.
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

/// What the text ends with, if that asks for more.
fn ended(text: &str, scanned: &Scan) -> Option<String> {
    let piece = scanned.pieces.iter().rfind(|piece| {
        let is_blank = text.get(piece.range.clone()).is_none_or(|part| part.trim().is_empty());
        piece.kind != Kind::Comment && !is_blank
    })?;
    if piece.kind != Kind::Code {
        return None;
    }
    let code = text.get(piece.range.clone())?.trim_end();
    let word = code.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
    // Other languages count like this.
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

/// Whether something behind it makes a program of it. A bounded number of tries.
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

/// Of the last line, in characters.
fn indentation(text: &str) -> usize {
    let line = text.trim_end().rsplit('\n').next().unwrap_or_default();
    line.len() - line.trim_start().len()
}
