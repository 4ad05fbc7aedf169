//! The proxy of a room, for programs that ask for one and for ports at which no name is listened
//! for: HTTP with CONNECT, and SOCKS 5, at one port.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::stream::{Counted, Ticket};
use super::{http, socks};

/// Port of the proxy, which no process of a room can take.
pub(super) const PORT: u16 = 880;

pub(super) async fn serve(ticket: Arc<Ticket>, stream: TcpStream) {
    let mut first = [0];
    let read = tokio::select! {
        read = stream.peek(&mut first) => read,
        () = ticket.idle() => return,
        () = ticket.closed.cancelled() => return,
    };
    let inside = Counted { inner: stream, ticket: Arc::clone(&ticket) };
    match read {
        Ok(0) => {}
        Ok(_) if first == [socks::VERSION] => {
            tokio::select! {
                () = socks::serve(Arc::clone(&ticket), inside) => {}
                () = ticket.idle() => {}
                () = ticket.closed.cancelled() => {}
            }
        }
        Ok(_) => {
            let epoch = ticket.room.network.epoch();
            http::serve(&ticket, &epoch, inside, None).await;
        }
        Err(error) => tracing::trace!(%error, "A client of a room's proxy ended"),
    }
}
