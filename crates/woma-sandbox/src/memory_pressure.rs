//! Response to a session near its memory limit, one step per probe. First the largest process: a
//! child is killed, the kernel's code gets a `MemoryError`. Then all children are killed, then the
//! session. Without a cgroup nothing stops a session at its limit: between two probes it may grow far
//! beyond, and then has half a second to free that memory.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::cell::Cell;
use crate::grace::Grace;
use crate::limits::memory_reserve::{
    MemoryProbe, MemoryStatus, data_bytes, kill_bytes, soft_bytes,
};

/// Number of memory errors raised while memory keeps growing: Python drops those that fall into a
/// finalizer.
const MEMORY_ERRORS_MAX: u32 = 3;
/// Growth since the last memory error that justifies another, in bytes.
const GROWTH_BYTES: u64 = 1024 * 1024;
/// Time that init has to signal the kernel before the soft limit is lifted anyway.
const SIGNAL_TIME_MAX: Duration = Duration::from_millis(50);
/// Time that code far beyond its limit has to free memory after an error, if it stops growing.
const FREEING_TIME_MAX: Duration = Duration::from_millis(500);
/// Growth in that time for which the session is killed at once: a fraction of the limit.
const REGROWTH_PART: u64 = 16;
/// The data limit is changed by at least this fraction of the memory limit.
const MOVE_PART: u64 = 64;
/// Consecutive probes that must find data unused before it counts as merely reserved: a block that
/// is being filled does not.
const UNUSED_PROBES: usize = 5;
/// Probes until a killed child must be gone, on a busy machine.
const DYING_PROBES: u32 = 3;

/// State of the response, over all runs of a session.
#[derive(Debug, Default)]
pub(crate) struct PressureState {
    /// The soft limit is lifted, because a memory error was raised.
    pub(crate) is_lifted: bool,
    /// Consecutive probes near the hard limit.
    rounds: u32,
    errors_raised: u32,
    raised_at_bytes: u64,
    /// Time since the last memory error.
    raised: Option<Grace>,
    /// The data limit that init last set.
    data_bytes: u64,
    /// Unused data found by the last probes, in bytes.
    unused: VecDeque<u64>,
    /// Probes left until killed children must be gone.
    dying: u32,
    /// Children killed since the last call of `take_killed`.
    killed: u64,
}

impl PressureState {
    /// Children that were killed for memory since the last call.
    pub(crate) fn take_killed(&mut self) -> u64 {
        std::mem::take(&mut self.killed)
    }

    /// Forgets earlier probes, which say nothing about a new run.
    pub(crate) fn begin_run(&mut self) {
        self.unused.clear();
        self.dying = 0;
    }

    /// Data that was unused in all recent probes, and whether there were enough of them.
    fn unused_bytes(&mut self, now: u64) -> (u64, bool) {
        self.unused.truncate(UNUSED_PROBES - 1);
        self.unused.push_front(now);
        let least = self.unused.iter().copied().min().unwrap_or(now);
        (least, self.unused.len() == UNUSED_PROBES)
    }
}

/// Responds to a probe of a session's memory. False if the session must be killed.
pub(crate) async fn respond(cell: &mut Cell, status: MemoryStatus) -> bool {
    if cell.has_own_kernel() {
        // At its limit the whole sandbox waits for memory, and no process in it can respond.
        return !status.is_at_limit;
    }
    let responded = if is_far_beyond(cell, status) {
        reduce_at_once(cell, status).await
    } else if status.is_at_limit {
        reduce(cell, status).await
    } else {
        (cell.memory_pressure.rounds, cell.memory_pressure.dying) = (0, 0);
        relax(cell, status).await
    };
    responded.unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot respond to a session near its memory limit");
        // It is killed if it is still at its limit.
        !status.is_at_limit
    })
}

/// Whether a session without a cgroup, which nothing stops at its limit, uses far more than that.
pub(crate) fn is_far_beyond(cell: &Cell, status: MemoryStatus) -> bool {
    cell.room.group.is_none() && status.used_bytes > kill_bytes(cell.limits.memory_bytes)
}

/// Takes all steps at once against a session far beyond its limit: kills its children, or raises a
/// memory error. False if it had its error, and grows on or does not free its memory.
async fn reduce_at_once(cell: &mut Cell, status: MemoryStatus) -> io::Result<bool> {
    if cell.room.kill_largest_child().await? {
        // The first child may be counted twice, or be gone.
        cell.memory_pressure.killed += cell.room.kill_children().await?.max(1);
        return Ok(true);
    }
    let state = &cell.memory_pressure;
    let Some(raised) = state.raised.as_ref().filter(|_| state.is_lifted) else {
        return raise_memory_error(cell, status).await.map(|()| true);
    };
    let most_bytes = state.raised_at_bytes.saturating_add(cell.limits.memory_bytes / REGROWTH_PART);
    let has_time = raised.elapsed() < FREEING_TIME_MAX || raised.is_starved();
    Ok(status.used_bytes <= most_bytes && has_time)
}

/// Takes the next step against a session at its limit. False if none is left.
async fn reduce(cell: &mut Cell, status: MemoryStatus) -> io::Result<bool> {
    if cell.room.kill_largest_child().await? {
        // A checkpoint process is not a child of the code.
        cell.memory_pressure.killed += u64::from(!cell.is_saving());
        cell.memory_pressure.dying = DYING_PROBES;
        return Ok(true);
    }
    if cell.memory_pressure.dying > 0 {
        cell.memory_pressure.dying -= 1;
        return Ok(true);
    }
    // The largest child may have ended by itself meanwhile.
    let status = probe_memory(cell).await.unwrap_or(status);
    if !status.is_at_limit {
        return Ok(true);
    }
    if !cell.memory_pressure.is_lifted {
        return raise_memory_error(cell, status).await.map(|()| true);
    }
    // On a busy machine, the code may not have met its error yet.
    if cell.memory_pressure.raised.as_ref().is_some_and(Grace::is_starved) {
        return Ok(true);
    }
    cell.memory_pressure.rounds += 1;
    if cell.memory_pressure.rounds > 1 {
        return Ok(false);
    }
    cell.memory_pressure.killed += cell.room.kill_children().await?;
    Ok(true)
}

/// Raises a `MemoryError` in the code, then lifts the soft limit: handling the error needs memory,
/// and code that waits at the soft limit must meet the error before it can allocate more.
async fn raise_memory_error(cell: &mut Cell, status: MemoryStatus) -> io::Result<()> {
    let mut raising = pin!(cell.room.raise_memory_error());
    // Init may be waiting for memory itself.
    let raised = timeout(SIGNAL_TIME_MAX, raising.as_mut()).await;
    if let Some(group) = &cell.room.group {
        group.lift_soft_limit(cell.limits.memory_bytes)?;
    }
    match raised {
        Ok(raised) => raised?,
        Err(_) => raising.await?,
    }
    let state = &mut cell.memory_pressure;
    state.errors_raised = if state.is_lifted { state.errors_raised + 1 } else { 1 };
    state.raised_at_bytes = status.used_bytes;
    state.raised = Some(Grace::begin(&cell.room));
    state.is_lifted = true;
    Ok(())
}

/// Relaxes below the limit: restores the soft limit when memory allows, and adjusts the data limit
/// to actual use. Reserved memory costs nothing; memory used by others is not available.
async fn relax(cell: &mut Cell, status: MemoryStatus) -> io::Result<bool> {
    let limit_bytes = cell.limits.memory_bytes;
    let MemoryStatus { used_bytes, .. } = status;
    if cell.memory_pressure.is_lifted && used_bytes < soft_bytes(limit_bytes) {
        if let Some(group) = &cell.room.group {
            group.set_soft_limit(limit_bytes)?;
        }
        cell.memory_pressure.is_lifted = false;
    }
    let state = &cell.memory_pressure;
    let has_grown = used_bytes > state.raised_at_bytes.saturating_add(GROWTH_BYTES);
    if state.is_lifted && has_grown && state.errors_raised < MEMORY_ERRORS_MAX {
        raise_memory_error(cell, status).await?;
    }
    let Some(has_bytes) = status.data_bytes else { return Ok(true) };
    let (unused, is_known) =
        cell.memory_pressure.unused_bytes(has_bytes.saturating_sub(used_bytes));
    let (wanted, may_raise) = match cell.memory_pressure.is_lifted {
        true => (has_bytes.saturating_add(limit_bytes.saturating_sub(used_bytes) / 2), true),
        false => (unused.saturating_add(data_bytes(limit_bytes, 0)), is_known),
    };
    let is_far = wanted.abs_diff(cell.memory_pressure.data_bytes) > limit_bytes / MOVE_PART;
    if (is_far || cell.memory_pressure.is_lifted) && wanted != cell.memory_pressure.data_bytes {
        cell.room.limit_data(wanted, cell.data_bytes_max, may_raise).await?;
        // A limit that could only be lowered may not have been set.
        cell.memory_pressure.data_bytes = if may_raise { wanted } else { 0 };
    }
    Ok(true)
}

/// After a run with a memory error: makes freed memory available to the next run.
pub(crate) async fn settle(cell: &mut Cell) {
    if !cell.memory_pressure.is_lifted {
        return;
    }
    // No block is being filled any more.
    cell.memory_pressure.unused = VecDeque::from([u64::MAX; UNUSED_PROBES]);
    if let Some(status) = probe_memory(cell).await
        && let Err(error) = relax(cell, MemoryStatus { is_at_limit: false, ..status }).await
    {
        tracing::debug!(%error, "cannot restore the soft memory limit of a session");
    }
}

/// `None` if the probe panicked.
pub(crate) async fn probe_memory(cell: &Cell) -> Option<MemoryStatus> {
    let probe = probe(cell);
    tokio::task::spawn_blocking(move || probe.read()).await.ok()
}

pub(crate) fn probe(cell: &Cell) -> MemoryProbe {
    MemoryProbe {
        group: cell.room.group.clone(),
        init_pid: cell.room.init_pid,
        kernel_pid: cell.room.kernel_pid,
        limit_bytes: cell.limits.memory_bytes,
        is_lifted: cell.memory_pressure.is_lifted,
    }
}
