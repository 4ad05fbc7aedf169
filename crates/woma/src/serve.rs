//! `woma serve`: the server, from its first line to its last.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use woma_core::{Service, Settings};

use crate::config::Data;
use crate::doors::{Doors, Manner, StateWithoutSession, TextFormat};
use crate::http;
use crate::terminal::{fail, tell};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The address to listen on
    #[arg(long, value_name = "H")]
    host: Option<String>,
    /// The port to listen on; 0 picks a free one
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Adds the fixtures of the MCP conformance suite
    #[arg(long, hide = true)]
    conformance: bool,
}

pub(crate) fn main(data: &Data, options: &Options) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, None),
    };
    match runtime.block_on(serve(data, options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, None),
    }
}

async fn serve(data: &Data, options: &Options) -> Result<(), Box<dyn Error>> {
    let environment = data.environment()?;
    let host = options.host.as_deref().unwrap_or("127.0.0.1");
    let address: SocketAddr = format!("{host}:{}", options.port.unwrap_or(8080)).parse()?;
    let listener = http::Listener::bind(address).await?;
    let service = Service::start(Settings::new(environment.clone())).await?;
    let manner = Manner {
        packages: environment.packages()?,
        environment,
        state_without_session: StateWithoutSession::Default,
        context_chars: 25_000,
        body_bytes_max: 64 * 1024 * 1024,
        text_format: TextFormat::Json,
        listed_tools: Vec::new(),
        public_base_url: None,
        conformance: options.conformance,
    };
    let doors = Doors { service: service.clone(), manner: Arc::new(manner) };
    let examined = service.clone();
    tokio::spawn(async move { examined.examine().await });
    tell(&format!("woma {} listening on http://{}", env!("CARGO_PKG_VERSION"), listener.address()?));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listener.serve(
        http::router(&doors, &stop),
        stop.clone(),
        Duration::from_secs(10),
    ));
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        pressed = tokio::signal::ctrl_c() => pressed?,
    }
    stop.cancel();
    service.shut_down(Duration::from_secs(10)).await;
    serving.await?;
    Ok(())
}
