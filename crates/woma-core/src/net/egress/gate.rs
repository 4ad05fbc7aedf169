//! The listeners of one room, and the tasks behind them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use woma_sandbox::{RoomAddress, RoomSockets};

use super::dns::{self, QUERY_BYTES_MAX};
use super::host::Host;
use super::names::Names;
use super::network::SessionNetwork;
use super::reach::Target;
use super::refusal::{Refusal, Why};
use super::report::{Refused, Report};
use super::rules::WEB_PORTS;
use super::stream::{Counted, Ticket};
use super::{Egress, Room, proxy, tunnel};
use crate::model::caller::CallerId;

/// Queries of one room that are answered at once; more wait in its socket.
const QUERIES_AT_ONCE: usize = 32;
/// Listeners of one room at ports beyond those of the web. With the connections of a session, they
/// are less than the sockets that a room may have.
const LISTENERS_MAX: usize = 64;
/// Ports beyond them that names have where every public host is allowed. Programs of the room do not
/// usually listen there themselves.
const OPEN_PORTS: [u16; 4] = [22, 3306, 5432, 8443];
/// Pause after a connection could not be accepted, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The way out of one room. Dropping it closes every listener and connection.
#[derive(Debug)]
pub(crate) struct Gate {
    report: Arc<Report>,
    _closed: DropGuard,
}

#[derive(Debug)]
struct Inner {
    room: Arc<Room>,
    names: Names,
    sockets: RoomSockets,
    queries: Arc<Semaphore>,
    closed: CancellationToken,
}

impl Gate {
    /// Listens in a room. Nothing of it is there before, so that rooms without a network cost
    /// nothing.
    pub(crate) async fn open(
        egress: &Arc<Egress>,
        sockets: RoomSockets,
        network: &Arc<SessionNetwork>,
        (owner, session): (&CallerId, &str),
    ) -> io::Result<Self> {
        let report = Arc::<Report>::default();
        let room = Arc::new(Room {
            egress: Arc::clone(egress),
            network: Arc::clone(network),
            report: Arc::clone(&report),
            owner: owner.clone(),
            session: session.to_owned(),
        });
        let closed = CancellationToken::new();
        let gate = Self { report, _closed: closed.clone().drop_guard() };
        let queries = Arc::new(Semaphore::new(QUERIES_AT_ONCE));
        let names = Names::default();
        let inner = Arc::new(Inner { room, names, sockets, queries, closed });
        let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let udp = inner.sockets.listen(&RoomAddress::Udp(local(53))).await?;
        let udp = UdpSocket::from_std(std::net::UdpSocket::from(udp))?;
        inner.spawn(Arc::clone(&inner).answer_datagrams(Arc::new(udp)));
        let listener = inner.listen(local(53)).await?;
        inner.spawn(Arc::clone(&inner).accept(listener, Service::Dns));
        let listener = inner.listen(local(proxy::PORT)).await?;
        inner.spawn(Arc::clone(&inner).accept(listener, Service::Proxy));
        for port in WEB_PORTS {
            let listener = inner.listen(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).await?;
            inner.spawn(Arc::clone(&inner).accept(listener, Service::Host(port)));
        }
        Ok(gate)
    }

    /// Refusals since the last call.
    pub(crate) fn take_refused(&self) -> Vec<Refused> {
        self.report.take()
    }
}

/// Purpose of a listener.
#[derive(Debug, Clone, Copy)]
enum Service {
    Dns,
    Proxy,
    /// A host, at this port.
    Host(u16),
}

impl Inner {
    /// A task that ends with the gate.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let closed = self.closed.clone();
        tokio::spawn(async move { closed.run_until_cancelled(task).await.unwrap_or_default() })
    }

    async fn listen(&self, at: SocketAddrV4) -> io::Result<TcpListener> {
        let socket = self.sockets.listen(&RoomAddress::Tcp(at)).await?;
        TcpListener::from_std(std::net::TcpListener::from(socket))
    }

    /// Boxed, because a query that a listener answers may start another one.
    fn accept(
        self: Arc<Self>,
        listener: TcpListener,
        service: Service,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => self.begin(stream, service),
                    Err(error) => {
                        tracing::debug!(%error, "A connection of a room was not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        })
    }

    /// Serves a connection on a task of its own, if another one may be open.
    fn begin(self: &Arc<Self>, stream: TcpStream, service: Service) {
        match Ticket::take(&self.room, &self.closed) {
            Ok(ticket) => {
                drop(self.spawn(Arc::clone(self).serve(stream, ticket, service)));
            }
            Err(why) => {
                let port = match service {
                    Service::Host(port) => Some(port),
                    Service::Dns | Service::Proxy => None,
                };
                let meant = self.meant(&stream);
                let host = meant.map_or_else(|| "a host".to_owned(), |(host, _)| host.to_string());
                self.room.refuse(&Refusal { host, port, why });
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, ticket: Arc<Ticket>, service: Service) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::trace!(%error, "A connection of a room was gone at once");
            return;
        }
        match service {
            Service::Dns => {
                tokio::select! {
                    ended = self.answer_stream(stream) => {
                        if let Err(error) = ended {
                            tracing::trace!(%error, "A DNS connection of a room ended");
                        }
                    }
                    () = ticket.idle() => {}
                }
            }
            Service::Proxy => proxy::serve(ticket, stream).await,
            Service::Host(port) => {
                let Some((host, judged)) = self.meant(&stream) else {
                    let host = stream
                        .local_addr()
                        .map_or_else(|_| String::new(), |address| address.ip().to_string());
                    let why =
                        Why::Protocol("the address belongs to no name; look the name up again");
                    self.room.refuse(&Refusal { host, port: Some(port), why });
                    return;
                };
                let target = Target { host, port, judged };
                let inside = Counted { inner: stream, ticket: Arc::clone(&ticket) };
                tunnel::carry(ticket, inside, target, None).await;
            }
        }
    }

    /// The name that a connection was opened for.
    fn meant(&self, stream: &TcpStream) -> Option<(Host, Option<super::reach::Judged>)> {
        match stream.local_addr().ok()?.ip() {
            IpAddr::V4(address) => self.names.find(address),
            IpAddr::V6(_) => None,
        }
    }

    async fn answer_datagrams(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut buffer = [0; QUERY_BYTES_MAX + 1];
        loop {
            let Ok(permit) = Arc::clone(&self.queries).acquire_owned().await else { return };
            let (length, from) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => {
                    // An error of an earlier answer, whose client has gone.
                    tracing::trace!(%error, "A DNS answer of a room had no receiver");
                    continue;
                }
            };
            let query = buffer.get(..length).unwrap_or_default().to_vec();
            let (inner, socket) = (Arc::clone(&self), Arc::clone(&socket));
            self.spawn(async move {
                let packet = inner.answer(&query).await;
                drop(permit);
                if let Some(packet) = packet
                    && let Err(error) = socket.send_to(&packet, from).await
                {
                    tracing::trace!(%error, "A DNS answer of a room had no receiver");
                }
            });
        }
    }

    /// DNS over TCP: each message has its length before it.
    async fn answer_stream(self: &Arc<Self>, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let length = match stream.read_u16().await {
                Ok(length) => usize::from(length),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            if length > QUERY_BYTES_MAX {
                return Ok(());
            }
            let mut query = vec![0; length];
            stream.read_exact(&mut query).await?;
            let Some(packet) = self.answer(&query).await else { return Ok(()) };
            let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes(), packet.as_slice()].concat()).await?;
        }
    }

    /// Answers a query. When the program reads the answer, everything listens that it may use.
    async fn answer(self: &Arc<Self>, query: &[u8]) -> Option<Vec<u8>> {
        let answer = dns::answer(&self.room, &self.names, query).await?;
        if let Some((host, address)) = answer.given {
            self.listen_for(&host, address).await;
        }
        Some(answer.packet)
    }

    /// Listens at the ports of a name that are not those of the web.
    async fn listen_for(self: &Arc<Self>, host: &Host, address: Ipv4Addr) {
        let mut ports = self.room.network.ports_of(host);
        let may = |port: &u16| self.room.network.allows(host, *port).is_some();
        ports.extend(OPEN_PORTS.iter().filter(|port| may(port)));
        ports.sort_unstable();
        ports.dedup();
        ports.retain(|port| !WEB_PORTS.contains(port));
        for port in self.names.missing(address, &ports) {
            if self.names.listeners() >= LISTENERS_MAX {
                tracing::debug!(%host, port, "A room has too many listeners");
                return;
            }
            match self.listen(SocketAddrV4::new(address, port)).await {
                Ok(listener) => {
                    let accepting = Arc::clone(self).accept(listener, Service::Host(port));
                    let task = AbortOnDropHandle::new(self.spawn(accepting));
                    self.names.keep(address, port, task);
                }
                // A program of the room listens at this port for itself.
                Err(error) => tracing::debug!(%error, %host, port, "A room's port is taken"),
            }
        }
    }
}
