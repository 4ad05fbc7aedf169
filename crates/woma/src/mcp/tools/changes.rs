//! Changes of a session's variables since the last reply about it, so that a model reads of each
//! variable once.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use woma_core::{CallerId, SessionId, Variable};
use woma_sandbox::sync::lock;

/// Sessions that are remembered; of a forgotten one, the next reply lists all variables.
const SESSIONS_MAX: usize = 1_000;
/// Variables that are remembered of one session; the kernel reports fewer.
const VARIABLES_MAX: usize = 1_000;
/// Longest name and longest description of a variable, in characters.
const NAME_CHARS_MAX: usize = 200;
const ABOUT_CHARS_MAX: usize = 200;

/// Variables that earlier replies have listed, per caller and session.
#[derive(Debug, Default)]
pub(crate) struct SeenVariables(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    sessions: HashMap<(CallerId, SessionId), Listed>,
    /// Counts replies; the session with the lowest number is forgotten first.
    replies: u64,
}

#[derive(Debug)]
struct Listed {
    /// Hashes of name and description, sorted.
    hashes: Vec<u64>,
    reply: u64,
}

impl SeenVariables {
    /// The variables that are new, or whose description is, by name. `is_partial`: there are more,
    /// which the kernel does not list, and which may be as they were.
    pub(crate) fn changes(
        &self,
        caller: &CallerId,
        session: &SessionId,
        variables: &[Variable],
        is_partial: bool,
    ) -> BTreeMap<String, String> {
        let hashes = variables.iter().map(hash).collect();
        let earlier = self.replace((caller.clone(), session.clone()), hashes, is_partial);
        let is_new = |variable: &&Variable| earlier.binary_search(&hash(variable)).is_err();
        let told = |variable: &Variable| {
            (shown(&variable.name, NAME_CHARS_MAX), shown(about(variable), ABOUT_CHARS_MAX))
        };
        variables.iter().filter(is_new).map(told).collect()
    }

    /// Forgets a session whose variables are gone.
    pub(crate) fn forget(&self, caller: &CallerId, session: &SessionId) {
        let mut seen = lock(&self.0);
        seen.sessions.remove(&(caller.clone(), session.clone()));
    }

    /// Remembers the hashes of a session and returns the earlier ones. `is_partial`: the earlier
    /// ones are still true.
    fn replace(
        &self,
        key: (CallerId, SessionId),
        mut hashes: Vec<u64>,
        is_partial: bool,
    ) -> Vec<u64> {
        let mut seen = lock(&self.0);
        seen.replies += 1;
        let reply = seen.replies;
        let earlier = seen.sessions.remove(&key).map(|listed| listed.hashes).unwrap_or_default();
        if is_partial {
            hashes.extend(&earlier);
        }
        hashes.truncate(VARIABLES_MAX);
        hashes.sort_unstable();
        seen.sessions.insert(key, Listed { hashes, reply });
        if seen.sessions.len() > SESSIONS_MAX {
            let oldest = seen.sessions.iter().min_by_key(|(_, listed)| listed.reply);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                seen.sessions.remove(&oldest);
            }
        }
        earlier
    }
}

fn hash(variable: &Variable) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&variable.name, about(variable)).hash(&mut hasher);
    hasher.finish()
}

fn about(variable: &Variable) -> &str {
    variable.about.as_ref().unwrap_or(&variable.type_name)
}

/// One line of a bounded length, whatever the session has sent.
fn shown(text: &str, chars_max: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    match text.chars().count() <= chars_max {
        true => plain.collect(),
        false => plain.take(chars_max - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use woma_core::{CallerId, SessionId, Variable};

    use super::{SESSIONS_MAX, SeenVariables, shown};

    /// Names and descriptions.
    type Listed<'a> = &'a [(&'a str, &'a str)];

    fn told(
        seen: &SeenVariables,
        session: &str,
        listed: Listed<'_>,
        is_partial: bool,
    ) -> Vec<String> {
        let (caller, session) = (CallerId::new("local"), SessionId::parse(session).unwrap());
        let variable = |(name, about): &(&str, &str)| Variable {
            name: (*name).to_owned(),
            type_name: about.split(' ').next().unwrap().to_owned(),
            about: about.contains(' ').then(|| (*about).to_owned()),
        };
        let variables: Vec<Variable> = listed.iter().map(variable).collect();
        let changes = seen.changes(&caller, &session, &variables, is_partial);
        changes.into_iter().map(|(name, about)| format!("{name}: {about}")).collect()
    }

    fn names(seen: &SeenVariables, session: &str, listed: Listed<'_>) -> Vec<String> {
        told(seen, session, listed, false)
    }

    #[test]
    fn lists_a_variable_once_until_its_description_changes() {
        let seen = SeenVariables::default();
        assert_eq!(names(&seen, "a", &[("x", "int")]), ["x: int"]);
        assert!(names(&seen, "a", &[("x", "int")]).is_empty());
        let listed = [("x", "str"), ("y", "list of 2")];
        assert_eq!(names(&seen, "a", &listed), ["x: str", "y: list of 2"]);
        assert_eq!(names(&seen, "b", &[("x", "str")]), ["x: str"]);
        assert_eq!(names(&seen, "a", &[("x", "str"), ("y", "list of 3")]), ["y: list of 3"]);
        // Deleted, and set again.
        assert!(names(&seen, "a", &[("y", "list of 3")]).is_empty());
        assert_eq!(names(&seen, "a", &[("x", "str"), ("y", "list of 3")]), ["x: str"]);
        seen.forget(&CallerId::new("local"), &SessionId::parse("a").unwrap());
        assert_eq!(names(&seen, "a", &[("y", "list of 3")]), ["y: list of 3"]);
    }

    #[test]
    fn a_variable_that_was_left_out_for_a_while_is_not_new() {
        let seen = SeenVariables::default();
        told(&seen, "a", &[("x", "int"), ("y", "int")], true);
        assert_eq!(told(&seen, "a", &[("y", "int"), ("z", "int")], true), ["z: int"]);
        assert!(told(&seen, "a", &[("x", "int"), ("z", "int")], true).is_empty());
    }

    #[test]
    fn names_and_descriptions_are_lines_of_a_bounded_length() {
        assert_eq!(shown("a\nb\u{1b}", 10), "a b ");
        assert_eq!(shown(&"é".repeat(11), 10), format!("{}…", "é".repeat(9)));
    }

    #[test]
    fn forgets_the_session_that_was_used_least_recently() {
        let seen = SeenVariables::default();
        for number in 0..SESSIONS_MAX {
            names(&seen, &format!("s{number}"), &[("x", "int")]);
        }
        assert!(names(&seen, "s0", &[("x", "int")]).is_empty());
        names(&seen, "another", &[("x", "int")]);
        assert!(names(&seen, "s0", &[("x", "int")]).is_empty());
        assert_eq!(names(&seen, "s1", &[("x", "int")]), ["x: int"]);
    }
}
