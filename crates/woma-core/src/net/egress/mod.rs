//! The way out of a room: rules, names, and connections that the server makes for code in sessions.
//!
//! A room has no interface but loopback. In a room with a network, the server listens itself
//! ([`Gate`]): it answers DNS, giving every allowed name an address of 127.64.0.0/16, and accepts
//! connections to these addresses. The local address of a connection says which name is meant. The
//! server resolves that name, judges every address, and connects to one that it has judged. So
//! programs need no configuration, and there is no packet of theirs that leaves the machine.
//!
//! Knows no session: `SessionNetwork` is what sessions keep of it.

mod authority;
mod cover;
mod dns;
mod gate;
mod hello;
mod host;
mod http;
mod names;
mod network;
mod opened;
mod proxy;
mod reach;
mod refusal;
mod relay;
mod report;
mod rules;
mod socks;
mod stream;
mod substitute;
mod tunnel;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use self::authority::Authority;
pub(crate) use self::gate::Gate;
pub(crate) use self::host::Host;
pub(crate) use self::network::SessionNetwork;
use self::report::Report;
pub use self::rules::{BadNetwork, NetworkRules};
use super::fetch::{Resolve, system_resolver};
use crate::metrics::Metrics;
use crate::model::caller::{Caller, CallerId};
use crate::shares::{PoolUse, Shares};

/// Names that are resolved at once, for all callers.
const LOOKUPS_AT_ONCE: usize = 64;

/// Settings of the way out.
#[derive(Debug, Clone)]
pub struct EgressSettings {
    /// Of callers whose key does not say otherwise.
    pub rules: Arc<NetworkRules>,
    /// Hosts that the operator places himself, whatever DNS says; also in networks that are
    /// otherwise refused.
    pub hosts: PlacedHosts,
    /// Connections at once, shared among callers.
    pub connections_max: usize,
    /// Connections of one session at once.
    pub session_connections_max: usize,
    /// Bytes of one session in both directions, while it is in memory; `None` for no limit.
    pub session_bytes_max: Option<u64>,
    /// A connection ends after this long without a byte.
    pub idle_max: Duration,
    /// PEM file of certificate authorities that sessions trust beside those of the web, and the server
    /// at hosts that secrets are bound to.
    pub ca_file: Option<PathBuf>,
}

impl Default for EgressSettings {
    fn default() -> Self {
        Self {
            rules: Arc::default(),
            hosts: PlacedHosts::default(),
            connections_max: 1_024,
            session_connections_max: 128,
            session_bytes_max: Some(10 << 30),
            idle_max: Duration::from_secs(300),
            ca_file: None,
        }
    }
}

/// Addresses that the operator gives to hosts: `name:port=address:port`, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacedHosts(BTreeMap<(Host, u16), SocketAddr>);

/// Text that places no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` places no host: write NAME:PORT=ADDRESS:PORT, such as git.example.org:443=10.1.2.3:8443"
)]
pub struct BadPlacement(String);

impl FromStr for PlacedHosts {
    type Err = BadPlacement;

    fn from_str(text: &str) -> Result<Self, BadPlacement> {
        let one = |entry: &str| {
            let (named, placed) = entry.split_once('=')?;
            let (host, port) = Host::with_port(named.trim(), None)?;
            let placed: SocketAddr = placed.trim().parse().ok()?;
            let is_usable = placed.port() > 0 && !super::fetch::is_never(placed.ip());
            matches!((&host, is_usable), (Host::Name(_), true)).then_some(((host, port), placed))
        };
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let bad = |entry: &str| BadPlacement(entry.chars().take(80).collect());
        entries
            .map(|entry| one(entry).ok_or_else(|| bad(entry)))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl PlacedHosts {
    fn address(&self, host: &Host, port: u16) -> Option<SocketAddr> {
        self.0.get(&(host.clone(), port)).copied()
    }

    /// Whether a host is placed at any port.
    fn has(&self, host: &Host) -> bool {
        self.0.range((host.clone(), 0)..=(host.clone(), u16::MAX)).next().is_some()
    }
}

/// The way out of all rooms of a server.
pub(crate) struct Egress {
    settings: EgressSettings,
    resolve: Arc<Resolve>,
    connections: Arc<Shares>,
    lookups: Arc<Shares>,
    metrics: Arc<Metrics>,
    authority: Authority,
    /// TLS of the server at hosts that secrets are bound to.
    tls: Arc<rustls::ClientConfig>,
    /// Test-only redirection of public addresses to local servers.
    #[cfg(test)]
    route: Option<Box<tests::Route>>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Egress").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Egress {
    /// With the system's resolver.
    pub(crate) fn new(settings: EgressSettings, metrics: Arc<Metrics>) -> Result<Self, String> {
        Self::with_resolver(settings, metrics, Arc::new(system_resolver))
    }

    /// With another resolver, whose answers are judged too.
    pub(crate) fn with_resolver(
        settings: EgressSettings,
        metrics: Arc<Metrics>,
        resolve: Arc<Resolve>,
    ) -> Result<Self, String> {
        let authority = Authority::new().map_err(|error| error.to_string())?;
        let tls = opened::client_config(settings.ca_file.as_deref())
            .map_err(|why| format!("NETWORK_CA_FILE {why}"))?;
        let connections = Arc::new(Shares::new(settings.connections_max));
        let lookups = Arc::new(Shares::new(LOOKUPS_AT_ONCE));
        Ok(Self {
            settings,
            resolve,
            connections,
            lookups,
            metrics,
            authority,
            tls,
            #[cfg(test)]
            route: None,
        })
    }

    /// Certificate authorities that sessions trust: the server's own, and those of the operator.
    pub(crate) fn trusted(&self) -> Result<String, String> {
        let own = self.authority.certificate();
        let Some(file) = &self.settings.ca_file else { return Ok(own.to_owned()) };
        let added = std::fs::read_to_string(file)
            .map_err(|error| format!("NETWORK_CA_FILE ({}): {error}", file.display()))?;
        Ok(format!("{own}\n{added}\n"))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have a map of their own")]
    fn routed(&self, address: SocketAddr) -> SocketAddr {
        address
    }

    #[cfg(test)]
    fn routed(&self, address: SocketAddr) -> SocketAddr {
        self.route.as_ref().map_or(address, |route| route(address))
    }

    /// Rules of a caller: of its key, or else of the server.
    pub(crate) fn rules_of(&self, caller: &Caller) -> Arc<NetworkRules> {
        match &caller.network {
            // Text that is no rule allows nothing.
            Some(own) => Arc::new(own.parse().unwrap_or_default()),
            None => Arc::clone(&self.settings.rules),
        }
    }

    /// How many connections there are.
    pub(crate) fn usage(&self) -> PoolUse {
        self.connections.usage()
    }
}

/// State that all tasks of one room share.
#[derive(Debug)]
struct Room {
    egress: Arc<Egress>,
    network: Arc<SessionNetwork>,
    report: Arc<Report>,
    owner: CallerId,
    /// Of the session, for the log.
    session: String,
}

#[cfg(test)]
mod tests;
