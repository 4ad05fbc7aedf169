//! Sockets that init makes in its room for the server.
//!
//! A socket belongs to the network namespace in which it was made, whoever holds its descriptor. So
//! the server can accept connections of a room, and reach a server in it, without any interface
//! between the room and the host.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_remount};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, ipproto, listen,
    socket_with,
};
use serde::{Deserialize, Serialize};

use super::template::SERVICES;

/// Connections of a room that wait to be accepted, for each listener. The kernel drops more, and
/// their clients try again.
pub(crate) const BACKLOG: i32 = 128;
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
