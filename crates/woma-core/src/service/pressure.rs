//! When memory is short, idle kernels are saved and stopped, before the kernel of the
//! operating system has to kill anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use woma_sandbox::Pressure;

use crate::execution::Executor;
use crate::model::caller::CallerId;
use crate::session::state::Session;

/// How often the memory of all sessions is looked at, while there are any.
const TICK: Duration = Duration::from_secs(1);
/// From this part of the ceiling on memory is short, and kernels go until this part is in use.
const SHORT_PERCENT: u64 = 90;
const ENOUGH_PERCENT: u64 = 80;
/// Programs that wait for memory this part of their time, in percent, are a shortage too.
const STALLED_PERCENT_MAX: f64 = 10.0;
/// Kernels that are ended at once: saving them takes memory too.
const ENDED_AT_ONCE: usize = 8;
/// How long kernels that are being saved are waited for before more of them go.
const LEAVING_MAX: Duration = Duration::from_secs(3);
const MIB: u64 = 1024 * 1024;

/// An idle kernel and what its end would free.
struct Idle {
    since: Instant,
    bytes: u64,
    session: Arc<Session>,
}

/// How much is too much, and how that is told to those who lose a kernel.
#[derive(Debug, PartialEq, Eq)]
struct Excess {
    bytes: u64,
    reason: String,
}

/// Ends with the service.
pub(super) async fn keep_watch(executor: Weak<Executor>) {
    let mut relieved: Option<Instant> = None;
    loop {
        tokio::time::sleep(TICK).await;
        let Some(executor) = executor.upgrade() else { return };
        let sessions = &executor.sessions;
        let is_waiting = relieved.is_some_and(|at| at.elapsed() < LEAVING_MAX);
        if sessions.kernels() == 0 || is_waiting && sessions.kernels_leaving() > 0 {
            continue;
        }
        let looking = Arc::clone(&executor);
        // Files of the kernel's that are put together from hundreds of groups.
        let ended = tokio::task::spawn_blocking(move || relieve(&looking)).await;
        match ended {
            Ok(0) => {}
            Ok(_) => relieved = Some(Instant::now()),
            Err(error) => tracing::error!(%error, "The memory of sessions was not looked at"),
        }
    }
}

/// Ends idle kernels if memory is short, and says how many.
fn relieve(executor: &Executor) -> usize {
    let Some(excess) = excess(&executor.sandbox.pressure()) else { return 0 };
    // Working cells go first: they have nothing that would have to be saved.
    let workers = executor.sessions.workers.stop_idle(Duration::ZERO);
    if workers > 0 {
        tracing::warn!(workers, "Idle helpers of datasets end: {}", excess.reason);
        return workers;
    }
    let mut by_owner: BTreeMap<CallerId, Vec<Idle>> = BTreeMap::new();
    for (since, owner, session) in executor.sessions.idle() {
        let bytes = session.memory_bytes();
        by_owner.entry(owner).or_default().push(Idle { since, bytes, session });
    }
    let (mut freed, mut ended) = (0, 0);
    for idle in in_order(by_owner) {
        if ended >= ENDED_AT_ONCE || ended > 0 && freed >= excess.bytes {
            break;
        }
        if idle.session.stop_if_idle(&excess.reason) {
            executor.metrics.evict("memory");
            freed += idle.bytes;
            ended += 1;
        }
    }
    // Looking held turns for a moment, in which nothing could be evicted.
    executor.sessions.make_room();
    if ended > 0 {
        tracing::warn!(ended, freed_mib = freed / MIB, "Idle kernels end: {}", excess.reason);
    }
    ended
}

fn excess(pressure: &Pressure) -> Option<Excess> {
    let part = |bytes: u64, percent: u64| bytes / 100 * percent;
    match pressure.memory {
        Some((used, max)) if used > part(max, SHORT_PERCENT) => {
            let (used_mib, max_mib) = (used / MIB, max / MIB);
            let reason = format!(
                "evicted: memory is short, all sessions together had {used_mib} of {max_mib} MiB"
            );
            Some(Excess { bytes: used - part(max, ENOUGH_PERCENT), reason })
        }
        _ if pressure.stalled >= STALLED_PERCENT_MAX => {
            let reason = "evicted: memory is short, programs had to wait for it".to_owned();
            Some(Excess { bytes: 0, reason })
        }
        _ => None,
    }
}

/// The one that was not used for longest, of the caller whose idle kernels have the most; and so on
/// with those that are left.
fn in_order(mut by_owner: BTreeMap<CallerId, Vec<Idle>>) -> Vec<Idle> {
    for idle in by_owner.values_mut() {
        // The oldest last.
        idle.sort_by_key(|one| std::cmp::Reverse(one.since));
    }
    let mut order = Vec::new();
    let total = |idle: &Vec<Idle>| (idle.iter().map(|one| one.bytes).sum::<u64>(), idle.len());
    while let Some(idle) = by_owner.values_mut().max_by_key(|idle| total(idle)) {
        match idle.pop() {
            Some(one) => order.push(one),
            None => break,
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use woma_sandbox::Pressure;

    use super::{Idle, MIB, excess, in_order};
    use crate::model::SessionId;
    use crate::model::caller::CallerId;
    use crate::session::state::{Label, Session};

    #[test]
    fn memory_is_short_near_the_ceiling_or_when_programs_wait_for_it() {
        let of = |memory, stalled| excess(&Pressure { memory, stalled });
        assert_eq!(of(None, 0.0), None);
        assert_eq!(of(Some((900 * MIB, 1000 * MIB)), 9.9), None);
        let short = of(Some((950 * MIB, 1000 * MIB)), 0.0).unwrap();
        assert_eq!(short.bytes, 150 * MIB);
        assert!(short.reason.contains("950 of 1000 MiB"), "{short:?}");
        let stalled = of(Some((100 * MIB, 1000 * MIB)), 10.0).unwrap();
        assert_eq!(stalled.bytes, 0);
        assert_eq!(of(None, 99.0).unwrap(), stalled);
    }

    #[test]
    fn the_least_recently_used_of_the_caller_with_the_most_goes_first() {
        let now = Instant::now();
        let idle = |id: &str, age: u64, mib: u64| Idle {
            since: now.checked_sub(Duration::from_secs(age)).unwrap(),
            bytes: mib * MIB,
            session: Arc::new(Session::new(SessionId::parse(id).unwrap(), Label::default())),
        };
        let by_owner = BTreeMap::from([
            (CallerId::new("modest"), vec![idle("m", 1000, 50)]),
            (CallerId::new("greedy"), vec![idle("new", 1, 40), idle("old", 9, 10)]),
            (CallerId::new("many"), vec![idle("a", 5, 1), idle("b", 6, 1)]),
        ]);
        let order = in_order(by_owner);
        let order: Vec<&str> = order.iter().map(|one| one.session.id.as_str()).collect();
        // 50 and 50: greedy has more of them. Then 40 against 50, then 40 against 2.
        assert_eq!(order, ["old", "m", "new", "b", "a"]);
    }
}
