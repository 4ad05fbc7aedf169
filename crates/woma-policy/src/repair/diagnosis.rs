//! Diagnosis of texts that are not Python and cannot be repaired.

use super::scan::{PieceKind, Reading, Scan, scan};
use super::{classics, fence, foreign, truncation};
use crate::syntax::Python;
use crate::verdict::{Problem, ProblemKind};

/// Classifies the text, and says what to send instead if that is certain.
pub(crate) fn diagnose(source: &str, problem: Problem, python: Python) -> Problem {
    let blocks = fence::count(source, python);
    if blocks > 1 {
        return Problem {
            kind: ProblemKind::Fenced,
            message: format!("The text has {blocks} fenced blocks of Python"),
            hint: Some("Send the code of one block, without the fence.".to_owned()),
            ..problem
        };
    }
    if let Some(hint) = foreign::whole(source) {
        return with_hint(problem, hint);
    }
    let inside = fence::unwrap(source, python).map(|mended| mended.text);
    let code = inside.as_deref().unwrap_or(source);
    if let Some(place) = truncation::place(code, python) {
        let hint =
            format!("The code appears to be truncated: it ends {place}. Send it in smaller parts.");
        return Problem { kind: ProblemKind::Truncated, ..with_hint(problem, hint) };
    }
    let line = problem.text.trim().to_owned();
    if foreign::is_prose(&line) && foreign::is_mostly_prose(source) {
        return Problem {
            kind: ProblemKind::Prose,
            message: "This is text, not Python".to_owned(),
            hint: Some("Send the code only, without words around it.".to_owned()),
            ..problem
        };
    }
    if foreign::is_prose(&line) {
        let hint = format!(
            "Line {} is text, not Python: leave it out, or start it with `#`.",
            problem.line
        );
        return with_hint(problem, hint);
    }
    let scanned = scan(source, Reading::default());
    let code = code_of(source, &scanned, problem.line);
    let hint =
        foreign::line(&line).or_else(|| classics::hint(source, &scanned, &code, &problem, python));
    match hint {
        Some(hint) => with_hint(problem, hint),
        None => problem,
    }
}

fn with_hint(problem: Problem, hint: String) -> Problem {
    Problem { hint: Some(problem.hint.unwrap_or(hint)), ..problem }
}

/// A line with `''` for its strings and without its comment.
fn code_of(source: &str, scanned: &Scan, number: usize) -> String {
    let mut lines = source.split_inclusive('\n');
    let start: usize = lines.by_ref().take(number.saturating_sub(1)).map(str::len).sum();
    let end = start + lines.next().map_or(0, str::len);
    let first = scanned.pieces.partition_point(|piece| piece.range.end <= start);
    let mut code = String::new();
    for piece in scanned.pieces.iter().skip(first).take_while(|piece| piece.range.start < end) {
        let range = piece.range.start.max(start)..piece.range.end.min(end);
        match piece.kind {
            PieceKind::Code => code.push_str(source.get(range).unwrap_or_default()),
            PieceKind::Comment => {}
            _ => code.push_str("''"),
        }
    }
    code.trim().to_owned()
}
