//! Python environments: created from a lock, found, inspected, listed and removed.
//!
//! `<data>/envs/<name>/` is a complete environment or does not exist: it is built under another
//! name and renamed at the end. All functions block; callers on a runtime use a separate thread.
//! Code of an installed package never runs here, only in the sandbox.

mod build;
mod error;
mod inspect;
mod lock;
mod model;
mod named;
mod packages;
mod python;
mod record;
mod uv;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

pub use error::Error;
pub use inspect::inspect;
pub use model::{
    Contents, CreateOptions, Environment, Info, Listed, Managed, Progress, Report, Version,
};
pub use named::{EnvironmentInfo, EnvironmentLimits, MadeEnvironment, NAMED_MAX, NamedEnvironment};
pub use packages::Package;
pub use uv::UV_LOCK;

/// Lock of the default environment: every version and hash, for Python 3.10 to 3.14.
pub const DEFAULT_LOCK: &str = include_str!("../../environment/default.lock");
static DEFAULT_LOCK_DIGEST: LazyLock<String> = LazyLock::new(|| record::digest(DEFAULT_LOCK));
/// Copy of its lock in an environment.
const LOCK_COPY: &str = "woma-environment.lock";
const NAME_BYTES_MAX: usize = 64;

/// The environments of one data directory.
#[derive(Debug, Clone)]
pub struct Environments {
    folder: PathBuf,
    tools: PathBuf,
}

impl Environments {
    /// Opens `<data_dir>/envs`; creates it if it is missing.
    pub fn open(data_dir: &Path) -> Result<Self, Error> {
        let refused = |source| Error::DataDirectory { path: data_dir.to_owned(), source };
        let data_dir = std::path::absolute(data_dir).map_err(refused)?;
        let folder = data_dir.join("envs");
        fs::create_dir_all(&folder).map_err(refused)?;
        Ok(Self { folder, tools: data_dir.join("tools") })
    }

    /// Returns the default environment; creates it if it is missing.
    ///
    /// Its name contains a digest of the lock and the interpreter, so a new lock creates a new
    /// environment beside the old one, which running sessions keep.
    pub fn ensure_default(
        &self,
        options: &CreateOptions,
        report: &mut Report<'_>,
    ) -> Result<Environment, Error> {
        if options.python.is_none()
            && let Some(ready) = self.current_default()?
        {
            return Ok(ready);
        }
        let started = Instant::now();
        let python = look_for_python(options, report)?;
        let name = default_name(&python);
        if let Some(ready) = record::read(&name, &self.folder.join(&name)) {
            return Ok(ready);
        }
        let held = self.begin(&name, options, report)?;
        if let Some(ready) = record::read(&name, &self.folder.join(&name)) {
            return Ok(ready);
        }
        self.discard(&name)?;
        let request = build::Request {
            name: &name,
            lock_text: DEFAULT_LOCK,
            lock_path: None,
            python: &python,
            options,
        };
        let created = self.build(&request, &held, report)?;
        report(Progress::Done { took: started.elapsed() });
        Ok(created)
    }

    /// Creates an environment. Every requirement in a lock must have its hashes.
    pub fn create(
        &self,
        name: &str,
        contents: &Contents,
        options: &CreateOptions,
        report: &mut Report<'_>,
    ) -> Result<Environment, Error> {
        check_name(name)?;
        if name == "default" || name.starts_with("default-") {
            return Err(Error::ReservedName(name.to_owned()));
        }
        let requirements = match contents {
            Contents::Lock(path) => Some(read_requirements(path)?),
            Contents::Default | Contents::Packages(_) => None,
        };
        let started = Instant::now();
        let held = self.begin(name, options, report)?;
        if self.folder.join(name).exists() {
            return Err(Error::Exists(name.to_owned()));
        }
        let python = look_for_python(options, report)?;
        let locked = match contents {
            Contents::Packages(packages) => {
                let uv = uv::locate(&self.tools, options, Some(&python), report)?;
                report(Progress::Locking);
                let work = self.folder.join(format!(".making-{name}"));
                Some(build::lock(work, packages, (&uv, &python, options), &held)?)
            }
            Contents::Default | Contents::Lock(_) => None,
        };
        let (lock_text, lock_path) = match (&requirements, &locked) {
            (Some((path, text)), _) => (text.as_str(), Some(path.as_path())),
            (None, Some(text)) => (text.as_str(), None),
            (None, None) => (DEFAULT_LOCK, None),
        };
        let request = build::Request { name, lock_text, lock_path, python: &python, options };
        let created = self.build(&request, &held, report)?;
        report(Progress::Done { took: started.elapsed() });
        Ok(created)
    }

    /// All environments by name, including broken ones.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        for name in self.names()? {
            if name.starts_with('.') {
                continue;
            }
            let environment = record::read(&name, &self.folder.join(&name));
            let is_current = environment.as_ref().and_then(|found| found.managed.as_ref());
            let is_current =
                is_current.is_some_and(|managed| managed.lock_digest == *DEFAULT_LOCK_DIGEST);
            let stale = name.starts_with("default-") && !is_current;
            listed.push(Listed { name, environment, stale });
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// Environment by name (`default` for the current default) or by a path, which contains a `/`.
    pub fn find(&self, name_or_path: &str) -> Result<Environment, Error> {
        if name_or_path.contains('/') {
            return inspect(Path::new(name_or_path));
        }
        let name = self.full_name(name_or_path)?;
        record::read(&name, &self.folder.join(&name)).ok_or(Error::Broken(name))
    }

    /// Details of an environment, by name or path.
    pub fn info(&self, name_or_path: &str) -> Result<Info, Error> {
        let environment = self.find(name_or_path)?;
        let packages = packages::list(&environment.package_folders)?;
        let bytes_on_disk = packages::bytes_on_disk(&environment.prefix)?;
        Ok(Info { environment, packages, bytes_on_disk })
    }

    /// Removes an environment, broken or not. Sessions that run in it lose their files.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let name = self.full_name(name)?;
        let held = lock::attempt(&self.lock_path(&name))?;
        let _held = held.ok_or_else(|| Error::Busy(name.clone()))?;
        self.discard(&name)
    }

    /// Removes default environments of other locks; returns their names.
    pub fn remove_stale(&self) -> Result<Vec<String>, Error> {
        let stale = self.list()?.into_iter().filter(|listed| listed.stale);
        stale.map(|listed| self.remove(&listed.name).map(|()| listed.name)).collect()
    }

    /// Path of the installer `uv`; downloads it if it is missing.
    pub fn uv(&self, options: &CreateOptions, report: &mut Report<'_>) -> Result<PathBuf, Error> {
        let found = uv::locate(&self.tools, options, None, report)?;
        Ok(found.path)
    }

    /// Newest default environment of this lock, for any interpreter.
    fn current_default(&self) -> Result<Option<Environment>, Error> {
        let defaults = self.list()?.into_iter();
        let defaults =
            defaults.filter(|listed| listed.name.starts_with("default-") && !listed.stale);
        let created =
            |found: &Environment| found.managed.as_ref().map(|managed| managed.created_unix);
        Ok(defaults.filter_map(|listed| listed.environment).max_by_key(created))
    }

    /// Locks a name and removes leftovers of dead processes.
    fn begin(
        &self,
        name: &str,
        options: &CreateOptions,
        report: &mut Report<'_>,
    ) -> Result<lock::Held, Error> {
        options.wheelhouse_checked()?;
        let held = lock::wait(&self.lock_path(name), report)?;
        for leftover in self.names()? {
            let owner = leftover.strip_prefix(".making-").or(leftover.strip_prefix(".removing-"));
            let leftover = self.folder.join(&leftover);
            match owner {
                None => {}
                Some(owner) if owner == name => uv::remove_tree(&leftover)?,
                Some(owner) => self.remove_leftover(owner, &leftover),
            }
        }
        Ok(held)
    }

    /// Removes a leftover if its lock is free, which means that its process is dead.
    fn remove_leftover(&self, owner: &str, leftover: &Path) {
        let swept = lock::attempt(&self.lock_path(owner))
            .and_then(|theirs| theirs.map_or(Ok(()), |_theirs| uv::remove_tree(leftover)));
        if let Err(error) = swept {
            // Harmless: this creation uses another name.
            tracing::warn!(%error, "A leftover of environment {owner} could not be removed");
        }
    }

    fn build(
        &self,
        request: &build::Request<'_>,
        held: &lock::Held,
        report: &mut Report<'_>,
    ) -> Result<Environment, Error> {
        let uv = uv::locate(&self.tools, request.options, Some(request.python), report)?;
        let staging = self.folder.join(format!(".making-{}", request.name));
        let destination = self.folder.join(request.name);
        let plan = build::Plan { request, staging: &staging, destination: &destination, uv: &uv };
        build::build(&plan, held, report)
    }

    /// Removes an environment: first its name in one step, then its files. Call under its lock.
    fn discard(&self, name: &str) -> Result<(), Error> {
        let (path, removing) =
            (self.folder.join(name), self.folder.join(format!(".removing-{name}")));
        uv::remove_tree(&removing)?;
        if path.exists() {
            fs::rename(&path, &removing).map_err(Error::io("remove", &path))?;
        }
        uv::remove_tree(&removing)
    }

    fn full_name(&self, name: &str) -> Result<String, Error> {
        check_name(name)?;
        if name == "default" {
            let current = self.current_default()?.and_then(|found| found.managed);
            return current.map(|found| found.name).ok_or_else(|| Error::Unknown(name.to_owned()));
        }
        let exists = self.folder.join(name).is_dir();
        exists.then(|| name.to_owned()).ok_or_else(|| Error::Unknown(name.to_owned()))
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let entries = fs::read_dir(&self.folder).map_err(Error::io("read", &self.folder))?;
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        Ok(folders.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn lock_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!(".{name}.lock"))
    }
}

/// The installer for sessions in an environment, if there is one. Nothing is made or downloaded.
pub fn installer(
    data_dir: &Path,
    environment: &Environment,
    search_path: &OsStr,
) -> Option<PathBuf> {
    uv::find(&data_dir.join("tools"), &environment.prefix, search_path)
}

fn look_for_python(
    options: &CreateOptions,
    report: &mut Report<'_>,
) -> Result<python::Facts, Error> {
    report(Progress::LookingForPython);
    let facts = python::find(options)?;
    report(Progress::Found { python: facts.base_executable.clone(), version: facts.version });
    Ok(facts)
}

impl Environment {
    /// The lock that it was made from, if Woma has made it.
    pub fn lock_text(&self) -> Option<String> {
        self.managed.as_ref()?;
        fs::read_to_string(self.prefix.join(LOCK_COPY)).ok()
    }

    /// Installed distributions, sorted case-insensitively.
    pub fn packages(&self) -> Result<Vec<Package>, Error> {
        packages::list(&self.package_folders)
    }
}

/// Name of the default environment. It ignores patch releases of Python, which keep packages and
/// bytecode valid.
fn default_name(python: &python::Facts) -> String {
    let lock_digest = DEFAULT_LOCK_DIGEST.as_str();
    let (series, executable) = (python.version.library(), python.base_executable.display());
    let digest = record::digest(&format!("{lock_digest}\n{series}\n{executable}\n"));
    format!("default-{}", digest.get(..12).unwrap_or(&digest))
}

/// Checks that a text can name an environment.
pub fn check_name(name: &str) -> Result<(), Error> {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let is_first = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let is_valid = name.len() <= NAME_BYTES_MAX
        && name.as_bytes().first().is_some_and(is_first)
        && name.bytes().all(is_inner);
    if is_valid { Ok(()) } else { Err(Error::Name(name.chars().take(NAME_BYTES_MAX).collect())) }
}

fn read_requirements(path: &Path) -> Result<(PathBuf, String), Error> {
    let refused = |source| Error::Requirements { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(refused)?;
    Ok((std::path::absolute(path).map_err(refused)?, text))
}
