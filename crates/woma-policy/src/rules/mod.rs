//! The rules, one per file, and the walk that applies them.

mod attributes;
mod builtins;
mod commands;
mod complexity;
mod hints;
mod imports;
mod needs;
mod text;
mod walk;

use crate::profile::Profile;
use crate::syntax::Program;
use crate::verdict::{Complexity, Rule};

/// Findings and facts from the syntax tree.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) findings: Vec<Finding>,
    pub(crate) complexity: Complexity,
    pub(crate) has_print: bool,
    /// Imports nothing beyond the standard library, and runs no command.
    pub(crate) is_plain: bool,
}

/// A violation whose position is still an offset.
///
/// Messages are built only for those that are shown; there may be a hundred thousand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) offset: usize,
    pub(crate) rule: Rule,
    pub(crate) subject: String,
    pub(crate) is_caught: bool,
    pub(crate) is_free: bool,
}

/// Most characters of a subject.
const SUBJECT_CHARS_MAX: usize = 200;

/// Truncates a name, which may be as long as the program.
fn cut(subject: &str) -> String {
    subject.chars().take(SUBJECT_CHARS_MAX).collect()
}

impl Finding {
    /// One sentence that describes the violation.
    pub(crate) fn reason(&self) -> String {
        let kind = match self.rule {
            Rule::Import => "Import",
            Rule::Builtin => "Builtin",
            Rule::Attribute => "Attribute",
            Rule::Command => "Command",
        };
        format!("{kind} '{}' is not allowed", self.subject)
    }

    /// Advice about the violation.
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
    commands::check_whole(&program.commands, profile, &mut facts.findings);
    facts.complexity = complexity::of(&program.tree);
    facts.is_plain = program.commands.is_empty() && needs::is_plain(&program.tree);
    facts
}
