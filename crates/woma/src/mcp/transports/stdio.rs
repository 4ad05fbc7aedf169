//! MCP on standard input and output, for the client that started the server.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rmcp::ServiceExt;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;
use woma_core::{Caller, Service, SessionId};

use crate::mcp::Mcp;

/// Time for running calls after the end of input, for scripts that pipe requests in and close the
/// pipe. Then they are interrupted.
const LINGER: Duration = Duration::from_millis(1_500);
/// Idle time after which no more replies are expected.
const QUIET: Duration = Duration::from_millis(60);

/// Serves until the client closes standard input, or until `stop`.
pub(crate) async fn serve(
    mcp: Mcp,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (reader, writer) = rmcp::transport::stdio_pipes();
    // Every return stops the running code.
    let _stopped = stop.clone().drop_guard();
    let gone = stop.child_token();
    let service = mcp.state.service.clone();
    let reader = DrainingReader { reader, service, gone: gone.clone(), ending: None };
    let handler = mcp.of(Caller::local(), gone).with_own_session(SessionId::mint_default());
    let service = match Box::pin(handler.serve_with_ct((reader, writer), stop)).await {
        Ok(service) => service,
        // A client that leaves before the handshake is not an error.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    service.waiting().await?;
    Ok(())
}

/// Reader that delays the end of input until running calls are answered.
struct DrainingReader<R> {
    reader: R,
    service: Service,
    /// Cancelled after the delay, to stop calls that still run.
    gone: CancellationToken,
    ending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for DrainingReader<R> {
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
