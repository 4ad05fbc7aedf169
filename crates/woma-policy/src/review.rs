//! One program, one verdict.

use crate::profile::Profile;
use crate::repair;
use crate::rules::{self, Found};
use crate::syntax::{self, Lines, Python};
use crate::verdict::{Review, Rule, Violation};

/// Violations that are told one by one; the rest is counted.
pub const VIOLATIONS_MAX: usize = 100;

/// Programs above this are not mended and not diagnosed, for that reads them many times.
pub const MENDED_BYTES_MAX: usize = 128 * 1024;

/// What can be said of a program before it runs.
///
/// It takes time in proportion to its length and no more stack than it is given, whatever comes.
pub fn review(source: &str, profile: &Profile, python: Python) -> Review {
    let mut review = Review {
        line_count: source.lines().count(),
        character_count: source.chars().count(),
        ..Review::default()
    };
    let Err(problem) = read(source, profile, python, &mut review) else { return review };
    if source.len() > MENDED_BYTES_MAX {
        review.problem = Some(problem);
    } else if let Some((mended, repairs)) = repair::mend(source, python)
        && read(&mended, profile, python, &mut review).is_ok()
    {
        review.mended = Some(mended);
        review.repairs = repairs;
    } else {
        review.problem = Some(repair::diagnose(source, problem, python));
    }
    review
}

/// What the tree of a program says, where it has one.
fn read(
    source: &str,
    profile: &Profile,
    python: Python,
    review: &mut Review,
) -> Result<(), crate::Problem> {
    let facts = syntax::parse(source, python, |program| rules::check(program, profile))?;
    review.complexity = facts.complexity;
    review.has_print = facts.has_print;
    if source.len() <= MENDED_BYTES_MAX {
        review.remarks = repair::remarks(source);
    }
    let mut found = facts.found;
    found.sort();
    found.dedup();
    review.violations_more = found.len().saturating_sub(VIOLATIONS_MAX);
    shorten(&mut found);
    let lines = Lines::of(source);
    review.violations = found.into_iter().map(|found| told(found, profile, &lines)).collect();
    Ok(())
}

/// Leaves the first ones, and among them what decides whether the program may run.
fn shorten(found: &mut Vec<Found>) {
    let is_kind = |rule: Option<Rule>| {
        move |one: &Found| one.is_free && rule.is_none_or(|rule| one.rule == rule)
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

fn told(found: Found, profile: &Profile, lines: &Lines<'_>) -> Violation {
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
