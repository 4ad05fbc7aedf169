//! Bookkeeping of checkpoints: what has changed since the last one, and why one was refused.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use woma_sandbox::protocol::Note;

/// Code that is kept of runs that no checkpoint has, in bytes; of more, the latest.
const UNSAVED_CODE_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct CheckpointTracker {
    /// Runs that may have changed variables.
    changes: u64,
    /// How many of them the latest checkpoint has.
    changes_saved: u64,
    /// The time of the first change that no checkpoint has.
    changed: Instant,
    /// When variables that could not be saved may be tried again.
    retry: Option<Instant>,
    /// Why the latest checkpoint was refused, and whether a reply has said so.
    refused: Option<(String, bool)>,
    /// Code of the runs that no checkpoint has, each with the number of its change.
    unsaved: VecDeque<(u64, String)>,
    /// Whether an earlier process may have made changes that no checkpoint has.
    has_past: bool,
}

impl Default for CheckpointTracker {
    fn default() -> Self {
        let changed = Instant::now();
        Self {
            changes: 0,
            changes_saved: 0,
            changed,
            retry: None,
            refused: None,
            unsaved: VecDeque::new(),
            has_past: false,
        }
    }
}

/// Code whose changes went with a kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LostCode {
    /// Of an earlier process.
    Unknown,
    /// Of these runs; empty if the checkpoint has all changes.
    Runs(Vec<String>),
}

impl CheckpointTracker {
    /// The bookkeeping of a session that an earlier process had.
    pub(crate) fn with_past() -> Self {
        Self { has_past: true, ..Self::default() }
    }

    /// A run may have changed variables.
    pub(crate) fn mark_changed(&mut self, code: &str) {
        if self.changes == self.changes_saved {
            self.changed = Instant::now();
        }
        self.changes += 1;
        self.keep_code(code);
    }

    fn keep_code(&mut self, code: &str) {
        let end = code.floor_char_boundary(UNSAVED_CODE_BYTES_MAX);
        self.unsaved.push_back((self.changes, code.get(..end).unwrap_or_default().to_owned()));
        let mut bytes: usize = self.unsaved.iter().map(|(_, code)| code.len().max(1)).sum();
        while bytes > UNSAVED_CODE_BYTES_MAX
            && let Some((_, oldest)) = self.unsaved.pop_front()
        {
            bytes -= oldest.len().max(1);
        }
    }

    /// A run ended the kernel: its changes are lost with all that no checkpoint has. Returns the
    /// code of those runs, as the next reply will have it too.
    pub(crate) fn lose(&mut self, code: &str) -> LostCode {
        self.keep_code(code);
        self.lost()
    }

    fn lost(&self) -> LostCode {
        if self.has_past && self.unsaved.is_empty() {
            return LostCode::Unknown;
        }
        LostCode::Runs(self.unsaved.iter().map(|(_, code)| code.clone()).collect())
    }

    /// The code whose changes went with the kernel before this one; for one reply.
    pub(crate) fn take_lost(&mut self) -> LostCode {
        let lost = self.lost();
        self.forget_changes();
        lost
    }

    /// Changes since the checkpoint are of no interest any more.
    pub(crate) fn forget_changes(&mut self) {
        self.unsaved.clear();
        self.has_past = false;
    }

    /// Another process has had the session: its changes since the checkpoint are not known here.
    pub(crate) fn forget_own(&mut self) {
        self.unsaved.clear();
        self.has_past = true;
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// A checkpoint has the variables as they were after so many changes.
    pub(crate) fn mark_saved(&mut self, changes: u64) {
        self.changes_saved = self.changes_saved.max(changes);
        self.unsaved.retain(|(change, _)| *change > self.changes_saved);
        self.changed = Instant::now();
        self.retry = None;
    }

    /// Saving failed, and is not tried again for a while: each try costs a fork.
    pub(crate) fn mark_unsavable(&mut self, pause: Duration) {
        self.retry = Instant::now().checked_add(pause);
    }

    pub(crate) fn is_unsaved(&self) -> bool {
        self.changes > self.changes_saved
    }

    /// Whether variables are to be saved: the session has been idle for long enough, or unsaved for
    /// too long.
    pub(crate) fn is_due(&self, idle: Duration, settled: Duration, unsaved_max: Duration) -> bool {
        let is_due = idle >= settled || self.changed.elapsed() >= unsaved_max;
        self.is_unsaved() && is_due && self.retry.is_none_or(|retry| Instant::now() >= retry)
    }

    /// A checkpoint was refused. The same reason is said once.
    pub(crate) fn refuse(&mut self, why: String) {
        if self.refused.as_ref().is_none_or(|(said, _)| *said != why) {
            self.refused = Some((why, false));
        }
    }

    pub(crate) fn accept(&mut self) {
        self.refused = None;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Why variables are not saved, for one reply.
    pub(crate) fn tell_refusal(&mut self) -> Option<Note> {
        let (why, is_told) = self.refused.as_mut()?;
        let text = (!std::mem::replace(is_told, true)).then(|| why.clone())?;
        Some(Note { code: "checkpoint_refused".to_owned(), text, subject: None, line: None })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CheckpointTracker, LostCode, UNSAVED_CODE_BYTES_MAX};

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn changes_are_due_until_a_checkpoint_has_them() {
        let mut tracker = CheckpointTracker::default();
        assert!(!tracker.is_due(HOUR, Duration::ZERO, HOUR), "nothing has changed");
        tracker.mark_changed("x = 1");
        let seen = tracker.changes();
        tracker.mark_changed("x = 1");
        assert_eq!((seen, tracker.changes()), (1, 2));
        assert!(tracker.is_due(HOUR, Duration::ZERO, HOUR));
        assert!(!tracker.is_due(Duration::ZERO, HOUR, HOUR), "it was used a moment ago");
        assert!(tracker.is_due(Duration::ZERO, HOUR, Duration::ZERO), "it is unsaved for too long");
        tracker.mark_saved(seen);
        assert!(tracker.is_unsaved(), "a change came while it was saved");
        tracker.mark_unsavable(HOUR);
        assert!(!tracker.is_due(HOUR, Duration::ZERO, HOUR), "not before its time");
        tracker.mark_saved(2);
        assert!(!tracker.is_unsaved());
        tracker.mark_saved(1);
        assert!(!tracker.is_unsaved(), "an older checkpoint takes nothing back");
    }

    #[test]
    fn the_first_change_since_a_checkpoint_sets_the_time() {
        let mut tracker = CheckpointTracker::default();
        let earlier = tracker.changed.checked_sub(Duration::from_millis(1)).unwrap();
        tracker.changed = earlier;
        tracker.mark_changed("x = 1");
        assert!(tracker.changed > earlier, "the first one sets it");
        tracker.changed = earlier;
        tracker.mark_changed("x = 1");
        assert_eq!(tracker.changed, earlier, "the second one leaves it");
        tracker.mark_saved(2);
        tracker.changed = earlier;
        tracker.mark_changed("x = 1");
        assert!(tracker.changed > earlier, "a checkpoint has all earlier ones");
    }

    #[test]
    fn a_refusal_is_told_once_until_its_reason_changes() {
        let mut tracker = CheckpointTracker::default();
        assert!(tracker.tell_refusal().is_none());
        tracker.refuse("full".to_owned());
        assert_eq!(tracker.tell_refusal().map(|note| note.text).as_deref(), Some("full"));
        tracker.refuse("full".to_owned());
        assert!(tracker.tell_refusal().is_none() && tracker.is_refused());
        tracker.refuse("fuller".to_owned());
        assert_eq!(tracker.tell_refusal().map(|note| note.text).as_deref(), Some("fuller"));
        tracker.accept();
        assert!(!tracker.is_refused());
    }

    #[test]
    fn code_is_kept_until_a_checkpoint_has_its_changes() {
        let runs = |codes: &[&str]| LostCode::Runs(codes.iter().map(|&code| code.into()).collect());
        let mut tracker = CheckpointTracker::default();
        assert_eq!(tracker.take_lost(), runs(&[]));
        tracker.mark_changed("a = 1");
        tracker.mark_changed("b = 1");
        tracker.mark_saved(1);
        assert_eq!(tracker.lose("c = 1"), runs(&["b = 1", "c = 1"]));
        assert_eq!(tracker.take_lost(), runs(&["b = 1", "c = 1"]), "the next reply has it too");
        assert_eq!(tracker.take_lost(), runs(&[]));
        tracker.mark_changed("d = 1");
        tracker.forget_changes();
        assert_eq!(tracker.take_lost(), runs(&[]));
        let long = "#".repeat(UNSAVED_CODE_BYTES_MAX / 2);
        for code in [&long, &long, &long, &"#".repeat(UNSAVED_CODE_BYTES_MAX * 2)] {
            tracker.mark_changed(code);
            let bytes: usize = tracker.unsaved.iter().map(|(_, code)| code.len()).sum();
            assert!((1..=UNSAVED_CODE_BYTES_MAX).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn changes_of_an_earlier_process_are_unknown_once() {
        let mut tracker = CheckpointTracker::with_past();
        assert_eq!(tracker.take_lost(), LostCode::Unknown);
        assert_eq!(tracker.take_lost(), LostCode::Runs(Vec::new()));
    }
}
