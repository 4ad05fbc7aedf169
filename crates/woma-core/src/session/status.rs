//! The status of a session, readable while a run has its turn.

use std::time::Instant;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::checkpoint::CheckpointTracker;

/// Bytes that a session's log keeps.
const LOG_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct Status {
    pub(super) phase: Phase,
    pub(super) used: Instant,
    pub(super) used_at: Timestamp,
    pub(super) executions: u64,
    /// Runs that have the turn or wait for it.
    pub(super) pending: usize,
    pub(super) has_kernel: bool,
    pub(super) checkpoints: CheckpointTracker,
    /// Stops the run that has the turn.
    pub(super) current: Option<CancellationToken>,
    /// Output of threads and processes after their run had ended; the latest.
    pub(super) log: Vec<u8>,
    /// Bytes of it that no reply has announced, with those that are not kept any more.
    pub(super) log_untold: u64,
    /// Hashes of the names of its variables after its last run, sorted.
    pub(super) variables: Vec<u64>,
    /// Why variables are gone, for the next reply: the client that it was meant for did not wait.
    pub(super) unheard: Option<String>,
}

/// Whether a session is to be emptied or deleted. Emptying is done by the holder of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// A reset was asked for and not done yet.
    Resetting,
    /// A deletion was asked for; its variables and files are still there.
    Deleting,
    /// Deleted, and emptied or about to be.
    Deleted,
}

impl Status {
    pub(super) fn new(executions: u64, now: Timestamp) -> Self {
        Self {
            phase: Phase::Open,
            used: Instant::now(),
            used_at: now,
            executions,
            pending: 0,
            has_kernel: false,
            checkpoints: CheckpointTracker::default(),
            current: None,
            log: Vec::new(),
            log_untold: 0,
            variables: Vec::new(),
            unheard: None,
        }
    }

    pub(super) fn mark_used(&mut self) {
        (self.used, self.used_at) = (Instant::now(), Timestamp::now());
    }

    pub(super) fn add_log(&mut self, bytes: &[u8]) {
        self.log.extend_from_slice(bytes);
        let excess = self.log.len().saturating_sub(LOG_BYTES_MAX);
        self.log.drain(..excess);
        self.log_untold = self.log_untold.saturating_add(bytes.len() as u64);
    }

    /// The part of the log that no reply has announced, and how many bytes it had.
    pub(super) fn take_untold(&mut self) -> (u64, String) {
        let untold = std::mem::take(&mut self.log_untold);
        let kept = usize::try_from(untold).unwrap_or(usize::MAX).min(self.log.len());
        let latest = self.log.get(self.log.len() - kept..).unwrap_or_default();
        (untold, String::from_utf8_lossy(latest).into_owned())
    }
}

impl Phase {
    pub(super) fn is_deleted(self) -> bool {
        matches!(self, Self::Deleting | Self::Deleted)
    }

    /// Marks it deleted; false if it is already.
    pub(super) fn delete(&mut self) -> bool {
        let deleted = match self {
            Self::Open => Self::Deleted,
            Self::Resetting => Self::Deleting,
            Self::Deleting | Self::Deleted => return false,
        };
        *self = deleted;
        true
    }

    /// Asks for its variables and files to be removed.
    pub(super) fn ask_to_empty(&mut self) {
        *self = if self.is_deleted() { Self::Deleting } else { Self::Resetting };
    }

    /// Whether it is to be emptied; the first who asks has to do it.
    pub(super) fn take_emptying(&mut self) -> bool {
        let emptied = match self {
            Self::Resetting => Self::Open,
            Self::Deleting => Self::Deleted,
            Self::Open | Self::Deleted => return false,
        };
        *self = emptied;
        true
    }

    /// Why the run that has the turn was stopped, if it was stopped together with its session.
    pub(super) fn end_of_run(self) -> Option<&'static str> {
        match self {
            Self::Deleting | Self::Deleted => Some("the session was deleted"),
            Self::Resetting => Some("the session was reset"),
            Self::Open => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{Phase, Status};

    #[test]
    fn a_session_is_deleted_once_and_emptied_once() {
        let mut phase = Phase::Open;
        assert!(!phase.take_emptying());
        phase.ask_to_empty();
        assert_eq!((phase, phase.end_of_run()), (Phase::Resetting, Some("the session was reset")));
        assert!(phase.delete() && !phase.delete());
        assert_eq!(phase, Phase::Deleting);
        assert!(phase.take_emptying() && !phase.take_emptying());
        assert_eq!((phase, phase.is_deleted()), (Phase::Deleted, true));
        // A deletion asks for it to be emptied too.
        phase.ask_to_empty();
        assert!(phase.take_emptying());
        let mut phase = Phase::Resetting;
        assert!(phase.take_emptying());
        assert_eq!((phase, phase.end_of_run()), (Phase::Open, None));
    }

    #[test]
    fn a_log_keeps_its_latest_bytes() {
        let mut status = Status::new(0, Timestamp::UNIX_EPOCH);
        status.add_log(&vec![b'a'; 32 * 1024]);
        assert_eq!(status.log.len(), 32_768);
        status.add_log(b"end");
        assert_eq!(status.log.len(), 32_768);
        assert!(status.log.ends_with(b"aend"));
        let (bytes, text) = status.take_untold();
        assert_eq!((bytes, text.len()), (32_771, 32_768));
        status.add_log(b"more");
        assert_eq!(status.take_untold(), (4, "more".to_owned()));
        assert_eq!(status.take_untold(), (0, String::new()));
    }

    #[test]
    fn a_use_sets_both_clocks() {
        let mut status = Status::new(0, Timestamp::UNIX_EPOCH);
        let earlier = status.used.checked_sub(Duration::from_millis(1)).unwrap();
        status.used = earlier;
        status.mark_used();
        assert!(status.used > earlier && status.used_at > Timestamp::UNIX_EPOCH);
    }
}
