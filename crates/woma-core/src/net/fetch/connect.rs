//! From a target to the head of its response: checked addresses, a socket to one of them, TLS for
//! the target's name, one request.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::HeaderName;
use hyper::http::request::Builder;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::Host;

use super::address::{AddressClass, classify};
use super::error::FetchError;
use super::target::Target;
use super::{FetchRules, Inner, Permit};
use crate::net::tls;

/// Addresses of one host that are tried. All are checked.
const ATTEMPTS_MAX: usize = 8;
/// Approximate limit of a response's head: the first read beyond it fails.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// Target with its checked addresses. Only [`Reachable::find`] creates one, and connections go to
/// these addresses only.
#[derive(Debug)]
pub(super) struct Reachable<'a> {
    target: &'a Target,
    addresses: Vec<SocketAddr>,
}

/// Head of a response, with the connection that its body arrives on; dropping it closes both.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<Incoming>,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

impl<'a> Reachable<'a> {
    /// Resolves a target and checks all its addresses. One refused address refuses the host: a
    /// mixed answer indicates an attack.
    pub(super) async fn find(
        inner: &Inner,
        target: &'a Target,
        permit: &Permit,
    ) -> Result<Self, FetchError> {
        let host = || target.host().to_string();
        check_host(&inner.rules, target)?;
        let addresses = addresses(inner, target, permit)
            .await
            .map_err(|source| FetchError::Resolution { host: host(), source })?;
        for &address in &addresses {
            check_address(&inner.rules, target, address)?;
        }
        let with_port = |address| SocketAddr::new(address, target.port());
        let addresses = addresses.into_iter().take(ATTEMPTS_MAX).map(with_port).collect();
        Ok(Self { target, addresses })
    }

    /// Connects and asks for the file.
    pub(super) async fn request(
        self,
        inner: &Inner,
        headers: &[(HeaderName, String)],
    ) -> Result<ResponseHead, FetchError> {
        let mut request = head(Method::GET, self.target)?;
        if !headers.iter().any(|(name, _)| *name == header::ACCEPT) {
            request = request.header(header::ACCEPT, "*/*");
        }
        request = request.header(header::ACCEPT_ENCODING, "identity");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request =
            request.body(Full::default()).map_err(|error| FetchError::BadUrl(error.to_string()))?;
        self.send(inner, request).await
    }

    /// Connects and sends a request.
    pub(super) async fn send(
        self,
        inner: &Inner,
        request: Request<Full<Bytes>>,
    ) -> Result<ResponseHead, FetchError> {
        let deadline = Instant::now() + inner.rules.connect_time_max;
        let host = || self.target.host().to_string();
        let not_connected = |source| FetchError::Connect { host: host(), source };
        let socket = self.connect(inner, deadline).await.map_err(not_connected)?;
        if !self.target.is_https() {
            return send_request(socket, request).await;
        }
        let encrypted = timeout_at(deadline, handshake(socket, self.target, &inner.roots))
            .await
            .map_err(|_| not_connected(io::ErrorKind::TimedOut.into()))?
            .map_err(|source| FetchError::Tls { host: host(), source })?;
        send_request(encrypted, request).await
    }

    /// Tries one address after the other, each with an equal share of the remaining time.
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

/// Checks what is known of a target before its name is resolved.
pub(super) fn check_host(rules: &FetchRules, target: &Target) -> Result<(), FetchError> {
    let host = || target.host().to_string();
    if rules.allowed_hosts.as_ref().is_some_and(|hosts| !target.is_listed(hosts)) {
        return Err(FetchError::HostNotAllowed(host()));
    }
    if target.is_local_name() && !rules.allow_private {
        return Err(FetchError::InnerName(host()));
    }
    match target.host() {
        Host::Ipv4(address) => check_address(rules, target, IpAddr::V4(*address)),
        Host::Ipv6(address) => check_address(rules, target, IpAddr::V6(*address)),
        Host::Domain(_) => Ok(()),
    }
}

fn check_address(rules: &FetchRules, target: &Target, address: IpAddr) -> Result<(), FetchError> {
    match classify(address) {
        AddressClass::Public => Ok(()),
        AddressClass::Private(_) if rules.allow_private => Ok(()),
        AddressClass::Private(why) | AddressClass::Never(why) => {
            Err(FetchError::AddressRefused { host: target.host().to_string(), address, why })
        }
    }
}

/// Resolves the target's host to distinct addresses; an empty answer is an error.
async fn addresses(inner: &Inner, target: &Target, permit: &Permit) -> io::Result<Vec<IpAddr>> {
    let name = match target.host() {
        Host::Ipv4(address) => return Ok(vec![IpAddr::V4(*address)]),
        Host::Ipv6(address) => return Ok(vec![IpAddr::V6(*address)]),
        Host::Domain(name) => name.clone(),
    };
    let (resolve, permit) = (Arc::clone(&inner.resolve), Arc::clone(permit));
    let resolving = tokio::task::spawn_blocking(move || {
        let resolved = resolve(&name);
        drop(permit);
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

async fn handshake(
    socket: TcpStream,
    target: &Target,
    roots: &Arc<RootCertStore>,
) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
    let name = match target.host() {
        Host::Ipv4(address) => ServerName::IpAddress((*address).into()),
        Host::Ipv6(address) => ServerName::IpAddress((*address).into()),
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
    };
    let mut config = tls::client_config(Arc::clone(roots)).map_err(io::Error::other)?;
    // A resumed TLS session would let the host link two downloads.
    config.resumption = Resumption::disabled();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}

/// The head of a request, with no data of the server or of the caller.
pub(super) fn head(method: Method, target: &Target) -> Result<Builder, FetchError> {
    let path = PathAndQuery::try_from(target.path_and_query())
        .map_err(|error| FetchError::BadUrl(error.to_string()))?;
    Ok(Request::builder()
        .method(method)
        .uri(Uri::from(path))
        .header(header::HOST, target.authority())
        .header(header::USER_AGENT, "woma")
        .header(header::CONNECTION, "close"))
}

async fn send_request(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<ResponseHead, FetchError> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(FetchError::Broken)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(FetchError::Broken)?;
    Ok(ResponseHead { response, _connection: connection })
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
