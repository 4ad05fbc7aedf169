//! `woma serve`: the HTTP server from start to shutdown.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use woma_core::keys::KeyRing;

use super::rights::{self, PreparedEnvironment};
use super::serve_lock::ServeLock;
use super::start;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::{Config, is_root};
use crate::http::{self, AuthConfig};
use crate::terminal::{fail, tell};

/// Grace period of open connections after all runs have ended.
const CONNECTION_GRACE: Duration = Duration::from_secs(1);
/// First port that needs no root.
const FIRST_FREE_PORT: u16 = 1024;

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
        Ok(Some(config)) => without_exports(config),
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return fail(&*error, None),
    };
    // While the process has one thread, and before any input is read.
    let prepared = bind_privileged_port(&config)
        .and_then(|listener| Ok((listener, rights::drop_root_for_server(&config)?)));
    let (listener, prepared) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return fail(&*error, start::hint(&*error).as_deref()),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, None),
    };
    let served = runtime.block_on(serve(&config, options, listener, prepared));
    runtime.shutdown_timeout(CONNECTION_GRACE);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, start::hint(&*error).as_deref()),
    }
}

/// The same settings without a folder for copies of files: clients download them.
fn without_exports(mut config: Config) -> Config {
    if config.export_dir.take().is_some() {
        tell("woma: EXPORT_DIR has no effect here: clients of this server download files");
    }
    config
}

/// How long a thread for blocking work may be idle. The idle ones have turns, so with Tokio's ten seconds
/// a few calls a second would keep alive as many as were ever needed at once.
const IDLE_THREAD_MAX: Duration = Duration::from_secs(2);

/// One thread for every two processors: the others run user code, and waking a thread costs more
/// than most requests.
fn runtime() -> io::Result<Runtime> {
    let workers = std::thread::available_parallelism().map_or(1, |all| all.get().div_ceil(2));
    Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_keep_alive(IDLE_THREAD_MAX)
        .enable_all()
        .build()
}

async fn serve(
    config: &Config,
    options: &Options,
    listener: Option<TcpListener>,
    prepared: Option<PreparedEnvironment>,
) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new()?;
    let lock = ServeLock::take(&config.data_dir).await?;
    let ring = open_key_ring(config).await?;
    let auth_config = AuthConfig::new(config, Arc::clone(&ring))?;
    auth_config.check_exposure(config)?;
    auth_config.watch_issuer();
    let listener = match listener {
        Some(listener) => http::Listener::take(listener)?,
        None => bind(config).await?,
    };
    let address = listener.address()?;
    lock.tell_address(address)?;
    let state = start::app_state(config, Some(address), options.conformance, prepared).await?;
    if let Some(line) = start::storage_line(config) {
        tell(&line);
    }
    let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
    let router = http::router(&state, &auth_config, address, &cut)?;
    let service = state.service.clone();
    service.share_keys(ring);
    let connections = Arc::clone(&state.pools.connections);
    let listener = listener.with_shares(connections);
    let serving = tokio::spawn(listener.serve(router, stop.clone(), cut.clone(), CONNECTION_GRACE));
    tell(&start_line(config, auth_config.is_open()?, address));
    signals.next().await;
    tell("woma: stopping; a second signal stops at once");
    stop.cancel();
    tokio::select! {
        () = service.shut_down(config.shutdown_grace) => {}
        () = signals.next() => return Ok(()),
    }
    // No open connection carries a run any more.
    cut.cancel();
    Ok(serving.await?)
}

/// The line that says that the server is ready. The address is at its end, for programs.
fn start_line(config: &Config, is_open: bool, address: SocketAddr) -> String {
    let key = match &config.jwt_issuer {
        Some(issuer) => format!("a key or a token of {issuer} is needed"),
        None if is_open => "no key is needed".to_owned(),
        None => "a key is needed".to_owned(),
    };
    format!(
        "woma {}: preset {}, {key}, data in {}, listening on http://{address}",
        env!("CARGO_PKG_VERSION"),
        config.preset,
        config.data_dir.display(),
    )
}

/// Keys of this server; if it has none, those of other servers with the same database.
async fn open_key_ring(config: &Config) -> Result<Arc<KeyRing>, Box<dyn Error>> {
    let ring = Arc::new(KeyRing::open(config.data_dir.join("keys.json"))?);
    if config.database_url.is_some()
        && ring.is_empty()?
        && let Err(error) = ring.learn(&start::storage_settings(config)).await
    {
        if config.require_api_key && config.api_key.is_none() {
            return Err(format!(
                "REQUIRE_API_KEY is set, no key was created here, and those of the database cannot be \
                 read: {error}"
            )
            .into());
        }
        tell(&format!("woma: cannot read the keys of other servers yet: {error}"));
    }
    Ok(ring)
}

/// Binds a privileged port while the process is root. Nothing is accepted yet.
fn bind_privileged_port(config: &Config) -> Result<Option<TcpListener>, Box<dyn Error>> {
    if !is_root() || !(1..FIRST_FREE_PORT).contains(&config.port) {
        return Ok(None);
    }
    let host = config.host.trim_matches(['[', ']']);
    let bound = TcpListener::bind((host, config.port));
    Ok(Some(bound.map_err(|error| bind_error(config, error))?))
}

async fn bind(config: &Config) -> Result<http::Listener, Box<dyn Error>> {
    let (host, port) = (config.host.as_str(), config.port);
    let address = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port),
        Err(_) => {
            let mut found = tokio::net::lookup_host((host, port)).await.map_err(|error| {
                format!("cannot resolve the host `{host}`: {error}: check --host and HOST")
            })?;
            found.next().ok_or_else(|| format!("the host `{host}` has no address"))?
        }
    };
    http::Listener::bind(address).await.map_err(|error| bind_error(config, error))
}

fn bind_error(config: &Config, error: io::Error) -> Box<dyn Error> {
    let (host, port) = (&config.host, config.port);
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("port {port} is in use by another program: use --port N, or 0 for a free one")
                .into()
        }
        io::ErrorKind::PermissionDenied => {
            format!("port {port} needs root: use one above 1023").into()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine does not have the address {host}: check --host").into()
        }
        _ => Box::<dyn Error>::from(error),
    }
}

/// SIGTERM and SIGINT; both stop the server.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers.
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
