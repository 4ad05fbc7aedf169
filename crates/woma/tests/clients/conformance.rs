//! The MCP conformance suite, without a list of known failures.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::programs::{node, run_to_end};
use crate::server::{Servers, data_dir, setting};
use crate::trial;

const SUITE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
const LIMIT: Duration = Duration::from_secs(120);
/// Name of a scenario's result: `server-NAME-2026-07-28T12-00-00-000Z`.
const STAMP: usize = "-2026-07-28T12-00-00-000Z".len();
const DETAILS: usize = 600;

/// A revision, the selection of its scenarios, and the least number of passed checks: a suite that
/// ran nothing proves nothing.
const REVISIONS: [(&str, &[&str], usize); 3] = [
    ("2025-06-18", &["--suite", "all", "--spec-version", "2025-06-18"], 50),
    ("2025-11-25", &["--requirements", "2025-11-25"], 80),
    ("2026-07-28", &["--requirements", "2026-07-28"], 190),
];

pub(crate) fn trials(servers: &Arc<Servers>) -> Vec<Trial> {
    let conforms = |(revision, selection, least)| {
        trial(&format!("the server conforms to {revision}"), servers, move |servers| async move {
            let url = format!("{}/mcp", servers.conformance().await.url);
            conforms(&url, selection, least).await;
        })
    };
    REVISIONS.into_iter().map(conforms).collect()
}

async fn conforms(url: &str, selection: &[&str], least: usize) {
    let results = data_dir();
    let mut command = node(&setting("WOMA_TEST_CLIENTS").join(SUITE));
    command.args(["server", "--url", url, "--output-dir"]).arg(results.path()).args(selection);
    let (code, stdout, stderr) = run_to_end(&mut command, LIMIT).await;
    let mut succeeded = 0;
    let mut wrong = Vec::new();
    for (scenario, check) in checks(results.path()) {
        match check["status"].as_str() {
            Some("SUCCESS") => succeeded += 1,
            Some("FAILURE") => wrong.push(story(&scenario, &check)),
            // A warning breaks a SHOULD; said, not failed. The rest is information.
            Some("WARNING") => eprintln!("warning: {}", story(&scenario, &check)),
            _ => {}
        }
    }
    assert!(
        wrong.is_empty(),
        "{} failed, {succeeded} succeeded:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(code, Some(0), "{stdout}\n{stderr}");
    assert!(succeeded >= least, "only {succeeded} checks: {stdout}\n{stderr}");
}

/// Every check of every scenario, those too that the suite runs without scoring.
fn checks(results: &Path) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for folder in fs::read_dir(results).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let scenario = &name[..name.len().saturating_sub(STAMP)];
        let scenario = scenario.strip_prefix("server-").unwrap_or(scenario);
        let text = fs::read_to_string(folder.path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_str(&text).unwrap();
        found.extend(checks.into_iter().map(|check| (scenario.to_owned(), check)));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn story(scenario: &str, check: &Value) -> String {
    let details: String = check["details"].to_string().chars().take(DETAILS).collect();
    let (id, message) = (&check["id"], &check["errorMessage"]);
    format!("{scenario}: {id}: {message}\n    {details}")
}
