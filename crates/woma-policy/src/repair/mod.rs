//! Repairs of sources that are not valid Python, and diagnoses of those that cannot be repaired.
//!
//! A repair is tried only if the program does not parse, and kept only if it then does. No repair
//! changes the content of a properly delimited string.

mod characters;
mod classics;
mod diagnosis;
mod escapes;
mod fence;
mod foreign;
mod indentation;
mod prompts;
mod remarks;
mod scan;
mod tags;
mod truncation;

pub(crate) use self::diagnosis::diagnose;
pub(crate) use self::remarks::remarks;

use std::cell::OnceCell;

use self::Step::{Characters, Escapes, Fence, Indentation, Prompts, Tags};
use crate::syntax::{Python, parses};
use crate::verdict::Repair;

/// The text after one repair.
struct Repaired {
    text: String,
    repair: Repair,
}

impl Repaired {
    fn new(text: String, kind: &'static str, sentence: impl Into<String>) -> Self {
        Self { text, repair: Repair { kind, text: sentence.into() } }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Fence,
    Tags,
    Escapes,
    Prompts,
    Characters,
    Indentation,
}

impl Step {
    fn take(self, text: &str, python: Python) -> Option<Repaired> {
        match self {
            Fence => fence::unwrap(text, python),
            Tags => tags::strip(text),
            Escapes => escapes::unescape(text),
            Prompts => prompts::strip(text, python),
            Characters => characters::replace(text),
            Indentation => indentation::dedent(text),
        }
    }
}

/// Sequences of repairs, in order of preference: the fewest that give a valid program win.
const SEQUENCES: &[&[Step]] = &[
    &[Fence],
    &[Indentation],
    &[Characters],
    &[Prompts],
    &[Tags],
    &[Escapes],
    &[Fence, Indentation],
    &[Fence, Characters],
    &[Fence, Prompts],
    &[Fence, Escapes],
    &[Fence, Tags],
    &[Tags, Fence],
    &[Tags, Indentation],
    &[Tags, Characters],
    &[Tags, Escapes],
    &[Tags, Prompts],
    &[Escapes, Fence],
    &[Escapes, Indentation],
    &[Escapes, Characters],
    &[Characters, Indentation],
    &[Characters, Prompts],
    &[Fence, Characters, Indentation],
    &[Fence, Characters, Prompts],
    &[Tags, Fence, Indentation],
    &[Tags, Fence, Characters],
    &[Escapes, Fence, Indentation],
    &[Tags, Characters, Indentation],
];

/// Repairs a source that does not parse. Returns the program and the repairs.
pub(crate) fn repair_source(source: &str, python: Python) -> Option<(String, Vec<Repair>)> {
    // Many sequences share their first step, which is applied to the whole text only once.
    let first_steps: [OnceCell<Option<Repaired>>; 6] = Default::default();
    SEQUENCES.iter().find_map(|sequence| {
        let (first, rest) = sequence.split_first()?;
        let begun = first_steps.get(*first as usize)?.get_or_init(|| first.take(source, python));
        follow(begun.as_ref()?, rest, python)
    })
}

fn follow(begun: &Repaired, rest: &[Step], python: Python) -> Option<(String, Vec<Repair>)> {
    let mut text = begun.text.clone();
    let mut repairs = vec![begun.repair.clone()];
    for step in rest {
        let mended = step.take(&text, python)?;
        text = mended.text;
        repairs.push(mended.repair);
    }
    let is_program = !text.trim().is_empty() && parses(&text, python);
    is_program.then_some((text, repairs))
}

#[cfg(test)]
mod tests;
