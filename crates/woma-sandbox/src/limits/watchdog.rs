//! Resource use of a session's processes, read from /proc. Enforces the memory limit where there is
//! no cgroup.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use super::cgroup::Group;
use crate::keeper;
use crate::steward::shared;

/// True if sessions share the server's pid namespace.
pub(crate) static SHARED: AtomicBool = AtomicBool::new(false);

/// Most processes that are visited at once; a session has fewer unless its limit is higher.
const PROCESSES_MAX: usize = 4_096;

/// These processes and all their descendants. The kernel process is not a child of its room's init
/// (a zygote outside the room forked it), so there are several roots.
pub(crate) fn descendants(roots: &[u32]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    if SHARED.load(Ordering::Relaxed) {
        // What a session leaves behind is not adopted by its minder, but keeps its session id.
        found = shared::members(roots);
        found.extend(roots);
        return found;
    }
    let mut waiting: Vec<u32> = roots.to_vec();
    while let Some(pid) = waiting.pop() {
        if found.len() >= PROCESSES_MAX || !found.insert(pid) {
            continue;
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            waiting.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    found
}

/// Memory of these processes in bytes, with shared pages divided among their users: pages inherited
/// from the zygote count next to nothing. Stops counting above `enough`.
pub(crate) fn memory_bytes(pids: &BTreeSet<u32>, enough: u64) -> u64 {
    // A confined server may not read its cells' processes; the keeper does.
    if let Some(weight) =
        keeper::of_this_process().and_then(|keeper| keeper.measure_memory(pids, enough))
    {
        return weight;
    }
    let mut sum = 0;
    for pid in pids {
        sum += process_memory_bytes(*pid);
        if sum > enough {
            break;
        }
    }
    sum
}

fn process_memory_bytes(pid: u32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return resident_bytes(pid);
    };
    let kib = |name: &str| -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        let value = value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        value.unwrap_or(0)
    };
    (kib("Pss_Anon:") + kib("Pss_Shmem:")) * 1024
}

/// For a process that hides its maps; counts more than it really has.
fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Data of a process as `RLIMIT_DATA` counts it, used or not, in bytes.
pub(crate) fn data_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(5).and_then(|pages| pages.trim().parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Number of threads of these processes.
pub(crate) fn threads(pids: &BTreeSet<u32>) -> u64 {
    let of = |pid: &u32| stat(*pid)?.split(' ').nth(17)?.parse::<u64>().ok();
    pids.iter().filter_map(of).sum()
}

/// Whether a process is ending or has ended. Its descriptors are closed after that mark is set.
pub(crate) fn is_exiting(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    let Some(stat) = stat(pid) else { return true };
    let flags = stat.split(' ').nth(6).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// CPU time of these processes and of the children they have waited for.
pub(crate) fn cpu(pids: &BTreeSet<u32>) -> Duration {
    let ticks: u64 = pids.iter().map(|pid| process_ticks(*pid)).sum();
    let per_second = clock_ticks_per_second().max(1);
    Duration::from_millis(ticks.saturating_mul(1000) / per_second)
}

/// CPU time of a session, from its cgroup or from its processes.
pub(crate) fn cpu_of(group: Option<&Group>, roots: &[u32]) -> Duration {
    group.map_or_else(|| cpu(&descendants(roots)), Group::cpu)
}

fn process_ticks(pid: u32) -> u64 {
    let stat = stat(pid).unwrap_or_default();
    let fields = stat.split(' ').skip(11).take(4);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// `/proc/<pid>/stat` from the state on; `None` if there is no such process.
pub(crate) fn stat(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses is chosen by the program and may contain anything.
    text.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::is_exiting;

    #[test]
    fn tells_a_process_that_has_ended_from_one_that_lives() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!is_exiting(child.id()));
        child.kill().unwrap();
        let soon = Instant::now() + Duration::from_secs(60);
        while !is_exiting(child.id()) {
            assert!(Instant::now() < soon, "the process did not end");
        }
        child.wait().unwrap();
        assert!(is_exiting(child.id()));
    }
}
