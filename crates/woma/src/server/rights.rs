//! Dropping of root privileges before any input is read: collects the files and folders that the
//! process needs afterwards; `woma-sandbox` does the rest.

use std::error::Error;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use woma_core::Service;
use woma_core::environments::{Environment, MadeEnvironment, NamedEnvironment, Package};
use woma_sandbox::rights::{self, Plan, User};

use crate::config::flags::DataOptions;
use crate::config::types::{KeySet, Preload};
use crate::config::{Config, Data, is_root};
use crate::terminal::tell;

/// Python environment of a server, inspected before privileges were dropped.
#[derive(Debug)]
pub(crate) struct PreparedEnvironment {
    pub(crate) environment: Environment,
    pub(crate) packages: Vec<Package>,
    /// Those that sessions can name.
    pub(crate) named: Vec<NamedEnvironment>,
}

impl PreparedEnvironment {
    pub(crate) fn new(
        config: &Config,
        data: &Data,
        environment: Environment,
    ) -> Result<Self, Box<dyn Error>> {
        let packages = environment.packages()?;
        let plain = |one: &Package| (one.name.clone(), one.version.clone());
        let default = MadeEnvironment {
            environment: environment.clone(),
            packages: packages.iter().map(plain).collect(),
        };
        let folder = config.environments_dir.clone();
        let folder = folder.unwrap_or_else(|| config.data_dir.join("environments"));
        let preloads_all = config.preload == Preload::Full;
        let named = data.named_environments(&folder, &default, preloads_all)?;
        Ok(Self { environment, packages, named })
    }

    /// Environments that are shown to sessions.
    fn shown(&self) -> Vec<rights::Environment> {
        let named = self.named.iter().filter_map(|named| named.made.as_ref().ok());
        std::iter::once(&self.environment)
            .chain(named.map(|made| &made.environment))
            .map(Service::sandbox_environment)
            .collect()
    }
}

/// Drops root for a server. `None` if it does not run as root, or `RUN_AS` is root.
pub(crate) fn drop_root_for_server(
    config: &Config,
) -> Result<Option<PreparedEnvironment>, Box<dyn Error>> {
    let Some(user) = user(config.run_as.as_deref(), &config.data_dir)? else {
        if is_root() {
            tell("woma: RUN_AS is root: the server keeps root privileges, against least privilege");
            let folders = [Some(&config.data_dir), config.sandbox_dir.as_ref()];
            folders.into_iter().flatten().try_for_each(|folder| rights::take_back(folder))?;
        }
        return Ok(None);
    };
    let data = Data::new(&DataOptions {
        data_dir: Some(config.data_dir.clone()),
        env: config.environment.clone(),
        user: None,
    })?;
    let sessions = config.sandbox_dir.clone();
    let sessions = sessions.unwrap_or_else(|| config.data_dir.join("sessions"));
    // Private to its owner, as the server would create it; the keeper needs its path.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&sessions)
        .map_err(|error| unusable(&config.data_dir, &error))?;
    let mut writable = hand_over(&config.data_dir, &user)?;
    if config.sandbox_dir.is_some() {
        writable.extend(hand_over(&sessions, &user)?);
    }
    writable.extend(exports(config, &user)?);
    let environment = environment(&data)?;
    let prepared = PreparedEnvironment::new(config, &data, environment)?;
    rights::give_up(&Plan {
        user,
        readable: readable(config),
        workspaces: vec![sessions],
        writable,
        environments: &prepared.shown(),
        uploads: config.upload_dir.as_deref(),
    })?;
    Ok(Some(prepared))
}

/// Drops root for `woma run`. Keeps root if a folder that the program uses is root's. `kept`: the
/// folder of the packages that programs need.
pub(crate) fn drop_root_for_run(
    data: &Data,
    environment: &Environment,
    (folders, kept): (&[&Path], Option<&Path>),
    shown: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    if !is_root() {
        return Ok(());
    }
    let owners: Vec<Option<u32>> =
        folders.iter().map(|folder| folder.metadata().ok().map(|found| found.uid())).collect();
    let named = match owners.as_slice() {
        [] => data.run_as.clone(),
        [Some(owner), others @ ..]
            if *owner != 0 && others.iter().all(|it| it == &Some(*owner)) =>
        {
            Some(owner.to_string())
        }
        _ => return Ok(()),
    };
    let Some(user) = user(named.as_deref(), &data.folder)? else { return Ok(()) };
    let mut workspaces: Vec<PathBuf> = folders.iter().map(|folder| folder.to_path_buf()).collect();
    let mut writable = workspaces.clone();
    if let Some(kept) = kept {
        writable.extend(hand_over(kept, &user)?);
        workspaces.push(kept.join("sessions"));
    }
    rights::give_up(&Plan {
        user,
        writable,
        readable: Vec::new(),
        workspaces,
        environments: &[Service::sandbox_environment(environment)],
        uploads: shown,
    })?;
    Ok(())
}

/// Becomes the server's user, for commands that create files which the server must read.
pub(crate) fn become_server_user(named: Option<&str>, folder: &Path) -> Result<(), Box<dyn Error>> {
    let Some(user) = user(named, folder)? else { return Ok(()) };
    hand_over(folder, &user)?;
    Ok(rights::become_user(&user, folder)?)
}

fn user(named: Option<&str>, folder: &Path) -> Result<Option<User>, Box<dyn Error>> {
    if !is_root() {
        return Ok(None);
    }
    rights::choose(named, folder).map_err(|error| format!("RUN_AS: {error}").into())
}

/// The folder of copies, if it is outside of the data folder. A new or empty one is handed over; any
/// other must be open to the server's user already: it may be one that others use too.
fn exports(config: &Config, user: &User) -> Result<Option<PathBuf>, Box<dyn Error>> {
    let Some(folder) = config.export_dir.as_ref() else { return Ok(None) };
    if folder.starts_with(&config.data_dir) {
        return Ok(None);
    }
    let unusable = |error: io::Error| format!("EXPORT_DIR ({}): {error}", folder.display());
    let make = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    make.map_err(unusable)?;
    if std::fs::read_dir(folder).map_err(unusable)?.next().is_none() {
        rights::hand_over(folder, user, &mut |text| tell(&format!("woma: {text}")))
            .map_err(unusable)?;
    }
    Ok(Some(folder.clone()))
}

fn hand_over(folder: &Path, user: &User) -> Result<Vec<PathBuf>, woma_core::Error> {
    let handed = rights::hand_over(folder, user, &mut |text| tell(&format!("woma: {text}")));
    handed.map_err(|error| unusable(folder, &error))
}

fn unusable(folder: &Path, error: &io::Error) -> woma_core::Error {
    woma_core::OpenError::DataFolder { folder: folder.to_owned(), reason: error.to_string() }.into()
}

/// Finds the environment. Root creates one only in a data folder that root owns: another owner
/// could plant programs there.
fn environment(data: &Data) -> Result<Environment, Box<dyn Error>> {
    if data.folder.metadata()?.uid() == 0 {
        return Ok(data.environment()?);
    }
    let missing = "there is no environment yet: create it with `woma env create` as the owner of \
                   the data folder";
    Ok(data.environment_if_made()?.ok_or(missing)?)
}

/// Files from the settings that are read without root. For the key set, which may be replaced by a
/// rename, its folder.
fn readable(config: &Config) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    paths.extend(config.s3_ca_file.clone());
    paths.extend(config.policy_file.clone());
    paths.extend(config.package_wheelhouse.clone());
    paths.extend(config.package_ca_file.clone());
    paths.extend(config.network_ca_file.clone());
    if let Some(KeySet::File(path)) = &config.jwt_jwks {
        let folder = path.parent().filter(|folder| folder.parent().is_some());
        paths.push(folder.unwrap_or(path).to_owned());
    }
    if let Some(url) = &config.database_url {
        let query = url.expose().split_once('?').map_or("", |(_, query)| query);
        let files = ["sslrootcert", "sslcert", "sslkey"];
        let named = query.split('&').filter_map(|pair| pair.split_once('='));
        paths.extend(named.filter(|(key, _)| files.contains(key)).map(|(_, path)| path.into()));
    }
    paths
}
