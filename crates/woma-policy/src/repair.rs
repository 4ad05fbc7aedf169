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

type Step = fn(&str, Python) -> Option<Mended>;

const FENCE: Step = fence::unwrap;
const TAGS: Step = tags::strip;
const ESCAPES: Step = escapes::unescape;
const PROMPTS: Step = prompts::strip;
const CHARACTERS: Step = characters::replace;
const INDENTATION: Step = indentation::dedent;

/// What is tried, in this order: the fewest steps that give a program win.
const WAYS: &[&[Step]] = &[
    &[FENCE],
    &[INDENTATION],
    &[CHARACTERS],
    &[PROMPTS],
    &[TAGS],
    &[ESCAPES],
    &[FENCE, INDENTATION],
    &[FENCE, CHARACTERS],
    &[FENCE, PROMPTS],
    &[FENCE, ESCAPES],
    &[FENCE, TAGS],
    &[TAGS, FENCE],
    &[TAGS, INDENTATION],
    &[TAGS, CHARACTERS],
    &[TAGS, ESCAPES],
    &[TAGS, PROMPTS],
    &[ESCAPES, FENCE],
    &[ESCAPES, INDENTATION],
    &[ESCAPES, CHARACTERS],
    &[CHARACTERS, INDENTATION],
    &[CHARACTERS, PROMPTS],
    &[FENCE, CHARACTERS, INDENTATION],
    &[FENCE, CHARACTERS, PROMPTS],
    &[TAGS, FENCE, INDENTATION],
    &[TAGS, FENCE, CHARACTERS],
    &[ESCAPES, FENCE, INDENTATION],
    &[TAGS, CHARACTERS, INDENTATION],
];

/// The program that was meant, and what was done to get it. Only for what does not parse.
pub(crate) fn mend(source: &str, python: Python) -> Option<(String, Vec<Repair>)> {
    WAYS.iter().find_map(|way| follow(source, way, python))
}

fn follow(source: &str, way: &[Step], python: Python) -> Option<(String, Vec<Repair>)> {
    let mut text = source.to_owned();
    let mut repairs = Vec::new();
    for step in way {
        let mended = step(&text, python)?;
        text = mended.text;
        repairs.push(mended.repair);
    }
    let is_program = !text.trim().is_empty() && parses(&text, python);
    is_program.then_some((text, repairs))
}

#[cfg(test)]
mod tests;
