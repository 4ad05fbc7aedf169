//! HTTPS connections that the server opens, because a secret of the session is bound to their host.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, server};
use tokio_util::sync::CancellationToken;

use super::host::Host;
use super::http;
use super::reach::{CONNECT_TIME_MAX, Target};
use super::refusal::Why;
use super::stream::Ticket;
use super::tunnel::Inside;
use crate::net::tls;

/// A stream to a host.
pub(super) trait Outside: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Outside for S {}

/// Carries the requests of a program to a host, both encrypted, and in plain text in between.
/// `outside`: the connection to the host, if it is made already.
pub(super) async fn serve(
    ticket: &Arc<Ticket>,
    epoch: &CancellationToken,
    inside: impl Inside,
    target: &Target,
    outside: Option<TcpStream>,
) -> Result<(), Why> {
    let config = ticket.room.egress.authority.server(&target.host);
    let config = config.map_err(|error| Why::Opened(std::io::Error::other(error)))?;
    let accepting = timeout(CONNECT_TIME_MAX, TlsAcceptor::from(config).accept(inside));
    let opened: server::TlsStream<_> = tokio::select! {
        accepted = accepting => match accepted {
            Ok(accepted) => accepted.map_err(Why::Opened)?,
            Err(_) => return Err(Why::Opened(std::io::ErrorKind::TimedOut.into())),
        },
        () = epoch.cancelled() => return Ok(()),
        () = ticket.closed.cancelled() => return Ok(()),
    };
    http::serve_encrypted(ticket, epoch, opened, target.clone(), outside).await;
    Ok(())
}

/// Configuration of the server's own connections to these hosts.
pub(super) fn client_config(
    ca_file: Option<&std::path::Path>,
) -> Result<Arc<ClientConfig>, String> {
    let roots = tls::roots_with(ca_file)?;
    let mut config = tls::client_config(roots).map_err(|error| error.to_string())?;
    // A resumed TLS session would let a host link two sessions.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// TLS to a host, whose certificate must be good for its name.
pub(super) async fn encrypt(
    config: &Arc<ClientConfig>,
    target: &Target,
    outside: TcpStream,
) -> Result<impl Outside + use<>, Why> {
    let name = match &target.host {
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|error| Why::Connect(std::io::Error::other(error)))?,
        Host::Address(address) => ServerName::IpAddress((*address).into()),
    };
    let connecting = TlsConnector::from(Arc::clone(config)).connect(name, outside);
    match timeout(CONNECT_TIME_MAX, connecting).await {
        Ok(connected) => connected.map_err(|error| match tls::found::<rustls::Error>(&error) {
            Some(_) => Why::Certificate(tls::handshake_failure(&error)),
            None => Why::Connect(error),
        }),
        Err(_) => Err(Why::Connect(std::io::ErrorKind::TimedOut.into())),
    }
}
