//! Data folder and environment, for commands that need no other setting: flags, then environment
//! variables, then defaults.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use woma_core::environments::{self, CreateOptions, Environment, Environments};

use super::flags::DataOptions;
use crate::terminal::{Progress, tell};

/// Data folder, and the environment to use.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) folder: PathBuf,
    /// `PATH`, for finding Python and uv.
    search_path: OsString,
    environment: Option<String>,
    /// Folder of templates of environments.
    pub(crate) templates: PathBuf,
    /// User to run as, when started as root.
    pub(crate) run_as: Option<String>,
}

impl Data {
    pub(crate) fn new(options: &DataOptions) -> Result<Self, Box<dyn Error>> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let named = options.data_dir.clone().or_else(|| set("WOMA_DATA_DIR").map(PathBuf::from));
        let folder = named.or_else(|| default_folder(&set, is_root()));
        let folder = folder.ok_or("neither HOME nor WOMA_DATA_DIR is set: use --data-dir DIR")?;
        let search_path = set("PATH").unwrap_or_default();
        let text = |given: &Option<String>, name: &str| match (given, set(name)) {
            (Some(named), _) => Ok(Some(named.clone())),
            (None, Some(named)) => {
                named.into_string().map(Some).map_err(|_| format!("{name} is not UTF-8 text"))
            }
            (None, None) => Ok(None),
        };
        let environment = text(&options.env, "WOMA_ENV")?;
        if options.user.is_some() && !is_root() {
            tell(
                "woma: --user has no effect: the process was not started as root, and keeps its user",
            );
        }
        let run_as = text(&options.user, "RUN_AS")?;
        let templates = set("ENVIRONMENTS_DIR").map(PathBuf::from);
        let templates = templates.unwrap_or_else(|| folder.join("environments"));
        Ok(Self { folder, search_path, environment, templates, run_as })
    }

    /// Whether a flag or a variable names a Python environment.
    pub(crate) fn names_environment(&self) -> bool {
        self.environment.is_some()
    }

    pub(crate) fn environments(&self) -> Result<Environments, environments::Error> {
        Environments::open(&self.folder)
    }

    pub(crate) fn create_options(&self) -> CreateOptions {
        CreateOptions::new(self.search_path.clone())
    }

    /// The requested environment; the default one is created on first use.
    pub(crate) fn environment(&self) -> Result<Environment, environments::Error> {
        let mut environment = self.environment_alone()?;
        environment.installer =
            environments::installer(&self.folder, &environment, &self.search_path);
        Ok(environment)
    }

    fn environment_alone(&self) -> Result<Environment, environments::Error> {
        match &self.environment {
            Some(path) if path.contains('/') => environments::inspect(path.as_ref()),
            Some(name) => self.environments()?.find(name),
            None => {
                let mut progress = Progress::new();
                self.environments()?
                    .ensure_default(&self.create_options(), &mut |step| progress.show(step))
            }
        }
    }

    /// An environment by name or path, with its installer.
    pub(crate) fn find(&self, named: &str) -> Result<Environment, environments::Error> {
        let mut environment = self.environments()?.find(named)?;
        environment.installer =
            environments::installer(&self.folder, &environment, &self.search_path);
        Ok(environment)
    }

    /// As [`Data::environment`], but creates nothing.
    pub(crate) fn environment_if_made(&self) -> Result<Option<Environment>, environments::Error> {
        if self.environment.is_some() {
            return self.environment().map(Some);
        }
        match self.environments()?.find("default") {
            Ok(_) => self.environment().map(Some),
            Err(environments::Error::Unknown(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Default data folder.
pub(super) fn default_folder(
    find: &dyn Fn(&str) -> Option<OsString>,
    is_root: bool,
) -> Option<PathBuf> {
    if is_root {
        return Some("/var/lib/woma".into());
    }
    let shared = find("XDG_DATA_HOME").map(PathBuf::from);
    let shared =
        shared.or_else(|| find("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    shared.map(|shared| shared.join("woma"))
}

/// Home of the person who started the program.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}
