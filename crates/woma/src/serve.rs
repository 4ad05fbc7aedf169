//! `woma serve`: the server, from its first line to its last.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use woma_core::keys::KeyRing;

use crate::cli::DataOptions;
use crate::config::Config;
use crate::config::flags::SettingOptions;
use crate::http::{self, Entrance};
use crate::start;
use crate::terminal::{fail, tell};

/// What connections get to end after everything that ran has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) settings: SettingOptions,
    /// Accepted for older clients: HTTP+SSE is always served, on /sse and /mcp/sse
    #[arg(long, hide = true)]
    pub(crate) sse: bool,
    /// Adds the fixtures of the MCP conformance suite
    #[arg(long, hide = true)]
    pub(crate) conformance: bool,
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    let config = match start::configure(data, &options.settings, Config::load) {
        Ok(Some(config)) => config,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return fail(&*error, None),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, None),
    };
    let served = runtime.block_on(serve(&config, options));
    runtime.shutdown_timeout(LAST_WORDS);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, start::hint(&*error).as_deref()),
    }
}

/// A thread for every two processors: the others are for the code of our users, and to wake another
/// thread costs more than most of what it would be woken for.
fn runtime() -> io::Result<Runtime> {
    let workers = std::thread::available_parallelism().map_or(1, |all| all.get().div_ceil(2));
    Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

async fn serve(config: &Config, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new()?;
    let ring = keys(config).await?;
    let entrance = Entrance::new(config, Arc::clone(&ring))?;
    entrance.check_exposure(config)?;
    let listener = bind(config).await?;
    let address = listener.address()?;
    let doors = start::doors(config, Some(address), options.conformance).await?;
    let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
    let router = http::router(&doors, &entrance, address, &cut)?;
    let service = doors.service.clone();
    service.share_keys(ring);
    let serving = tokio::spawn(listener.serve(router, stop.clone(), cut.clone(), LAST_WORDS));
    tell(&format!("woma {} listening on http://{address}", env!("CARGO_PKG_VERSION")));
    signals.next().await;
    tell("woma: stopping; a second signal stops at once");
    stop.cancel();
    tokio::select! {
        () = service.shut_down(config.shutdown_grace) => {}
        () = signals.next() => return Ok(()),
    }
    // What is still open carries nothing that runs.
    cut.cancel();
    Ok(serving.await?)
}

/// The keys of this server, and where there are none yet, those of others with the same database.
async fn keys(config: &Config) -> Result<Arc<KeyRing>, Box<dyn Error>> {
    let ring = Arc::new(KeyRing::open(config.data_dir.join("keys.json"))?);
    if config.database_url.is_some()
        && ring.is_empty()?
        && let Err(error) = ring.learn(&start::vault(config)).await
    {
        if config.require_api_key && config.api_key.is_none() {
            return Err(format!(
                "REQUIRE_API_KEY is set, no key was made here, and those of the database cannot be \
                 read: {error}"
            )
            .into());
        }
        tell(&format!("woma: keys that other servers made are not known yet: {error}"));
    }
    Ok(ring)
}

async fn bind(config: &Config) -> Result<http::Listener, Box<dyn Error>> {
    let (host, port) = (config.host.as_str(), config.port);
    let address = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port),
        Err(_) => {
            let mut found = tokio::net::lookup_host((host, port)).await.map_err(|error| {
                format!("the host `{host}` cannot be found: {error}: check --host and HOST")
            })?;
            found.next().ok_or_else(|| format!("the host `{host}` has no address"))?
        }
    };
    http::Listener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("port {port} is taken by another program: say --port N, or 0 for a free one")
                .into()
        }
        io::ErrorKind::PermissionDenied => {
            format!("port {port} needs more rights: use one above 1023").into()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine does not have the address {host}: check --host").into()
        }
        _ => Box::<dyn Error>::from(error),
    })
}

/// SIGTERM and SIGINT, which mean the same to a server.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on signals are heard.
    pub(crate) fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { terminate, interrupt })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
