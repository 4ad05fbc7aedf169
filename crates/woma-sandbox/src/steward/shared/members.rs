//! Processes of a session without a pid namespace: those with its session id.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, kill_process, prlimit};

/// Rounds of killing until nothing is left; each stops the forks that it sees.
const ROUNDS_MAX: usize = 2_000;

/// Parent and session of a process; `None` if it is gone or dead.
fn living(pid: i32) -> Option<(i32, i32)> {
    entry(pid).filter(|entry| !entry.is_dead).map(|entry| (entry.parent, entry.session))
}

struct Entry {
    /// Waits for its parent to ask for its status.
    is_dead: bool,
    parent: i32,
    session: i32,
}

fn entry(pid: i32) -> Option<Entry> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses is chosen by the program.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    let is_dead = matches!(words.next()?, "Z" | "X" | "x");
    let parent = words.next()?.parse().ok()?;
    let session = words.nth(1)?.parse().ok()?;
    Some(Entry { is_dead, parent, session })
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Processes of these sessions, by the process id of their leaders; dead ones count as well.
pub(crate) fn members(leaders: &[u32]) -> BTreeSet<u32> {
    found(leaders, |_| true)
}

fn found(leaders: &[u32], is_wanted: impl Fn(&Entry) -> bool) -> BTreeSet<u32> {
    let is_one = |pid: &i32| {
        entry(*pid).is_some_and(|entry| {
            let session = u32::try_from(entry.session);
            session.is_ok_and(|session| leaders.contains(&session)) && is_wanted(&entry)
        })
    };
    pids().into_iter().filter(is_one).filter_map(|pid| pid.try_into().ok()).collect()
}

/// Kills every process of a session, except `spared`; returns how many are left.
///
/// A process is first forbidden to fork, so that the rounds catch up with any fork bomb.
pub(crate) fn kill_all(leader: Pid, spared: Option<Pid>) -> io::Result<usize> {
    let spared = spared.map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    let leader = leader.as_raw_nonzero().get().cast_unsigned();
    let mut left = 0;
    for _ in 0..ROUNDS_MAX {
        let mut found = found(&[leader], |entry| !entry.is_dead);
        if let Some(spared) = spared {
            found.remove(&spared);
        }
        left = found.len();
        if left == 0 {
            break;
        }
        let found = found.iter().filter_map(|pid| Pid::from_raw(pid.cast_signed()));
        let found: Vec<Pid> = found.collect();
        for pid in &found {
            forbid_forks(*pid)?;
        }
        for pid in found {
            kill(pid)?;
        }
        rustix::thread::sched_yield();
    }
    Ok(left)
}

fn forbid_forks(pid: Pid) -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    match prlimit(Some(pid), Resource::Nproc, none) {
        // A process that has changed its image beyond our reach is killed all the same.
        Ok(_) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn kill(pid: Pid) -> io::Result<()> {
    match kill_process(pid, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Which adopted processes of sessions to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Orphans {
    All,
    /// Those whose session has no leader any more: its kernel has ended, and perhaps its minder.
    Leaderless,
}

/// Kills adopted processes: children of this process that are in another session.
pub(crate) fn kill_orphans(which: Orphans) {
    let us = getpid().as_raw_nonzero().get();
    let Some((_, own)) = living(us) else { return };
    for _ in 0..ROUNDS_MAX {
        let is_orphan = |pid: &i32| {
            living(*pid).is_some_and(|(parent, session)| {
                let is_wanted = which == Orphans::All || living(session).is_none();
                parent == us && session != own && is_wanted
            })
        };
        let orphans = pids().into_iter().filter(is_orphan).filter_map(Pid::from_raw);
        let orphans: Vec<Pid> = orphans.collect();
        if orphans.is_empty() {
            return;
        }
        for pid in orphans {
            if let Err(error) = forbid_forks(pid).and_then(|()| kill(pid)) {
                eprintln!("steward: cannot kill what a session left behind: {error}");
                return;
            }
        }
        rustix::thread::sched_yield();
    }
}
