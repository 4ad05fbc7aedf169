//! Every attack file of the sandbox over HTTP, with and without a code policy: both are contained,
//! so containment does not depend on the policy. (crates/woma-sandbox/tests/attacks.rs also checks
//! how each one ends, with limits of its own.)

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use serde_json::json;

use crate::harness::Server;

/// Attacks that run at the same time.
const AT_ONCE: usize = 3;
/// Limits that a call cannot set; attack files that depend on them are skipped.
const OF_THE_CELL: [&str; 4] = ["processes=", "workspace", "open_files=", "file_size="];
/// Time limit of an attack, in seconds, if its head does not set a smaller one.
const WALL_MAX: u64 = 5;

fn attacks() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../woma-sandbox/tests/attacks");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_attack = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "py");
    let mut attacks: Vec<_> = paths
        .filter(is_attack)
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    attacks.retain(|(_, source)| {
        // This server is at the rung `strong`.
        let rungs = source.lines().find(|line| line.starts_with("# rungs:"));
        if rungs.is_some_and(|rungs| !rungs.contains("strong")) {
            return false;
        }
        let limits = source.lines().find(|line| line.starts_with("# limits:")).unwrap_or_default();
        !OF_THE_CELL.iter().any(|limit| limits.contains(limit))
    });
    attacks.sort();
    assert!(attacks.len() > 250, "only {} attack files", attacks.len());
    attacks
}

/// Attacks on what a session reaches, where it reaches more: a network, packages and a secret.
#[test]
fn attacks_fail_with_a_network_and_a_secret() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("secrets.toml");
    let secret = "[PLANTED]\nvalue = 'planted-value-0123456789abcdef'\nhosts = ['a.test']\n";
    fs::write(&file, secret).unwrap();
    let settings = [("NETWORK", "a.test:*, *.b.test"), ("SECRETS_FILE", file.to_str().unwrap())];
    let server = Server::start_with(&["--max-kernels", "6"], &settings);
    let shown = "import os\nos.environ['PLANTED'][:12]";
    assert_eq!(server.run(&json!({ "code": shown, "stateless": true }))["result"], "woma-secret-");
    assert_eq!(breaches(&server, &["net_", "secret_"]), Vec::<String>::new());
}

/// A limit that the head of an attack names, by its first digits.
fn limit(source: &str, name: &str) -> Option<u64> {
    let line = source.lines().find(|line| line.starts_with("# limits:"))?;
    let value = line.split_whitespace().find_map(|item| item.strip_prefix(name))?;
    value.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// Names of the attacks that succeeded, of those whose names begin so.
fn breaches(server: &Server, beginnings: &[&str]) -> Vec<String> {
    let mut chosen = attacks();
    chosen.retain(|(name, _)| beginnings.iter().any(|beginning| name.starts_with(beginning)));
    assert!(chosen.len() > 30, "only {} attack files", chosen.len());
    let (waiting, breached) = (Mutex::new(chosen), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, source)) = { waiting.lock().unwrap().pop() } {
                    let timeout = limit(&source, "wall=").unwrap_or(WALL_MAX).min(WALL_MAX);
                    let body = json!({
                        "code": source, "timeout": timeout, "memory_limit": "512m",
                        "stateless": true,
                    });
                    let reply = server.post("/execute", &body);
                    assert_eq!(reply.status, 200, "{name}: {}", reply.text());
                    let reply = reply.json();
                    let printed = ["stdout", "stderr"].map(|stream| reply[stream].to_string());
                    // Only at the start of a line: a traceback quotes the source.
                    let is_breach = printed
                        .iter()
                        .any(|text| text.starts_with("\"BREACH") || text.contains("\\nBREACH"));
                    if is_breach {
                        breached.lock().unwrap().push(format!("{name}: {reply}"));
                    }
                }
            });
        }
    });
    assert_eq!(server.run(&json!({ "code": "6 * 7", "stateless": true }))["result"], 42);
    assert_eq!(server.get("/health").status, 200);
    breached.into_inner().unwrap()
}

#[test]
fn attacks_fail_with_and_without_rules() {
    let planted = TcpListener::bind("127.0.0.1:47110").expect("port 47110 must be free");
    let common = ["--max-kernels", "6"];
    let open = Server::start(&common);
    let ruled =
        Server::start_with(&common, &[("SANDBOX_POLICY", "tiers"), ("IMPORT_BLOCK_MODE", "raise")]);
    assert_eq!(breaches(&open, &[""]), Vec::<String>::new());
    assert_eq!(breaches(&ruled, &[""]), Vec::<String>::new());
    let events = ruled.get("/metrics");
    assert!(events.text().contains("woma_security_events_total"), "the rules were not in force");
    drop(planted);
}
