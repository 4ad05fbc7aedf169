//! What a review says.

use serde::Serialize;

/// The verdict on one program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Review {
    /// The program as it is to be run, where that differs from what came.
    pub mended: Option<String>,
    /// What was done to it, one sentence each.
    pub repairs: Vec<Repair>,
    /// Why it is no Python, if it is none.
    pub problem: Option<Problem>,
    /// In the order of the text; the first [`VIOLATIONS_MAX`](crate::VIOLATIONS_MAX).
    pub violations: Vec<Violation>,
    /// How many there are beyond those.
    pub violations_more: usize,
    /// What else is worth a word, such as a program that is one string.
    pub remarks: Vec<String>,
    pub complexity: Complexity,
    pub line_count: usize,
    /// Characters, not bytes.
    pub character_count: usize,
    /// Whether it prints.
    pub has_print: bool,
}

impl Review {
    /// Whether it is Python, and nothing in it is against the profile.
    pub fn is_clean(&self) -> bool {
        self.problem.is_none() && self.violations.is_empty()
    }
}

/// A change that cannot change what the author meant: the program was no Python without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// `fence`, `indentation`, `characters` or `escapes`.
    pub kind: &'static str,
    pub text: String,
}

/// A syntax error, told as CPython tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub kind: ProblemKind,
    pub message: String,
    /// Counted from 1, in the program that came.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// That line, without its end.
    pub text: String,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    Syntax,
    /// It ends in the middle of something.
    Truncated,
    /// It is text for people.
    Prose,
    /// Several fenced blocks, none of which is the program.
    Fenced,
}

/// One thing that the profile does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub rule: Rule,
    /// The module, builtin or attribute.
    pub subject: String,
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// One sentence for people: `Import 'os' is not allowed`.
    pub reason: String,
    pub hint: Option<String>,
    /// The program catches the error that this will raise.
    pub is_caught: bool,
    /// Python itself does it, and nothing stops it while the program runs.
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
