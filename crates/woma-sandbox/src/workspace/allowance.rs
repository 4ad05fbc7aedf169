//! Size that a folder may have, carried from one run to the next.

use super::walk::Contents;

/// Fraction of the limit by which a folder over its limit may still grow: deleting files and
/// importing modules write too.
const SLACK: u64 = 64;
/// Number of files beyond four times the limit at which counting stops.
const COUNTED_EXTRA: u64 = 100_000;

/// Growth that a folder is allowed while its disk is below the reserve: deleting writes too.
const GROWTH: Contents = Contents { bytes: 1024 * 1024, files: 256 };

/// Size that a folder may have: its limit. A folder over its limit must still be usable for
/// deleting, so its bound is then the size at which that was first measured; from then on the bound
/// only shrinks, down to the limit. Runs never raise it, however short and many they are.
///
/// Deleted files that are open count like others. While the disk is below its reserve, the bound is
/// the size of the folder when that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    limit: Contents,
    most: Contents,
    folder: Contents,
    deleted: Contents,
    /// Bound while the disk is below its reserve.
    held: Option<Contents>,
}

/// Reason why a folder is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// The folder is over its limit.
    Folder,
    /// The folder is over its limit only because of deleted files that are open.
    Deleted { bytes: u64 },
    /// The disk is below its reserve, and the folder grew.
    Reserve,
}

impl Allowance {
    /// `found`: contents before anything runs.
    pub fn new(limit: Contents, found: Contents) -> Self {
        let most = larger(limit, found);
        Self { limit, most, folder: found, deleted: Contents::default(), held: None }
    }

    /// Records the size of the folder after a run. Removed files may still be open, so this alone
    /// never lowers the bound.
    pub fn see(&mut self, folder: Contents) {
        self.folder = folder;
        let (bound, most, found) = (self.bound(), self.most, self.found());
        let grown = |bound: u64, most: u64, found: u64| {
            if most <= bound { bound.max(found) } else { most }
        };
        self.most = Contents {
            bytes: grown(bound.bytes, most.bytes, found.bytes),
            files: grown(bound.files, most.files, found.files),
        };
    }

    /// Records the size of the folder, and of the deleted files that its room holds open.
    pub fn see_all(&mut self, folder: Contents, deleted: Contents) {
        (self.folder, self.deleted) = (folder, deleted);
        let (bound, most, found) = (self.bound(), self.most, self.found());
        self.most = Contents {
            bytes: next(bound.bytes, most.bytes, found.bytes),
            files: next(bound.files, most.files, found.files),
        };
    }

    /// Records whether the disk is below its reserve; `before` is the last known size.
    pub fn hold(&mut self, is_low: bool, before: Contents) {
        if is_low == self.held.is_some() {
            return;
        }
        self.held = is_low.then(|| sum(before, GROWTH));
        self.most = larger(self.bound(), before);
    }

    /// Returns why these sizes are too large, if they are.
    pub fn excess(&self, folder: Contents, deleted: Contents) -> Option<Excess> {
        let found = sum(folder, deleted);
        if self.allows(found) {
            return None;
        }
        let is_within = found.bytes <= self.limit.bytes && found.files <= self.limit.files;
        Some(match is_within {
            true => Excess::Reserve,
            false if self.allows(folder) => Excess::Deleted { bytes: deleted.bytes },
            false => Excess::Folder,
        })
    }

    /// Whether a run may leave the folder at this size.
    fn allows(&self, found: Contents) -> bool {
        let (bound, most) = (self.bound(), self.most);
        found.bytes <= with_slack(bound.bytes, most.bytes)
            && found.files <= with_slack(bound.files, most.files)
    }

    /// The folder is over its bound; runs may only shrink it.
    pub fn is_over(&self) -> bool {
        let (found, bound) = (self.found(), self.bound());
        found.bytes > bound.bytes || found.files > bound.files
    }

    /// A run has grown a folder that was over its bound: no further run until it shrinks.
    pub fn is_spent(&self) -> bool {
        self.spent().is_some()
    }

    /// As [`Self::is_spent`], with the reason.
    pub fn spent(&self) -> Option<Excess> {
        self.excess(self.folder, self.deleted)
    }

    pub fn limit(&self) -> Contents {
        self.limit
    }

    /// The disk is below its reserve, and the folder may not grow.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Last known size, including deleted files that are open.
    pub fn found(&self) -> Contents {
        sum(self.folder, self.deleted)
    }

    /// Last known size of the folder, without deleted files.
    pub fn folder(&self) -> Contents {
        self.folder
    }

    /// Files that are deleted but open.
    pub fn deleted(&self) -> Contents {
        self.deleted
    }

    /// Number of files at which measuring stops.
    pub fn counted_max(&self) -> u64 {
        counted_max(self.limit.files)
    }

    fn bound(&self) -> Contents {
        let Some(held) = self.held else { return self.limit };
        Contents {
            bytes: self.limit.bytes.min(held.bytes),
            files: self.limit.files.min(held.files),
        }
    }
}

fn sum(a: Contents, b: Contents) -> Contents {
    Contents { bytes: a.bytes.saturating_add(b.bytes), files: a.files.saturating_add(b.files) }
}

fn larger(a: Contents, b: Contents) -> Contents {
    Contents { bytes: a.bytes.max(b.bytes), files: a.files.max(b.files) }
}

/// Number of files at which measuring a folder with this limit stops, to bound its time.
pub fn counted_max(files_max: u64) -> u64 {
    files_max.saturating_mul(4).saturating_add(COUNTED_EXTRA)
}

fn with_slack(limit: u64, most: u64) -> u64 {
    if most > limit { most.saturating_add(limit / SLACK) } else { limit }
}

fn next(limit: u64, most: u64, found: u64) -> u64 {
    // Within the limit until now: this is the first excess.
    if most <= limit { limit.max(found) } else { most.min(found).max(limit) }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, Contents, Excess, GROWTH};

    fn bytes(bytes: u64) -> Contents {
        Contents { bytes, files: 1 }
    }

    fn see(allowance: &mut Allowance, found: Contents) {
        allowance.see_all(found, Contents::default());
    }

    #[test]
    fn a_folder_over_its_limit_may_only_shrink() {
        let mut allowance = Allowance::new(bytes(100), bytes(0));
        for found in [30, 60, 90] {
            see(&mut allowance, bytes(found));
            assert!(!allowance.is_over() && allowance.allows(bytes(100)));
        }
        assert!(!allowance.allows(bytes(101)));
        see(&mut allowance, bytes(120));
        assert!(allowance.is_over() && !allowance.is_spent(), "deleting is allowed");
        assert!(
            allowance.allows(bytes(121)) && !allowance.allows(bytes(122)),
            "growth by a 64th is allowed"
        );
        for found in [150, 180] {
            see(&mut allowance, bytes(found));
            assert!(allowance.is_spent(), "{found}: a folder over its limit may not grow");
        }
        see(&mut allowance, bytes(110));
        assert!(allowance.is_over() && !allowance.is_spent());
        assert!(!allowance.allows(bytes(112)));
        see(&mut allowance, bytes(50));
        assert!(!allowance.is_over() && allowance.allows(bytes(100)));
        assert!(!allowance.allows(bytes(101)));
    }

    #[test]
    fn existing_files_over_the_limit_are_the_upper_bound() {
        let mut allowance = Allowance::new(bytes(100), bytes(200));
        assert!(allowance.is_over() && !allowance.is_spent());
        assert!(allowance.allows(bytes(200)) && !allowance.allows(bytes(202)));
        see(&mut allowance, bytes(150));
        assert!(!allowance.allows(bytes(152)));
        for _ in 0..5 {
            see(&mut allowance, bytes(151));
            assert!(!allowance.allows(bytes(152)), "tolerated growth does not accumulate");
        }
    }

    #[test]
    fn the_number_of_files_is_limited_separately() {
        let contents = |bytes, files| Contents { bytes, files };
        let mut allowance = Allowance::new(contents(100, 10), contents(0, 0));
        see(&mut allowance, contents(50, 12));
        assert!(allowance.is_over() && allowance.allows(contents(100, 12)));
        see(&mut allowance, contents(90, 13));
        assert!(allowance.is_spent());
        see(&mut allowance, contents(90, 10));
        assert!(!allowance.is_over() && !allowance.is_spent());
    }

    #[test]
    fn deleted_open_files_count_and_are_reported() {
        let mut allowance = Allowance::new(bytes(100), bytes(0));
        let deleted = |bytes| Contents { bytes, files: 0 };
        assert_eq!(allowance.excess(bytes(60), deleted(40)), None);
        let excess = allowance.excess(bytes(60), deleted(41));
        assert_eq!(excess, Some(Excess::Deleted { bytes: 41 }));
        assert_eq!(allowance.excess(bytes(160), deleted(41)), Some(Excess::Folder));
        allowance.see_all(bytes(0), deleted(120));
        assert!(allowance.is_over() && !allowance.is_spent(), "they can still be closed");
        // A file that loses its name still exists: an emptier folder may not grow.
        for step in 0..5 {
            allowance.see(bytes(20));
            assert_eq!(allowance.spent(), Some(Excess::Deleted { bytes: 120 }), "{step}");
            allowance.see(bytes(0));
            allowance.see_all(bytes(0), deleted(140));
            assert!(
                allowance.is_spent(),
                "{step}: moved from the folder to deleted files and back"
            );
            allowance.see_all(bytes(0), deleted(120));
        }
        allowance.see_all(bytes(0), deleted(0));
        assert!(!allowance.is_over() && allowance.excess(bytes(101), deleted(0)).is_some());
    }

    #[test]
    fn below_the_reserve_a_folder_may_not_grow() {
        const MIB: u64 = 1024 * 1024;
        let none = Contents::default();
        let limit = Contents { bytes: 100 * MIB, files: 1000 };
        let mut allowance = Allowance::new(limit, none);
        see(&mut allowance, bytes(40 * MIB));
        allowance.hold(true, allowance.found());
        assert!(!allowance.is_over() && allowance.excess(bytes(40 * MIB), none).is_none());
        assert_eq!(allowance.excess(bytes(41 * MIB), none), None, "a little growth is tolerated");
        assert_eq!(allowance.excess(bytes(41 * MIB + 1), none), Some(Excess::Reserve));
        let many = Contents { bytes: 1, files: GROWTH.files + 2 };
        assert_eq!(allowance.excess(many, none), Some(Excess::Reserve));
        assert_eq!(allowance.excess(bytes(200 * MIB), none), Some(Excess::Folder));
        // Short runs exceed it once, as they do the limit.
        see(&mut allowance, bytes(50 * MIB));
        assert!(allowance.is_over() && !allowance.is_spent());
        see(&mut allowance, bytes(60 * MIB));
        assert_eq!(allowance.spent(), Some(Excess::Reserve));
        see(&mut allowance, bytes(10 * MIB));
        assert!(!allowance.is_spent(), "a session that deletes may go on");
        allowance.hold(true, bytes(0));
        assert_eq!(allowance.excess(bytes(41 * MIB), none), None, "the bound does not change");
        allowance.hold(false, allowance.found());
        assert_eq!(allowance.excess(bytes(100 * MIB), none), None);
        assert_eq!(allowance.excess(bytes(101 * MIB), none), Some(Excess::Folder));
    }
}
