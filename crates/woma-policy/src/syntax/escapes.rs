//! Python with the syntax of notebooks: `!ls`, `%timeit x`, `x?`.
//!
//! The notebook parser panics if such a line is in the middle of a statement, as in
//! `{]\n;`. So it is used only if plain Python fails at a notebook character, and its panic is
//! caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{
    ModModule, Mode, ParseOptions, Parsed, Python, PythonVersion, Ranged, floor_char_boundary,
    parse_unchecked,
};

/// Characters that notebook syntax starts or ends with.
const MARKS: [char; 6] = ['!', '%', '?', ',', ';', '/'];

pub(super) fn parse(text: &str, python: Python) -> Parsed<ModModule> {
    let plain = parse_as(Mode::Module, text, python);
    let first = plain.errors().iter().map(|error| error.range().start().to_usize()).min();
    if !first.is_some_and(|first| is_marked(text, first)) {
        return plain;
    }
    let notebook = AssertUnwindSafe(|| parse_as(Mode::Ipython, text, python));
    catch_unwind(notebook).unwrap_or(plain)
}

fn is_marked(text: &str, error: usize) -> bool {
    let at = floor_char_boundary(text, error.min(text.len()));
    text[at..].trim_start().starts_with(MARKS)
}

fn parse_as(mode: Mode, text: &str, python: Python) -> Parsed<ModModule> {
    let version = PythonVersion { major: python.major, minor: python.minor };
    let options = ParseOptions::from(mode).with_target_version(version);
    // These modes produce a module; only others produce an expression.
    parse_unchecked(text, options).try_into_module().unwrap_or_else(|| {
        unreachable!("the parser gave no module in a mode that has nothing else")
    })
}
