//! The environment of `woma run`: that of `--env`, of a template, or the first one whose Python the
//! program accepts; and the place of the packages that its header names.

use std::error::Error;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use woma_core::environments::{Environment, EnvironmentLimits, Version};
use woma_core::rules::{ScriptHeader, script_header};
use woma_core::text::near;
use woma_core::{PackageSettings, Policies, Rung, StorageSettings};

use super::Options;
use crate::config::layers::Flags;
use crate::config::templates::{self, Template, TemplateOrigin};
use crate::config::types::MinIsolation;
use crate::config::{Config, Data};
use crate::server::policies::policies;
use crate::server::{rights, start};

/// Everything that a program has to keep to.
pub(super) struct Prepared {
    pub(super) environment: Environment,
    pub(super) limits: EnvironmentLimits,
    pub(super) policies: Policies,
    /// Set if the program needs packages of its own.
    pub(super) packages: Option<(StorageSettings, PackageSettings)>,
    /// The least isolation to accept.
    pub(super) lowest_rung: Rung,
}

/// Finds the environment and drops root, while the process has one thread.
pub(super) fn prepare(
    data: &Data,
    options: &Options,
    source: &str,
    shown: Option<&Path>,
) -> Result<Prepared, Box<dyn Error>> {
    let header = script_header(source)?.unwrap_or_default();
    let mut prepared = match &options.environment {
        None => Prepared {
            environment: data.environment().map_err(woma_core::Error::from)?,
            limits: EnvironmentLimits::default(),
            policies: Policies::open(),
            packages: None,
            lowest_rung: Rung::Rooms,
        },
        Some(name) => named(data, name)?,
    };
    let is_free = options.environment.is_none() && !data.names_environment();
    if let Some(other) = other(data, &header, &prepared.environment).filter(|_| is_free) {
        prepared = other;
    }
    prepared.lowest_rung = MinIsolation::of_environment()?.lowest_rung();
    let folder = data.folder.join("run");
    if !header.dependencies.is_empty() {
        let config = Config::load_without_foreign_dot_env(&Flags::default())?;
        // Private to its owner, as a server's data are.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join("sessions"))?;
        let packages = start::package_settings(&config)?;
        prepared.packages = Some((StorageSettings::new(folder.clone()), packages));
    }
    let kept = prepared.packages.as_ref().map(|_| folder.as_path());
    let folders: Vec<&Path> =
        options.workdir.iter().chain(&options.charts).map(PathBuf::as_path).collect();
    rights::drop_root_for_run(data, &prepared.environment, (&folders, kept), shown)?;
    Ok(prepared)
}

/// The environment of a template.
fn named(data: &Data, name: &str) -> Result<Prepared, Box<dyn Error>> {
    let templates = templates::read(&data.templates)?;
    let Some(template) = templates.get(name) else {
        let near = near::paths(name, templates.keys().map(String::as_str));
        let (near, known) = (near.first().cloned(), templates.into_keys().collect::<Vec<_>>());
        return Err(woma_core::Error::no_environment(name, near, &known).into());
    };
    of_template(data, template)
}

fn of_template(data: &Data, template: &Template) -> Result<Prepared, Box<dyn Error>> {
    let name = &template.name;
    let environment = match &template.origin {
        TemplateOrigin::Default => data.environment().map_err(woma_core::Error::from)?,
        TemplateOrigin::Existing(other) => data.find(other)?,
        TemplateOrigin::Made { .. } => data.find(name).map_err(|error| {
            format!("{error}; `woma env create {name}` makes it by its template")
        })?,
    };
    let policies = match &template.policy {
        None => Policies::open(),
        Some(policy) => {
            let mut config = Config::load_without_foreign_dot_env(&Flags::default())?;
            config.policy = Some(policy.clone());
            policies(&config)?
        }
    };
    let (limits, lowest_rung) = (template.limits, Rung::Rooms);
    Ok(Prepared { environment, limits, policies, packages: None, lowest_rung })
}

/// The first template, by name, whose Python a program accepts that does not accept this one.
fn other(data: &Data, header: &ScriptHeader, environment: &Environment) -> Option<Prepared> {
    let range = header.requires_python.as_ref()?;
    let accepts = |Version(major, minor, patch)| range.accepts((major, minor, patch));
    if accepts(environment.version) {
        return None;
    }
    let templates = templates::read(&data.templates).ok()?;
    let found = templates.values().filter_map(|template| of_template(data, template).ok());
    found.into_iter().find(|prepared| accepts(prepared.environment.version))
}
