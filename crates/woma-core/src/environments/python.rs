//! Interpreters: discovery, probing, and the folders that they need.
//!
//! A probe runs code of the interpreter only, never of installed packages.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::{CreateOptions, Error, Version};

/// Versions for which the locked packages have wheels; others are used only if named.
const LOCKED_MINORS: std::ops::RangeInclusive<u8> = 10..=14;
/// Time limit of a probe: a candidate may be a script that never ends.
const PROBE_WALL_MAX: Duration = Duration::from_secs(20);
const PROBE_BYTES_MAX: u64 = 256 * 1024;
/// Limit of probed candidates.
const CANDIDATES_MAX: usize = 32;
const PROBE: &str = include_str!("probe.py");

/// Output of `probe.py` for a supported interpreter.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Facts {
    pub(super) version: Version,
    pub(super) executable: PathBuf,
    pub(super) prefix: PathBuf,
    pub(super) base_prefix: PathBuf,
    pub(super) base_executable: PathBuf,
    pub(super) stdlib: PathBuf,
    pub(super) free_threaded: bool,
    pub(super) has_ipython: bool,
    pub(super) folders: Vec<PathBuf>,
    pub(super) packages: Vec<PathBuf>,
}

/// Part of the output that every interpreter prints.
#[derive(Debug, Deserialize)]
struct Identity {
    implementation: String,
    version: Version,
}

/// Base interpreter: the named one, or the first suitable one.
pub(super) fn find(options: &CreateOptions) -> Result<Facts, Error> {
    if let Some(named) = &options.python {
        return probe(&resolve(named, &options.search_path)?);
    }
    let mut tried = Vec::new();
    for candidate in candidates(options) {
        match probe(&candidate) {
            Ok(facts) => match rejection(&facts) {
                None => return Ok(facts),
                Some(why) => tried.push(format!("`{}`: {why}", candidate.display())),
            },
            Err(Error::Unsupported { implementation, version, .. }) => {
                tried.push(format!("`{}`: {implementation} {version}", candidate.display()));
            }
            Err(_) => tried.push(format!("`{}`: does not start", candidate.display())),
        }
    }
    if tried.is_empty() {
        tried.push("every `python3` on the search path".to_owned());
    }
    Err(Error::NoPython { tried: tried.join(", ") })
}

/// Interpreters to probe. Those of the system come first, because every user can read them.
pub(super) fn candidates(options: &CreateOptions) -> Vec<PathBuf> {
    let names = std::iter::once("python3".to_owned())
        .chain(LOCKED_MINORS.rev().map(|minor| format!("python3.{minor}")))
        .chain(std::iter::once("python".to_owned()));
    let found = names.flat_map(|name| on_path(&options.search_path, &name).collect::<Vec<_>>());
    let mut candidates: Vec<PathBuf> = Vec::new();
    for path in options.system_pythons.iter().filter(|path| path.exists()).cloned().chain(found) {
        if !candidates.contains(&path) {
            candidates.push(path);
        }
    }
    candidates.truncate(CANDIDATES_MAX);
    candidates
}

/// Files of that name on a search path, without relative entries, which depend on the current
/// folder.
pub(super) fn on_path(search_path: &OsStr, name: &str) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(search_path)
        .filter(|folder| folder.is_absolute())
        .map(move |folder| folder.join(name))
        .filter(|path| path.is_file())
}

/// Runs an interpreter and parses its self-description.
pub(super) fn probe(python: &Path) -> Result<Facts, Error> {
    let not_starting = |reason: String| Error::NotStarting { python: python.to_owned(), reason };
    let said = run_probe(python).map_err(|error| not_starting(error.to_string()))?;
    // Start-up hooks may print too; the last matching line is that of the probe.
    let Some(line) = said.lines().rev().find(|line| line.starts_with("{\"implementation\"")) else {
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        return Err(not_starting(last.unwrap_or("it printed nothing").chars().take(200).collect()));
    };
    let unreadable = |error: serde_json::Error| not_starting(error.to_string());
    let identity: Identity = serde_json::from_str(line).map_err(unreadable)?;
    if identity.implementation != "CPython" || identity.version < Version(3, 10, 0) {
        let Identity { implementation, version } = identity;
        return Err(Error::Unsupported { python: python.to_owned(), implementation, version });
    }
    serde_json::from_str(line).map_err(unreadable)
}

/// Smallest set of folders to mount for all of `folders`. System folders are always mounted.
pub(super) fn mounts(folders: &[PathBuf]) -> Vec<PathBuf> {
    const SYSTEM: [&str; 6] = ["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin"];
    let mut sorted: Vec<&PathBuf> = folders
        .iter()
        .filter(|folder| folder.is_absolute() && folder.parent().is_some())
        .filter(|folder| !SYSTEM.iter().any(|system| folder.starts_with(system)))
        .collect();
    sorted.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in sorted {
        // Sorted by component, a folder follows its ancestors.
        if !kept.iter().any(|above| folder.starts_with(above)) {
            kept.push(folder.clone());
        }
    }
    kept
}

/// Reason not to select a working interpreter by default.
fn rejection(facts: &Facts) -> Option<String> {
    let Version(major, minor, _) = facts.version;
    if major != 3 || !LOCKED_MINORS.contains(&minor) {
        return Some(format!("CPython {}", facts.version));
    }
    facts.free_threaded.then(|| "a free-threaded build".to_owned())
}

/// Resolves a name such as `python3.12` on the search path; text with a slash is a path.
fn resolve(named: &Path, search_path: &OsStr) -> Result<PathBuf, Error> {
    let path = match named.to_str() {
        Some(name) if !name.contains('/') => on_path(search_path, name).next(),
        _ => std::path::absolute(named).ok(),
    };
    path.filter(|path| path.is_file()).ok_or_else(|| Error::Missing(named.to_owned()))
}

fn run_probe(python: &Path) -> io::Result<String> {
    let (reader, writer) = io::pipe()?;
    let mut child = Command::new(python)
        .args(["-I", "-B", "-c", PROBE])
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    // The `Command` and its copies of the writer are dropped, so the reader sees the end of file.
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        let mut said = Vec::new();
        let outcome = reader.take(PROBE_BYTES_MAX).read_to_end(&mut said);
        // Fails only if the receiver has timed out.
        drop(sender.send(outcome.map(|_| said)));
    });
    let said = answer.recv_timeout(PROBE_WALL_MAX);
    kill(&mut child)?;
    let said = said.map_err(|_| io::Error::other("it did not answer in time"))??;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Kills a probe that has closed its output or timed out.
fn kill(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_minimal_and_never_the_root() {
        let table: [(&[&str], &[&str]); 5] = [
            (&["/usr", "/usr/lib/python3.11", "/bin", "/"], &[]),
            (&["/data/env", "/usr", "/data/env/lib/site-packages"], &["/data/env"]),
            (&["/opt/py/lib", "/opt/py", "/opt/py-3.12"], &["/opt/py", "/opt/py-3.12"]),
            (&["/home/a/bin", "/home/a/env"], &["/home/a/bin", "/home/a/env"]),
            (&["relative", "/etc/alternatives"], &["/etc/alternatives"]),
        ];
        for (folders, expected) in table {
            let folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(mounts(&folders), expected, "of {folders:?}");
        }
    }
}
