//! The watchdog's eyes: what a session's processes use, read from /proc. It holds the memory limit
//! where there is no cgroup, and says how a session stands where nothing else does.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

/// Most processes that one look visits; a session has fewer unless its limit is set higher.
const PROCESSES_MAX: usize = 4_096;

/// All processes below these, themselves included. The kernel process is not a child of its room's
/// init (a zygote outside the room forked it), hence more than one root.
pub(crate) fn descendants(roots: &[u32]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
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

/// Memory of these processes in bytes, shared pages counted once: what was inherited from the
/// zygote weighs next to nothing, what the session touched weighs all. Stops when over `enough`.
pub(crate) fn memory_bytes(pids: &BTreeSet<u32>, enough: u64) -> u64 {
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

/// For a process that hides its maps: more than it really has, which is its own doing.
fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Processor time of these processes and of the children that they have waited for.
pub(crate) fn cpu(pids: &BTreeSet<u32>) -> Duration {
    let ticks: u64 = pids.iter().map(|pid| process_ticks(*pid)).sum();
    let per_second = clock_ticks_per_second().max(1);
    Duration::from_millis(ticks.saturating_mul(1000) / per_second)
}

fn process_ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses is the program's own choice and may contain anything.
    let after_name = text.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    let fields = after_name.split(' ').skip(11).take(4);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
