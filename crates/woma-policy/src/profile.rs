//! What an operator wants allowed, as data.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::profiles::{ProfileError, Profiles};

/// One set of rules. Narrowing is the only way to make another of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub name: String,
    /// A module must be in every one of these; without any, imports are open.
    pub imports: Vec<Modules>,
    /// Builtins that raise when they are called.
    pub blocked_builtins: BTreeSet<String>,
    /// Attributes that lead from harmless objects to everything.
    pub blocked_attributes: BTreeSet<String>,
    /// Whether `!command` and its like are allowed.
    pub commands: bool,
    pub mode: Mode,
    /// Names that are there without an import: `pd` is `pandas`, `Path` is `pathlib:Path`.
    pub names: BTreeMap<String, String>,
}

/// Modules with everything below them: `xml.etree` has `xml.etree.ElementTree`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Modules(pub BTreeSet<String>);

/// What an import that is not allowed does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is noted and the program goes on; what it would have bound fails when it is used.
    Annotate,
    /// It raises at its line.
    #[default]
    Raise,
    /// The whole program is refused before it runs.
    Reject,
}

/// What an operator switches on or replaces, by the settings of the systems that had them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Switches {
    pub data_science: bool,
    pub network: bool,
    pub filesystem: bool,
    /// Replaces every module of the profile; an empty list allows nothing.
    pub allowed_imports: Option<Vec<String>>,
    /// For profiles that do not say it themselves.
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

/// Part of the grammar rather than a module; allowed always.
const FUTURE: &str = "__future__";

/// The name that stands for the folder of the session, which needs no module.
const FOLDER: &str = "@cwd";

impl Profile {
    /// No rules at all.
    pub fn open() -> Self {
        Self { name: "open".to_owned(), commands: true, ..Self::default() }
    }

    /// One of the profiles that everybody has.
    pub fn named(name: &str, switches: &Switches) -> Result<Self, ProfileError> {
        Profiles::builtin().named(name, switches)
    }

    /// The profiles that everybody has.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Profiles::builtin().names()
    }

    /// The profiles that everybody has, and those of an operator's file.
    pub fn parse(toml: &str) -> Result<Profiles, ProfileError> {
        Profiles::parse(toml)
    }

    /// Whether nothing can be against it.
    pub fn is_open(&self) -> bool {
        self.imports.is_empty()
            && self.blocked_builtins.is_empty()
            && self.blocked_attributes.is_empty()
            && self.commands
    }

    /// The modules that can be imported, where not all can, as the lists name them.
    pub fn modules(&self) -> BTreeSet<&str> {
        let listed = self.imports.iter().flat_map(|list| &list.0).map(String::as_str);
        listed.filter(|module| self.allows_import(module)).collect()
    }

    /// Whether `import module` is allowed, by every list.
    pub fn allows_import(&self, module: &str) -> bool {
        module == FUTURE || self.imports.iter().all(|modules| modules.allows(module))
    }

    /// With one list more that a module must be in. Never widens.
    ///
    /// What is no name of a module is in the list and matches nothing.
    #[must_use]
    pub fn narrowed(&self, allowed: &[String]) -> Self {
        let mut narrowed = self.clone();
        narrowed.imports.push(Modules::of(allowed));
        narrowed.drop_names();
        narrowed
    }

    /// What both allow, in the stricter mode.
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
        both.drop_names();
        both
    }

    /// Names whose module is not allowed would only raise.
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
    /// Of names with blanks around them.
    pub fn of(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self(names.into_iter().map(|name| name.as_ref().trim().to_owned()).collect())
    }

    /// Whether the module or one that it is below is listed.
    pub fn allows(&self, module: &str) -> bool {
        is_module_name(module) && prefixes(module).any(|prefix| self.0.contains(prefix))
    }
}

/// `a`, `a.b`, `a.b.c`.
fn prefixes(module: &str) -> impl Iterator<Item = &str> {
    let ends = module.match_indices('.').map(|(dot, _)| dot);
    ends.chain([module.len()]).map(|end| &module[..end])
}

/// Whether `import` could be followed by it.
pub(crate) fn is_module_name(name: &str) -> bool {
    name.split('.').all(|part| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    })
}
