//! Valid programs that seem to contain the intended program as data.

use super::scan::{PieceKind, Reading, scan};
use crate::syntax::{Python, parses};

/// Keys under which code is sent to tools.
const MEMBERS: [&str; 4] = ["code", "source", "python", "script"];
/// The complete grammar: the version does not matter here.
const NEWEST: Python = Python::new(3, 14);

pub(crate) fn remarks(source: &str) -> Vec<String> {
    let text = source.trim();
    let remark = if is_quoted_program(text) {
        Some(
            "The program is one string, and what is in the string is a program that did not run: \
             send the code without quotes around it."
                .to_owned(),
        )
    } else {
        member(text).map(|name| {
            format!(
                "The program is a dict whose `{name}` holds code that did not run: send the value \
                 of `{name}` as the code."
            )
        })
    };
    remark.into_iter().collect()
}

fn is_quoted_program(text: &str) -> bool {
    if !text.starts_with(['"', '\'']) {
        return false;
    }
    let scanned = scan(text, Reading::default());
    let [piece] = scanned.pieces.as_slice() else { return false };
    if piece.kind != PieceKind::Str || !scanned.open.is_empty() {
        return false;
    }
    let quotes = if text.starts_with("\"\"\"") || text.starts_with("'''") { 3 } else { 1 };
    let Some(inner) = text.get(quotes..text.len().saturating_sub(quotes)) else { return false };
    let program = unescape(inner);
    let is_more_than_a_name = program.contains(['(', '=']) || program.contains("import ");
    is_more_than_a_name && parses(&program, NEWEST)
}

/// Decodes the escapes of code in a string.
fn unescape(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some(c @ ('"' | '\'' | '\\')) => text.push(c),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}

/// Key under which a dict (or JSON object) holds code, if the text is only that dict.
pub(super) fn member(text: &str) -> Option<&'static str> {
    if !text.starts_with('{') || !text.ends_with('}') {
        return None;
    }
    let scanned = scan(text, Reading::default());
    let mut depth = 0_usize;
    let mut key = None;
    let mut found = None;
    for piece in &scanned.pieces {
        let part = text.get(piece.range.clone())?;
        match piece.kind {
            PieceKind::Code => {
                for c in part.chars() {
                    match c {
                        '{' | '[' | '(' => depth += 1,
                        '}' | ']' | ')' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    // Closed before the end: the text is more than the dict.
                    if depth == 0 && piece.range.end != text.len() {
                        return None;
                    }
                }
                key = key.filter(|_| depth == 1 && part.trim() == ":");
            }
            PieceKind::Str => match key.take() {
                Some(name) => found = found.or(Some(name)),
                None if depth == 1 => {
                    let name = part.trim_matches(['"', '\'']);
                    key = MEMBERS.into_iter().find(|member| *member == name);
                }
                None => {}
            },
            _ => {}
        }
    }
    found
}
