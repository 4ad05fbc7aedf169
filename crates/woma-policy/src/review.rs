//! Review of one program.

use crate::profile::Profile;
use crate::repair;
use crate::rules::{self, Finding};
use crate::syntax::{self, Lines, Python};
use crate::verdict::{Review, Rule, Violation};

/// Most violations reported individually; the rest are counted.
pub const VIOLATIONS_MAX: usize = 100;

/// Larger programs are neither repaired nor diagnosed, which would read them many times.
pub const REPAIR_BYTES_MAX: usize = 128 * 1024;

/// Reviews a program before it runs.
///
/// Time is proportional to its length and stack use is bounded, whatever the source is.
pub fn review(source: &str, profile: &Profile, python: Python) -> Review {
    let mut review = Review {
        line_count: source.lines().count(),
        character_count: source.chars().count(),
        ..Review::default()
    };
    let Err(problem) = read(source, profile, python, &mut review) else { return review };
    if source.len() > REPAIR_BYTES_MAX {
        review.problem = Some(problem);
    } else if let Some((mended, repairs)) = repair::repair_source(source, python)
        && read(&mended, profile, python, &mut review).is_ok()
    {
        review.mended = Some(mended);
        review.repairs = repairs;
    } else {
        review.problem = Some(repair::diagnose(source, problem, python));
    }
    review
}

/// Parses a program and adds its findings to the review.
fn read(
    source: &str,
    profile: &Profile,
    python: Python,
    review: &mut Review,
) -> Result<(), crate::Problem> {
    let facts = syntax::parse(source, python, |program| rules::check(program, profile))?;
    review.complexity = facts.complexity;
    review.has_print = facts.has_print;
    review.is_plain = facts.is_plain;
    if source.len() <= REPAIR_BYTES_MAX {
        review.remarks = repair::remarks(source);
    }
    let mut found = facts.findings;
    found.sort();
    found.dedup();
    review.violations_more = found.len().saturating_sub(VIOLATIONS_MAX);
    shorten(&mut found);
    let lines = Lines::of(source);
    review.violations = found.into_iter().map(|found| violation(found, profile, &lines)).collect();
    Ok(())
}

/// Keeps the first findings, and among them one that decides whether the program may run.
fn shorten(found: &mut Vec<Finding>) {
    let is_kind = |rule: Option<Rule>| {
        move |one: &Finding| one.is_free && rule.is_none_or(|rule| one.rule == rule)
    };
    let rest = found.split_off(found.len().min(VIOLATIONS_MAX));
    for rule in [None, Some(Rule::Attribute)] {
        if !found.iter().any(is_kind(rule))
            && let Some(first) = rest.iter().find(|one| is_kind(rule)(one))
        {
            found.pop();
            found.push(first.clone());
        }
    }
}

fn violation(found: Finding, profile: &Profile, lines: &Lines<'_>) -> Violation {
    let (line, column) = lines.place(found.offset);
    Violation {
        rule: found.rule,
        line,
        column,
        reason: found.reason(),
        hint: found.hint(profile),
        subject: found.subject,
        is_caught: found.is_caught,
        is_free: found.is_free,
    }
}
