//! Connections: divided among client addresses; slow clients are closed, descriptor exhaustion is
//! retried, and shutdown lets open requests finish.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use woma_core::Code;
use woma_core::shares::Shares;

use super::layers::auth::network;
use crate::api::error::Envelope;

/// Time limit for a request's headers.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(10);
/// Size limit of a request's headers.
const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// Pause after a failed accept, such as one without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least speed at which a client reads: it may keep the server waiting for this long, and earns a
/// second of that back with every so many bytes.
const WRITE_TIME_MAX: Duration = Duration::from_secs(60);
const WRITE_BYTES_PER_SECOND: u64 = 16 * 1024;
/// Connections until [`Listener::with_shares`] says otherwise.
const CONNECTIONS_MAX: usize = 4096;
/// Age of a request from which on its client's disconnect is watched for.
const DISCONNECT_WATCH_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    connections: Arc<Shares<IpAddr>>,
}

impl Listener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::from(TcpListener::bind(address).await?))
    }

    /// Takes a listener that was bound before the runtime started.
    pub(crate) fn take(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::from(TcpListener::from_std(listener)?))
    }

    /// Takes connections as this pool has places for them.
    pub(crate) fn with_shares(self, connections: Arc<Shares<IpAddr>>) -> Self {
        Self { connections, ..self }
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections until `stop`. Open ones may finish until `cut`, plus `grace`.
    pub(crate) async fn serve(
        self,
        router: Router,
        stop: CancellationToken,
        cut: CancellationToken,
        grace: Duration,
    ) {
        let (open, ending) = (TaskTracker::new(), CancellationToken::new());
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new());
        http.header_read_timeout(HEADERS_TIME_MAX);
        http.max_buf_size(HEADERS_BYTES_MAX.max(8192));
        http.half_close(false);
        let mut is_short = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (stream, peer) = match accepted {
                Ok(connection) => connection,
                Err(error) => {
                    // Once for each shortage, and not twenty times a second.
                    if !std::mem::replace(&mut is_short, true) {
                        tracing::warn!(%error, "Cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            is_short = false;
            let Some(place) = self.connections.take(&network(peer.ip())) else {
                refuse(stream, self.connections.most(&network(peer.ip())));
                continue;
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "Cannot set TCP_NODELAY");
            }
            let routes = router.clone();
            let watch = Arc::new(watch(&stream));
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(ConnectInfo(peer));
                answer(routes.clone(), request, Arc::clone(&watch))
            });
            let io = TokioIo::new(WriteTimeoutStream::new(stream, WRITE_TIME_MAX));
            let connection = http.serve_connection(io, service).with_upgrades();
            let ending = ending.clone();
            open.spawn(async move {
                let mut connection = std::pin::pin!(connection);
                let served = tokio::select! {
                    served = &mut connection => served,
                    () = ending.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                };
                if let Err(error) = served {
                    tracing::debug!(%error, "Connection ended with an error");
                }
                drop(place);
            });
        }
        drop(self.listener);
        ending.cancel();
        open.close();
        let mut ended = std::pin::pin!(open.wait());
        tokio::select! {
            () = &mut ended => return,
            () = cut.cancelled() => {}
        }
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!("Closing connections that did not end within the grace period");
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self { listener, connections: Arc::new(Shares::new(CONNECTIONS_MAX)) }
    }
}

/// Says why, as far as that can be done without waiting for the client, and closes the connection.
fn refuse(stream: TcpStream, most: usize) {
    let text = format!("the server is busy: an address may have {most} connections");
    let hint = "close connections that are not used, or raise MAX_CONNECTIONS";
    let envelope = Envelope::new(Code::Busy, text).with_hint(hint);
    let body = serde_json::to_string(&envelope).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let told = stream.into_std().and_then(|mut stream| stream.write_all(answer.as_bytes()));
    tracing::debug!(told = told.is_ok(), "Connection refused: {}", envelope.message);
}

/// Runs the request until the client disconnects. Hyper does not notice a disconnect while
/// pipelined bytes are unread.
async fn answer(
    routes: Router,
    request: Request<Incoming>,
    watch: Arc<io::Result<TcpStream>>,
) -> io::Result<axum::response::Response> {
    tokio::select! {
        biased;
        Ok(response) = routes.oneshot(request.map(Body::new)) => Ok(response),
        () = disconnected(&watch) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Duplicates the connection's descriptor, for readiness events only.
fn watch(stream: &TcpStream) -> io::Result<TcpStream> {
    let handle = stream.as_fd().try_clone_to_owned()?;
    TcpStream::from_std(handle.into())
}

async fn disconnected(watch: &io::Result<TcpStream>) {
    // Most requests are answered before this.
    tokio::time::sleep(DISCONNECT_WATCH_AFTER).await;
    // Without a second descriptor, hyper's own detection must do.
    let Ok(watch) = watch else { return std::future::pending().await };
    while let Ok(ready) = watch.ready(Interest::READABLE).await {
        if ready.is_read_closed() {
            return;
        }
        // Clears the readiness without reading, to wait for the next change.
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        watch.try_io(Interest::READABLE, nothing).unwrap_or_default();
    }
}

/// Connection with a time for which a client may keep a write waiting.
struct WriteTimeoutStream {
    stream: TcpStream,
    write_time_max: Duration,
    /// How long the client may keep the server waiting now.
    patience: Duration,
    /// Beginning and deadline of the pending write.
    pending: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl WriteTimeoutStream {
    fn new(stream: TcpStream, write_time_max: Duration) -> Self {
        Self { stream, write_time_max, patience: write_time_max, pending: None }
    }

    fn wait(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            if let Some((began, _)) = self.pending.take() {
                self.patience = self.patience.saturating_sub(began.elapsed());
            }
            if let Ok(bytes) = written {
                self.patience = (self.patience + earned(bytes)).min(self.write_time_max);
            }
            return Poll::Ready(written);
        }
        let patience = self.patience;
        let fresh = || (Instant::now(), Box::pin(tokio::time::sleep(patience)));
        let (_, deadline) = self.pending.get_or_insert_with(fresh);
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Time that a client earns by taking so many bytes.
fn earned(bytes: usize) -> Duration {
    Duration::from_millis(bytes as u64 * 1000 / WRITE_BYTES_PER_SECOND)
}

impl AsyncRead for WriteTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteTimeoutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wait(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.wait(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::{WriteTimeoutStream, earned};

    #[tokio::test]
    async fn a_write_times_out_only_if_the_client_reads_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = listener.accept().await.unwrap().0;
        let mut server = WriteTimeoutStream::new(accepted, Duration::from_millis(500));
        let much = vec![0; 1024 * 1024];
        let writer = tokio::spawn(async move {
            let mut written = 0_usize;
            loop {
                match server.write(&much).await {
                    Ok(bytes) => written += bytes,
                    Err(error) => return (written, error.kind()),
                }
            }
        });
        // More than any buffer holds, so the writer had to wait for the reader.
        let mut taken = vec![0; 32 * 1024 * 1024];
        client.read_exact(&mut taken).await.unwrap();
        let (written, error) = writer.await.unwrap();
        assert!(written >= taken.len());
        assert_eq!(error, std::io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_reads_too_little_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = listener.accept().await.unwrap().0;
        let mut server = WriteTimeoutStream::new(accepted, Duration::from_secs(1));
        let writer = tokio::spawn(async move {
            // Earns nothing: less than a millisecond's worth at a time.
            let little = [0; 8];
            let block = vec![0; 64 * 1024];
            while server.stream.try_write(&block).is_ok_and(|bytes| bytes > 0) {}
            loop {
                if let Err(error) = server.write_all(&little).await {
                    return error.kind();
                }
            }
        });
        let mut byte = [0; 1];
        // It never pauses for as long as the limit, and is closed all the same.
        let mut pause = tokio::time::interval(Duration::from_millis(200));
        while !writer.is_finished() {
            pause.tick().await;
            client.read_exact(&mut byte).await.unwrap();
        }
        assert_eq!(writer.await.unwrap(), std::io::ErrorKind::TimedOut);
    }

    #[test]
    fn bytes_earn_time() {
        for (bytes, milliseconds) in [(0, 0), (16, 0), (17, 1), (16 * 1024, 1000)] {
            assert_eq!(earned(bytes), Duration::from_millis(milliseconds), "{bytes}");
        }
    }
}
