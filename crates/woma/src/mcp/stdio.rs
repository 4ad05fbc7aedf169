//! MCP on standard input and output: one client, which is whoever started us.

use std::error::Error;

use rmcp::ServiceExt;
use tokio_util::sync::CancellationToken;

use super::Mcp;

/// Serves until the client closes standard input, or until `stop`.
pub(crate) async fn serve(
    mcp: Mcp,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let transport = rmcp::transport::stdio_pipes();
    let service = match mcp.serve_with_ct(transport, stop).await {
        Ok(service) => service,
        // A client that goes away before it has said anything is no failure of ours.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    service.waiting().await?;
    Ok(())
}
