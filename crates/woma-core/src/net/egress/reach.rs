//! From a host to a connection: resolved by the server, every address judged, one of them connected.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Room;
use super::host::Host;
use super::refusal::{Refusal, Why};
use crate::net::fetch::refused;

/// Time for resolving a name, and for connecting to all addresses of a host.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);
pub(super) const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Addresses of one host that are tried. All are judged.
const ATTEMPTS_MAX: usize = 8;

/// Addresses of a host that may be connected to. Only [`Room::resolve`] makes them.
#[derive(Debug, Clone)]
pub(super) struct Judged(Vec<IpAddr>);

/// Destination of a connection.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
    /// Addresses that were judged a moment ago.
    pub(super) judged: Option<Judged>,
}

impl Target {
    pub(super) fn new(host: Host, port: u16) -> Self {
        Self { host, port, judged: None }
    }

    pub(super) fn refusal(&self, why: Why) -> Refusal {
        Refusal::new(&self.host, self.port, why)
    }
}

impl Room {
    /// Counts a refusal, and keeps it for the next reply.
    pub(super) fn refuse(&self, refusal: &Refusal) {
        self.network.meter.refused.fetch_add(1, Ordering::Relaxed);
        self.egress.metrics.refuse_egress(refusal.word());
        if self.report.add(refusal) {
            tracing::warn!(
                target: "woma::audit",
                caller = %self.owner,
                session = self.session,
                host = refusal.host,
                port = refusal.port,
                reason = refusal.word(),
                "Network: {refusal}"
            );
        }
    }

    /// Permission of the rules, which ends with the token.
    pub(super) fn allow(&self, host: &Host, port: u16) -> Result<CancellationToken, Refusal> {
        let refusal = |why| Refusal::new(host, port, why);
        let placed = self.egress.settings.hosts.address(host, port).is_some();
        let epoch = self.network.allows(host, port);
        let epoch = epoch.ok_or_else(|| refusal(Why::Rules(self.network.told())))?;
        if !placed && host.is_local_name() {
            return Err(refusal(Why::LocalName));
        }
        if let Some(limit) = self.egress.settings.session_bytes_max
            && self.network.meter.bytes() >= limit
        {
            return Err(refusal(Why::Bytes { limit }));
        }
        Ok(epoch)
    }

    /// Resolves a host whose name the rules allow, and judges its addresses. One refused address
    /// refuses the host: a mixed answer indicates an attack.
    pub(super) async fn resolve(&self, host: &Host) -> Result<Judged, Refusal> {
        let refusal = |why| Refusal::new(host, None, why);
        if host.is_local_name() {
            return Err(refusal(Why::LocalName));
        }
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.look_up(host, name.clone()).await?,
        };
        for address in &addresses {
            if let Some(what) = refused(*address) {
                return Err(refusal(Why::Address { address: *address, what }));
            }
        }
        Ok(Judged(addresses))
    }

    async fn look_up(&self, host: &Host, name: String) -> Result<Vec<IpAddr>, Refusal> {
        let refusal = |why| Refusal::new(host, None, why);
        let deadline = Instant::now() + LOOKUP_TIME_MAX;
        let permit = timeout_at(deadline, self.egress.lookups.acquire(&self.owner)).await;
        let Ok(Ok(permit)) = permit else { return Err(refusal(Why::Lookups)) };
        let resolve = Arc::clone(&self.egress.resolve);
        // The thread holds the permit, so that abandoned lookups cannot accumulate threads.
        let resolving = tokio::task::spawn_blocking(move || {
            let resolved = resolve(&name);
            drop(permit);
            resolved
        });
        let resolved = match timeout_at(deadline, resolving).await {
            Ok(resolved) => resolved.map_err(io::Error::other).flatten(),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let mut addresses = resolved.map_err(|error| refusal(Why::Resolution(error)))?;
        addresses.sort_unstable();
        addresses.dedup();
        match addresses.is_empty() {
            true => Err(refusal(Why::Resolution(io::ErrorKind::NotFound.into()))),
            false => Ok(addresses),
        }
    }

    /// Connects to a host that the rules allow at this port.
    pub(super) async fn connect(&self, target: &Target) -> Result<TcpStream, Refusal> {
        let placed = self.egress.settings.hosts.address(&target.host, target.port);
        let addresses = match (placed, &target.judged) {
            (Some(address), _) => vec![address],
            (None, Some(judged)) => judged.at(target.port),
            (None, None) => self.resolve(&target.host).await?.at(target.port),
        };
        let addresses: Vec<_> =
            addresses.into_iter().map(|address| self.egress.routed(address)).collect();
        let socket = first_of(&addresses).await;
        let socket = socket.map_err(|error| target.refusal(Why::Connect(error)))?;
        self.network.meter.connections.fetch_add(1, Ordering::Relaxed);
        self.egress.metrics.egress_requests.inc();
        Ok(socket)
    }
}

impl Judged {
    /// Of a host that the operator has placed: no other address of it is used.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    fn at(&self, port: u16) -> Vec<SocketAddr> {
        let addresses = self.0.iter().take(ATTEMPTS_MAX);
        addresses.map(|address| SocketAddr::new(*address, port)).collect()
    }
}

/// Tries one address after the other, each with an equal share of the remaining time.
async fn first_of(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let deadline = Instant::now() + CONNECT_TIME_MAX;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (tried, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
