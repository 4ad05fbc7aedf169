//! Code copied from an interactive session.

use super::Repaired;
use crate::syntax::{Python, parses};

/// Removes `>>> ` and `In [1]: `, and the session's output.
pub(super) fn strip(source: &str, python: Python) -> Option<Repaired> {
    let first = source.lines().find(|line| !line.trim().is_empty())?.trim_start();
    let is_notebook = first.starts_with("In [");
    let (lines, outputs) = match is_notebook {
        true => read(source, notebook),
        false if first.starts_with(">>>") => read(source, doctest),
        false => return None,
    };
    // Unmarked lines after `In [1]:` may be code as well as output.
    if is_notebook && outputs.iter().any(|line| is_code(line, python)) {
        return None;
    }
    let sentence = match outputs.len() {
        0 => "The prompts before the lines were left out.",
        _ => "The prompts before the lines were left out, and the output between them.",
    };
    Some(Repaired::new(lines.join("\n") + "\n", "prompts", sentence))
}

/// Kind of a line in a session.
enum Part<'a> {
    Code(&'a str),
    Marked,
    Output,
}

/// Lines of code, and unmarked lines of output.
fn read<'a>(source: &'a str, part: fn(&'a str) -> Part<'a>) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut lines, mut outputs) = (Vec::new(), Vec::new());
    let mut is_marked = false;
    for line in source.lines() {
        match part(line) {
            Part::Code(code) => {
                lines.push(code);
                is_marked = false;
            }
            Part::Marked => is_marked = true,
            Part::Output if line.trim().is_empty() || is_marked => {}
            Part::Output => outputs.push(line),
        }
    }
    (lines, outputs)
}

fn doctest(line: &str) -> Part<'_> {
    let line = line.trim_start();
    let Some(code) = line.strip_prefix(">>>").or_else(|| line.strip_prefix("...")) else {
        return Part::Output;
    };
    match code.strip_prefix(' ') {
        Some(code) => Part::Code(code),
        None if code.is_empty() => Part::Code(code),
        None => Part::Output,
    }
}

fn notebook(line: &str) -> Part<'_> {
    let line = line.trim_start();
    if line.starts_with("Out[") {
        return Part::Marked;
    }
    let code = line.strip_prefix("...:").or_else(|| {
        let (number, code) = line.strip_prefix("In [")?.split_once("]:")?;
        let is_number = number.chars().all(|c| c.is_ascii_digit() || c == ' ');
        is_number.then_some(code)
    });
    code.map_or(Part::Output, |code| Part::Code(code.strip_prefix(' ').unwrap_or(code)))
}

fn is_code(line: &str, python: Python) -> bool {
    let line = line.trim();
    line.ends_with(':')
        || (parses(line, python) && line.contains(['(', '=']))
        || line.starts_with("import ")
        || line.starts_with("from ")
}
