//! SOCKS 5 (RFC 1928): connections by a name or an address, without authentication.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::host::Host;
use super::reach::Target;
use super::refusal::{Refusal, Why};
use super::stream::Ticket;
use super::tunnel::{self, Inside};

pub(super) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Replies of the protocol.
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NO_COMMAND: u8 = 7;
const NO_ADDRESS: u8 = 8;

/// Request of a client.
enum Asked {
    Host(Result<Host, Vec<u8>>, u16),
    /// A command or an address that is not known here.
    Unknown(u8),
}

pub(super) async fn serve(ticket: Arc<Ticket>, mut inside: impl Inside) {
    let asked = match ask(&mut inside).await {
        Ok(Some(asked)) => asked,
        Ok(None) => return,
        Err(error) => {
            tracing::trace!(%error, "A SOCKS client of a room ended");
            return;
        }
    };
    let connected = connect(&ticket, asked).await;
    let code = connected.as_ref().err().map_or(SUCCEEDED, |(code, _)| *code);
    // The bound address, which no client uses.
    let reply = [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0];
    if let Err(error) = inside.write_all(&reply).await {
        tracing::trace!(%error, "A SOCKS client of a room ended");
        return;
    }
    match connected {
        Ok((target, outside)) => tunnel::carry(ticket, inside, target, Some(outside)).await,
        Err((_, Some(refusal))) => ticket.room.refuse(&refusal),
        Err((_, None)) => {}
    }
}

async fn connect(
    ticket: &Ticket,
    asked: Asked,
) -> Result<(Target, tokio::net::TcpStream), (u8, Option<Refusal>)> {
    let (host, port) = match asked {
        Asked::Host(Ok(host), port) => (host, port),
        Asked::Host(Err(text), _) => {
            return Err((NOT_ALLOWED, Some(Refusal::of_text(&text, Why::NoName))));
        }
        Asked::Unknown(code) => return Err((code, None)),
    };
    let room = &ticket.room;
    let refused = |refusal: Refusal| {
        let code = if refusal.event().is_some() { NOT_ALLOWED } else { UNREACHABLE };
        (code, Some(refusal))
    };
    room.allow(&host, port).map_err(refused)?;
    let target = Target::new(host, port);
    let outside = room.connect(&target).await.map_err(refused)?;
    Ok((target, outside))
}

/// Reads the greeting and the request; `None` if the client wants to authenticate.
async fn ask(inside: &mut impl Inside) -> io::Result<Option<Asked>> {
    let (_version, methods) = (inside.read_u8().await?, inside.read_u8().await?);
    let mut offered = vec![0; usize::from(methods)];
    inside.read_exact(&mut offered).await?;
    if !offered.contains(&NO_AUTHENTICATION) {
        inside.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(None);
    }
    inside.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    inside.read_exact(&mut head).await?;
    let [VERSION, command, _, kind] = head else {
        return Err(io::Error::other("the request is of another version"));
    };
    let host = match kind {
        IPV4 => Ok(Host::Address(IpAddr::V4(Ipv4Addr::from_bits(inside.read_u32().await?)))),
        IPV6 => Ok(Host::Address(IpAddr::V6(Ipv6Addr::from_bits(inside.read_u128().await?)))),
        NAME => {
            let mut name = vec![0; usize::from(inside.read_u8().await?)];
            inside.read_exact(&mut name).await?;
            Host::parse(&name).ok_or(name)
        }
        _ => return Ok(Some(Asked::Unknown(NO_ADDRESS))),
    };
    let port = inside.read_u16().await?;
    Ok(Some(if command == CONNECT { Asked::Host(host, port) } else { Asked::Unknown(NO_COMMAND) }))
}
