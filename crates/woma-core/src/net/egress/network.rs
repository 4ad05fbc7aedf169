//! The network of one session: its rules, which may change at any time, and what went through.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use woma_sandbox::sync::lock;

use super::host::Host;
use super::rules::NetworkRules;
use crate::model::SessionId;
use crate::net::secrets::SessionSecrets;

/// Characters of the rules that a refusal has.
const TOLD_CHARS_MAX: usize = 300;

/// The network of a session. Every rule must allow a connection: those of its caller and its policy,
/// which are set before each run, and its own.
#[derive(Debug, Default)]
pub(crate) struct SessionNetwork {
    /// `None` for a run without a session.
    pub(crate) session: Option<SessionId>,
    state: Mutex<State>,
    pub(super) meter: Meter,
}

#[derive(Debug, Default)]
struct State {
    outer: Vec<Arc<NetworkRules>>,
    /// `None`: as much as the others allow.
    own: Option<Arc<NetworkRules>>,
    secrets: Arc<SessionSecrets>,
    /// Names of the secrets that its owner has given it.
    named: Vec<String>,
    /// Ends the connections that these rules have allowed.
    epoch: CancellationToken,
}

/// Traffic of a session while it is in memory.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicUsize,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Meter {
    /// Bytes in both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).saturating_add(self.received.load(Ordering::Relaxed))
    }
}

impl SessionNetwork {
    pub(crate) fn new(own: Option<NetworkRules>, session: Option<SessionId>) -> Self {
        let state = State { own: own.map(Arc::new), ..State::default() };
        Self { session, state: Mutex::new(state), meter: Meter::default() }
    }

    /// Rules of its own.
    pub(crate) fn own(&self) -> Option<Arc<NetworkRules>> {
        lock(&self.state).own.clone()
    }

    /// Changes its own rules. Connections end that are open now: programs that may go on connect
    /// again.
    pub(crate) fn choose(&self, own: Option<NetworkRules>) {
        let mut state = lock(&self.state);
        state.own = own.map(Arc::new);
        state.turn();
    }

    /// Secrets that its requests may have.
    pub(crate) fn secrets(&self) -> Arc<SessionSecrets> {
        Arc::clone(&lock(&self.state).secrets)
    }

    /// Names of the secrets that its owner has given it, also of those whose values are gone.
    pub(crate) fn named(&self) -> Vec<String> {
        lock(&self.state).named.clone()
    }

    pub(crate) fn set_named(&self, names: Vec<String>) {
        lock(&self.state).named = names;
    }

    /// Changes its secrets. Connections end that are open now: they have the earlier ones.
    pub(crate) fn set_secrets(&self, secrets: SessionSecrets) {
        let mut state = lock(&self.state);
        state.secrets = Arc::new(secrets);
        state.turn();
    }

    /// Sets the rules of its caller and its policy, before a run.
    pub(crate) fn set_outer(&self, outer: Vec<Arc<NetworkRules>>) {
        let mut state = lock(&self.state);
        if state.outer != outer {
            let had_any = !state.outer.is_empty();
            state.outer = outer;
            if had_any {
                state.turn();
            }
        }
    }

    /// Whether any host may be reached.
    pub(crate) fn is_on(&self) -> bool {
        let state = lock(&self.state);
        !state.outer.is_empty() && state.all().all(|rules| !rules.is_off())
    }

    /// Whether a host may be reached at a port, and the token that ends this permission.
    pub(super) fn allows(&self, host: &Host, port: u16) -> Option<CancellationToken> {
        let state = lock(&self.state);
        let is_allowed =
            !state.outer.is_empty() && state.all().all(|rules| rules.allows(host, port));
        is_allowed.then(|| state.epoch.clone())
    }

    /// Token that the next change of rules cancels.
    pub(super) fn epoch(&self) -> CancellationToken {
        lock(&self.state).epoch.clone()
    }

    /// Whether a host may be reached at any port.
    pub(super) fn allows_host(&self, host: &Host) -> bool {
        let state = lock(&self.state);
        !state.outer.is_empty() && state.all().all(|rules| rules.allows_host(host))
    }

    /// Ports that lists name for a host, and that all rules allow.
    pub(super) fn ports_of(&self, host: &Host) -> Vec<u16> {
        let state = lock(&self.state);
        let named = state.all().flat_map(|rules| rules.ports_of(host));
        let mut ports: Vec<_> =
            named.filter(|port| state.all().all(|rules| rules.allows(host, *port))).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The rules in words, for a refusal.
    pub(super) fn told(&self) -> String {
        let state = lock(&self.state);
        let narrow = |rules: &&Arc<NetworkRules>| ***rules != NetworkRules::Open;
        let told: Vec<_> = state.all().filter(narrow).map(|rules| rules.told()).collect();
        let told = told.join("; within ");
        match told.char_indices().nth(TOLD_CHARS_MAX) {
            Some((end, _)) => format!("{}…", told.get(..end).unwrap_or_default()),
            None => told,
        }
    }
}

impl State {
    fn all(&self) -> impl Iterator<Item = &Arc<NetworkRules>> {
        self.own.iter().chain(&self.outer)
    }

    fn turn(&mut self) {
        std::mem::take(&mut self.epoch).cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).unwrap()
    }

    fn rules(text: &str) -> NetworkRules {
        text.parse().unwrap()
    }

    #[test]
    fn every_rule_must_allow_a_host() {
        let network = SessionNetwork::new(None, None);
        assert!(!network.is_on() && network.allows(&host("a.test"), 443).is_none(), "not set yet");
        for (outer, own, is_allowed) in [
            (vec!["open"], None, true),
            (vec!["open", "a.test"], None, true),
            (vec!["open", "b.test"], None, false),
            (vec!["open", "off"], None, false),
            (vec!["a.test"], Some("open"), true),
            (vec!["off"], Some("open"), false),
            (vec!["open"], Some("b.test"), false),
            (vec!["open"], Some(""), false),
        ] {
            let network = SessionNetwork::new(own.map(rules), None);
            network.set_outer(outer.iter().map(|text| Arc::new(rules(text))).collect());
            let is_here = network.allows(&host("a.test"), 443).is_some();
            assert_eq!(is_here, is_allowed, "{outer:?} {own:?}");
            assert_eq!(network.allows_host(&host("a.test")), is_allowed, "{outer:?} {own:?}");
        }
    }

    #[test]
    fn a_change_of_rules_ends_what_they_allowed() {
        let network = SessionNetwork::new(None, None);
        let outer = vec![Arc::new(rules("a.test"))];
        network.set_outer(outer.clone());
        let epoch = network.allows(&host("a.test"), 443).unwrap();
        network.set_outer(outer);
        assert!(!epoch.is_cancelled(), "the same rules again");
        network.choose(Some(NetworkRules::Off));
        assert!(epoch.is_cancelled() && !network.is_on());
        network.choose(None);
        let epoch = network.allows(&host("a.test"), 443).unwrap();
        network.set_outer(vec![Arc::new(rules("b.test"))]);
        assert!(epoch.is_cancelled());
        assert_eq!(network.ports_of(&host("b.test")), [80, 443]);
    }
}
