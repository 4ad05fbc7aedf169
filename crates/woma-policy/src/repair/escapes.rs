//! Code that was escaped once too often: `import os\nprint(1)` in one line.

use super::Repaired;
use super::scan::{PieceKind, Reading, scan};

pub(super) fn unescape(source: &str) -> Option<Repaired> {
    let text = source.trim();
    if !text.contains("\\n") && !text.contains("\\\"") {
        return None;
    }
    let whole = || serde_json::from_str::<String>(&format!("\"{text}\"")).ok();
    let text = match text.contains('\n') {
        true => lines_only(text)?,
        false => whole().or_else(|| lines_only(text))?,
    };
    let sentence = "The code was escaped (`\\n` for the end of a line); it was unescaped.";
    Some(Repaired::new(text, "escapes", sentence))
}

/// Unescapes line endings and tabs outside strings; escapes inside strings are kept.
fn lines_only(source: &str) -> Option<String> {
    let scanned = scan(source, Reading { escaped_lines: true, ..Reading::default() });
    let mut text = String::with_capacity(source.len());
    for piece in scanned.pieces {
        let part = source.get(piece.range)?;
        match piece.kind {
            PieceKind::Code => text
                .push_str(&part.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t")),
            _ => text.push_str(part),
        }
    }
    (text != source).then_some(text)
}
