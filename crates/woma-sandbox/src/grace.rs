//! Time that a run has to end when it was stopped, or to free memory after a `MemoryError`. A run that
//! waits for a processor, on a busy machine, has more of it: otherwise its variables would be lost
//! for no fault of its own.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::cgroup::Group;
use crate::limits::watchdog;
use crate::room_handles::RoomHandles;

/// Time that a stopped run has to end before its room is killed.
pub(crate) const GRACE: Duration = Duration::from_millis(300);
/// The same for a run that waits for a processor.
const GRACE_MAX: Duration = Duration::from_secs(10);
/// Processor time of the whole room that is enough to end a run: a room that has had this much is
/// not waiting for the machine, but busy with something else.
const CPU_ENOUGH: Duration = Duration::from_millis(150);
/// Interval of the checks after [`GRACE`].
const STEP: Duration = Duration::from_millis(100);

/// A run that was asked to end, or to free memory.
#[derive(Debug)]
pub(crate) struct Grace {
    began: Instant,
    init_pid: u32,
    kernel_pid: u32,
    group: Option<Arc<Group>>,
    before: Scheduled,
    /// Processor time of the room before.
    cpu_before: Duration,
}

impl Grace {
    pub(crate) fn begin(room: &RoomHandles) -> Self {
        let RoomHandles { init_pid, kernel_pid, .. } = *room;
        let group = room.group.clone();
        let (began, before) = (Instant::now(), Scheduled::of(kernel_pid));
        let mut grace =
            Self { began, init_pid, kernel_pid, group, before, cpu_before: Duration::ZERO };
        grace.cpu_before = grace.cpu();
        grace
    }

    /// Processor time of the whole room. Samples of a room with many processes come too late.
    fn cpu(&self) -> Duration {
        watchdog::cpu_of(self.group.as_deref(), &[self.init_pid, self.kernel_pid])
    }

    /// Time until the next interrupt: longer for a room that waits for a processor, so that its
    /// code is not interrupted again while it ends.
    pub(crate) fn pause(&self) -> Duration {
        if self.began.elapsed() < GRACE / 2 { GRACE / 3 } else { GRACE * 5 }
    }

    /// When to check again; `None` if the time is over.
    pub(crate) fn extend(&self) -> Option<Instant> {
        self.is_starved().then(|| Instant::now() + STEP)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the run waits for a processor, and may wait on.
    pub(crate) fn is_starved(&self) -> bool {
        let now = Scheduled::of(self.kernel_pid);
        let facts = Facts {
            elapsed: self.elapsed(),
            // The room's figure may be as coarse as a tick of the clock.
            cpu: self
                .cpu()
                .saturating_sub(self.cpu_before)
                .max(now.ran.saturating_sub(self.before.ran)),
            waited: now.waited.saturating_sub(self.before.waited),
            is_runnable: is_runnable(self.kernel_pid),
        };
        facts.is_starved()
    }
}

/// A room since its run was stopped.
#[derive(Debug, Clone, Copy)]
struct Facts {
    elapsed: Duration,
    /// Processor time of all its processes.
    cpu: Duration,
    /// How long the kernel has waited for a processor.
    waited: Duration,
    /// The kernel runs, or waits for a processor.
    is_runnable: bool,
}

impl Facts {
    fn is_starved(self) -> bool {
        let has_little = self.is_runnable && self.cpu * 2 < self.elapsed;
        let waits = has_little || self.waited * 3 > self.elapsed;
        self.elapsed < GRACE_MAX && self.cpu < CPU_ENOUGH && waits
    }
}

/// How long the main thread of a process has run, and has waited for a processor, in its life.
#[derive(Debug, Clone, Copy)]
struct Scheduled {
    ran: Duration,
    waited: Duration,
}

impl Scheduled {
    /// Zero if the process is gone.
    fn of(pid: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
        let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
        let mut next = || Duration::from_nanos(numbers.next().unwrap_or(0));
        Self { ran: next(), waited: next() }
    }
}

fn is_runnable(pid: u32) -> bool {
    watchdog::stat(pid).is_some_and(|stat| stat.starts_with('R'))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::{CPU_ENOUGH, Facts, GRACE, GRACE_MAX, is_runnable};

    #[test]
    fn only_a_room_that_waits_for_the_machine_gets_more_time() {
        let starved =
            Facts { elapsed: GRACE, cpu: Duration::ZERO, waited: GRACE, is_runnable: true };
        assert!(starved.is_starved());
        assert!(Facts { is_runnable: false, ..starved }.is_starved());
        assert!(Facts { waited: Duration::ZERO, ..starved }.is_starved());
        // It sleeps.
        let asleep = Facts { waited: GRACE / 3, is_runnable: false, ..starved };
        assert!(!asleep.is_starved());
        // It computes, or its children do.
        assert!(!Facts { cpu: CPU_ENOUGH, ..starved }.is_starved());
        let alone = Facts { elapsed: CPU_ENOUGH, waited: Duration::ZERO, ..starved };
        assert!(!Facts { cpu: CPU_ENOUGH * 9 / 10, ..alone }.is_starved());
        let late = Facts { elapsed: GRACE_MAX, waited: GRACE_MAX, ..starved };
        assert!(!late.is_starved());
    }

    #[test]
    fn tells_a_busy_process_from_a_sleeping_one() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let (mut busy, mut asleep) = (start("while :; do :; done"), start("exec sleep 600"));
        let soon = Instant::now() + Duration::from_secs(60);
        while !is_runnable(busy.id()) || is_runnable(asleep.id()) {
            assert!(Instant::now() < soon, "the processes did not start");
        }
        for child in [&mut busy, &mut asleep] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!is_runnable(busy.id()));
    }
}
