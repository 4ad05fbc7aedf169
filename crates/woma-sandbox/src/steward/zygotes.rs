//! The zygotes of a steward: serving, starting and retired.
//!
//! All forks of a zygote share its address layout and hash seed. So a zygote serves for a limited
//! time: its successor is started beside it and takes over when it is ready. The old one stays,
//! because it is the parent of its sessions and reports how they end, and is killed after the last
//! of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::control::{Rotation, Tier};
use super::room::RoomPlan;
use super::zygote::{self, Zygote, ZygoteParts};
use crate::sys::SingleThreaded;

/// Delay before a dead zygote is replaced; doubled with each consecutive death.
const RESTART_DELAY_MIN: Duration = Duration::from_millis(50);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(5);
/// Most retired zygotes of one tier; at this number rotation stops.
const RETIRED_MAX: usize = 4;

/// Number of a zygote, in starting order.
pub(crate) type Generation = u64;

#[derive(Debug)]
pub(crate) struct Zygotes {
    rotation: Rotation,
    all: BTreeMap<Generation, Member>,
    tiers: BTreeMap<Tier, TierState>,
    started: Generation,
}

#[derive(Debug)]
struct Member {
    tier: Tier,
    zygote: Zygote,
    ready_since: Option<Instant>,
    forks: u64,
    /// Number of live children.
    children: u64,
}

/// Zygotes of a tier, and the time at which the next one is due.
#[derive(Debug, Default)]
struct TierState {
    serving: Option<Generation>,
    starting: Option<Generation>,
    due: Option<Instant>,
    deaths_in_a_row: u32,
}

/// A zygote that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) tier: Tier,
    /// True if the tier cannot be served until another zygote is ready.
    pub(crate) is_tier_down: bool,
}

impl Zygotes {
    pub(crate) fn new(tiers: &[Tier], rotation: Rotation) -> Self {
        let tiers = tiers.iter().map(|tier| (*tier, TierState::default())).collect();
        Self { rotation, all: BTreeMap::new(), tiers, started: 0 }
    }

    /// Has a zygote of this tier started, if there is none.
    pub(crate) fn add(&mut self, tier: Tier) {
        self.tiers.entry(tier).or_default();
    }

    /// Starts the zygotes that are due. Another tier waits until the base can serve: the first
    /// cell must not compete with the import of everything.
    pub(crate) fn start_due(
        &mut self,
        parts: &ZygoteParts,
        plan: &RoomPlan,
        proof: SingleThreaded,
    ) {
        let base_ready = self.is_ready(Tier::Base) || !self.tiers.contains_key(&Tier::Base);
        let tiers: Vec<Tier> = self.tiers.keys().copied().collect();
        for tier in tiers {
            let is_wanted = self.wants(tier) && (tier == Tier::Base || base_ready);
            let Some(state) = self.tiers.get_mut(&tier).filter(|_| is_wanted) else { continue };
            match zygote::start(parts, plan, tier, proof) {
                Ok(zygote) => {
                    self.started += 1;
                    state.starting = Some(self.started);
                    state.due = None;
                    let member = Member { tier, zygote, ready_since: None, forks: 0, children: 0 };
                    self.all.insert(self.started, member);
                }
                Err(failure) => {
                    eprintln!("steward: cannot start a zygote: {failure}");
                    state.due = Some(Instant::now() + RESTART_DELAY_MAX);
                }
            }
        }
    }

    /// Whether a zygote of this tier should be started now.
    fn wants(&self, tier: Tier) -> bool {
        let Some(state) = self.tiers.get(&tier) else { return false };
        let is_due = state.due.is_none_or(|due| due <= Instant::now());
        if state.starting.is_some() || !is_due {
            return false;
        }
        match state.serving.and_then(|serving| self.all.get(&serving)) {
            None => true,
            Some(serving) => self.is_used_up(serving) && self.retired(tier) < RETIRED_MAX,
        }
    }

    fn is_used_up(&self, member: &Member) -> bool {
        let is_old =
            member.ready_since.is_some_and(|since| since.elapsed() >= self.rotation.age_max);
        member.forks >= self.rotation.forks_max || is_old && member.forks > 0
    }

    fn retired(&self, tier: Tier) -> usize {
        let Some(state) = self.tiers.get(&tier) else { return 0 };
        let members = self.all.iter().filter(|(_, member)| member.tier == tier);
        let is_retired = |generation: &Generation| {
            Some(*generation) != state.serving && Some(*generation) != state.starting
        };
        members.filter(|(generation, _)| is_retired(generation)).count()
    }

    pub(crate) fn is_ready(&self, tier: Tier) -> bool {
        self.tiers.get(&tier).is_some_and(|state| state.serving.is_some())
    }

    /// Tiers that can be served.
    pub(crate) fn ready(&self) -> impl Iterator<Item = Tier> {
        self.tiers.iter().filter(|(_, state)| state.serving.is_some()).map(|(tier, _)| *tier)
    }

    /// The serving zygote of a tier; counts a fork.
    pub(crate) fn serving(&mut self, tier: Tier) -> Option<(Generation, &Zygote)> {
        let generation = self.tiers.get(&tier)?.serving?;
        let member = self.all.get_mut(&generation)?;
        member.forks += 1;
        member.children += 1;
        Some((generation, &member.zygote))
    }

    /// All zygotes, for polling.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Generation, &Zygote)> {
        self.all.iter().map(|(generation, member)| (*generation, &member.zygote))
    }

    pub(crate) fn get(&self, generation: Generation) -> Option<&Zygote> {
        self.all.get(&generation).map(|member| &member.zygote)
    }

    pub(crate) fn serving_generation(&self, tier: Tier) -> Option<Generation> {
        self.tiers.get(&tier)?.serving
    }

    /// Marks a zygote as ready and makes it serve its tier.
    pub(crate) fn take_over(&mut self, generation: Generation) -> Option<Tier> {
        let member = self.all.get_mut(&generation)?;
        member.ready_since = Some(Instant::now());
        let tier = member.tier;
        let state = self.tiers.get_mut(&tier)?;
        state.starting = state.starting.filter(|starting| *starting != generation);
        state.deaths_in_a_row = 0;
        let before = state.serving.replace(generation);
        if let Some(before) = before {
            self.end_if_childless(before);
        }
        Some(tier)
    }

    /// Records that a child has ended.
    pub(crate) fn child_ended(&mut self, generation: Generation) {
        if let Some(member) = self.all.get_mut(&generation) {
            member.children = member.children.saturating_sub(1);
        }
        self.end_if_childless(generation);
    }

    fn end_if_childless(&mut self, generation: Generation) {
        let Some(member) = self.all.get(&generation).filter(|member| member.children == 0) else {
            return;
        };
        let state = self.tiers.get(&member.tier);
        let is_retired = state.is_none_or(|state| {
            state.serving != Some(generation) && state.starting != Some(generation)
        });
        if is_retired && let Some(member) = self.all.remove(&generation) {
            member.zygote.kill();
        }
    }

    /// Kills a zygote, and schedules its successor if it was serving or starting.
    pub(crate) fn lose(&mut self, generation: Generation) -> Option<Lost> {
        let member = self.all.remove(&generation)?;
        member.zygote.kill();
        let tier = member.tier;
        let state = self.tiers.get_mut(&tier)?;
        let was_serving = state.serving == Some(generation);
        let was_starting = state.starting == Some(generation);
        if was_serving {
            state.serving = None;
        }
        if was_starting {
            state.starting = None;
        }
        if was_serving || was_starting {
            // After the first death of a healthy zygote, it is replaced at once.
            let delay = match state.deaths_in_a_row {
                0 => Duration::ZERO,
                deaths => RESTART_DELAY_MIN * 2_u32.saturating_pow(deaths.min(10)),
            };
            state.due = Some(Instant::now() + delay.min(RESTART_DELAY_MAX));
            state.deaths_in_a_row = state.deaths_in_a_row.saturating_add(1);
        }
        let is_tier_down = (was_serving || was_starting) && state.serving.is_none();
        Some(Lost { tier, is_tier_down })
    }

    /// Time until the next zygote is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let now = Instant::now();
        let waits = self.tiers.iter().filter(|(_, state)| state.starting.is_none());
        waits.filter_map(|(tier, state)| self.due(*tier, state, now)).min()
    }

    fn due(&self, tier: Tier, state: &TierState, now: Instant) -> Option<Duration> {
        let Some(serving) = state.serving.and_then(|serving| self.all.get(&serving)) else {
            return state.due.map(|due| due.saturating_duration_since(now));
        };
        if self.retired(tier) >= RETIRED_MAX || serving.forks == 0 {
            return None;
        }
        let old_at = serving.ready_since? + self.rotation.age_max;
        let due = state.due.map_or(old_at, |due| old_at.max(due));
        Some(due.saturating_duration_since(now))
    }
}
