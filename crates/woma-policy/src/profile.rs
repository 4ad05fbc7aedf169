//! What an operator wants allowed, as data.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

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
