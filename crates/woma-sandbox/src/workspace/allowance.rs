//! What a folder may hold, from one run to the next.

use super::walk::Contents;

/// The part of its limit that a folder which is too full may still grow by: deleting writes too, and
/// so does importing a module.
const SLACK: u64 = 64;
/// Files that are counted in a folder beyond four times its limit before the counting stops.
const COUNTED_EXTRA: u64 = 100_000;

/// What a folder may hold: its limit. One that is too full must still be usable for deleting, so
/// there it is what it held when that was first seen; from then on it only shrinks, down to the
/// limit. Runs never make it grow, however short they are and however many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    limit: Contents,
    most: Contents,
    found: Contents,
}

impl Allowance {
    /// `found`: what is there before anything runs.
    pub fn new(limit: Contents, found: Contents) -> Self {
        let most =
            Contents { bytes: limit.bytes.max(found.bytes), files: limit.files.max(found.files) };
        Self { limit, most, found }
    }

    /// What is there after a run.
    pub fn see(&mut self, found: Contents) {
        self.most.bytes = next(self.limit.bytes, self.most.bytes, found.bytes);
        self.most.files = next(self.limit.files, self.most.files, found.files);
        self.found = found;
    }

    /// Whether a run may leave so much.
    pub fn allows(&self, found: Contents) -> bool {
        let Self { limit, most, .. } = self;
        found.bytes <= with_slack(limit.bytes, most.bytes)
            && found.files <= with_slack(limit.files, most.files)
    }

    /// It holds more than its limit; a run may only make that less.
    pub fn is_over(&self) -> bool {
        self.found.bytes > self.limit.bytes || self.found.files > self.limit.files
    }

    /// A run has made more of what was too much already: nothing runs until that is undone.
    pub fn is_spent(&self) -> bool {
        !self.allows(self.found)
    }

    pub fn limit(&self) -> Contents {
        self.limit
    }

    /// As it was last seen.
    pub fn found(&self) -> Contents {
        self.found
    }

    /// How far a look counts.
    pub fn counted_max(&self) -> u64 {
        counted_max(self.limit.files)
    }
}

/// How far a look counts in a folder with that limit of files: it must not take for ever.
pub fn counted_max(files_max: u64) -> u64 {
    files_max.saturating_mul(4).saturating_add(COUNTED_EXTRA)
}

fn with_slack(limit: u64, most: u64) -> u64 {
    if most > limit { most.saturating_add(limit / SLACK) } else { limit }
}

fn next(limit: u64, most: u64, found: u64) -> u64 {
    // Within its limit until now: what is too much is seen for the first time.
    if most <= limit { limit.max(found) } else { most.min(found).max(limit) }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, Contents};

    fn bytes(bytes: u64) -> Contents {
        Contents { bytes, files: 1 }
    }

    #[test]
    fn short_runs_pass_the_limit_once_and_then_only_shrink_it() {
        let mut allowance = Allowance::new(bytes(100), bytes(0));
        for found in [30, 60, 90] {
            allowance.see(bytes(found));
            assert!(!allowance.is_over() && allowance.allows(bytes(100)));
        }
        assert!(!allowance.allows(bytes(101)));
        allowance.see(bytes(120));
        assert!(allowance.is_over() && !allowance.is_spent(), "deleting is allowed");
        assert!(allowance.allows(bytes(121)) && !allowance.allows(bytes(122)), "but for a 64th");
        for found in [150, 180] {
            allowance.see(bytes(found));
            assert!(allowance.is_spent(), "{found}: what is too full does not grow");
        }
        allowance.see(bytes(110));
        assert!(allowance.is_over() && !allowance.is_spent());
        assert!(!allowance.allows(bytes(112)));
        allowance.see(bytes(50));
        assert!(!allowance.is_over() && allowance.allows(bytes(100)));
        assert!(!allowance.allows(bytes(101)));
    }

    #[test]
    fn what_was_there_before_is_the_most_that_may_be() {
        let mut allowance = Allowance::new(bytes(100), bytes(200));
        assert!(allowance.is_over() && !allowance.is_spent());
        assert!(allowance.allows(bytes(200)) && !allowance.allows(bytes(202)));
        allowance.see(bytes(150));
        assert!(!allowance.allows(bytes(152)));
        for _ in 0..5 {
            allowance.see(bytes(151));
            assert!(!allowance.allows(bytes(152)), "what is let pass does not add up");
        }
    }

    #[test]
    fn files_count_by_themselves() {
        let contents = |bytes, files| Contents { bytes, files };
        let mut allowance = Allowance::new(contents(100, 10), contents(0, 0));
        allowance.see(contents(50, 12));
        assert!(allowance.is_over() && allowance.allows(contents(100, 12)));
        allowance.see(contents(90, 13));
        assert!(allowance.is_spent());
        allowance.see(contents(90, 10));
        assert!(!allowance.is_over() && !allowance.is_spent());
    }
}
