//! From a target to the head of its answer: addresses that were judged, a socket to one of them,
//! TLS for the target's name, one request.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::Host;

use super::address::{Place, place};
use super::error::FetchError;
use super::target::Target;
use super::{Inner, Turn};

/// Addresses of one host that are tried. More are judged, but not waited for.
const ATTEMPTS_MAX: usize = 8;
/// Of an answer's head, about: it is cut at the first read that passes this.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// A target with its addresses, all of which were judged. Only [`Reachable::find`] makes one, and
/// a connection goes nowhere else.
#[derive(Debug)]
pub(super) struct Reachable<'a> {
    target: &'a Target,
    addresses: Vec<SocketAddr>,
}

/// The head of an answer, and the connection that its body comes through while this lives.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

impl<'a> Reachable<'a> {
    /// One address that is refused refuses the host: an answer that mixes both kinds comes from
    /// somebody who tries.
    pub(super) async fn find(
        inner: &Inner,
        target: &'a Target,
        turn: &Turn,
    ) -> Result<Self, FetchError> {
        let host = || target.host().to_string();
        let rules = &inner.rules;
        if rules.allowed_hosts.as_ref().is_some_and(|hosts| !target.listed(hosts)) {
            return Err(FetchError::HostNotAllowed(host()));
        }
        if target.inner() && !rules.allow_private {
            return Err(FetchError::InnerName(host()));
        }
        let addresses = addresses(inner, target, turn)
            .await
            .map_err(|source| FetchError::Resolution { host: host(), source })?;
        for &address in &addresses {
            match place(address) {
                Place::Public => {}
                Place::Private(_) if rules.allow_private => {}
                Place::Private(why) | Place::Never(why) => {
                    return Err(FetchError::AddressRefused { host: host(), address, why });
                }
            }
        }
        let with_port = |address| SocketAddr::new(address, target.port());
        let addresses = addresses.into_iter().take(ATTEMPTS_MAX).map(with_port).collect();
        Ok(Self { target, addresses })
    }

    pub(super) async fn ask(self, inner: &Inner) -> Result<Answer, FetchError> {
        let deadline = Instant::now() + inner.rules.connect_time_max;
        let host = || self.target.host().to_string();
        let unconnected = |source| FetchError::Connect { host: host(), source };
        let socket = self.connect(inner, deadline).await.map_err(unconnected)?;
        if !self.target.secure() {
            return ask(socket, self.target).await;
        }
        let secured = timeout_at(deadline, secure(socket, self.target, &inner.roots))
            .await
            .map_err(|_| unconnected(io::ErrorKind::TimedOut.into()))?
            .map_err(|source| FetchError::Tls { host: host(), source })?;
        ask(secured, self.target).await
    }

    /// One address after the other, each with its share of the time that is left.
    async fn connect(&self, inner: &Inner, deadline: Instant) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for (tried, address) in self.addresses.iter().enumerate() {
            let left = u32::try_from(self.addresses.len() - tried).unwrap_or(u32::MAX);
            let share = deadline.saturating_duration_since(Instant::now()) / left;
            match timeout(share, TcpStream::connect(inner.routed(*address))).await {
                Ok(Ok(socket)) => return Ok(socket),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

/// All addresses of the target's host, each once; never none.
async fn addresses(inner: &Inner, target: &Target, turn: &Turn) -> io::Result<Vec<IpAddr>> {
    let name = match target.host() {
        Host::Ipv4(address) => return Ok(vec![IpAddr::V4(*address)]),
        Host::Ipv6(address) => return Ok(vec![IpAddr::V6(*address)]),
        Host::Domain(name) => name.clone(),
    };
    let (resolve, turn) = (Arc::clone(&inner.resolve), Arc::clone(turn));
    let resolving = tokio::task::spawn_blocking(move || {
        let resolved = resolve(&name);
        drop(turn);
        resolved
    });
    let mut found = Vec::new();
    for address in resolving.await.map_err(io::Error::other)?? {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

async fn secure(
    socket: TcpStream,
    target: &Target,
    roots: &Arc<RootCertStore>,
) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
    let name = match target.host() {
        Host::Ipv4(address) => ServerName::IpAddress((*address).into()),
        Host::Ipv6(address) => ServerName::IpAddress((*address).into()),
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
    };
    // Named, because the process-wide choice is anybody's.
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A session that is resumed would tell one download from another's.
    config.resumption = Resumption::disabled();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}

/// One request, and no more than its own headers: nothing of the server's or of the caller's.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    target: &Target,
) -> Result<Answer, FetchError> {
    let path = PathAndQuery::try_from(target.path_and_query())
        .map_err(|error| FetchError::BadUrl(error.to_string()))?;
    let request = Request::get(Uri::from(path))
        .header(header::HOST, target.authority())
        .header(header::USER_AGENT, "woma")
        .header(header::ACCEPT, "*/*")
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| FetchError::BadUrl(error.to_string()))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(FetchError::Broken)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(FetchError::Broken)?;
    Ok(Answer { response, _connection: connection })
}

impl Inner {
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have a map of their own")]
    fn routed(&self, address: SocketAddr) -> SocketAddr {
        address
    }

    #[cfg(test)]
    fn routed(&self, address: SocketAddr) -> SocketAddr {
        self.route.as_ref().map_or(address, |route| route(address))
    }
}
