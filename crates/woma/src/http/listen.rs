//! Accepting connections: slow ones are cut off, a lack of descriptors is waited out, and a signal to
//! stop lets what is under way come to its end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// A request's headers must be complete after this long.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(10);
/// Size of a request's headers.
const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when the machine has no descriptor left for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
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
            let connection = http.serve_connection(TokioIo::new(stream), service);
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
