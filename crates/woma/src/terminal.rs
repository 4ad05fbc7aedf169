//! Terminal output: data on standard output, messages on standard error.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use woma_core::environments;

/// Exit status of a program whose output nobody reads any more.
const CLOSED_PIPE: u8 = 141;
/// Time after which something is said to take long, and time between two looks at it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const NEXT_PAUSE: Duration = Duration::from_millis(500);
/// Exit status of the first output that was lost; zero if there was none.
static LOST_OUTPUT: AtomicU8 = AtomicU8::new(0);

/// Writes data to standard output. Output that is lost decides the exit status ([`status`]).
pub(crate) fn print(text: &str) {
    try_print(text);
}

/// As [`print`]; returns whether the data was written. A message says so if it was not, but for a
/// closed pipe (`| head`).
pub(crate) fn try_print(text: &str) -> bool {
    let mut stdout = io::stdout().lock();
    let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) else {
        return true;
    };
    lose(&error);
    false
}

/// Notes that output was lost, and says so, but for a closed pipe.
fn lose(error: &io::Error) {
    let lost = match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => return,
        io::ErrorKind::BrokenPipe => CLOSED_PIPE,
        _ => {
            tell(&format!("woma: cannot write: {error}"));
            FAILED
        }
    };
    LOST_OUTPUT.store(lost, Ordering::Relaxed);
}

/// The exit status of this process: that of its command, unless output was lost.
pub(crate) fn status(of_command: ExitCode) -> ExitCode {
    match LOST_OUTPUT.load(Ordering::Relaxed) {
        0 => of_command,
        lost => ExitCode::from(lost),
    }
}

/// Writes a message to standard error.
pub(crate) fn tell(text: &str) {
    // A closed standard error leaves no place to report to.
    writeln!(io::stderr().lock(), "{text}").unwrap_or_default();
}

/// Exit status of failures of woma: the program that it runs may exit with any smaller status.
const FAILED: u8 = 125;

/// Reports an error with its chain of causes and a hint.
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
    ExitCode::from(FAILED)
}

/// Streams data to standard output; what is lost decides the exit status, as with [`print`].
pub(crate) fn write_stream(
    copy: impl FnOnce(&mut dyn Write) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut stdout = Stdout(io::stdout().lock());
    let copied = copy(&mut stdout);
    match LOST_OUTPUT.load(Ordering::Relaxed) {
        0 => copied,
        // Reported where it was lost.
        _ => Ok(()),
    }
}

/// Standard output that notes what it loses.
struct Stdout(io::StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(lose)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().inspect_err(lose)
    }
}

/// A line at a terminal about something that takes longer than a second; it is gone at the end.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The line goes when this closes.
    running: Option<mpsc::Sender<()>>,
    shown: Option<thread::JoinHandle<()>>,
}

impl Waiting {
    /// Shows what `describe` returns, again and again. Shows nothing unless standard error is a
    /// terminal.
    pub(crate) fn start(describe: impl Fn() -> String + Send + 'static) -> Self {
        if !is_interactive() {
            return Self { running: None, shown: None };
        }
        let (running, ended) = mpsc::channel();
        let shown = thread::spawn(move || {
            let mut pause = FIRST_PAUSE;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = NEXT_PAUSE;
                let line: String =
                    describe().chars().filter(|c| !c.is_control()).take(76).collect();
                eprint!("\r\x1b[K{line} …");
            }
            if pause == NEXT_PAUSE {
                eprint!("\r\x1b[K");
            }
        });
        Self { running: Some(running), shown: Some(shown) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(shown) = self.shown.take()
            && shown.join().is_err()
        {
            tell("woma: the progress could not be shown");
        }
    }
}

fn is_interactive() -> bool {
    io::stderr().is_terminal()
}

/// Progress of creating an environment: one changing line at a terminal, plain lines elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    interactive: bool,
    last: String,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { interactive: is_interactive(), last: String::new() }
    }

    pub(crate) fn show(&mut self, step: environments::Progress) {
        use environments::Progress as Step;
        let (text, detail) = match step {
            Step::LookingForPython => ("looking for Python".to_owned(), None),
            Step::Found { python, version } => {
                (format!("using Python {version} ({})", python.display()), None)
            }
            Step::WaitingForOther => ("another process is creating it; waiting".to_owned(), None),
            Step::InstallingUv => ("fetching the installer".to_owned(), None),
            Step::Locking => ("locking the packages".to_owned(), None),
            Step::CreatingVenv => ("creating the environment".to_owned(), None),
            Step::Installing(line) => ("installing packages".to_owned(), Some(line)),
            Step::CompilingBytecode => ("compiling".to_owned(), None),
            Step::Done { took } => {
                (format!("environment ready after {:.0} s", took.as_secs_f64()), None)
            }
        };
        let detail = detail.filter(|detail| !detail.trim().is_empty());
        if self.interactive
            && let Some(detail) = detail
        {
            let short: String = detail.trim().chars().take(60).collect();
            eprint!("\r\x1b[K{text}: {short}");
        } else if text != self.last {
            if self.interactive {
                eprint!("\r\x1b[K");
            }
            tell(&text);
        }
        self.last = text;
    }
}
