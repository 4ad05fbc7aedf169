//! Advice about a violation, in one sentence.

use crate::profile::Profile;
use crate::profiles::{Tier, tiers};

/// Longest name that is compared; longer ones are not typos.
const NAME_CHARS_MAX: usize = 32;

/// Existing modules that look like typos of others.
const REAL: [&str; 3] = ["ctypes", "ujson", "_json"];

/// Advice to an author who wanted this module.
pub(super) fn for_import(profile: &Profile, module: &str) -> Option<String> {
    let (own, calls) = profile.imports.split_first()?;
    // Without rules of the server, the list comes from the call itself.
    if profile.name == "open" || own.allows(module) && !calls.is_empty() {
        return Some(format!("`{module}` is not in the list of imports that this run allows"));
    }
    let below = format!("{module}.");
    let parts: Vec<&str> =
        allowed(profile).filter(|name| name.starts_with(&below)).take(3).collect();
    if !parts.is_empty() {
        return Some(format!("of `{module}` only this is allowed: {}", parts.join(", ")));
    }
    if let Some(tier) = tier_of(module).filter(|_| profile.name == "tiers") {
        let switch = tier.switch.as_deref()?;
        return Some(format!(
            "`{module}` is in the tier {}, which the operator switches on with {switch}=true",
            tier.name
        ));
    }
    if REAL.contains(&module) {
        return None;
    }
    let near = allowed(profile).find(|name| is_near(name, module))?;
    Some(format!("did you mean `{near}`?"))
}

pub(super) fn for_builtin(profile: &Profile, name: &str) -> Option<String> {
    let text = match name {
        "eval" => "`json.loads` reads values without running code",
        "input" => "nobody is there to answer; put the value in a variable",
        "exit" | "quit" => "let the program end, or raise an exception",
        "open" if profile.name == "tiers" => {
            "the operator switches files on with SANDBOX_ENABLE_FILESYSTEM=true"
        }
        "breakpoint" => "print what you want to see",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Whether a dotted path is allowed, or a parent of an allowed one.
pub(super) fn is_or_holds_allowed(profile: &Profile, path: &str) -> bool {
    let below = format!("{path}.");
    profile.allows_import(path) || allowed(profile).any(|name| name.starts_with(&below))
}

/// Whether a dotted path is a module of some tier, or a sibling of one.
pub(super) fn is_known(path: &str) -> bool {
    const NEIGHBOURS: [&str; 4] = ["urllib.error", "urllib.response", "xml.dom", "xml.sax"];
    tier_of(path).is_some() || NEIGHBOURS.contains(&path)
}

fn tier_of(module: &str) -> Option<&'static Tier> {
    tiers().iter().find(|tier| {
        tier.modules.iter().any(|name| {
            module
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    })
}

/// Modules that all lists name.
fn allowed(profile: &Profile) -> impl Iterator<Item = &str> {
    let first = profile.imports.iter().take(1).flat_map(|modules| &modules.0);
    first.map(String::as_str).filter(|name| profile.allows_import(name))
}

/// Whether the names differ by one typo.
fn is_near(known: &str, asked: &str) -> bool {
    let known: Vec<char> = known.chars().collect();
    let asked: Vec<char> = asked.chars().take(NAME_CHARS_MAX + 1).collect();
    if asked.len() > NAME_CHARS_MAX || known.len().abs_diff(asked.len()) > 1 || known.len() < 4 {
        return false;
    }
    let start = known.iter().zip(&asked).take_while(|(a, b)| a == b).count();
    let (known, asked) = (&known[start..], &asked[start..]);
    let tail = |list: &[char], skip: usize| list.get(skip..).map(<[char]>::to_vec);
    tail(known, 1) == tail(asked, 1)
        || tail(known, 1) == tail(asked, 0)
        || tail(known, 0) == tail(asked, 1)
        || is_swapped(known, asked)
}

fn is_swapped(known: &[char], asked: &[char]) -> bool {
    match (known, asked) {
        ([a, b, rest @ ..], [c, d, others @ ..]) => a == d && b == c && rest == others,
        _ => false,
    }
}
