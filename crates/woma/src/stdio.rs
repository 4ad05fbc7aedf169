//! `woma stdio`: MCP for the client that started us. Standard output carries nothing else.

use std::error::Error;
use std::process::ExitCode;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::cli::DataOptions;
use crate::config::Config;
use crate::config::flags::SettingOptions;
use crate::mcp::{self, Mcp};
use crate::serve::Signals;
use crate::start;
use crate::terminal::fail;

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) settings: SettingOptions,
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    let config = match start::configure(data, &options.settings, Config::load_in_a_project) {
        Ok(Some(config)) => config,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return fail(&*error, None),
    };
    // On one thread tasks begin in the order in which they were made, and so calls that a client
    // sends without waiting run in the order of their arrival.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, None),
    };
    let served = runtime.block_on(serve(&config));
    // Nothing may wait for a thread that still reads standard input.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, start::hint(&*error).as_deref()),
    }
}

async fn serve(config: &Config) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new()?;
    let doors = start::doors(config, None, false).await?;
    let service = doors.service.clone();
    let stop = CancellationToken::new();
    let mcp = Mcp::new(doors);
    let mut serving = tokio::spawn(mcp::stdio::serve(mcp, stop.clone()));
    let ended = tokio::select! {
        ended = &mut serving => Some(ended),
        () = signals.next() => None,
    };
    if let Some(ended) = ended {
        // The client has gone: nobody waits for what still runs.
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
