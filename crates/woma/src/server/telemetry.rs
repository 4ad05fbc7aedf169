//! Logs on standard error, as text or as JSON.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use crate::config::Config;
use crate::config::types::LogFormat;

/// Logs errors only, for commands that report by themselves. `WOMA_LOG=debug` shows more.
pub(crate) fn start_quietly() {
    start_with("error", LogFormat::Human);
}

/// Logs as configured; `WOMA_LOG` overrides it.
pub(crate) fn start(config: &Config) {
    // Libraries log details of theirs, and quote clients at length.
    let level = config.log_level.directive();
    let directives = match level {
        "debug" | "trace" => format!("{level},hyper=info,rmcp=error"),
        _ => format!("{level},rmcp=error"),
    };
    start_with(&directives, config.log_format);
}

fn start_with(directives: &str, format: LogFormat) {
    let asked = std::env::var_os("WOMA_LOG").and_then(|text| text.into_string().ok());
    let filter = EnvFilter::new(asked.unwrap_or_else(|| directives.to_owned()));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| SanitizedStderr);
    // No colours: the writer escapes control characters.
    let started = match format {
        LogFormat::Human => subscriber.with_ansi(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    if started.is_err() {
        tracing::debug!("A log subscriber is already installed");
    }
}

/// Longest line of the log, in bytes.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Standard error with one line per event, whatever text of clients it contains.
struct SanitizedStderr;

impl Write for SanitizedStderr {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(&sanitize(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// Escapes control characters, as `\x1b`, and truncates long lines.
fn sanitize(event: &[u8]) -> Vec<u8> {
    let line = event.strip_suffix(b"\n").unwrap_or(event);
    let (kept, is_cut) = match line.get(..LINE_BYTES_MAX) {
        Some(kept) => (kept, line.len() > LINE_BYTES_MAX),
        None => (line, false),
    };
    let mut sanitized = Vec::with_capacity(kept.len() + 1);
    for byte in kept {
        match byte {
            0..=8 | 10..=31 | 127 => {
                sanitized.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            }
            other => sanitized.push(*other),
        }
    }
    sanitized.extend_from_slice(if is_cut { "…\n".as_bytes() } else { b"\n" });
    sanitized
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, sanitize};

    #[test]
    fn an_event_is_one_line_without_escapes() {
        assert_eq!(sanitize(b"a\tb\n"), b"a\tb\n");
        assert_eq!(
            sanitize(b"x\nINFO forged\x1b[31m\r\x7f\n"),
            br"x\x0aINFO forged\x1b[31m\x0d\x7f".iter().chain(b"\n").copied().collect::<Vec<u8>>()
        );
        let long = sanitize(&vec![b'x'; LINE_BYTES_MAX + 1]);
        assert!(long.len() < LINE_BYTES_MAX + 8 && long.ends_with("…\n".as_bytes()));
    }
}
