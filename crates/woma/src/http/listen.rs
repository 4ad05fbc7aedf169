//! Accepting connections: slow ones are cut off, a lack of descriptors is waited out, and a signal to
//! stop lets what is under way come to its end.

use std::io;
use std::net::SocketAddr;
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
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// A request's headers must be complete after this long.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(10);
/// Size of a request's headers.
const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when the machine has no descriptor left for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that takes nothing in for this long is not waited for.
const UNREAD_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a request must have run before its client's going away is looked for.
const HANGUP_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
}

impl Listener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes connections until `stop`. Those that are open may end by themselves until `cut`, and get
    /// `grace` more after it.
    pub(crate) async fn serve(
        self,
        router: Router,
        stop: CancellationToken,
        cut: CancellationToken,
        grace: Duration,
    ) {
        let graceful = GracefulShutdown::new();
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new());
        http.header_read_timeout(HEADERS_TIME_MAX);
        http.max_buf_size(HEADERS_BYTES_MAX.max(8192));
        http.half_close(false);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (stream, peer) = match accepted {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY could not be set");
            }
            let routes = router.clone();
            let watch = Arc::new(watch(&stream));
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(ConnectInfo(peer));
                answer(routes.clone(), request, Arc::clone(&watch))
            });
            let io = TokioIo::new(Impatient::new(stream, UNREAD_TIME_MAX));
            let connection = http.serve_connection(io, service);
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "A connection ended badly");
                }
            });
        }
        drop(self.listener);
        let mut ended = std::pin::pin!(graceful.shutdown());
        tokio::select! {
            () = &mut ended => return,
            () = cut.cancelled() => {}
        }
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!("Some connections did not end in time and are cut off");
        }
    }
}

/// The answer, unless the client goes away first: the HTTP library does not notice that while bytes
/// that follow the request wait to be read.
async fn answer(
    routes: Router,
    request: Request<Incoming>,
    watch: Arc<io::Result<TcpStream>>,
) -> io::Result<axum::response::Response> {
    tokio::select! {
        biased;
        Ok(response) = routes.oneshot(request.map(Body::new)) => Ok(response),
        () = hung_up(&watch) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// A second handle of the connection, never read from.
fn watch(stream: &TcpStream) -> io::Result<TcpStream> {
    let handle = stream.as_fd().try_clone_to_owned()?;
    TcpStream::from_std(handle.into())
}

async fn hung_up(watch: &io::Result<TcpStream>) {
    // Most requests are answered before it is worth looking.
    tokio::time::sleep(HANGUP_AFTER).await;
    // Without a descriptor to watch by, the HTTP library's own eyes must do.
    let Ok(watch) = watch else { return std::future::pending().await };
    while let Ok(ready) = watch.ready(Interest::READABLE).await {
        if ready.is_read_closed() {
            return;
        }
        // What there is to read is not for us; the next change is.
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        watch.try_io(Interest::READABLE, nothing).unwrap_or_default();
    }
}

/// A connection that fails when its other end has read nothing for long.
struct Impatient {
    stream: TcpStream,
    unread_time_max: Duration,
    /// Ends the wait that is under way.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream, unread_time_max: Duration) -> Self {
        Self { stream, unread_time_max, patience: None }
    }

    fn wait<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.patience = None;
            return written;
        }
        let unread_time_max = self.unread_time_max;
        let fresh = || Box::pin(tokio::time::sleep(unread_time_max));
        let patience = self.patience.get_or_insert_with(fresh);
        ready!(patience.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
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

    use super::Impatient;

    #[tokio::test]
    async fn who_reads_is_waited_for_and_who_reads_nothing_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = listener.accept().await.unwrap().0;
        let mut server = Impatient::new(accepted, Duration::from_millis(500));
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
        // More than any buffer holds: the writer had to wait for the reader, and did.
        let mut taken = vec![0; 32 * 1024 * 1024];
        client.read_exact(&mut taken).await.unwrap();
        let (written, error) = writer.await.unwrap();
        assert!(written >= taken.len());
        assert_eq!(error, std::io::ErrorKind::TimedOut);
    }
}
