//! Writing for people: standard output is for data, standard error for everything else.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Writes data to standard output. A reader that has gone (`| head`) is not an error of ours.
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        tell(&format!("woma: cannot write: {error}"));
    }
}

/// Says something to the person at the terminal.
pub(crate) fn tell(text: &str) {
    // Nobody is left to tell if standard error is gone.
    writeln!(io::stderr().lock(), "{text}").unwrap_or_default();
}

/// One sentence with the whole chain of causes, and the way out. For failures of ours, status 125:
/// a program that runs here can end with any small number of its own.
pub(crate) fn fail(error: &dyn Error, hint: Option<&str>) -> ExitCode {
    let mut text = format!("woma: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    tell(&text);
    if let Some(hint) = hint {
        tell(&format!("hint: {hint}"));
    }
    ExitCode::from(125)
}

pub(crate) fn is_interactive() -> bool {
    io::stderr().is_terminal()
}
