//! Code copied from a session at a prompt.

use super::Mended;
use crate::syntax::{Python, parses};

/// Takes `>>> ` and `In [1]: ` away, with what the session had answered.
pub(super) fn strip(source: &str, python: Python) -> Option<Mended> {
    let first = source.lines().find(|line| !line.trim().is_empty())?.trim_start();
    let is_notebook = first.starts_with("In [");
    let (lines, answers) = match is_notebook {
        true => read(source, notebook),
        false if first.starts_with(">>>") => read(source, doctest),
        false => return None,
    };
    // What follows `In [1]:` without a mark of its own may be code as well as output.
    if is_notebook && answers.iter().any(|line| is_code(line, python)) {
        return None;
    }
    let sentence = match answers.len() {
        0 => "The prompts before the lines were left out.",
        _ => "The prompts before the lines were left out, and the output between them.",
    };
    Some(Mended::new(lines.join("\n") + "\n", "prompts", sentence))
}

/// What a line is in a session.
enum Part<'a> {
    Code(&'a str),
    Marked,
    Answer,
}

/// The lines of code, and those of output that nothing marks as such.
fn read<'a>(source: &'a str, part: fn(&'a str) -> Part<'a>) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut lines, mut answers) = (Vec::new(), Vec::new());
    let mut is_marked = false;
    for line in source.lines() {
        match part(line) {
            Part::Code(code) => {
                lines.push(code);
                is_marked = false;
            }
            Part::Marked => is_marked = true,
            Part::Answer if line.trim().is_empty() || is_marked => {}
            Part::Answer => answers.push(line),
        }
    }
    (lines, answers)
}

fn doctest(line: &str) -> Part<'_> {
    let line = line.trim_start();
    let Some(code) = line.strip_prefix(">>>").or_else(|| line.strip_prefix("...")) else {
        return Part::Answer;
    };
    match code.strip_prefix(' ') {
        Some(code) => Part::Code(code),
        None if code.is_empty() => Part::Code(code),
        None => Part::Answer,
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
    code.map_or(Part::Answer, |code| Part::Code(code.strip_prefix(' ').unwrap_or(code)))
}

fn is_code(line: &str, python: Python) -> bool {
    let line = line.trim();
    line.ends_with(':')
        || (parses(line, python) && line.contains(['(', '=']))
        || line.starts_with("import ")
        || line.starts_with("from ")
}
