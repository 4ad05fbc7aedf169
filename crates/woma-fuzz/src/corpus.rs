//! Corpora: a text file for each target and a line for each input, with bytes that are not printable
//! ASCII escaped as in Rust, so that a change of a corpus can be read.

use std::path::{Path, PathBuf};

pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name).with_extension("txt")
}

/// The inputs of a file; lines that begin with `#` are comments.
///
/// # Panics
///
/// If there is no such file, or a line of it is damaged.
pub(crate) fn read(file: &Path) -> Vec<Vec<u8>> {
    let text =
        std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            parsed(line).unwrap_or_else(|| panic!("{}: not escaped: {line}", file.display()))
        })
        .collect()
}

/// A line for an input.
pub(crate) fn written(input: &[u8]) -> String {
    let line = input.escape_ascii().to_string();
    match line.strip_prefix('#') {
        Some(rest) => format!("\\x23{rest}"),
        None => line,
    }
}

fn parsed(line: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            other @ (b'\\' | b'\'' | b'"') => other,
            _ => return None,
        });
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::{parsed, written};

    #[test]
    fn every_input_is_a_line_that_is_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        for input in [&all[..], b"", b"# no comment", b"\\x41", "\u{e9}\"'".as_bytes()] {
            let line = written(input);
            assert!(line.is_ascii() && !line.contains('\n') && !line.starts_with('#'), "{line}");
            assert_eq!(parsed(&line).as_deref(), Some(input), "{line}");
        }
        for damaged in ["\\", "\\x4", "\\q", "\\xzz"] {
            assert_eq!(parsed(damaged), None, "{damaged}");
        }
    }
}
