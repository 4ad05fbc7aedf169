//! The installer `uv`: from the search path, from the data directory, or downloaded by pip, pinned
//! by hash. Also runs the child processes of a creation.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::lock::{self, Held};
use super::python::{self, Facts};
use super::{CreateOptions, Error, Progress, Report};

/// Lock of `uv` itself with its hashes, in pip's format.
pub const UV_LOCK: &str = include_str!("../../environment/uv.lock");
/// First series with working relocatable environments and universal locks.
const UV_VERSION_MIN: (u32, u32) = (0, 5);
const LAST_LINES_MAX: usize = 60;
const REASON_CHARS_MAX: usize = 600;

/// Working installer.
#[derive(Debug)]
pub(super) struct Uv {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

/// Finds the installer, or downloads it into `tools`.
pub(super) fn locate(
    tools: &Path,
    options: &CreateOptions,
    python: Option<&Facts>,
    report: &mut Report<'_>,
) -> Result<Uv, Error> {
    let own = tools.join("uv");
    let own_uv = own.join("bin/uv");
    let on_path = python::on_path(&options.search_path, "uv");
    if let Some(uv) = on_path.chain([own_uv.clone()]).find_map(usable) {
        return Ok(uv);
    }
    fs::create_dir_all(tools).map_err(Error::io("create", tools))?;
    let held = lock::wait(&tools.join(".uv.lock"), report)?;
    if let Some(uv) = usable(own_uv.clone()) {
        return Ok(uv);
    }
    report(Progress::InstallingUv);
    let staging = tools.join(".making-uv");
    remove_tree(&staging)?;
    remove_tree(&own)?;
    let fetched = fetch(tools, &staging, options, python, &held);
    if fetched.is_err() {
        remove_tree(&staging)?;
    }
    fetched?;
    fs::rename(&staging, &own).map_err(Error::io("rename", &staging))?;
    usable(own_uv.clone()).ok_or_else(|| Error::Step {
        doing: "starting the downloaded uv",
        reason: format!("`{}` does not run on this machine", own_uv.display()),
    })
}

/// The installer for sessions: that of the data folder, that beside an environment, or one on the
/// search path that everyone may run. It is not run here.
pub(super) fn find(tools: &Path, prefix: &Path, search_path: &OsStr) -> Option<PathBuf> {
    let beside = prefix.parent().and_then(Path::parent).map(|data| data.join("tools/uv/bin/uv"));
    let own = [Some(tools.join("uv/bin/uv")), beside].into_iter().flatten();
    let is_open = |path: &PathBuf| {
        let may = |path: &Path| path.metadata().is_ok_and(|found| found.mode() & 0o005 == 0o005);
        path.ancestors().all(may)
    };
    let others = python::on_path(search_path, "uv").filter_map(|path| path.canonicalize().ok());
    own.filter(|path| path.is_file()).chain(others.filter(is_open)).next()
}

/// Runs one step to its end and passes on each line of its error stream.
///
/// The child's standard input is the lock file: if this process is killed, the child holds the lock
/// until it ends, so no other process removes a folder that is still written to.
pub(super) fn run(
    doing: &'static str,
    command: &mut Command,
    held: &Held,
    on_line: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let failed = |reason: String| Error::Step { doing, reason };
    let outcome = stream(command, held.file(), on_line);
    let (success, ending, lines) = outcome.map_err(|error| failed(error.to_string()))?;
    if success { Ok(()) } else { Err(failed(reason(&lines).unwrap_or(ending))) }
}

/// Removes a folder, if it exists.
pub(super) fn remove_tree(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn usable(path: PathBuf) -> Option<Uv> {
    // A `uv` on the search path may be a stub of a version manager that only prints an error.
    let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.strip_prefix("uv ")?.split_whitespace().next()?.to_owned();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let series = (numbers.next()??, numbers.next()??);
    (output.status.success() && series >= UV_VERSION_MIN).then_some(Uv { path, version })
}

/// Downloads `uv` with the pip of any interpreter: it is a program, not a library.
fn fetch(
    tools: &Path,
    staging: &Path,
    options: &CreateOptions,
    python: Option<&Facts>,
    held: &Held,
) -> Result<(), Error> {
    let mut pythons = python::candidates(options);
    pythons.splice(..0, python.map(|facts| facts.base_executable.clone()));
    let Some(with_pip) = pythons.iter().find(|path| has_pip(path)) else {
        return Err(Error::NoUv);
    };
    let requirements = tools.join("uv.lock");
    fs::write(&requirements, UV_LOCK).map_err(Error::io("write", &requirements))?;
    let mut command = Command::new(with_pip);
    command.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]);
    command.args(["--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]);
    command.arg("--target").arg(staging).arg("-r").arg(&requirements).current_dir(tools);
    // Settings of the operator that conflict with `--target`.
    command.env("PIP_USER", "0").env("PIP_REQUIRE_VIRTUALENV", "0");
    if let Some(wheelhouse) = options.wheelhouse_checked()? {
        command.arg("--no-index").arg("--find-links").arg(wheelhouse);
    }
    run("downloading uv, which is not installed,", &mut command, held, &mut |_| ())
}

fn has_pip(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "--version"]).stdin(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

fn stream(
    command: &mut Command,
    held: &File,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<(bool, String, VecDeque<String>)> {
    let mut child =
        command.stdin(held.try_clone()?).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut lines = VecDeque::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
            on_line(&line);
            lines.push_back(line);
            if lines.len() > LAST_LINES_MAX {
                lines.pop_front();
            }
        }
    }
    let status = child.wait()?;
    Ok((status.success(), format!("it ended with {status}"), lines))
}

/// Error message as one line: from the first error line to the end, without frames and marks.
fn reason(lines: &VecDeque<String>) -> Option<String> {
    let is_error = |line: &&String| {
        let line = line.trim_start().to_ascii_lowercase();
        line.starts_with("error") || line.starts_with('×')
    };
    let first = lines.iter().position(|line| is_error(&line))?;
    let mut text = String::new();
    for word in lines.iter().skip(first).flat_map(|line| line.split_whitespace()) {
        match word {
            "×" | "│" | "error:" | "ERROR:" => {}
            "cause:" | "╰─▶" | "├─▶" => text.push(':'),
            word if text.is_empty() => text.push_str(word),
            word => text.extend([" ", word]),
        }
    }
    let text: String = text.chars().take(REASON_CHARS_MAX).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_become_one_line() {
        let table = [
            (
                "Resolved 1 package\nerror: Failed to download `six`\n  cause: Hash mismatch\n",
                Some("Failed to download `six`: Hash mismatch"),
            ),
            (
                "  × No solution found\n  ╰─▶ Because a\n      was not found",
                Some("No solution found: Because a was not found"),
            ),
            ("ERROR: No matching distribution", Some("No matching distribution")),
            ("Killed", None),
        ];
        for (said, expected) in table {
            let lines = said.lines().map(str::to_owned).collect();
            assert_eq!(reason(&lines).as_deref(), expected);
        }
    }
}
