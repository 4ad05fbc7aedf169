//! The rules, each in a file of its own, and the one walk that feeds them.

mod attributes;
mod builtins;
mod commands;
mod complexity;
mod hints;
mod imports;
mod text;
mod walk;

use crate::profile::Profile;
use crate::syntax::Program;
use crate::verdict::{Complexity, Rule};

/// What the tree says.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) found: Vec<Found>,
    pub(crate) complexity: Complexity,
    pub(crate) has_print: bool,
}

/// A violation whose place is still an offset.
///
/// Words are made for those that are shown only; there may be a hundred thousand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) offset: usize,
    pub(crate) rule: Rule,
    pub(crate) subject: String,
    pub(crate) is_caught: bool,
    pub(crate) is_free: bool,
}

/// Characters of a subject that are told.
const SUBJECT_CHARS_MAX: usize = 200;

/// A name that may be as long as the program.
fn cut(subject: &str) -> String {
    subject.chars().take(SUBJECT_CHARS_MAX).collect()
}

impl Found {
    /// One sentence for people.
    pub(crate) fn reason(&self) -> String {
        let kind = match self.rule {
            Rule::Import => "Import",
            Rule::Builtin => "Builtin",
            Rule::Attribute => "Attribute",
            Rule::Command => "Command",
        };
        format!("{kind} '{}' is not allowed", self.subject)
    }

    /// What to do about it.
    pub(crate) fn hint(&self, profile: &Profile) -> Option<String> {
        match self.rule {
            Rule::Import => hints::for_import(profile, &self.subject),
            Rule::Builtin => hints::for_builtin(profile, &self.subject),
            Rule::Attribute if self.subject.starts_with("__") => None,
            Rule::Attribute => {
                Some(format!("a column of that name is reached with `['{}']`", self.subject))
            }
            Rule::Command => {
                Some("commands are not allowed by this server's policy; use Python".to_owned())
            }
        }
    }
}

pub(crate) fn check(program: &Program, profile: &Profile) -> Facts {
    let mut facts = walk::walk(&program.tree, profile);
    commands::check_whole(&program.commands, profile, &mut facts.found);
    facts.complexity = complexity::of(&program.tree);
    facts
}
