//! `woma run`: runs one program in an ephemeral session and streams its output.

use std::error::Error;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use woma_core::environments::Environment;
use woma_core::{
    Caller, Execute, Execution, Limits, RunEvent, STDIN_BYTES_MAX, Service, SessionChoice,
    Settings, Stream, Tier,
};

use crate::api::reply::{self, Reply};
use crate::config::Data;
use crate::server::rights;
use crate::server::start;
use crate::terminal::{fail, print, tell};
use crate::units;

const MIB: u64 = 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Program file; without it, or with `-`, the program is read from standard input
    #[arg(value_name = "FILE|-", conflicts_with = "code")]
    file: Option<PathBuf>,
    /// Program text
    #[arg(short, long, value_name = "CODE")]
    code: Option<String>,
    /// Pass standard input to the program, 1 MiB at most; without it, the program has none
    #[arg(long)]
    stdin: bool,
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
    /// Write charts and other pictures into this folder
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Print one JSON object at the end instead of streaming
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(data: &Data, options: &Options) -> ExitCode {
    let request = match request(options) {
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
    let environment = match prepare(data, options) {
        Ok(environment) => environment,
        Err(error) => return fail(&*error, start::hint(&*error).as_deref()),
    };
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
    match runtime.block_on(execute(environment, options, request, interrupts)) {
        Ok(execution) => finish(options, &execution),
        Err(error) => {
            let hint = error.hint();
            fail(&error, hint.as_deref())
        }
    }
}

fn request(options: &Options) -> Result<Execute, Box<dyn Error>> {
    let mut request = Execute::new(source(options)?, SessionChoice::Ephemeral);
    if options.stdin {
        let is_source = options.code.is_none()
            && options.file.as_ref().is_none_or(|path| path.as_os_str() == "-");
        if is_source {
            return Err("--stdin needs FILE or --code: standard input is the program".into());
        }
        // One byte more than the limit, so that a longer text is refused and not cut.
        let mut bytes = Vec::new();
        io::stdin().lock().take(STDIN_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| "standard input is not UTF-8 text")?;
        request.stdin = Some(text);
    }
    let folder = options.workdir.as_ref();
    request.folder = folder.map(|folder| std::path::absolute(folder).unwrap_or(folder.clone()));
    Ok(request)
}

fn source(options: &Options) -> Result<String, Box<dyn Error>> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let bytes = match (&options.code, &options.file) {
        (Some(code), _) => return Ok(code.clone()),
        (None, Some(path)) if path.as_os_str() != "-" => read(path)?,
        _ => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            bytes
        }
    };
    String::from_utf8(bytes).map_err(|_| "the program is not UTF-8 text".into())
}

/// Finds the environment and drops root, while the process has one thread.
fn prepare(data: &Data, options: &Options) -> Result<Environment, Box<dyn Error>> {
    let environment = data.environment().map_err(woma_core::Error::from)?;
    let folders: Vec<&Path> =
        options.workdir.iter().chain(&options.charts).map(PathBuf::as_path).collect();
    rights::drop_root_for_run(data, &environment, &folders)?;
    Ok(environment)
}

async fn execute(
    environment: Environment,
    options: &Options,
    request: Execute,
    mut interrupts: Signal,
) -> Result<Execution, woma_core::Error> {
    let limits = Limits {
        wall: options.timeout,
        memory_bytes: options.memory,
        cpu_cores: options.cpus,
        workspace_bytes: options.disk,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        timeout_default: options.timeout,
        timeout_max: options.timeout,
        // One session only: preloading more would delay it.
        preload: Tier::Base,
        pool: 0,
        ..Settings::new(environment)
    };
    let service = Service::start(settings).await?;
    let mut running = service.execute(&Caller::local(), request, true).await?;
    loop {
        tokio::select! {
            happening = running.next() => match happening {
                Some(_) if options.json => {}
                Some(happening) => show(&happening),
                None => break,
            },
            Some(()) = interrupts.recv() => running.interrupt(),
        }
    }
    running.finish().await
}

/// Writes output to the same streams as the program; prints values as a REPL does.
fn show(happening: &RunEvent) {
    match happening {
        RunEvent::Text { stream: Stream::Stdout, text } => {
            write(&mut io::stdout().lock(), text.as_bytes());
        }
        RunEvent::Text { stream: Stream::Stderr, text } => {
            write(&mut io::stderr().lock(), text.as_bytes());
        }
        RunEvent::Shown(shown) => {
            if let Some(text) = shown.text()
                && shown.pictures.is_empty()
            {
                print(&format!("{text}\n"));
            }
        }
        RunEvent::Note(note) => tell(&format!("note: {}", note.text)),
    }
}

fn write(to: &mut impl Write, bytes: &[u8]) {
    // A closed pipe does not stop the program.
    to.write_all(bytes).and_then(|()| to.flush()).unwrap_or_default();
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
