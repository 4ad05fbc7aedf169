//! `woma run`: runs one program in an ephemeral session and streams its output.

mod environment;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use woma_core::{
    Caller, EgressSettings, Execute, Execution, Limits, NetworkRules, RunEvent, Script, Service,
    SessionChoice, Settings, Stream, Tier,
};

use crate::api::reply::{self, Reply};
use crate::config::{Data, home, is_root};
use crate::server::start;
use crate::terminal::{fail, print, tell};
use crate::units;
use environment::{Prepared, prepare};

const MIB: u64 = 1024 * 1024;
/// Place in the sandbox of the folder that is shown read-only.
const UPLOADS_FOLDER: &str = "/uploads";
/// Exit status of a program whose output nobody reads any more: 128 and SIGPIPE.
const CLOSED_OUTPUT: u8 = 141;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Program file; without it, or with `-`, the program is read from standard input
    #[arg(value_name = "FILE|-")]
    file: Option<OsString>,
    /// Arguments of the program: everything after FILE. Options of woma come before it
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
    /// Program text, in place of FILE. The value of its last line is printed
    #[arg(short, long, value_name = "CODE")]
    code: Option<String>,
    /// Time limit: seconds, or 500ms, 2m, 1h
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = duration)]
    timeout: Duration,
    /// Memory limit of all processes of the program: 512m, 2g
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = bytes)]
    memory: u64,
    /// Limit of processors
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = cores)]
    cpus: f64,
    /// Working directory of the program, which keeps its files; without it, files are in memory and
    /// lost at the end
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Size limit of the working directory: 512m, 2g
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = bytes)]
    disk: u64,
    /// Network of the program: off, open (every public host), or hosts such as
    /// `data.example,*.example.org,api.example.org:8443`
    #[arg(long, value_name = "RULES", default_value = "off")]
    network: NetworkRules,
    /// Environment by the name of its template: its packages, limits and policy. `--env` names a
    /// Python environment alone
    #[arg(long, value_name = "NAME", conflicts_with = "env")]
    environment: Option<String>,
    /// Write charts and other pictures into this folder
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Print one JSON object at the end instead of streaming
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(data: &Data, options: &Options) -> ExitCode {
    // Decided once: a server that has dropped root would decide otherwise.
    let shown = options.shown();
    let mut request = match request(options, shown.is_some()) {
        Ok(request) => request,
        Err(error) => return fail(&*error, None),
    };
    if let Some(folder) = options.workdir.as_ref().filter(|folder| !folder.is_dir()) {
        let error = format!("the working directory {} is not a folder", folder.display());
        return fail(
            &*Box::<dyn Error>::from(error),
            Some("create it first: woma does not create it"),
        );
    }
    let prepared = match prepare(data, options, &request.source, shown.as_deref()) {
        Ok(prepared) => prepared,
        Err(error) => return fail(&*error, start::hint(&*error).as_deref()),
    };
    let is_source = matches!(options.program(), Program::StandardInput);
    match pass_input_on(!is_source) {
        Ok(pipe) => request.stdin_pipe = Some(Arc::new(pipe)),
        Err(error) => return fail(&error, None),
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&error, None),
        };
    let entered = runtime.enter();
    // One listener for the whole run: it keeps a Ctrl-C that arrives while output is written.
    let interrupts = match signal(SignalKind::interrupt()) {
        Ok(interrupts) => interrupts,
        Err(error) => return fail(&error, None),
    };
    drop(entered);
    match runtime.block_on(execute(prepared, shown, options, request, interrupts)) {
        Ok((execution, None)) => finish(options, &execution),
        Ok((_, Some(error))) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::from(CLOSED_OUTPUT)
        }
        Ok((_, Some(error))) => fail(&error, Some("the output could not be written")),
        Err(error) => {
            let hint = error.hint();
            fail(&error, hint.as_deref())
        }
    }
}

/// The program by its kind.
enum Program<'a> {
    Text(&'a str),
    File(&'a Path),
    StandardInput,
}

impl Options {
    /// The rest of a path that is below the working directory.
    fn below_workdir(&self, path: &Path) -> Option<PathBuf> {
        let workdir = self.workdir.as_ref()?.canonicalize().ok()?;
        path.strip_prefix(&workdir).ok().map(Path::to_path_buf)
    }

    /// Folder of the program that is shown to it read-only.
    fn shown(&self) -> Option<PathBuf> {
        let Program::File(path) = self.program() else { return None };
        let path = path.canonicalize().ok()?;
        let folder = path.parent().filter(|_| self.below_workdir(&path).is_none())?;
        may_be_shown(folder).then(|| folder.to_path_buf())
    }

    fn program(&self) -> Program<'_> {
        match (&self.code, &self.file) {
            (Some(code), _) => Program::Text(code),
            (None, Some(path)) if path != "-" => Program::File(Path::new(path)),
            (None, _) => Program::StandardInput,
        }
    }
}

fn request(options: &Options, is_shown: bool) -> Result<Execute, Box<dyn Error>> {
    let program = options.program();
    let source = source(&program)?;
    let (name, first) = match program {
        Program::Text(_) => (None, "-c".to_owned()),
        Program::StandardInput => (Some("<stdin>".to_owned()), "-".to_owned()),
        Program::File(path) => (Some(text(path)?), text(path)?),
    };
    // With program text, the place of a file is that of the first argument.
    let unused = options.file.iter().filter(|_| options.code.is_some());
    let rest = unused.chain(&options.arguments).map(text);
    let argv = std::iter::once(Ok(first)).chain(rest).collect::<Result<_, _>>()?;
    let file = match program {
        Program::File(path) => Some(inside(path, options, is_shown)?),
        Program::Text(_) | Program::StandardInput => None,
    };
    let mut request = Execute::new(source, SessionChoice::Ephemeral);
    request.script = Some(Script { name, argv, file });
    let folder = options.workdir.as_ref();
    request.folder = folder.map(|folder| std::path::absolute(folder).unwrap_or(folder.clone()));
    Ok(request)
}

/// Arguments travel as JSON.
fn text(argument: impl AsRef<OsStr>) -> Result<String, Box<dyn Error>> {
    let argument = argument.as_ref();
    let text = argument.to_str().map(str::to_owned);
    text.ok_or_else(|| format!("the argument {} is not UTF-8 text", argument.display()).into())
}

/// Path of the program as it sees itself: in the working directory if that has it, else in its own
/// folder if that is shown, else alone in the working directory.
fn inside(path: &Path, options: &Options, is_shown: bool) -> Result<String, Box<dyn Error>> {
    let path = path.canonicalize()?;
    let name = path.file_name().unwrap_or_default();
    if let Some(rest) = options.below_workdir(&path) {
        return text(rest);
    }
    if is_shown { text(Path::new(UPLOADS_FOLDER).join(name)) } else { text(name) }
}

/// Whether a program may read its own folder: not the root folder, a home, or a folder that all
/// users share; and as root, because sessions are not root, only a folder that everyone can read.
fn may_be_shown(folder: &Path) -> bool {
    let mode = |path: &Path| path.metadata().map_or(0, |found| found.permissions().mode());
    let is_open = mode(folder) & 0o5 == 0o5 && folder.ancestors().all(|it| mode(it) & 0o1 != 0);
    folder.parent().is_some()
        && home().as_deref() != Some(folder)
        && mode(folder) & 0o1000 == 0
        && (is_open || !is_root())
}

/// The read end of a pipe into which a thread copies standard input, if the program gets it. The
/// program does not get the descriptor itself: it may be a terminal, which takes commands.
fn pass_input_on(is_for_program: bool) -> io::Result<OwnedFd> {
    let (reader, mut writer) = io::pipe()?;
    if is_for_program {
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            // Ends when the program has closed its input, or the input itself has ended.
            io::copy(&mut io::stdin().lock(), &mut writer).unwrap_or_default();
        })?;
    }
    Ok(reader.into())
}

fn source(program: &Program<'_>) -> Result<String, Box<dyn Error>> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let bytes = match program {
        Program::Text(code) => return Ok((*code).to_owned()),
        Program::File(path) => read(path)?,
        Program::StandardInput => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            bytes
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| "the program is not UTF-8 text")?;
    let text = text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned);
    let is_empty_file = matches!(program, Program::File(_)) && text.trim().is_empty();
    // An empty file is a program that does nothing.
    Ok(if is_empty_file { "pass\n".to_owned() } else { text })
}

async fn execute(
    prepared: Prepared,
    shown: Option<PathBuf>,
    options: &Options,
    request: Execute,
    mut interrupts: Signal,
) -> Result<(Execution, Option<io::Error>), woma_core::Error> {
    let Prepared { environment, limits: most, policies, packages, lowest_rung } = prepared;
    let (storage, packages) = packages.unzip();
    let processes = Limits::default().processes;
    let timeout = most.timeout.map_or(options.timeout, |most| most.min(options.timeout));
    let limits = Limits {
        wall: timeout,
        memory_bytes: most.memory_bytes.map_or(options.memory, |most| most.min(options.memory)),
        cpu_cores: most.cpu_cores.map_or(options.cpus, |most| most.min(options.cpus)),
        processes: most.processes.map_or(processes, |most| most.min(processes)),
        workspace_bytes: options.disk,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        policies,
        storage,
        packages: packages.unwrap_or_default(),
        timeout_default: timeout,
        timeout_max: timeout,
        // One session only: preloading more would delay it.
        preload: Tier::Base,
        pool: 0,
        uploads: shown,
        lowest_rung,
        egress: EgressSettings {
            rules: Arc::new(options.network.clone()),
            ..EgressSettings::default()
        },
        ..Settings::new(environment)
    };
    let service = Service::start(settings).await?;
    let mut running = service.execute(&Caller::local(), request, true).await?;
    let mut unwritten = None;
    loop {
        tokio::select! {
            happening = running.next() => match happening {
                Some(_) if options.json || unwritten.is_some() => {}
                Some(happening) => {
                    unwritten = show(&happening).err();
                    if unwritten.is_some() {
                        running.interrupt();
                    }
                }
                None => break,
            },
            Some(()) = interrupts.recv() => running.interrupt(),
        }
    }
    Ok((running.finish().await?, unwritten))
}

/// Writes output to the same streams as the program; prints values as a REPL does.
fn show(happening: &RunEvent) -> io::Result<()> {
    match happening {
        RunEvent::Text { stream: Stream::Stdout, text } => write(&mut io::stdout().lock(), text),
        RunEvent::Text { stream: Stream::Stderr, text } => write(&mut io::stderr().lock(), text),
        RunEvent::Shown(shown) => match shown.text() {
            Some(text) if shown.pictures.is_empty() => {
                write(&mut io::stdout().lock(), &format!("{text}\n"))
            }
            _ => Ok(()),
        },
        RunEvent::Note(note) => {
            tell(&format!("note: {}", note.text));
            Ok(())
        }
    }
}

fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

fn finish(options: &Options, execution: &Execution) -> ExitCode {
    let saved = match &options.charts {
        Some(folder) => save_pictures(folder, execution),
        None => Ok(Vec::new()),
    };
    if let Err(error) = &saved {
        tell(&format!("woma: cannot write the pictures: {error}"));
    }
    if options.json {
        match serde_json::to_string(&Reply::new(execution.clone())) {
            Ok(text) => print(&format!("{text}\n")),
            Err(error) => return fail(&error, None),
        }
    } else {
        summarise(execution, &saved.unwrap_or_default());
    }
    ExitCode::from(u8::try_from(execution.exit_code & 0xff).unwrap_or(1))
}

fn summarise(execution: &Execution, saved: &[PathBuf]) {
    if let Some(error) = &execution.error
        && error.name != "SystemExit"
    {
        tell(&error.traceback.join("\n"));
    }
    if let Some(message) = &execution.message {
        tell(&format!("woma: {message}"));
    }
    if execution.output_bytes_dropped > 0 {
        tell(&format!("woma: {} more bytes of output dropped", execution.output_bytes_dropped));
    }
    for path in saved {
        tell(&format!("woma: wrote {}", path.display()));
    }
    let pictures: usize = execution.displays.iter().map(|shown| shown.pictures.len()).sum();
    if pictures > saved.len() {
        let text = format!("woma: {pictures} picture(s); use --charts DIR or --json to get them");
        tell(&text);
    }
}

fn save_pictures(folder: &Path, execution: &Execution) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let mut saved = Vec::new();
    for picture in execution.displays.iter().flat_map(|shown| &shown.pictures) {
        let extension = reply::extension(&picture.media_type);
        let path = folder.join(format!("chart_{:03}.{extension}", saved.len() + 1));
        std::fs::write(&path, &picture.bytes)?;
        saved.push(path);
    }
    Ok(saved)
}

fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("`{other}` is not a unit of time: use ms, s, m or h")),
    };
    let number: f64 = number.trim().parse().map_err(|_| format!("`{number}` is not a number"))?;
    let wanted =
        Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())?;
    if wanted < Duration::from_millis(1) || wanted > Duration::from_hours(24) {
        return Err("the time limit must be between 1ms and 24h".to_owned());
    }
    Ok(wanted)
}

fn bytes(text: &str) -> Result<u64, String> {
    let wanted = units::bytes(text).ok_or("a size is a number followed by k, m or g")?;
    if wanted < 16 * MIB {
        return Err("the size must be at least 16m".to_owned());
    }
    Ok(wanted)
}

fn cores(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cores) if (0.01..=1024.0).contains(&cores) => Ok(cores),
        _ => Err("the number of processors must be between 0.01 and 1024".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MIB, bytes, cores, duration};

    #[test]
    fn times_are_parsed() {
        assert_eq!(duration("2").unwrap(), Duration::from_secs(2));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "x", "-1", "0", "1y", "nan", "inf", "25h", "1e300"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(bytes("512m").unwrap(), 512 * MIB);
        assert_eq!(bytes("2g").unwrap(), 2048 * MIB);
        assert_eq!(bytes("2GiB").unwrap(), 2048 * MIB);
        assert_eq!(bytes("33554432").unwrap(), 32 * MIB);
        for bad in ["", "m", "1k", "-5m", "1q", "99999999999999999999g", "1.5g"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processors_are_parsed() {
        assert!((cores("0.5").unwrap() - 0.5).abs() < f64::EPSILON);
        for bad in ["0", "-1", "nan", "inf", "many"] {
            assert!(cores(bad).is_err(), "{bad}");
        }
    }
}
