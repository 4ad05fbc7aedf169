//! Sockets of a room, for the server: listeners that its processes can connect to, and connections
//! to servers in it. `steward::sockets` makes them.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cell::Cell;
use crate::room_handles::{Commands, RoomHandles};
use crate::steward::commands::COMMAND_SOCKET;
use crate::steward::sockets::SocketOrder;
use crate::steward::template::SERVICES;

/// How long a server in a room may take to accept a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes of a list of ports.
const LIST_BYTES_MAX: u64 = 1_024;

/// Place in a room at which a socket is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoomAddress {
    Tcp(SocketAddrV4),
    Udp(SocketAddrV4),
    /// A Unix stream socket of this name, see [`RoomAddress::service_path`]. Lower case letters,
    /// dots and hyphens; one for each room.
    Service(String),
}

impl RoomAddress {
    /// Path at which the processes of a room find a service.
    pub fn service_path(name: &str) -> String {
        format!("{SERVICES}/{name}")
    }
}

/// Makes sockets in a room, also during its runs. Does not keep the room alive.
#[derive(Debug, Clone)]
pub struct RoomSockets(Arc<Commands>);

impl Cell {
    pub fn sockets(&self) -> RoomSockets {
        RoomSockets::of(&self.room)
    }
}

impl RoomSockets {
    pub(crate) fn of(room: &RoomHandles) -> Self {
        Self(Arc::clone(room.commands()))
    }

    /// A listening TCP or Unix socket, or a bound UDP socket; it does not block, and closes on
    /// exec. No process of a room can take a port below 1024.
    pub async fn listen(&self, at: &RoomAddress) -> io::Result<OwnedFd> {
        self.make(&match at {
            RoomAddress::Tcp(at) => SocketOrder::ListenTcp(*at),
            RoomAddress::Udp(at) => SocketOrder::BindUdp(*at),
            RoomAddress::Service(name) => SocketOrder::ListenUnix(name.clone()),
        })
        .await
    }

    /// Connects to a server in the room, at 127.0.0.1 or `::1`.
    pub async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let v4 = self.connect_to(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
        match v4 {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let to = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
                self.connect_to(to).await.map_err(|_| error)
            }
            other => other,
        }
    }

    /// Ports from 1024 on at which processes of the room listen; at most 64.
    pub async fn listening(&self) -> io::Result<Vec<u16>> {
        let pipe = self.make(&SocketOrder::Listeners).await?;
        // Init has written everything before it replied.
        let mut text = String::new();
        std::fs::File::from(pipe).take(LIST_BYTES_MAX).read_to_string(&mut text)?;
        text.split_whitespace().map(|port| port.parse().map_err(io::Error::other)).collect()
    }

    async fn connect_to(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.make(&SocketOrder::ConnectTcp(to)).await?;
        let socket = TcpStream::from_std(std::net::TcpStream::from(socket))?;
        match timeout(CONNECT_TIME_MAX, socket.writable()).await {
            Ok(ready) => ready?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        socket.take_error()?.map_or(Ok(socket), Err)
    }

    async fn make(&self, order: &SocketOrder) -> io::Result<OwnedFd> {
        let mut command = vec![COMMAND_SOCKET];
        serde_json::to_writer(&mut command, order).map_err(io::Error::other)?;
        let (_, mut fds) = self.0.command(&command, None).await?;
        fds.pop().ok_or_else(|| io::Error::other("init sent no descriptor"))
    }
}
