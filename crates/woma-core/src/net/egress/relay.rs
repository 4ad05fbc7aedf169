//! Bytes between a room and a host, until one side ends, nothing moves, or the permission ends.

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio_util::sync::CancellationToken;

use super::stream::Ticket;

/// Bytes that are copied at once, for each direction.
const BUFFER_BYTES: usize = 64 * 1024;

pub(super) async fn relay<A, B>(
    mut inside: A,
    mut outside: B,
    ticket: &Ticket,
    epoch: &CancellationToken,
) where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let copied =
        copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER_BYTES, BUFFER_BYTES);
    tokio::select! {
        copied = copied => {
            if let Err(error) = copied {
                // Either side may reset a connection at any time.
                tracing::trace!(%error, "A connection of a room ended");
            }
        }
        () = ticket.idle() => {}
        () = epoch.cancelled() => {}
        () = ticket.closed.cancelled() => {}
    }
}
