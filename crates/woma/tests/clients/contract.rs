//! The server against its OpenAPI document, by Schemathesis: no fault, no undocumented status, no reply
//! that differs from its schema.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::process::Command;
use tokio::time::timeout;

use crate::programs::fetched;
use crate::server::{KEY, Servers, data_dir};
use crate::trial;

/// Limit of the whole run, which takes about a minute on an idle machine.
const RUN_MAX: Duration = Duration::from_mins(10);
/// Operations that must have been tested: fewer mean that the document was not read.
const OPERATIONS_MIN: usize = 50;

pub(crate) fn trials(servers: &Arc<Servers>) -> Vec<Trial> {
    let name = "every route keeps to the OpenAPI document";
    vec![trial(name, servers, |servers| async move {
        let url = format!("{}/openapi.json", servers.keyed().await.url);
        // Its cache and reports stay out of the repository.
        let folder = data_dir();
        let mut command = fetched("schemathesis/bin/schemathesis");
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/python");
        command.env("PYTHONPATH", &here).env("SCHEMATHESIS_HOOKS", "schemathesis_hooks");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.arg("--config-file").arg(here.join("schemathesis.toml")).args([
            "--no-color",
            "run",
            &url,
        ]);
        command.args(["-H", &format!("Authorization: Bearer {KEY}")]);
        command.current_dir(folder.path()).kill_on_drop(true);
        let printed = run(&mut command).await;
        let tested = printed.lines().find_map(|line| line.trim().strip_prefix("Tested: "));
        let tested: usize = tested.and_then(|count| count.parse().ok()).unwrap_or_default();
        assert!(tested >= OPERATIONS_MIN, "only {tested} operations were tested:\n{printed}");
    })]
}

async fn run(command: &mut Command) -> String {
    let output = timeout(RUN_MAX, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("it was not done after {RUN_MAX:?}")).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{printed}\n{errors}", output.status);
    printed
}
