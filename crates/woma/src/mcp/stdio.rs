//! MCP on standard input and output: one client, which is whoever started us.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rmcp::ServiceExt;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;
use woma_core::{Caller, Service};

use super::Mcp;

/// After the end of input, what still runs gets this long to be answered: a script that pipes its
/// requests in closes the pipe behind them. Then it is interrupted, as for any client that goes.
const LINGER: Duration = Duration::from_millis(1_500);
/// Nothing has run for this long: nothing will.
const QUIET: Duration = Duration::from_millis(60);

/// Serves until the client closes standard input, or until `stop`.
pub(crate) async fn serve(
    mcp: Mcp,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (reader, writer) = rmcp::transport::stdio_pipes();
    // Whatever ends this ends what it runs.
    let _stopped = stop.clone().drop_guard();
    let gone = stop.child_token();
    let service = mcp.doors.service.clone();
    let reader = Lingering { reader, service, gone: gone.clone(), ending: None };
    let handler = mcp.of(Caller::local(), gone);
    let service = match handler.serve_with_ct((reader, writer), stop).await {
        Ok(service) => service,
        // A client that goes away before it has said anything is no failure of ours.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    service.waiting().await?;
    Ok(())
}

/// A reader whose end comes when there is nothing left to answer.
struct Lingering<R> {
    reader: R,
    service: Service,
    /// What still runs after that is not waited for.
    gone: CancellationToken,
    ending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Lingering<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ending.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            self.ending = Some(Box::pin(linger(self.service.clone(), self.gone.clone())));
        }
        match &mut self.ending {
            Some(ending) => ending.as_mut().poll(context).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }
}

async fn linger(service: Service, gone: CancellationToken) {
    let started = Instant::now();
    let mut busy = started;
    while started.elapsed() < LINGER && busy.elapsed() < QUIET {
        tokio::time::sleep(QUIET / 4).await;
        if !service.is_idle() {
            busy = Instant::now();
        }
    }
    gone.cancel();
}
