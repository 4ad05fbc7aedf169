//! `woma stdio`: MCP for the client that started the process. Standard output carries nothing else.

use std::error::Error;
use std::process::ExitCode;

use clap::Args;
use tokio_util::sync::CancellationToken;
use woma_core::{Caller, Claim, SessionId};

use super::rights::{self, PreparedEnvironment};
use super::serve::Signals;
use super::start;
use crate::api::state::AppState;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::types::StateWithoutSession;
use crate::config::{Config, unused};
use crate::mcp::{self, Mcp};
use crate::terminal::{fail, tell};

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) settings: SettingOptions,
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    let config =
        match start::configure(data, &options.settings, Config::load_without_foreign_dot_env) {
            Ok(Some(config)) => with_exports(config),
            Ok(None) => return ExitCode::SUCCESS,
            Err(error) => return fail(&*error, None),
        };
    for warning in unused::without_port(config.origins()) {
        tell(&format!("woma: {warning}"));
    }
    let prepared = match rights::drop_root_for_server(&config) {
        Ok(prepared) => prepared,
        Err(error) => return fail(&*error, start::hint(&*error).as_deref()),
    };
    // On one thread tasks start in the order of their creation, so pipelined calls run in order.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, None),
    };
    let served = runtime.block_on(serve(&config, prepared));
    // Shutdown must not wait for the thread that still reads standard input.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, start::hint(&*error).as_deref()),
    }
}

/// The same settings with a folder for copies of files: there is no server to download from.
fn with_exports(mut config: Config) -> Config {
    let folder = config.export_dir.take().unwrap_or_else(|| config.data_dir.join("exports"));
    config.export_dir = Some(folder);
    config
}

/// The session `default`, if calls without a session use it, is one process's at a time: its
/// variables and files are those of one conversation. Further processes have sessions of their own.
fn with_a_session(state: AppState) -> Result<(AppState, Option<Claim>), woma_core::Error> {
    if state.presentation.state_without_session != StateWithoutSession::Default {
        return Ok((state, None));
    }
    let claim = state.service.claim_session(&Caller::local(), &SessionId::shared_default())?;
    if claim.is_some() {
        return Ok((state, claim));
    }
    tell("woma: another process has the session `default`; this one has a session of its own");
    Ok((state.with_own_session(), None))
}

async fn serve(
    config: &Config,
    prepared: Option<PreparedEnvironment>,
) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new()?;
    let state = start::app_state(config, None, false, prepared).await?;
    let (state, _claim) = with_a_session(state)?;
    let service = state.service.clone();
    let stop = CancellationToken::new();
    let mcp = Mcp::new(&state);
    let mut serving = tokio::spawn(mcp::transports::stdio::serve(mcp, stop.clone()));
    let ended = tokio::select! {
        ended = &mut serving => Some(ended),
        () = signals.next() => None,
    };
    if let Some(ended) = ended {
        // The client has left: running code is interrupted at once.
        service.shut_down(std::time::Duration::ZERO).await;
        return ended?.map_err(|error| error as Box<dyn Error>);
    }
    tokio::select! {
        () = service.shut_down(config.shutdown_grace) => {}
        () = signals.next() => {}
    }
    stop.cancel();
    Ok(())
}
