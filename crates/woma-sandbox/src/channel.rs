//! Datagrams with descriptors over a `SOCK_SEQPACKET` pair, between server, steward, init and
//! zygote. A message is one small JSON text, or a letter for init, so there is nothing to
//! reassemble.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message between the trusted processes, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Most descriptors in one message.
pub(crate) const MESSAGE_FDS_MAX: usize = 12;

/// A connected pair; both ends close on exec.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends one message with its descriptors, atomically.
pub(crate) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    send_bytes(socket, &text, fds)
}

/// As [`send`], for bytes that are not JSON.
pub(crate) fn send_bytes(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors in one message"));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::Error::other("a message was truncated")) }
}

/// Receives one message. `None` when the other side has closed.
pub(crate) fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let (length, fds) = receive_bytes(socket, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let bytes = buffer.get(..length).unwrap_or_default();
    let message = serde_json::from_slice(bytes).map_err(io::Error::other)?;
    Ok(Some((message, fds)))
}

/// As [`receive`], for bytes that are not JSON. A length of zero means that the other side has
/// closed.
pub(crate) fn receive_bytes(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let slices = &mut [IoSliceMut::new(buffer)];
        match recvmsg(&socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok((got.bytes, fds))
}
