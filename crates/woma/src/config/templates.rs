//! Templates of named environments: files `NAME.toml` in one folder, written by the operator.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use woma_core::environments::{
    Contents, Environment, EnvironmentLimits, Error as EnvironmentError, MadeEnvironment,
    NAMED_MAX, NamedEnvironment, check_name,
};

use super::data::{Data, is_root};
use crate::units;

/// Largest template, in bytes.
const TEMPLATE_BYTES_MAX: u64 = 64 * 1024;
const MEMORY_BYTES_MIN: u64 = 32 * 1024 * 1024;
const TIMEOUT_MAX_S: f64 = 7.0 * 24.0 * 3600.0;

/// A template that cannot be used; the sentence names the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("the template {} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the template {} is wrong: {reason}", path.display())]
    Wrong { path: PathBuf, reason: String },
    #[error(
        "{} must belong to root and be writable by nobody else: a server that was started as root \
         believes it", path.display()
    )]
    NotRoots { path: PathBuf },
    #[error("{} has more than {NAMED_MAX} templates", folder.display())]
    TooMany { folder: PathBuf },
}

/// A file as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    description: String,
    /// CPython to build on: a path, a name such as `python3.12`, or a version such as `3.12`.
    python: Option<String>,
    /// Requirements with hashes; a path relative to the template.
    lock: Option<PathBuf>,
    #[serde(default)]
    packages: Vec<String>,
    /// An environment that exists: a name in `woma env list`, or a path.
    env: Option<String>,
    preload: Option<Preload>,
    policy: Option<String>,
    #[serde(default)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Preload {
    Base,
    Full,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// Seconds.
    timeout: Option<f64>,
    /// A size such as `512m`.
    memory: Option<String>,
    cpus: Option<f64>,
    processes: Option<u64>,
}

/// A template that was read and checked.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) description: String,
    pub(crate) policy: Option<String>,
    pub(crate) origin: TemplateOrigin,
    preloads_all: Option<bool>,
    pub(crate) limits: EnvironmentLimits,
}

/// Origin of the packages of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplateOrigin {
    /// The default environment itself.
    Default,
    /// One that exists, by name or path.
    Existing(String),
    /// One that `woma env create` makes.
    Made { python: Option<PathBuf>, contents: Contents },
}

/// The templates in a folder, by name; none if the folder does not exist.
pub(crate) fn read(folder: &Path) -> Result<BTreeMap<String, Template>, TemplateError> {
    let unreadable = |source| TemplateError::Unreadable { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.map_err(unreadable)?,
    };
    check_owner(folder)?;
    let mut templates = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let template = read_one(&path)?;
            templates.insert(template.name.clone(), template);
        }
        if templates.len() > NAMED_MAX {
            return Err(TemplateError::TooMany { folder: folder.to_owned() });
        }
    }
    Ok(templates)
}

fn read_one(path: &Path) -> Result<Template, TemplateError> {
    let unreadable = |source| TemplateError::Unreadable { path: path.to_owned(), source };
    check_owner(path)?;
    let bytes = path.metadata().map_err(unreadable)?.len();
    let wrong = |reason: String| TemplateError::Wrong { path: path.to_owned(), reason };
    if bytes > TEMPLATE_BYTES_MAX {
        return Err(wrong(format!("it has {bytes} bytes; the limit is {TEMPLATE_BYTES_MAX}")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    template(path, file).map_err(wrong)
}

/// Refuses a file that others may write, if a server that was started as root believes it.
fn check_owner(path: &Path) -> Result<(), TemplateError> {
    if !is_root() {
        return Ok(());
    }
    let unreadable = |source| TemplateError::Unreadable { path: path.to_owned(), source };
    let found = path.metadata().map_err(unreadable)?;
    match found.uid() == 0 && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(TemplateError::NotRoots { path: path.to_owned() }),
    }
}

fn template(path: &Path, file: File) -> Result<Template, String> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    check_name(&name).map_err(|error| error.to_string())?;
    if name == "default" || name.starts_with("default-") {
        return Err(format!("`{name}` is reserved for the default environment"));
    }
    let File { description, python, lock, packages, env, preload, policy, limits } = file;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let python = python.map(|text| python_of(&text)).transpose()?;
    let is_made = python.is_some() || lock.is_some() || !packages.is_empty();
    let origin = match (env, is_made) {
        (Some(_), true) => {
            return Err("`env` names an environment that exists: leave `python`, `lock` and \
                        `packages` out"
                .to_owned());
        }
        (Some(env), false) => TemplateOrigin::Existing(env),
        (None, false) => TemplateOrigin::Default,
        (None, true) => {
            let contents = match (lock, packages.is_empty()) {
                (Some(_), false) => {
                    return Err("`lock` has all packages: leave `packages` out, or lock them too \
                                (`woma env freeze`)"
                        .to_owned());
                }
                (Some(lock), true) => Contents::Lock(folder.join(lock)),
                (None, false) => Contents::Packages(packages),
                (None, true) => Contents::Default,
            };
            TemplateOrigin::Made { python, contents }
        }
    };
    Ok(Template {
        path: path.to_owned(),
        name,
        description,
        policy,
        origin,
        preloads_all: preload.map(|preload| preload == Preload::Full),
        limits: limits_of(&limits)?,
    })
}

/// `3.12` names `python3.12` on the search path.
fn python_of(text: &str) -> Result<PathBuf, String> {
    let is_version = text.split('.').all(|part| part.parse::<u8>().is_ok());
    match text {
        "" => Err("`python` is empty: name a path, `python3.12` or `3.12`".to_owned()),
        version if is_version => Ok(format!("python{version}").into()),
        named => Ok(named.into()),
    }
}

fn limits_of(limits: &Limits) -> Result<EnvironmentLimits, String> {
    let timeout = match limits.timeout {
        None => None,
        Some(seconds) if (0.1..=TIMEOUT_MAX_S).contains(&seconds) => {
            Some(Duration::from_secs_f64(seconds))
        }
        Some(seconds) => return Err(format!("limits.timeout is {seconds} seconds")),
    };
    let memory_bytes = match limits.memory.as_deref().map(|text| (text, units::bytes(text))) {
        None => None,
        Some((_, Some(bytes))) if bytes >= MEMORY_BYTES_MIN => Some(bytes),
        Some((text, _)) => {
            return Err(format!("limits.memory is `{text}`: a size such as 512m, at least 32m"));
        }
    };
    let cpu_cores = match limits.cpus {
        Some(cpus) if !(0.01..=1024.0).contains(&cpus) => {
            return Err(format!("limits.cpus is {cpus}: between 0.01 and 1024"));
        }
        cpus => cpus,
    };
    let processes = match limits.processes {
        Some(processes) if processes < 8 => {
            return Err("limits.processes must be at least 8".to_owned());
        }
        processes => processes,
    };
    Ok(EnvironmentLimits { timeout, memory_bytes, cpu_cores, processes })
}

impl Data {
    /// The environments of templates, as a server offers them. One that has not been made is listed
    /// with the reason.
    pub(crate) fn named_environments(
        &self,
        folder: &Path,
        default: &MadeEnvironment,
        preloads_all: bool,
    ) -> Result<Vec<NamedEnvironment>, TemplateError> {
        let templates = read(folder)?.into_values();
        let named = templates.map(|template| NamedEnvironment {
            made: self.made(&template, default),
            preloads_all: template.preloads_all.unwrap_or(preloads_all),
            name: template.name,
            description: template.description,
            policy: template.policy,
            limits: template.limits,
        });
        Ok(named.collect())
    }

    fn made(
        &self,
        template: &Template,
        default: &MadeEnvironment,
    ) -> Result<MadeEnvironment, String> {
        let found = match &template.origin {
            TemplateOrigin::Default => return Ok(default.clone()),
            TemplateOrigin::Existing(named) => self.find(named),
            TemplateOrigin::Made { .. } => self.find(&template.name),
        };
        let with_packages = found.and_then(|mut environment: Environment| {
            // Any installer serves any Python.
            let installer = || default.environment.installer.clone();
            environment.installer = environment.installer.take().or_else(installer);
            let packages = environment.packages()?;
            Ok(MadeEnvironment {
                packages: packages.into_iter().map(|one| (one.name, one.version)).collect(),
                environment,
            })
        });
        with_packages.map_err(|error| match error {
            EnvironmentError::Unknown(_) => "it has not been made yet".to_owned(),
            error => error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Result<Template, String> {
        let file = toml::from_str(text).map_err(|error| error.to_string())?;
        template(&Path::new("/t").join(name), file)
    }

    #[test]
    fn templates_name_where_their_packages_come_from() {
        let origin = |text: &str| parse("a.toml", text).unwrap().origin;
        assert_eq!(origin(""), TemplateOrigin::Default);
        assert_eq!(origin("env = '/opt/x'"), TemplateOrigin::Existing("/opt/x".to_owned()));
        let made = |python: Option<&str>, contents| TemplateOrigin::Made {
            python: python.map(PathBuf::from),
            contents,
        };
        assert_eq!(origin("python = '3.12'"), made(Some("python3.12"), Contents::Default));
        let lock = Contents::Lock("/t/b.lock".into());
        assert_eq!(origin("lock = 'b.lock'"), made(None, lock));
        let packages = Contents::Packages(vec!["six".to_owned()]);
        assert_eq!(origin("packages = ['six']\npython = '/p'"), made(Some("/p"), packages));
    }

    #[test]
    fn mistakes_are_named() {
        for (name, text, part) in [
            ("default.toml", "", "reserved"),
            ("A b.toml", "", "cannot name an environment"),
            ("a.toml", "lok = 'x'", "unknown field `lok`"),
            ("a.toml", "lock = 'x'\npackages = ['y']", "leave `packages` out"),
            ("a.toml", "env = 'x'\npython = '3.12'", "names an environment that exists"),
            ("a.toml", "[limits]\nmemory = '1k'", "limits.memory"),
            ("a.toml", "[limits]\ntimeout = -1", "limits.timeout"),
            ("a.toml", "[limits]\ncpus = 0", "limits.cpus"),
            ("a.toml", "[limits]\nprocesses = 1", "limits.processes"),
            ("a.toml", "preload = 'all'", "unknown variant"),
        ] {
            let error = parse(name, text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let limits = parse("a.toml", "[limits]\nmemory = '1g'\ntimeout = 5").unwrap().limits;
        assert_eq!(limits.memory_bytes, Some(1 << 30));
        assert_eq!(limits.timeout, Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_folder_has_at_most_so_many_templates() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(&folder.path().join("absent")).unwrap().is_empty());
        for n in 0..NAMED_MAX {
            fs::write(folder.path().join(format!("e{n}.toml")), "").unwrap();
        }
        assert_eq!(read(folder.path()).unwrap().len(), NAMED_MAX);
        fs::write(folder.path().join("more.toml"), "").unwrap();
        assert!(matches!(read(folder.path()), Err(TemplateError::TooMany { .. })));
    }
}
