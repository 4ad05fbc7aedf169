//! Removes empty groups on a thread of its own: the kernel takes a while for a group whose session
//! has read much from disk, and requests for new groups must not wait for that.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::limits::cgroup::{Group, REMOVAL_PAUSES_MS};

/// How long the keeper continues after its server has ended, and how often it retries then.
const FINAL_TIME_MAX: Duration = Duration::from_secs(1);
const FINAL_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Removals {
    groups: Sender<Group>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Removal {
    group: Group,
    tries: usize,
    due: Instant,
}

impl Removals {
    pub(super) fn start() -> io::Result<Self> {
        let (groups, received) = mpsc::channel();
        let thread = thread::Builder::new().name("woma-removals".to_owned());
        Ok(Self { groups, thread: thread.spawn(move || remove_all(&received))? })
    }

    pub(super) fn add(&self, group: Group) {
        if self.groups.send(group).is_err() {
            eprintln!("woma keeper: cgroups are no longer removed");
        }
    }

    /// Returns when all groups are removed, or after a second.
    pub(super) fn finish(self) {
        drop(self.groups);
        if self.thread.join().is_err() {
            eprintln!("woma keeper: the removal of cgroups failed");
        }
    }
}

fn remove_all(groups: &Receiver<Group>) {
    let mut waiting: Vec<Removal> = Vec::new();
    loop {
        let next = waiting.iter().map(|removal| removal.due).min();
        let received = match next {
            None => groups.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => groups.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match received {
            Ok(group) => waiting.push(Removal { group, tries: 0, due: Instant::now() }),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return remove_remaining(waiting),
        }
        remove_due(&mut waiting);
    }
}

fn remove_due(waiting: &mut Vec<Removal>) {
    let now = Instant::now();
    waiting.retain_mut(|removal| {
        if removal.due > now {
            return true;
        }
        if removal.group.remove() {
            return false;
        }
        removal.tries += 1;
        match REMOVAL_PAUSES_MS.get(removal.tries) {
            Some(pause) => removal.due = now + Duration::from_millis(*pause),
            None => eprintln!("woma keeper: cannot remove a cgroup: {:?}", removal.group),
        }
        removal.tries < REMOVAL_PAUSES_MS.len()
    });
}

fn remove_remaining(waiting: Vec<Removal>) {
    let until = Instant::now() + FINAL_TIME_MAX;
    let mut left: Vec<Group> = waiting.into_iter().map(|removal| removal.group).collect();
    while !left.is_empty() && Instant::now() < until {
        left.retain(|group| !group.remove());
        // The kernel does not tell when a group is empty.
        thread::park_timeout(FINAL_PAUSE);
    }
}
