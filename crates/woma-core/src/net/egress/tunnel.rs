//! One connection of a room to a host: what its first bytes say must be the host that it is for.

use std::pin::Pin;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::hello::{self, ALERT, Protocol};
use super::reach::Target;
use super::refusal::Why;
use super::relay::relay;
use super::stream::{Ahead, Ticket};
use super::{http, opened};

/// A stream of a room.
pub(super) trait Inside: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Inside for S {}

/// Carries a connection to its end. `outside`: the connection to the host, if it is made already.
/// Boxed, because a tunnel may have requests in it that open tunnels.
pub(super) fn carry(
    ticket: Arc<Ticket>,
    inside: impl Inside,
    target: Target,
    outside: Option<TcpStream>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let room = Arc::clone(&ticket.room);
        let epoch = match room.allow(&target.host, target.port) {
            Ok(epoch) => epoch,
            // A request for a page gets the reason as a page.
            Err(refusal) if target.port == 80 => {
                room.refuse(&refusal);
                return http::answer_refused(inside, &refusal, &ticket).await;
            }
            Err(refusal) => {
                room.refuse(&refusal);
                return refuse_tls(inside, target.port).await;
            }
        };
        let end = match target.port {
            80 => {
                http::serve(&ticket, &epoch, inside, Some(target.clone())).await;
                Ok(())
            }
            443 => encrypted(&ticket, &epoch, inside, &target, outside).await,
            _ => any(&ticket, &epoch, inside, &target, outside).await,
        };
        match end {
            Ok(()) => {}
            Err(Why::Connect(error)) if hello::is_end(&error) => {}
            Err(why) => room.refuse(&target.refusal(why)),
        }
    })
}

/// A TLS client whose greeting is never answered says nothing about the reason.
async fn refuse_tls(mut inside: impl Inside, port: u16) {
    if port == 443
        && let Err(error) = inside.write_all(&ALERT).await
    {
        tracing::trace!(%error, "A client of a room was gone before it was refused");
    }
    if let Err(error) = inside.shutdown().await {
        tracing::trace!(%error, "A client of a room was gone before it was refused");
    }
}

/// HTTPS: the greeting must name the host.
async fn encrypted(
    ticket: &Arc<Ticket>,
    epoch: &CancellationToken,
    mut inside: impl Inside,
    target: &Target,
    outside: Option<TcpStream>,
) -> Result<(), Why> {
    let mut ahead = BytesMut::new();
    let read = tokio::select! {
        read = hello::read(&mut inside, &mut ahead) => read,
        () = ticket.idle() => return Ok(()),
        () = epoch.cancelled() => return Ok(()),
        () = ticket.closed.cancelled() => return Ok(()),
    };
    let checked = match read {
        _ if ahead.is_empty() => return Ok(()),
        Ok(Protocol::Tls { server_name }) => hello::check_name(target, server_name.as_deref()),
        Ok(_) => Err(Why::Protocol("port 443 is for TLS only")),
        Err(why) => Err(why),
    };
    if checked.is_ok() && ticket.room.network.secrets().has_any_for(&target.host, target.port, true)
    {
        let inside = Ahead::new(ahead, inside);
        return opened::serve(ticket, epoch, inside, target, outside).await;
    }
    let connected = match (checked, outside) {
        (Err(why), _) => Err(target.refusal(why)),
        (Ok(()), Some(outside)) => Ok(outside),
        (Ok(()), None) => ticket.room.connect(target).await,
    };
    match connected {
        Ok(outside) => {
            relay(Ahead::new(ahead, inside), outside, ticket, epoch).await;
            Ok(())
        }
        Err(refusal) => {
            refuse_tls(inside, target.port).await;
            Err(refusal.why)
        }
    }
}

/// Another port: whoever speaks first says what it is. What begins like TLS or HTTP must name the
/// host, as at their own ports.
async fn any(
    ticket: &Arc<Ticket>,
    epoch: &CancellationToken,
    mut inside: impl Inside,
    target: &Target,
    outside: Option<TcpStream>,
) -> Result<(), Why> {
    let outside = match outside {
        Some(outside) => outside,
        None => ticket.room.connect(target).await.map_err(|refusal| refusal.why)?,
    };
    let mut ahead = BytesMut::new();
    let read = tokio::select! {
        biased;
        read = hello::read(&mut inside, &mut ahead) => Some(read?),
        // The host speaks first, which neither TLS nor HTTP does; or it has hung up.
        ready = outside.readable() => {
            ready.map_err(Why::Connect)?;
            None
        }
        () = ticket.idle() => return Ok(()),
        () = epoch.cancelled() => return Ok(()),
        () = ticket.closed.cancelled() => return Ok(()),
    };
    match read {
        Some(Protocol::Tls { server_name }) => {
            hello::check_name(target, server_name.as_deref())?;
            if ticket.room.network.secrets().has_any_for(&target.host, target.port, true) {
                let inside = Ahead::new(ahead, inside);
                return opened::serve(ticket, epoch, inside, target, Some(outside)).await;
            }
        }
        Some(Protocol::Http) => {
            drop(outside);
            http::serve(ticket, epoch, Ahead::new(ahead, inside), Some(target.clone())).await;
            return Ok(());
        }
        // Bytes of a client that could still become a request.
        None if !ahead.is_empty() => {
            return Err(Why::Protocol("its first bytes did not say for which host it is"));
        }
        Some(Protocol::Other) | None => {}
    }
    relay(Ahead::new(ahead, inside), outside, ticket, epoch).await;
    Ok(())
}
