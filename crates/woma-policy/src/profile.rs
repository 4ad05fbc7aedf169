//! A profile: the operator's rules, as data.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::profiles::{ProfileError, Profiles};

/// One set of rules. A profile can only be narrowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub name: String,
    /// Lists of modules, all of which must allow an import; without any list, all imports are
    /// allowed.
    pub imports: Vec<Modules>,
    /// Builtins that raise when they are called.
    pub blocked_builtins: BTreeSet<String>,
    /// Attributes that lead from harmless objects to arbitrary code.
    pub blocked_attributes: BTreeSet<String>,
    /// Whether `!command` and similar syntax is allowed.
    pub commands: bool,
    pub mode: Mode,
    /// Names available without an import: `pd` is `pandas`, `Path` is `pathlib:Path`.
    pub names: BTreeMap<String, String>,
    /// Rules of the network, all of which must allow a host; read by whoever makes connections.
    pub network: Vec<String>,
    /// Sessions are opened in containers; read by whoever opens them.
    pub container: bool,
}

/// Modules including their submodules: `xml.etree` includes `xml.etree.ElementTree`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Modules(pub BTreeSet<String>);

/// Effect of an import that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is noted and the program goes on; using the name it would have bound fails.
    Annotate,
    /// It raises at its line.
    #[default]
    Raise,
    /// The whole program is refused before it runs.
    Reject,
}

/// Settings of the operator that extend or replace parts of a profile, as in earlier systems.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Switches {
    pub data_science: bool,
    pub network: bool,
    pub filesystem: bool,
    /// Replaces all modules of the profile; an empty list allows none.
    pub allowed_imports: Option<Vec<String>>,
    /// Mode of profiles that do not set one.
    pub mode: Mode,
}

impl Switches {
    pub(crate) fn has(&self, tier: &str) -> bool {
        match tier {
            "data_science" => self.data_science,
            "network" => self.network,
            "filesystem" => self.filesystem,
            _ => false,
        }
    }
}

/// Part of the grammar rather than a module; always allowed.
const FUTURE: &str = "__future__";

/// Placeholder for the session's folder, which needs no module.
const FOLDER: &str = "@cwd";

impl Profile {
    /// Profile without any rules.
    pub fn open() -> Self {
        Self { name: "open".to_owned(), commands: true, ..Self::default() }
    }

    /// A built-in profile.
    pub fn named(name: &str, switches: &Switches) -> Result<Self, ProfileError> {
        Profiles::builtin().named(name, switches)
    }

    /// Names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Profiles::builtin().names()
    }

    /// The built-in profiles and those of an operator's file.
    pub fn parse(toml: &str) -> Result<Profiles, ProfileError> {
        Profiles::parse(toml)
    }

    /// Whether the profile has no rules that a program could violate.
    pub fn is_open(&self) -> bool {
        self.imports.is_empty()
            && self.blocked_builtins.is_empty()
            && self.blocked_attributes.is_empty()
            && self.commands
    }

    /// Modules that can be imported, as listed; empty if all can.
    pub fn modules(&self) -> BTreeSet<&str> {
        let listed = self.imports.iter().flat_map(|list| &list.0).map(String::as_str);
        listed.filter(|module| self.allows_import(module)).collect()
    }

    /// Whether every list allows `import module`.
    pub fn allows_import(&self, module: &str) -> bool {
        module == FUTURE || self.imports.iter().all(|modules| modules.allows(module))
    }

    /// Adds a list that a module must be in. Never widens.
    ///
    /// Entries that are not module names match nothing.
    #[must_use]
    pub fn narrowed(&self, allowed: &[String]) -> Self {
        let mut narrowed = self.clone();
        narrowed.imports.push(Modules::of(allowed));
        narrowed.drop_names();
        narrowed
    }

    /// Intersection of both profiles, in the stricter mode.
    #[must_use]
    pub fn within(&self, outer: &Self) -> Self {
        let mut both = self.clone();
        if self.is_open() {
            both.name.clone_from(&outer.name);
        } else if !outer.is_open() && self.name != outer.name {
            both.name = format!("{} within {}", self.name, outer.name);
        }
        for modules in &outer.imports {
            if !both.imports.contains(modules) {
                both.imports.push(modules.clone());
            }
        }
        both.blocked_builtins.extend(outer.blocked_builtins.iter().cloned());
        both.blocked_attributes.extend(outer.blocked_attributes.iter().cloned());
        both.commands &= outer.commands;
        both.mode = self.mode.max(outer.mode);
        both.container |= outer.container;
        for network in &outer.network {
            if !both.network.contains(network) {
                both.network.push(network.clone());
            }
        }
        both.drop_names();
        both
    }

    /// Removes names whose module is not allowed; they would only raise.
    pub(crate) fn drop_names(&mut self) {
        let mut names = std::mem::take(&mut self.names);
        names.retain(|_, value| {
            let module = value.split(':').next().unwrap_or_default();
            value == FOLDER || self.allows_import(module)
        });
        self.names = names;
    }
}

impl Modules {
    /// Builds a list from names, trimming whitespace.
    pub fn of(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self(names.into_iter().map(|name| name.as_ref().trim().to_owned()).collect())
    }

    /// Whether the module or one of its parents is listed.
    pub fn allows(&self, module: &str) -> bool {
        is_module_name(module) && prefixes(module).any(|prefix| self.0.contains(prefix))
    }
}

/// `a`, `a.b`, `a.b.c`.
fn prefixes(module: &str) -> impl Iterator<Item = &str> {
    let ends = module.match_indices('.').map(|(dot, _)| dot);
    ends.chain([module.len()]).map(|end| &module[..end])
}

/// Whether it is syntactically a module name.
pub(crate) fn is_module_name(name: &str) -> bool {
    name.split('.').all(|part| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    })
}
