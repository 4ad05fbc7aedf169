//! Result of a review.

use serde::Serialize;

/// Verdict on one program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Review {
    /// The program to run, if it was repaired.
    pub mended: Option<String>,
    /// Repairs that were made, one sentence each.
    pub repairs: Vec<Repair>,
    /// Why it is not valid Python, if it is not.
    pub problem: Option<Problem>,
    /// Sorted by position; the first [`VIOLATIONS_MAX`](crate::VIOLATIONS_MAX).
    pub violations: Vec<Violation>,
    /// Number of further violations.
    pub violations_more: usize,
    /// Other remarks, such as that the whole program is one string.
    pub remarks: Vec<String>,
    pub complexity: Complexity,
    pub line_count: usize,
    /// In characters, not bytes.
    pub character_count: usize,
    /// Whether it calls `print`.
    pub has_print: bool,
    /// Whether it imports nothing beyond the standard library and runs no command, as far as its
    /// text tells.
    #[serde(skip)]
    pub is_plain: bool,
}

impl Review {
    /// Whether it is valid Python without violations.
    pub fn is_clean(&self) -> bool {
        self.problem.is_none() && self.violations.is_empty()
    }
}

/// A repair, which cannot change the author's intent: without it, the program was not valid Python.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// `fence`, `indentation`, `characters` or `escapes`.
    pub kind: &'static str,
    pub text: String,
}

/// A syntax error, in CPython's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub kind: ProblemKind,
    pub message: String,
    /// Counted from 1, in the original program.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// That line, without its line ending.
    pub text: String,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    Syntax,
    /// It ends in the middle of a statement.
    Truncated,
    /// It is natural language.
    Prose,
    /// Several fenced blocks, of which no single one is the program.
    Fenced,
}

/// A violation of the profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub rule: Rule,
    /// The module, builtin or attribute.
    pub subject: String,
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// One sentence: `Import 'os' is not allowed`.
    pub reason: String,
    pub hint: Option<String>,
    /// The program catches the error that this raises.
    pub is_caught: bool,
    /// Python performs it without a check at run time.
    #[serde(skip)]
    pub is_free: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Import,
    Builtin,
    Attribute,
    /// A shell command or a magic that starts one.
    Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Complexity {
    #[default]
    Low,
    Medium,
    High,
}
