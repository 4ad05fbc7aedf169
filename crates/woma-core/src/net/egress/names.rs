//! Addresses that names have in one room: 127.64.0.1 and on, all of which its loopback has.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio_util::task::AbortOnDropHandle;
use woma_sandbox::sync::lock;

use super::host::Host;
use super::reach::Judged;

/// The network that the addresses are of.
const NETWORK: [u8; 2] = [127, 64];
/// Names that a room knows at once; the one that was asked for longest ago goes first.
const NAMES_MAX: usize = 4_096;
/// How long addresses that were judged are used.
const FRESH: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Names(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    offsets: BTreeMap<Host, u16>,
    known: BTreeMap<u16, Known>,
    /// Names in the order in which they were asked for last.
    turns: BTreeMap<u64, u16>,
    turn: u64,
    last: u16,
}

#[derive(Debug)]
struct Known {
    host: Host,
    judged: Judged,
    asked: Instant,
    turn: u64,
    /// Listeners at further ports of this address.
    listeners: Vec<(u16, AbortOnDropHandle<()>)>,
}

impl Names {
    /// Gives a name an address, or the one that it has.
    pub(super) fn remember(&self, host: &Host, judged: Judged) -> Ipv4Addr {
        let mut state = lock(&self.0);
        let state = &mut *state;
        state.turn += 1;
        let (turn, asked) = (state.turn, Instant::now());
        if let Some(offset) = state.offsets.get(host).copied() {
            if let Some(known) = state.known.get_mut(&offset) {
                state.turns.remove(&known.turn);
                (known.judged, known.asked, known.turn) = (judged, asked, turn);
                state.turns.insert(turn, offset);
            }
            return address_of(offset);
        }
        if state.known.len() >= NAMES_MAX
            && let Some((_, oldest)) = state.turns.pop_first()
            && let Some(known) = state.known.remove(&oldest)
        {
            state.offsets.remove(&known.host);
        }
        let mut offset = state.last;
        // There are more offsets than names. Neither the first nor the last is an address.
        loop {
            offset = offset.wrapping_add(1);
            if !matches!(offset, 0 | u16::MAX) && !state.known.contains_key(&offset) {
                break;
            }
        }
        state.last = offset;
        state.offsets.insert(host.clone(), offset);
        state.turns.insert(turn, offset);
        let listeners = Vec::new();
        let known = Known { host: host.clone(), judged, asked, turn, listeners };
        state.known.insert(offset, known);
        address_of(offset)
    }

    /// The name that has an address, and its addresses if they were judged a moment ago.
    pub(super) fn find(&self, address: Ipv4Addr) -> Option<(Host, Option<Judged>)> {
        let [first, second, high, low] = address.octets();
        let state = lock(&self.0);
        let known = state.known.get(&u16::from_be_bytes([high, low]));
        let known = known.filter(|_| [first, second] == NETWORK)?;
        let is_fresh = known.asked.elapsed() < FRESH;
        Some((known.host.clone(), is_fresh.then(|| known.judged.clone())))
    }

    /// Addresses of a name that were judged a moment ago.
    pub(super) fn fresh(&self, host: &Host) -> Option<(Ipv4Addr, Judged)> {
        let state = lock(&self.0);
        let offset = state.offsets.get(host)?;
        let known = state.known.get(offset)?;
        let is_fresh = known.asked.elapsed() < FRESH;
        is_fresh.then(|| (address_of(*offset), known.judged.clone()))
    }

    /// Ports at which nothing listens yet for an address.
    pub(super) fn missing(&self, address: Ipv4Addr, ports: &[u16]) -> Vec<u16> {
        let [.., high, low] = address.octets();
        let state = lock(&self.0);
        let Some(known) = state.known.get(&u16::from_be_bytes([high, low])) else {
            return Vec::new();
        };
        let has = |port: &u16| known.listeners.iter().any(|(one, _)| one == port);
        ports.iter().filter(|port| !has(port)).copied().collect()
    }

    /// Keeps a listener for as long as its address has a name.
    pub(super) fn keep(&self, address: Ipv4Addr, port: u16, task: AbortOnDropHandle<()>) {
        let [.., high, low] = address.octets();
        if let Some(known) = lock(&self.0).known.get_mut(&u16::from_be_bytes([high, low])) {
            known.listeners.push((port, task));
        }
    }

    /// How many listeners there are.
    pub(super) fn listeners(&self) -> usize {
        lock(&self.0).known.values().map(|known| known.listeners.len()).sum()
    }
}

fn address_of(offset: u16) -> Ipv4Addr {
    let [high, low] = offset.to_be_bytes();
    Ipv4Addr::new(NETWORK[0], NETWORK[1], high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_until_many_others_were_asked_for() {
        let names = Names::default();
        let host = |number: usize| Host::parse(format!("h{number}.test").as_bytes()).unwrap();
        let first = names.remember(&host(0), Judged::none());
        assert_eq!(first, Ipv4Addr::new(127, 64, 0, 1));
        for number in 1..NAMES_MAX {
            names.remember(&host(number), Judged::none());
        }
        assert_eq!(names.remember(&host(0), Judged::none()), first, "asked for again");
        let next = names.remember(&host(NAMES_MAX), Judged::none());
        assert_eq!(names.find(first).unwrap().0, host(0));
        assert_eq!(names.find(next).unwrap().0, host(NAMES_MAX));
        assert!(names.find(Ipv4Addr::new(127, 64, 0, 2)).is_none(), "the oldest one is gone");
        assert!(names.find(Ipv4Addr::LOCALHOST).is_none());
        assert!(names.find(Ipv4Addr::new(127, 0, 0, 3)).is_none());
        assert_eq!(lock(&names.0).known.len(), NAMES_MAX);
        assert_eq!(lock(&names.0).offsets.len(), NAMES_MAX);
        assert_eq!(lock(&names.0).turns.len(), NAMES_MAX);
    }

    #[test]
    fn addresses_are_used_up_round_and_round() {
        let names = Names::default();
        for number in 0..140_000 {
            let host = Host::parse(format!("h{number}.test").as_bytes()).unwrap();
            let address = names.remember(&host, Judged::none());
            assert!(
                ![Ipv4Addr::new(127, 64, 0, 0), Ipv4Addr::new(127, 64, 255, 255)]
                    .contains(&address)
            );
            if number % 1_000 == 0 {
                assert_eq!(names.find(address).unwrap().0, host);
            }
        }
    }
}
