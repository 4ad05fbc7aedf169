//! Sockets that init makes in its room for the server.
//!
//! A socket belongs to the network namespace in which it was made, whoever holds its descriptor. So
//! the server can accept connections of a room, and reach a server in it, without any interface
//! between the room and the host.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_remount};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, ipproto, listen,
    socket_with,
};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use super::template::SERVICES;

/// Connections of a room that wait to be accepted, for each listener. The kernel drops more, and
/// their clients try again.
pub(crate) const BACKLOG: i32 = 128;
/// The first port that processes of a room can take.
pub(crate) const FREE_PORT_MIN: u16 = 1024;
/// Listening ports that are told.
const LISTENERS_MAX: usize = 64;
/// Longest name of a service, in bytes.
const NAME_BYTES_MAX: usize = 64;

const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// A socket to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SocketOrder {
    ListenTcp(SocketAddrV4),
    BindUdp(SocketAddrV4),
    /// A Unix socket of this name in [`SERVICES`]; one for each room.
    ListenUnix(String),
    /// A connection that may still be in progress.
    ConnectTcp(SocketAddr),
    /// No socket, but the reading end of a pipe with the ports at which processes of the room
    /// listen: numbers and spaces.
    Listeners,
}

/// Makes a socket; it does not block.
pub(crate) fn make(order: &[u8]) -> io::Result<OwnedFd> {
    match serde_json::from_slice(order).map_err(io::Error::other)? {
        SocketOrder::ListenTcp(at) => {
            let socket = open(AddressFamily::INET, SocketType::STREAM)?;
            // Connections of an earlier listener that linger do not count.
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &at)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        }
        SocketOrder::BindUdp(at) => {
            let socket = open(AddressFamily::INET, SocketType::DGRAM)?;
            bind(&socket, &at)?;
            Ok(socket)
        }
        SocketOrder::ListenUnix(name) => listen_unix(&name),
        SocketOrder::Listeners => listeners(),
        SocketOrder::ConnectTcp(to) => {
            let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = open(family, SocketType::STREAM)?;
            match connect(&socket, &to) {
                Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Writes the ports that `/proc/net` shows as listening; the list fits into an empty pipe.
fn listeners() -> io::Result<OwnedFd> {
    let mut ports = BTreeSet::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(file) {
            Ok(table) => ports.extend(table.lines().skip(1).filter_map(listening_port)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // The server itself has those that no process of the room can take.
    ports.retain(|port| *port >= FREE_PORT_MIN);
    let text: Vec<_> = ports.iter().take(LISTENERS_MAX).map(u16::to_string).collect();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    fs::File::from(writer).write_all(text.join(" ").as_bytes())?;
    Ok(reader)
}

/// The local port of a line of `/proc/net/tcp`, if its socket listens.
fn listening_port(line: &str) -> Option<u16> {
    const LISTENS: &str = "0A";
    let mut words = line.split_whitespace();
    let (local, state) = (words.nth(1)?, words.nth(1)?);
    let port = local.rsplit(':').next()?;
    (state == LISTENS).then(|| u16::from_str_radix(port, 16).ok())?
}

/// The folder is read-only when this returns, so that no process of the room can put another socket
/// in its place.
fn listen_unix(name: &str) -> io::Result<OwnedFd> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(io::Error::other("the service's name is not valid"));
    }
    let socket = open(AddressFamily::UNIX, SocketType::STREAM)?;
    mount("tmpfs", SERVICES, "tmpfs", FLAGS, Some(c"mode=755,size=4k,nr_inodes=4"))?;
    bind(&socket, &SocketAddrUnix::new(Path::new(SERVICES).join(name))?)?;
    mount_remount(SERVICES, FLAGS | MountFlags::RDONLY | MountFlags::BIND, "")?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn open(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = match (family, kind) {
        (AddressFamily::UNIX, _) => None,
        (_, SocketType::DGRAM) => Some(ipproto::UDP),
        _ => Some(ipproto::TCP),
    };
    Ok(socket_with(family, kind, flags, protocol)?)
}

#[cfg(test)]
mod tests {
    use super::listening_port;

    #[test]
    fn listening_ports_are_read_from_the_table_of_the_kernel() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000"
            )
        };
        for (local, state, port) in [
            ("0100007F:1F90", "0A", Some(8080)),
            ("00000000000000000000000000000000:1388", "0A", Some(5000)),
            ("0100007F:1F90", "01", None),
            ("0100007F:zz", "0A", None),
            ("", "", None),
        ] {
            assert_eq!(listening_port(&line(local, state)), port, "{local} {state}");
        }
        assert_eq!(listening_port(""), None);
    }
}
