//! The way to an object store: the hyper and the rustls that are here anyway. Connections are kept
//! for the next request, and nothing waits without an end.

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
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::certificates;

/// A name, a socket and a handshake.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// For an answer to begin, besides a second for each megabyte that is sent.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The same when it puts parts together.
const TOGETHER_MAX: Duration = Duration::from_secs(60);
/// Between two pieces of an answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const IDLE_MAX: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS_MAX: usize = 8;
const MEGABYTE: u64 = 1 << 20;

/// What kept a request from being answered. Without any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("{0}")]
    Untrusted(&'static str),
    #[error("nothing came in time")]
    Silent,
    #[error("the connection broke")]
    Broken,
}

impl Trouble {
    fn of(self, kind: HttpErrorKind) -> HttpError {
        HttpError::new(kind, self)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Http {
    client: Client<Dial, HttpRequestBody>,
}

impl Http {
    pub(super) fn new(roots: RootCertStore) -> Result<Self, rustls::Error> {
        // Named, because the process-wide choice is anybody's.
        let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(Dial { tls: TlsConnector::from(Arc::new(tls)) });
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
        let patience = patience_for(&request);
        match timeout(patience, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer.map(|body| HttpResponseBody::new(Patient::new(body)))),
            Ok(Err(error)) if error.is_connect() => {
                let trouble = certificates::found::<Trouble>(&error);
                Err(trouble.copied().unwrap_or(Trouble::Unreachable).of(HttpErrorKind::Connect))
            }
            // Whatever is sent may be sent again: names are digests.
            Ok(Err(_)) => Err(Trouble::Broken.of(HttpErrorKind::Interrupted)),
            Err(_) => Err(Trouble::Silent.of(HttpErrorKind::Timeout)),
        }
    }
}

/// Putting the parts together is the one thing that a store may take its time for.
fn patience_for(request: &HttpRequest) -> Duration {
    let query = request.uri().query().unwrap_or_default();
    let is_last = request.method() == Method::POST && query.contains("uploadId=");
    let megabytes = request.body().content_length() as u64 / MEGABYTE;
    let begin = if is_last { TOGETHER_MAX } else { ANSWER_MAX };
    begin + Duration::from_secs(megabytes)
}

/// Opens connections.
#[derive(Clone)]
struct Dial {
    tls: TlsConnector,
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Dial")
    }
}

impl tower_service::Service<Uri> for Dial {
    type Response = TokioIo<Wire>;
    type Error = Trouble;
    type Future = BoxFuture<'static, Result<TokioIo<Wire>, Trouble>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let tls = self.tls.clone();
        let dialled = async move {
            let dialled = timeout(CONNECT_MAX, dial(&tls, &target)).await;
            dialled.unwrap_or(Err(Trouble::Silent)).map(TokioIo::new)
        };
        dialled.boxed()
    }
}

async fn dial(tls: &TlsConnector, target: &Uri) -> Result<Wire, Trouble> {
    let is_secure = target.scheme_str() != Some("http");
    let host = target.host().ok_or(Trouble::Unreachable)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = target.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let socket = TcpStream::connect((host, port)).await.map_err(|_| Trouble::Unreachable)?;
    socket.set_nodelay(true).map_err(|_| Trouble::Broken)?;
    if !is_secure {
        return Ok(Wire(Box::pin(socket)));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| Trouble::Unreachable)?;
    let secured = tls.connect(name, socket).await;
    let secured = secured.map_err(|error| Trouble::Untrusted(certificates::refusal(&error)))?;
    Ok(Wire(Box::pin(secured)))
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// A connection, secured or not.
struct Wire(Pin<Box<dyn Stream>>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
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

/// A body that does not fall silent. What its reader takes is the reader's time.
struct Patient {
    body: Incoming,
    silence: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl Patient {
    fn new(body: Incoming) -> Self {
        let silence = Box::pin(tokio::time::sleep(SILENCE_MAX));
        Self { body, silence, is_waiting: false }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.is_waiting = false;
            let broken = |_| Trouble::Broken.of(HttpErrorKind::Interrupted);
            return Poll::Ready(frame.map(|frame| frame.map_err(broken)));
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
        }
        self.silence
            .as_mut()
            .poll(context)
            .map(|()| Some(Err(Trouble::Silent.of(HttpErrorKind::Timeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
