//! Hints for common mistakes.

use super::scan::{Open, Scan};
use crate::syntax::{Python, parses};
use crate::verdict::Problem;

/// Newest version whose grammar is known.
const NEWEST_MINOR: u8 = 14;

/// Keywords of statements that end with a colon.
const HEADERS: [&str; 15] = [
    "if",
    "elif",
    "else",
    "for",
    "while",
    "def",
    "class",
    "try",
    "except",
    "finally",
    "with",
    "async def",
    "async for",
    "async with",
    "match",
];

/// Hint for a mistake. `code` is the line of the problem without strings and comments.
pub(super) fn hint(
    source: &str,
    scanned: &Scan,
    code: &str,
    problem: &Problem,
    python: Python,
) -> Option<String> {
    newer(source, code, python)
        .or_else(|| margin(problem))
        .or_else(|| quote(source, scanned, problem))
        .or_else(|| operator(code))
        .or_else(|| header(code))
        .or_else(|| bracket(source, scanned))
}

/// Syntax of a later Python than the one that runs here.
fn newer(source: &str, code: &str, python: Python) -> Option<String> {
    let later = |minor: &u8| parses(source, Python::new(python.major, *minor));
    let minor = (python.minor + 1..=NEWEST_MINOR).find(later)?;
    let (major, here) = (python.major, python.minor);
    let needs = format!("needs Python {major}.{minor}, and this is {major}.{here}");
    Some(match minor == 12 && code.contains("''") {
        true => format!(
            "An f-string with its own kind of quotes (or a backslash) inside the braces {needs}: use \
             the other kind there."
        ),
        false => format!("This syntax {needs}."),
    })
}

fn margin(problem: &Problem) -> Option<String> {
    let line = &problem.text;
    let margin = &line[..line.len() - line.trim_start().len()];
    if problem.message.contains("tabs") || (margin.contains('\t') && margin.contains(' ')) {
        return Some(
            "Tabs and spaces are mixed at the start of lines: use four spaces.".to_owned(),
        );
    }
    if problem.message.contains("unindent does not match") {
        return Some(
            "The line is indented less than the one before, but like no line above it.".to_owned(),
        );
    }
    if problem.message.contains("unexpected indent")
        || problem.message.contains("Unexpected indentation")
    {
        return Some(
            "The line is indented further than the one before it, which opens no block.".to_owned(),
        );
    }
    None
}

fn quote(source: &str, scanned: &Scan, problem: &Problem) -> Option<String> {
    let at = scanned.unterminated.or_else(|| match scanned.open.last()? {
        Open::Text { quote, at } if quote.len() == 1 => Some(*at),
        _ => None,
    })?;
    let line = source.get(..at)?.matches('\n').count() + 1;
    if line != problem.line {
        return None;
    }
    let is_single = source.get(at..).is_some_and(|rest| rest.starts_with('\''));
    Some(match is_single && problem.text.matches('\'').count() % 2 == 1 {
        true => {
            "A `'` has no partner in its line: a text with an apostrophe goes into double quotes."
                .to_owned()
        }
        false => {
            "The string has no closing quote in its line; over several lines it takes three quotes."
                .to_owned()
        }
    })
}

/// A bracket without its partner.
fn bracket(source: &str, scanned: &Scan) -> Option<String> {
    let line_of = |at: usize| source.get(..at).map(|text| text.matches('\n').count() + 1);
    if scanned.unterminated.is_some() {
        return None;
    }
    if let Some(at) = scanned.unmatched {
        let bracket = source.get(at..)?.chars().next()?;
        let line = line_of(at)?;
        return Some(format!("Nothing opened the bracket `{bracket}` in line {line}."));
    }
    match scanned.open.first()? {
        Open::Bracket { bracket, at } => Some(format!(
            "The bracket `{bracket}` that line {} opens is not closed.",
            line_of(*at)?
        )),
        Open::Text { .. } => None,
    }
}

fn operator(code: &str) -> Option<String> {
    let said = |text: &str| Some(text.to_owned());
    if code.starts_with("else if ") {
        return said("`else if` is written `elif`.");
    }
    if code.contains("&&") {
        return said("`&&` is written `and`.");
    }
    if code.contains("||") {
        return said("`||` is written `or`.");
    }
    let counter = code.trim_end_matches(';');
    if let Some(name) = counter.strip_suffix("++").filter(|name| is_name(name)) {
        return Some(format!("`{name}++` is written `{name} += 1`."));
    }
    if let Some(name) = counter.strip_suffix("--").filter(|name| is_name(name)) {
        return Some(format!("`{name}--` is written `{name} -= 1`."));
    }
    if let Some((name, value)) = code.split_once(":=")
        && is_name(name.trim())
    {
        return Some(format!(
            "A statement assigns with `=`: `{} = {}`.",
            name.trim(),
            value.trim()
        ));
    }
    if is_negated(code) {
        return said("`!` is written `not`.");
    }
    if code.contains("<>") {
        return said("`<>` is written `!=`.");
    }
    None
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
}

/// `if !x`, `(!x`: a `!` where a value is expected.
fn is_negated(code: &str) -> bool {
    let mut before = code.chars().next().unwrap_or(' ');
    let mut chars = code.chars().skip(1).peekable();
    while let Some(c) = chars.next() {
        let after = chars.peek().copied().unwrap_or(' ');
        let is_value = after.is_alphabetic() || matches!(after, '_' | '(');
        if c == '!' && matches!(before, ' ' | '(') && is_value && !code.starts_with('!') {
            return true;
        }
        before = c;
    }
    false
}

/// The line that opens a block.
fn header(code: &str) -> Option<String> {
    let is_header = HEADERS.iter().any(|word| {
        code.strip_prefix(word).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with([' ', '(', '{']) || (rest == ":" && *word == "else")
        })
    });
    if !is_header {
        return None;
    }
    if code.ends_with('{') {
        return Some(
            "Blocks have no braces: the line ends with `:`, and the block is indented.".to_owned(),
        );
    }
    let outside = outside_brackets(code)?;
    let is_condition = ["if ", "elif ", "while "].iter().any(|word| code.starts_with(word));
    if is_condition && has_single_equals(&outside) {
        return Some("`=` assigns; a comparison is written `==`.".to_owned());
    }
    (!outside.contains(':')).then(|| "The line that opens a block ends with `:`.".to_owned())
}

/// Part of a line outside brackets; `None` if they do not match.
fn outside_brackets(code: &str) -> Option<String> {
    let mut depth = 0_usize;
    let mut outside = String::new();
    for c in code.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            _ if depth == 0 => outside.push(c),
            _ => {}
        }
    }
    (depth == 0).then_some(outside)
}

fn has_single_equals(code: &str) -> bool {
    let bytes = code.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or(b' ');
    (1..bytes.len()).any(|index| {
        at(index) == b'='
            && at(index + 1) != b'='
            && !matches!(
                at(index - 1),
                b'=' | b'!' | b'<' | b'>' | b':' | b'+' | b'-' | b'*' | b'/'
            )
    })
}
