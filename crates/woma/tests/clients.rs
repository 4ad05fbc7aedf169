//! Third-party clients against the real server: the MCP libraries for Python and JavaScript in both
//! major versions, fastmcp, mcpo, the inspector, programs of older systems, the conformance suite;
//! Schemathesis, which holds the REST routes to their OpenAPI document; and the packages in `clients/`.
//!
//! `scripts/clients` fetches them, and `WOMA_TEST_CLIENTS` names their folder.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

#[path = "clients/commands.rs"]
mod commands;
#[path = "clients/conformance.rs"]
mod conformance;
#[path = "clients/contract.rs"]
mod contract;
#[path = "clients/programs.rs"]
mod programs;
#[path = "clients/sdk.rs"]
mod sdk;
#[path = "clients/server.rs"]
mod server;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Trial};
use server::Servers;
use tokio::runtime::Runtime;

/// Most of a client's time is its own start and the server's deliberate pauses.
const AT_ONCE: usize = 2;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let servers = Arc::new(Servers::default());
    let trials = [
        contract::trials(&servers),
        programs::trials(&servers),
        conformance::trials(&servers),
        commands::trials(&servers),
        sdk::trials(&servers),
    ];
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().flatten().collect());
    // The trials and their servers are gone by now.
    let stopped =
        Arc::into_inner(servers).map_or(Ok(()), |servers| runtime().block_on(servers.stop()));
    if let Err(message) = stopped {
        eprintln!("{message}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    })
}

/// A test with a name that is a sentence; it fails by panicking.
fn trial<F: Future<Output = ()>>(
    name: &str,
    servers: &Arc<Servers>,
    test: impl FnOnce(Arc<Servers>) -> F + Send + 'static,
) -> Trial {
    let servers = Arc::clone(servers);
    Trial::test(name.replace(' ', "_"), move || {
        runtime().block_on(test(servers));
        Ok(())
    })
}
