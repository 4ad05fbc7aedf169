//! The line of a problem with a caret below the position.

use crate::verdict::Problem;

/// Most characters of the line on each side of the caret.
const SIDE_CHARS_MAX: usize = 60;

impl Problem {
    /// The line, and below it a caret at the column.
    ///
    /// Tabs are kept and wide characters take two columns, so that the caret is at the error in any
    /// terminal; a long line is cut around it.
    pub fn caret(&self) -> String {
        let before = self.column.saturating_sub(1);
        let skipped = before.saturating_sub(SIDE_CHARS_MAX);
        let mut line = String::new();
        let mut below = String::new();
        if skipped > 0 {
            line.push('…');
            below.push(' ');
        }
        for (index, c) in self.text.chars().enumerate().skip(skipped) {
            if index > before + SIDE_CHARS_MAX {
                line.push('…');
                break;
            }
            line.push(if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
            if index < before {
                match c {
                    '\t' => below.push('\t'),
                    _ => below.extend(std::iter::repeat_n(' ', columns(c))),
                }
            }
        }
        format!("{line}\n{below}^")
    }
}

/// Approximate width of a character in a terminal.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f
        | 0x200b..=0x200f
        | 0x20d0..=0x20ff
        | 0xfe00..=0xfe0f
        | 0xfe20..=0xfe2f
        | 0xfeff
        | 0xe0100..=0xe01ef => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff01..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}
