//! Settings of the operator, read once: defaults < preset < file < `.env` < environment < flags.
//! The table in `settings.rs` lists them; nothing else reads an environment variable but
//! `WOMA_LOG`. Calls `terminal` only, for progress of creating an environment.

mod data;
pub(crate) mod document;
mod file;
pub(crate) mod flags;
pub(crate) mod layers;
mod machine;
pub(crate) mod network;
mod presets;
pub(crate) mod problem;
pub(crate) mod remote;
mod resolve;
mod secrets;
mod setting;
mod settings;
pub(crate) mod show;
pub(crate) mod templates;
pub(crate) mod types;
pub(crate) mod unused;
mod value;
mod variables;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unused_tests;

pub(crate) use data::{Data, home, is_root};
pub(crate) use settings::Config;

use woma_core::Machine;

use layers::{Flags, Resolved, Sources};
use problem::Problems;

/// Whether output at a terminal may have colours (`NO_COLOR`, `TERM=dumb`).
pub(crate) fn is_colour_wanted() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

impl Config {
    /// The configuration of this process.
    pub(crate) fn load(flags: &Flags) -> Result<Self, Problems> {
        Self::from_sources(&Self::sources(flags))
    }

    /// As [`Config::load`], for a process in a project folder: a `.env` of the project that is not
    /// valid here is ignored with a warning.
    pub(crate) fn load_without_foreign_dot_env(flags: &Flags) -> Result<Self, Problems> {
        let sources = Self::sources(flags);
        let problems = match Self::from_sources(&sources) {
            Ok(config) => return Ok(config),
            Err(problems) => problems,
        };
        let without = Self::from_sources(&Sources { reads_dot_env: false, ..sources });
        let Ok(mut config) = without else { return Err(problems) };
        config.warnings.push(format!("the file .env was not read: {problems}"));
        Ok(config)
    }

    fn sources(flags: &Flags) -> Sources {
        Sources {
            flags: flags.clone(),
            environment: std::env::vars_os().collect(),
            directory: std::env::current_dir().unwrap_or_default(),
            reads_dot_env: true,
            is_root: data::is_root(),
            machine: Machine::look(),
        }
    }

    /// The configuration of a process with these sources.
    pub(crate) fn from_sources(sources: &Sources) -> Result<Self, Problems> {
        resolve::resolve(sources)
    }

    /// Every setting with its value and origin, in the order of the table.
    pub(crate) fn origins(&self) -> &[Resolved] {
        &self.resolved
    }
}
