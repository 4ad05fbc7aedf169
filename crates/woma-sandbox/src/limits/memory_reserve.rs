//! Thresholds near the memory limit: how much code may use, and how much is reserved for reporting
//! an error.
//!
//! A group has two limits. At the soft limit, cgroup v1 kills no process: allocations wait until
//! the watchdog responds by raising an error in the code or killing a child (`memory_pressure.rs`);
//! v2 throttles them. At the hard limit, which is the configured one, the session ends.

use std::fs;
use std::io;
use std::path::Path;

use super::cgroup::{Files, Group, field, number, set};
use super::watchdog;

const MIB: u64 = 1024 * 1024;
/// Fraction of the limit that is reserved for reporting an error, and its bounds in bytes.
const RESERVE_PART: u64 = 16;
const RESERVE_PART_MAX: u64 = 4;
const RESERVE_MIN: u64 = 8 * MIB;
const RESERVE_MAX: u64 = 128 * MIB;
/// Stack of a thread, all of which counts as data though little is used; the number of threads that
/// libraries may need beyond one per processor; and the most for all stacks together.
const STACK_BYTES: u64 = 8 * MIB;
const STACKS_MORE: u64 = 2;
const STACKS_BYTES_MAX: u64 = 1024 * MIB;
/// Data segment of a fresh fork of the zygote, including thread stacks.
const DATA_BYTES_EXTRA: u64 = 2048 * MIB;
/// Change of a process's data during one probe that is negligible.
const STEADY_BYTES: u64 = 2 * MIB;
/// Excess at which a session without a cgroup is killed at once: a fraction of the limit, or this
/// many bytes.
const KILL_PART: u64 = 4;
const KILL_MIN: u64 = 64 * MIB;

/// The soft limit.
pub(crate) fn soft_bytes(limit_bytes: u64) -> u64 {
    let reserve = (limit_bytes / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
    limit_bytes - reserve.min(limit_bytes / RESERVE_PART_MAX)
}

/// Data that a process may still allocate, used or not, given the session's memory use. With many
/// processors, thread pools of libraries need more than a small limit at the start.
pub(crate) fn data_bytes(limit_bytes: u64, used_bytes: u64) -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let stacks = (processors as u64 + STACKS_MORE).saturating_mul(STACK_BYTES);
    let soft_bytes = soft_bytes(limit_bytes);
    soft_bytes.max(stacks.min(STACKS_BYTES_MAX)).saturating_sub(used_bytes)
}

/// Hard limit of the data segment without a cgroup. Reserved address space counts too, and the
/// zygote brings some along: twice the limit stops the worst, and the watchdog does the rest.
pub(crate) fn data_bytes_max(limit_bytes: u64) -> u64 {
    limit_bytes.saturating_mul(2).saturating_add(DATA_BYTES_EXTRA)
}

/// Memory use at which a session without a cgroup is killed at once.
pub(crate) fn kill_bytes(limit_bytes: u64) -> u64 {
    limit_bytes.saturating_add((limit_bytes / KILL_PART).max(KILL_MIN))
}

/// Threshold just below the hard limit, used while the soft limit is lifted.
fn near_limit_bytes(limit_bytes: u64) -> u64 {
    limit_bytes.saturating_sub((limit_bytes - soft_bytes(limit_bytes)) / 4)
}

/// Memory use of a session relative to its limits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryStatus {
    /// Memory that cannot be reclaimed: without the file cache.
    pub(crate) used_bytes: u64,
    /// True at the soft limit, or near the hard limit if the soft one is lifted.
    pub(crate) is_at_limit: bool,
    /// Data of the kernel process, as `RLIMIT_DATA` counts it; `None` if it changed during the
    /// probe.
    pub(crate) data_bytes: Option<u64>,
}

/// Probe of a session's memory; slow without a cgroup.
#[derive(Debug, Clone)]
pub(crate) struct MemoryProbe {
    pub(crate) group: Option<std::sync::Arc<Group>>,
    pub(crate) init_pid: u32,
    pub(crate) kernel_pid: u32,
    pub(crate) limit_bytes: u64,
    pub(crate) is_lifted: bool,
}

impl MemoryProbe {
    pub(crate) fn read(&self) -> MemoryStatus {
        let Self { group, init_pid, kernel_pid, limit_bytes, is_lifted } = self;
        let line =
            if *is_lifted { near_limit_bytes(*limit_bytes) } else { soft_bytes(*limit_bytes) };
        let before = watchdog::data_bytes(*kernel_pid);
        let (used_bytes, is_waiting) = match group {
            Some(group) => (group.used_bytes(*limit_bytes), group.is_waiting()),
            None => {
                let pids = watchdog::descendants(&[*init_pid, *kernel_pid]);
                (watchdog::memory_bytes(&pids, kill_bytes(*limit_bytes)), None)
            }
        };
        let is_at_limit = is_waiting.unwrap_or(used_bytes >= line);
        let after = watchdog::data_bytes(*kernel_pid);
        let is_steady = before > 0 && before.abs_diff(after) <= STEADY_BYTES;
        MemoryStatus { used_bytes, is_at_limit, data_bytes: is_steady.then_some(after) }
    }
}

impl Group {
    /// Memory that cannot be reclaimed. Subtracts the file cache only near the limit.
    pub(crate) fn used_bytes(&self, limit_bytes: u64) -> u64 {
        let (folder, used, files) = match &self.files {
            Files::V1 { memory, .. } => (
                memory,
                "memory.usage_in_bytes",
                ["total_active_file ", "total_inactive_file "].as_slice(),
            ),
            Files::V2(group) => (
                group,
                "memory.current",
                ["active_file ", "inactive_file ", "slab_reclaimable "].as_slice(),
            ),
        };
        let used = number(&folder.join(used));
        if used < limit_bytes / 2 {
            return used;
        }
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cached: u64 = files.iter().map(|name| field(&stat, name)).sum();
        used.saturating_sub(cached)
    }

    /// Whether a process waits for memory; `None` if the group does not make processes wait.
    fn is_waiting(&self) -> Option<bool> {
        match &self.files {
            Files::V1 { memory, waits_at_limit: true, .. } => {
                let text = fs::read_to_string(memory.join("memory.oom_control"));
                Some(field(&text.unwrap_or_default(), "under_oom ") > 0)
            }
            Files::V1 { .. } | Files::V2(_) => None,
        }
    }

    /// Changes the limit. Refused if the session already uses more: the kernel would kill
    /// processes.
    pub(crate) fn set_memory(&self, limit_bytes: u64) -> io::Result<()> {
        if self.used_bytes(limit_bytes) > soft_bytes(limit_bytes) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.write_limits(limit_bytes, soft_bytes(limit_bytes)).map_err(|error| {
            match error.kind() {
                // The session could not free enough memory.
                io::ErrorKind::ResourceBusy | io::ErrorKind::OutOfMemory => {
                    io::ErrorKind::OutOfMemory.into()
                }
                _ => error,
            }
        })
    }

    /// Lifts the soft limit, to make room for reporting an error.
    pub(crate) fn lift_soft_limit(&self, limit_bytes: u64) -> io::Result<()> {
        self.write_limits(limit_bytes, limit_bytes)
    }

    /// Sets the soft limit again.
    pub(crate) fn set_soft_limit(&self, limit_bytes: u64) -> io::Result<()> {
        self.write_limits(limit_bytes, soft_bytes(limit_bytes))
    }

    pub(crate) fn write_limits(&self, limit_bytes: u64, soft_limit_bytes: u64) -> io::Result<()> {
        if let Some((keeper, name)) = &self.keeper {
            return keeper.set_memory(name, limit_bytes, soft_limit_bytes);
        }
        match &self.files {
            Files::V1 { memory, waits_at_limit, .. } => {
                write_v1(memory, limit_bytes, soft_limit_bytes, *waits_at_limit)
            }
            Files::V2(group) => {
                set(&group.join("memory.high"), &soft_limit_bytes)?;
                set(&group.join("memory.max"), &limit_bytes)
            }
        }
    }
}

/// Sets the limits of a new group; true if processes at the soft limit wait.
pub(super) fn init_v1(memory: &Path, limit_bytes: u64) -> io::Result<bool> {
    let control = memory.join("memory.oom_control");
    let waits_at_limit = control.exists();
    if waits_at_limit {
        set(&control, &1)?;
    }
    write_v1(memory, limit_bytes, soft_bytes(limit_bytes), waits_at_limit)?;
    Ok(waits_at_limit)
}

/// If processes cannot be made to wait, they are killed at the limit, so there is no soft limit.
fn write_v1(
    memory: &Path,
    limit_bytes: u64,
    soft_limit_bytes: u64,
    waits_at_limit: bool,
) -> io::Result<()> {
    let soft_limit_bytes = if waits_at_limit { soft_limit_bytes } else { limit_bytes };
    let line = memory.join("memory.limit_in_bytes");
    // Swap would add to the limit; the file is missing if swap accounting is off.
    let with_swap = memory.join("memory.memsw.limit_in_bytes");
    if !with_swap.exists() {
        return set(&line, &soft_limit_bytes);
    }
    // The limit with swap may never be below the one without: raise it first.
    if limit_bytes >= number(&with_swap) {
        set(&with_swap, &limit_bytes)?;
        return set(&line, &soft_limit_bytes);
    }
    set(&line, &soft_limit_bytes)?;
    set(&with_swap, &limit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_every_limit_is_left_for_the_report() {
        for (limit, soft) in [(16, 12), (32, 24), (256, 240), (2048, 1920), (65_536, 65_408)] {
            assert_eq!(soft_bytes(limit * MIB), soft * MIB, "{limit} MiB");
            assert!(soft_bytes(limit * MIB) < near_limit_bytes(limit * MIB));
            assert!(near_limit_bytes(limit * MIB) < limit * MIB);
            assert!(data_bytes(limit * MIB, 0) >= (soft * MIB).max(3 * STACK_BYTES));
            assert_eq!(data_bytes(limit * MIB, u64::MAX), 0);
        }
        assert_eq!(soft_bytes(0), 0);
    }
}
