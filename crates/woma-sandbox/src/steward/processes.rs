//! Processes of a room, as init sees them: signals, memory, limits.

use std::fs;
use std::io;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, kill_process_group, prlimit};

/// The kernel is the first process to enter the room after init, and leads its own process group.
pub(super) const KERNEL_PID: i32 = 2;
/// Signal that reports a lack of memory to the kernel; handled by `python/_woma_kernel/ceiling.py`.
pub(super) const MEMORY_SIGNAL: Signal = Signal::STKFLT;

pub(super) fn kernel_pid() -> io::Result<Pid> {
    Pid::from_raw(KERNEL_PID).ok_or_else(|| io::Error::other("there is no kernel"))
}

pub(super) fn interrupt() -> io::Result<()> {
    let Some(kernel) = Pid::from_raw(KERNEL_PID) else { return Ok(()) };
    Ok(kill_process_group(kernel, Signal::INT)?)
}

/// Kills every process of the room except the kernel; returns how many are left. A few rounds
/// suffice for everything but a fork bomb, for which the room itself must be killed.
pub(super) fn sweep() -> io::Result<usize> {
    const ROUNDS_MAX: usize = 50;
    let mut left = 0;
    for _ in 0..ROUNDS_MAX {
        left = kill_children()?;
        if left == 0 {
            break;
        }
        rustix::thread::sched_yield();
    }
    Ok(left)
}

pub(super) fn kill_children() -> io::Result<usize> {
    let others = others()?;
    for pid in &others {
        match kill_process(*pid, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(others.len())
}

/// Kills the child with the most memory; returns the number of killed processes.
pub(super) fn kill_largest_child() -> io::Result<usize> {
    let Some(kernel) = Pid::from_raw(KERNEL_PID) else { return Ok(0) };
    let most = others()?.into_iter().map(|pid| (held_kib(pid), pid)).max_by_key(|(kib, _)| *kib);
    let Some((_, child)) = most.filter(|(kib, _)| *kib > held_kib(kernel)) else {
        return Ok(0);
    };
    match kill_process(child, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(1),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn raise_memory_error() -> io::Result<()> {
    let Some(kernel) = Pid::from_raw(KERNEL_PID) else { return Ok(()) };
    Ok(kill_process(kernel, MEMORY_SIGNAL)?)
}

/// Memory of a process without mapped files. Shared memory is divided among its users: the kernel
/// shares most of its memory with the zygote and with its own forks. Of a process that denies
/// inspection, all of its memory.
pub(super) fn held_kib(pid: Pid) -> u64 {
    let read = |file: &str| {
        let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
        fs::read_to_string(path).unwrap_or_default()
    };
    let sum = |text: &str, names: [&str; 2]| -> Option<u64> {
        let value = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(value(names[0])? + value(names[1])?)
    };
    let shares = sum(&read("smaps_rollup"), ["Pss_Anon:", "Pss_Shmem:"]);
    shares.or_else(|| sum(&read("status"), ["RssAnon:", "RssShmem:"])).unwrap_or(0)
}

/// Soft limit of the kernel's data.
pub(super) fn data_limit(kernel: i32) -> u64 {
    let limits = fs::read_to_string(format!("/proc/{kernel}/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max data size"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    soft.unwrap_or(u64::MAX)
}

/// Sets the limits of the kernel's data: the soft one to at least `least`, but at most `most`.
pub(super) fn limit_data(kernel: Pid, bytes: &[u8], least: u64, most: u64) -> io::Result<()> {
    let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
    let mut numbers = text.split(' ').map(str::parse::<u64>);
    let wanted = numbers.next().transpose().map_err(io::Error::other)?;
    let current = wanted.map(|soft| soft.max(least).min(most));
    let maximum = numbers.next().transpose().map_err(io::Error::other)?;
    prlimit(Some(kernel), Resource::Data, Rlimit { current, maximum })?;
    Ok(())
}

fn others() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(raw) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if raw == 1 || raw == KERNEL_PID || is_zombie(raw) {
            continue;
        }
        pids.extend(Pid::from_raw(raw));
    }
    Ok(pids)
}

/// A zombie is a dead child that the kernel process has not waited for; init cannot reap it.
fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}
