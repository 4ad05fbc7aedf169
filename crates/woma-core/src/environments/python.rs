//! Interpreters: which there are, what each says about itself, and what it needs to be seen of it.
//!
//! A probe runs code of the interpreter only, never of the packages installed for it.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::{CreateOptions, Error, Version};

/// The locked packages have wheels for these; a newer Python is used only when named.
const LOCKED_MINORS: std::ops::RangeInclusive<u8> = 10..=14;
/// A script that waits for ever must not make us wait with it.
const PROBE_WALL_MAX: Duration = Duration::from_secs(20);
const PROBE_BYTES_MAX: u64 = 256 * 1024;
/// A search path with more interpreters than this has no suitable one among the first either.
const CANDIDATES_MAX: usize = 32;
const PROBE: &str = include_str!("probe.py");

/// What `probe.py` says of an interpreter that we can use.
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

/// The part that every interpreter can answer.
#[derive(Debug, Deserialize)]
struct Identity {
    implementation: String,
    version: Version,
}

/// The interpreter to build on: the named one, or the first that fits.
pub(super) fn find(options: &CreateOptions) -> Result<Facts, Error> {
    if let Some(named) = &options.python {
        return probe(&spelled(named, &options.search_path)?);
    }
    let mut tried = Vec::new();
    for candidate in candidates(options) {
        match probe(&candidate) {
            Ok(facts) => match objection(&facts) {
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

/// Every interpreter worth a probe. The system's own come first: every user can read them.
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

/// Every file of that name on a search path; relative entries depend on where we stand: left out.
pub(super) fn on_path(search_path: &OsStr, name: &str) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(search_path)
        .filter(|folder| folder.is_absolute())
        .map(move |folder| folder.join(name))
        .filter(|path| path.is_file())
}

/// Runs an interpreter and reads what it says about itself.
pub(super) fn probe(python: &Path) -> Result<Facts, Error> {
    let not_starting = |reason: String| Error::NotStarting { python: python.to_owned(), reason };
    let said = ask(python).map_err(|error| not_starting(error.to_string()))?;
    // Start-up hooks of an environment may print; our line is the last that looks like ours.
    let Some(line) = said.lines().rev().find(|line| line.starts_with("{\"implementation\"")) else {
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        return Err(not_starting(last.unwrap_or("it says nothing").chars().take(200).collect()));
    };
    let unreadable = |error: serde_json::Error| not_starting(error.to_string());
    let identity: Identity = serde_json::from_str(line).map_err(unreadable)?;
    if identity.implementation != "CPython" || identity.version < Version(3, 10, 0) {
        let Identity { implementation, version } = identity;
        return Err(Error::Unsupported { python: python.to_owned(), implementation, version });
    }
    serde_json::from_str(line).map_err(unreadable)
}

/// The fewest folders that make all of `folders` visible. What the system owns is visible anyway.
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
        // Sorted by component, a folder follows everything above it.
        if !kept.iter().any(|above| folder.starts_with(above)) {
            kept.push(folder.clone());
        }
    }
    kept
}

/// Why an interpreter that works is still not the one to choose unasked.
fn objection(facts: &Facts) -> Option<String> {
    let Version(major, minor, _) = facts.version;
    if major != 3 || !LOCKED_MINORS.contains(&minor) {
        return Some(format!("CPython {}", facts.version));
    }
    facts.free_threaded.then(|| "a free-threaded build".to_owned())
}

/// `python3.12` is looked up, anything with a slash is a path.
fn spelled(named: &Path, search_path: &OsStr) -> Result<PathBuf, Error> {
    let path = match named.to_str() {
        Some(name) if !name.contains('/') => on_path(search_path, name).next(),
        _ => std::path::absolute(named).ok(),
    };
    path.filter(|path| path.is_file()).ok_or_else(|| Error::Missing(named.to_owned()))
}

fn ask(python: &Path) -> io::Result<String> {
    let (reader, writer) = io::pipe()?;
    let mut child = Command::new(python)
        .args(["-I", "-B", "-c", PROBE])
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    // The command that held our copies of the writing end is gone by now: the end comes with it.
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        let mut said = Vec::new();
        let outcome = reader.take(PROBE_BYTES_MAX).read_to_end(&mut said);
        // The other side has given up when this fails; there is nobody left to tell.
        drop(sender.send(outcome.map(|_| said)));
    });
    let said = answer.recv_timeout(PROBE_WALL_MAX);
    end(&mut child)?;
    let said = said.map_err(|_| io::Error::other("it does not answer"))??;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Closed its output or out of time: either way it has nothing more to say.
fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_few_and_never_the_whole_disk() {
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
