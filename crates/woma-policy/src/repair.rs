//! Repairs of what is no Python as it came, and words for what cannot be repaired.
//!
//! A repair is tried only where the program does not parse, and kept only where it then does. None
//! of them changes what is inside a string that was properly delimited.

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

/// A text after one step.
struct Mended {
    text: String,
    repair: Repair,
}

impl Mended {
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
    fn take(self, text: &str, python: Python) -> Option<Mended> {
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

/// What is tried, in this order: the fewest steps that give a program win.
const WAYS: &[&[Step]] = &[
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

/// The program that was meant, and what was done to get it. Only for what does not parse.
pub(crate) fn mend(source: &str, python: Python) -> Option<(String, Vec<Repair>)> {
    // Many ways begin alike; the whole text is taken through each first step once.
    let firsts: [OnceCell<Option<Mended>>; 6] = Default::default();
    WAYS.iter().find_map(|way| {
        let (first, rest) = way.split_first()?;
        let begun = firsts.get(*first as usize)?.get_or_init(|| first.take(source, python));
        follow(begun.as_ref()?, rest, python)
    })
}

fn follow(begun: &Mended, rest: &[Step], python: Python) -> Option<(String, Vec<Repair>)> {
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
