//! HTTP client for `object_store`, on hyper and rustls: pooled connections, and a time limit for
//! every step.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::{Method, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::net::tls;

/// Time limit to resolve, connect and complete the TLS handshake.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Time limit for a response to begin, plus a second for each megabyte sent.
const RESPONSE_MAX: Duration = Duration::from_secs(5);
/// Time limit for a multipart upload to be completed.
const COMPLETE_MAX: Duration = Duration::from_secs(60);
/// Time limit between two frames of a response.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const IDLE_MAX: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS_MAX: usize = 8;
const MEGABYTE: u64 = 1 << 20;

/// Failure of a request below HTTP. Contains no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("{0}")]
    Untrusted(&'static str),
    #[error("nothing came in time")]
    TimedOut,
    #[error("the connection broke")]
    Broken,
}

impl RequestError {
    fn of(self, kind: HttpErrorKind) -> HttpError {
        HttpError::new(kind, self)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Http {
    client: Client<Connector, HttpRequestBody>,
}

impl Http {
    pub(super) fn new(roots: RootCertStore) -> Result<Self, rustls::Error> {
        let tls = tls::client_config(roots)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(Connector { tls: TlsConnector::from(Arc::new(tls)) });
        Ok(Self { client })
    }
}

impl HttpConnector for Http {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let limit = response_limit(&request);
        match timeout(limit, self.client.request(request)).await {
            Ok(Ok(response)) => {
                Ok(response.map(|body| HttpResponseBody::new(TimedBody::new(body))))
            }
            Ok(Err(error)) if error.is_connect() => {
                let failure = tls::found::<RequestError>(&error).copied();
                Err(failure.unwrap_or(RequestError::Unreachable).of(HttpErrorKind::Connect))
            }
            // `Interrupted` allows a retry: puts are idempotent, because names are digests.
            Ok(Err(_)) => Err(RequestError::Broken.of(HttpErrorKind::Interrupted)),
            Err(_) => Err(RequestError::TimedOut.of(HttpErrorKind::Timeout)),
        }
    }
}

/// Time limit of a request; the completion of a multipart upload may take longest.
fn response_limit(request: &HttpRequest) -> Duration {
    let query = request.uri().query().unwrap_or_default();
    let is_completion = request.method() == Method::POST && query.contains("uploadId=");
    let megabytes = request.body().content_length() as u64 / MEGABYTE;
    let begin = if is_completion { COMPLETE_MAX } else { RESPONSE_MAX };
    begin + Duration::from_secs(megabytes)
}

/// Opens connections.
#[derive(Clone)]
struct Connector {
    tls: TlsConnector,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connector")
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<MaybeTls>;
    type Error = RequestError;
    type Future = BoxFuture<'static, Result<TokioIo<MaybeTls>, RequestError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let tls = self.tls.clone();
        let connected = async move {
            let connected = timeout(CONNECT_MAX, connect(&tls, &target)).await;
            connected.unwrap_or(Err(RequestError::TimedOut)).map(TokioIo::new)
        };
        connected.boxed()
    }
}

async fn connect(tls: &TlsConnector, target: &Uri) -> Result<MaybeTls, RequestError> {
    let is_tls = target.scheme_str() != Some("http");
    let host = target.host().ok_or(RequestError::Unreachable)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = target.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let socket = TcpStream::connect((host, port)).await.map_err(|_| RequestError::Unreachable)?;
    socket.set_nodelay(true).map_err(|_| RequestError::Broken)?;
    if !is_tls {
        return Ok(MaybeTls(Box::pin(socket)));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| RequestError::Unreachable)?;
    let encrypted = tls.connect(name, socket).await;
    let encrypted =
        encrypted.map_err(|error| RequestError::Untrusted(tls::handshake_failure(&error)))?;
    Ok(MaybeTls(Box::pin(encrypted)))
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// Connection with or without TLS.
struct MaybeTls(Pin<Box<dyn Stream>>);

impl Connection for MaybeTls {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for MaybeTls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for MaybeTls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(context)
    }
}

/// Body with a time limit between frames. Time that the reader takes does not count.
struct TimedBody {
    body: Incoming,
    silence: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl TimedBody {
    fn new(body: Incoming) -> Self {
        let silence = Box::pin(tokio::time::sleep(SILENCE_MAX));
        Self { body, silence, is_waiting: false }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.is_waiting = false;
            let broken = |_| RequestError::Broken.of(HttpErrorKind::Interrupted);
            return Poll::Ready(frame.map(|frame| frame.map_err(broken)));
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
        }
        self.silence
            .as_mut()
            .poll(context)
            .map(|()| Some(Err(RequestError::TimedOut.of(HttpErrorKind::Timeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
