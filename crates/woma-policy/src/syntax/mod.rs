//! Python's grammar. The only file that names ruff's parser.
//!
//! The source is hostile: its nesting depth is measured before it is parsed, and code that walks
//! (or drops) the tree gets the stack which that depth may need.

mod caret;
mod compiling;
mod depth;
mod escapes;
mod wording;

use ruff_python_ast::token::{Token, TokenKind};
use ruff_python_ast::{ModModule, PythonVersion};
use ruff_python_parser::{Mode, ParseOptions, Parsed, lexer, parse_unchecked};
use ruff_text_size::Ranged;

/// Items of the parser that `compiling` and `wording` use.
mod ruff {
    pub(super) use ruff_python_parser::semantic_errors::{
        LazyImportContext, SemanticSyntaxChecker, SemanticSyntaxContext, SemanticSyntaxError,
        SemanticSyntaxErrorKind, YieldOutsideFunctionKind,
    };
    pub(super) use ruff_python_parser::{
        InterpolatedStringErrorType, LexicalErrorType, ParseErrorType,
    };
}

use crate::verdict::{Problem, ProblemKind};

/// Python version that will run the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Python {
    pub major: u8,
    pub minor: u8,
}

impl Python {
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }
}

/// Most bare `pip install` lines in one program; the kernel has the same limit.
const BARE_COMMANDS_MAX: usize = 20;

/// Stack that one level of nesting may need, in bytes, mostly for an unoptimised walk.
const STACK_PER_LEVEL_BYTES: usize = 6 * 1024;
/// Levels that fit into the remaining stack of any thread.
const SHALLOW_LEVELS: usize = 60;

/// Why this is not valid Python, if it is not.
pub(crate) fn problem(source: &str, python: Python) -> Option<Problem> {
    parse(source, python, |_| ()).err()
}

pub(crate) fn parses(source: &str, python: Python) -> bool {
    problem(source, python).is_none()
}

/// A parsed program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) tree: ModModule,
    /// Lines or the whole cell that are commands: byte offset and text.
    pub(crate) commands: Vec<Command>,
}

/// A line or cell that is a command and not part of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) offset: usize,
    /// As it was written: `pip install x`, `%%bash`.
    pub(crate) text: String,
}

/// Parses the source and calls `read` with the tree, on a sufficient stack.
///
/// The tree is not returned: even dropping it takes stack.
pub(crate) fn parse<T>(
    source: &str,
    python: Python,
    read: impl FnOnce(&Program) -> T,
) -> Result<T, Problem> {
    if let Some(at) = source.find('\0') {
        return Err(at_offset(source, at, "source code cannot contain null bytes"));
    }
    let (text, commands) = match cell_magic(source) {
        Some(CellMagic::Foreign(command)) => (String::new(), vec![command]),
        Some(CellMagic::Python(text)) => (text, Vec::new()),
        None => (source.to_owned(), Vec::new()),
    };
    let levels = depth::of(source, lexer::lex(&text, Mode::Ipython))?;
    let work = || parse_bounded(source, text, commands, python, read);
    if levels <= SHALLOW_LEVELS {
        return work();
    }
    let stack = levels * STACK_PER_LEVEL_BYTES;
    stacker::maybe_grow(stack, stack + 256 * 1024, work)
}

/// A cell that begins with `%%`.
enum CellMagic {
    /// Its body is Python; the magic line is blanked out to keep positions.
    Python(String),
    Foreign(Command),
}

/// Cell magics whose body the same shell runs as Python.
const PYTHON_CELLS: [&str; 5] = ["time", "timeit", "capture", "prun", "debug"];

fn cell_magic(source: &str) -> Option<CellMagic> {
    let start = source.len() - source.trim_start().len();
    let rest = source[start..].strip_prefix("%%")?;
    let line = rest.lines().next().unwrap_or_default();
    let name = line.split_whitespace().next().unwrap_or_default();
    if !PYTHON_CELLS.contains(&name) {
        return Some(CellMagic::Foreign(Command { offset: start, text: format!("%%{name}") }));
    }
    let end = start + 2 + line.len();
    let blank = " ".repeat(end - start);
    Some(CellMagic::Python(format!("{}{blank}{}", &source[..start], &source[end..])))
}

fn parse_bounded<T>(
    source: &str,
    mut text: String,
    mut commands: Vec<Command>,
    python: Python,
    read: impl FnOnce(&Program) -> T,
) -> Result<T, Problem> {
    loop {
        let parsed = escapes::parse(&text, python);
        let Some(error) = parsed.errors().iter().min_by_key(|error| error.range().start()) else {
            return finish(source, Candidate { text: &text, parsed, commands }, python, read);
        };
        if let Some(magic) = bare_magic(source) {
            let parsed = escapes::parse("", python);
            let candidate = Candidate { text: "", parsed, commands: vec![magic] };
            return finish(source, candidate, python, read);
        }
        let start = error.range().start().to_usize();
        if bare_command(&text, start).is_none() || commands.len() > BARE_COMMANDS_MAX {
            let (start, message) = wording::brackets(parsed.tokens(), &text, start)
                .unwrap_or_else(|| (start, wording::of(&error.error, &text, start)));
            return Err(at_offset(source, start, &message));
        }
        let errors = parsed.errors().iter().take(BARE_COMMANDS_MAX * 4);
        let places = errors.map(|error| error.range().start().to_usize());
        let mut found: Vec<_> = places.filter_map(|place| bare_command(&text, place)).collect();
        found.dedup();
        for (offset, command) in found {
            // Same length, to keep positions: `pip install x` becomes `%ip install x`.
            text.replace_range(offset..=offset, "%");
            commands.push(Command { offset, text: command });
        }
    }
}

/// A program without syntax errors, before the checks of the compiler.
struct Candidate<'a> {
    text: &'a str,
    parsed: Parsed<ModModule>,
    commands: Vec<Command>,
}

fn finish<T>(
    source: &str,
    candidate: Candidate<'_>,
    python: Python,
    read: impl FnOnce(&Program) -> T,
) -> Result<T, Problem> {
    let Candidate { text, parsed, commands } = candidate;
    if let Some(error) = parsed.unsupported_syntax_errors().first() {
        let start = error.range().start().to_usize();
        return Err(at_offset(source, start, &wording::plain(&error.to_string())));
    }
    let program = Program { tree: parsed.into_syntax(), commands };
    match compiling::first_error(&program.tree, text, python) {
        Some((start, message)) => Err(at_offset(source, start, &message)),
        None => Ok(read(&program)),
    }
}

/// Magics that the shell accepts without a percent sign, if they are the whole cell.
const BARE_MAGICS: [&str; 30] = [
    "ls",
    "ll",
    "cat",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "rmdir",
    "cd",
    "pwd",
    "man",
    "less",
    "more",
    "pip",
    "conda",
    "mamba",
    "uv",
    "time",
    "timeit",
    "who",
    "whos",
    "matplotlib",
    "env",
    "run",
    "history",
    "load_ext",
    "reset",
    "pushd",
    "popd",
    "dirs",
];

/// `ls /tmp` on a line of its own.
fn bare_magic(source: &str) -> Option<Command> {
    let line = source.trim();
    let word = line.split_whitespace().next()?;
    let rest = line[word.len()..].trim_start();
    // An assignment is Python to the shell too, and `cd x && ls` is not a magic.
    let is_other = rest.starts_with(['=', ',']) || line.contains("&&");
    if line.contains('\n') || is_other || !BARE_MAGICS.contains(&word) {
        return None;
    }
    let offset = source.len() - source.trim_start().len();
    Some(Command { offset, text: format!("%{line}") })
}

/// `pip install x` and variants, on a line where Python found an error.
fn bare_command(text: &str, error: usize) -> Option<(usize, String)> {
    let error = floor_char_boundary(text, error.min(text.len()));
    // An error at the end of a line may be reported at the start of the next.
    let candidates = [error, error.saturating_sub(1)];
    candidates.into_iter().find_map(|at| {
        let at = floor_char_boundary(text, at);
        let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[start..].lines().next().unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        is_installer(line.trim()).then(|| (start + indent, line.trim().to_owned()))
    })
}

fn is_installer(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    if words.peek() == Some(&"sudo") {
        words.next();
    }
    let first = words.next().unwrap_or_default();
    let versioned = |name: &str, stem: &str| {
        name.strip_prefix(stem)
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
    };
    let program = first.rsplit('/').next().unwrap_or_default();
    let named = match first {
        "conda" | "mamba" => true,
        "uv" => words.next() == Some("pip"),
        _ if versioned(first, "pip") => true,
        _ if versioned(program, "python") => {
            words.next() == Some("-m") && words.next() == Some("pip")
        }
        _ => false,
    };
    named && words.next().is_some_and(|word| word.starts_with(|c: char| c.is_alphanumeric()))
}

/// Problem with its position in lines and characters.
fn at_offset(source: &str, offset: usize, message: &str) -> Problem {
    let place = Position::of(source, offset);
    Problem {
        kind: ProblemKind::Syntax,
        message: message.to_owned(),
        line: place.line,
        column: place.column,
        text: place.text.to_owned(),
        hint: None,
    }
}

/// A position in a text, as shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position<'a> {
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) text: &'a str,
}

impl<'a> Position<'a> {
    pub(crate) fn of(source: &'a str, offset: usize) -> Self {
        let offset = floor_char_boundary(source, offset.min(source.len()));
        let before = &source[..offset];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let end = source[start..].find('\n').map_or(source.len(), |length| start + length);
        let text = source[start..end].trim_end_matches('\r');
        Self { line, column: source[start..offset].chars().count() + 1, text }
    }
}

/// Line starts of a text, to look up many positions.
pub(crate) struct Lines<'a> {
    source: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(source: &'a str) -> Self {
        let newlines = source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Self { source, starts }
    }

    /// Line and column of an offset, both from 1; the column in characters.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let offset = floor_char_boundary(self.source, offset.min(self.source.len()));
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        (line, self.source[start..offset].chars().count() + 1)
    }
}

pub(crate) fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
