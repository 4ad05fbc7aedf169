//! What the operator has set, read once: defaults < preset < file < `.env` < environment < flags.
//! The table in `settings.rs` says what can be set; nothing else in the program reads a variable.

pub(crate) mod command;
mod data;
mod document;
mod file;
pub(crate) mod flags;
pub(crate) mod layers;
mod presets;
pub(crate) mod problem;
mod resolve;
mod setting;
mod settings;
pub(crate) mod types;
mod value;
mod variables;

#[cfg(test)]
mod tests;

pub(crate) use command::{Command, main};
pub(crate) use data::Data;
pub(crate) use settings::Config;

use layers::{Flags, Resolved, Sources};
use problem::Problems;

impl Config {
    /// The configuration of this process.
    pub(crate) fn load(flags: &Flags) -> Result<Self, Problems> {
        Self::from_sources(&Self::sources(flags))
    }

    /// The same for a process whose working directory is somebody's project, which may have a file
    /// `.env` of its own: one that makes no sense here is not read, and a warning says so.
    pub(crate) fn load_in_a_project(flags: &Flags) -> Result<Self, Problems> {
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
        }
    }

    /// The configuration that a process with this surrounding would have.
    pub(crate) fn from_sources(sources: &Sources) -> Result<Self, Problems> {
        resolve::resolve(sources)
    }

    /// Every setting with its value and where that comes from, in the order of the table.
    pub(crate) fn origins(&self) -> &[Resolved] {
        &self.resolved
    }
}
