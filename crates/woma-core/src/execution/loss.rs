//! The words about a kernel that ended: what comes back of its variables, and what is lost.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Executor;
use super::record::what_happened;
use crate::model::{Execution, LostChanges, Outcome, Revival};
use crate::policy;
use crate::session::checkpoint::{CheckpointTracker, LostCode};
use crate::session::state::Session;

/// Names of variables in one sentence.
const NAMES_MAX: usize = 12;

impl Executor {
    /// Says in the reply to a run that ended its kernel what the next run will find.
    pub(super) async fn tell_loss(&self, code: &str, session: &Session, execution: &mut Execution) {
        let lost = self.changes(session, session.checkpoints(|tracker| tracker.lose(code)));
        let Outcome::Ran(outcome) = &execution.outcome else { return };
        let Some(what) = what_happened(outcome) else { return };
        let Some(saved_at) = session.restorable_since().await else { return };
        let back = back(saved_at, &lost, Timestamp::now());
        execution.message = Some(format!("{what}; at the next call the variables are {back}."));
    }

    /// Why the kernel of this run is another one, and how far its variables are back.
    pub(super) fn tell_restart(
        &self,
        session: &Session,
        why: &str,
        revival: Option<&Revival>,
    ) -> String {
        let lost = self.changes(session, session.checkpoints(CheckpointTracker::take_lost));
        restarted(why, revival, &lost, Timestamp::now())
    }

    fn changes(&self, session: &Session, code: LostCode) -> LostChanges {
        let runs = match code {
            LostCode::Unknown => return LostChanges::Unknown,
            LostCode::Runs(runs) if runs.is_empty() => return LostChanges::None,
            LostCode::Runs(runs) => runs,
        };
        let mut names = Vec::new();
        let facts = self.facts_of(session);
        let version = facts.map_or(self.environments.default_facts().version, |one| one.version);
        for name in runs.iter().flat_map(|run| policy::assigned(run, version)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        LostChanges::Of(names)
    }
}

fn restarted(why: &str, revival: Option<&Revival>, lost: &LostChanges, now: Timestamp) -> String {
    match (revival.and_then(|revival| revival.saved_at), lost) {
        (Some(saved_at), lost) => format!("{why}; its variables are {}", back(saved_at, lost, now)),
        // Nothing had been changed, or nothing is known of it.
        (None, LostChanges::None | LostChanges::Unknown) => why.to_owned(),
        (None, LostChanges::Of(names)) => {
            format!("{why}; its variables are lost{}, its files are still there", listed(names))
        }
    }
}

/// How far variables are back: the end of a sentence.
fn back(saved_at: Timestamp, lost: &LostChanges, now: Timestamp) -> String {
    let time = clock(saved_at, now);
    match lost {
        LostChanges::None => format!("back as of {time}"),
        LostChanges::Unknown => format!("back as of {time}; later changes, if any, are lost"),
        LostChanges::Of(names) => {
            format!("back as of {time}; changes since then are lost{}", listed(names))
        }
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => String::new(),
        count if count > NAMES_MAX => format!(": {shown} and {} more", count - NAMES_MAX),
        _ => format!(": {shown}"),
    }
}

/// The time of day, with the date if it is not today.
fn clock(time: Timestamp, now: Timestamp) -> String {
    let (time, now) = (time.to_zoned(TimeZone::UTC), now.to_zoned(TimeZone::UTC));
    let form = if time.date() == now.date() { "%H:%M:%S UTC" } else { "%Y-%m-%d %H:%M:%S UTC" };
    time.strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{LostChanges, NAMES_MAX, back, clock, listed, restarted};
    use crate::model::Revival;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn says_how_far_variables_are_back() {
        let (saved, now) = (time("2026-01-31T05:01:40.5Z"), time("2026-01-31T06:00:00Z"));
        let of = |names: &[&str]| LostChanges::Of(names.iter().map(|&name| name.into()).collect());
        for (lost, said) in [
            (LostChanges::None, "back as of 05:01:40 UTC"),
            (LostChanges::Unknown, "back as of 05:01:40 UTC; later changes, if any, are lost"),
            (of(&[]), "back as of 05:01:40 UTC; changes since then are lost"),
            (of(&["a", "b"]), "back as of 05:01:40 UTC; changes since then are lost: a, b"),
        ] {
            assert_eq!(back(saved, &lost, now), said);
            let revival = Revival { saved_at: Some(saved), ..Revival::default() };
            let whole = format!("idle; its variables are {said}");
            assert_eq!(restarted("idle", Some(&revival), &lost, now), whole);
        }
        assert_eq!(restarted("idle", None, &LostChanges::None, now), "idle");
        assert_eq!(restarted("idle", None, &LostChanges::Unknown, now), "idle");
        let said = "idle; its variables are lost: x, its files are still there";
        assert_eq!(restarted("idle", None, &of(&["x"]), now), said);
    }

    #[test]
    fn an_earlier_day_is_named_and_names_have_a_limit() {
        let saved = time("2026-01-30T23:59:59Z");
        assert_eq!(clock(saved, time("2026-01-31T00:00:00Z")), "2026-01-30 23:59:59 UTC");
        let many: Vec<String> = (0..NAMES_MAX + 3).map(|n| format!("x{n}")).collect();
        assert!(listed(&many).ends_with("x11 and 3 more"), "{}", listed(&many));
        assert_eq!(listed(&[]), "");
    }
}
