//! Programs with third-party libraries; each checks its own results.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::server::{KEY, Servers, bare_command, data_dir, setting, stdio_command};
use crate::trial;

const PROGRAM: Duration = Duration::from_secs(60);

pub(crate) fn trials(servers: &Arc<Servers>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let (eras, none) = (["modern", "legacy"].as_slice(), [""].as_slice());
    // The paths of HTTP+SSE are two, for two older systems had one each.
    for (library, program, eras, sse) in [
        ("Python mcp 2", "with_mcp2.py", eras, "/sse"),
        ("Python mcp 1", "with_mcp1.py", none, "/mcp/sse"),
        ("JavaScript client 2", "with_client2.mjs", eras, "/mcp/sse"),
        ("JavaScript sdk 1", "with_sdk1.mjs", none, "/sse"),
    ] {
        for era in eras {
            let name = |way: &str| format!("{library} over {way} {era}").trim_end().to_owned();
            trials.push(trial(&name("http"), servers, move |servers| async move {
                remote(program, "http", &servers.plain().await.url, "/mcp", era).await;
            }));
            trials.push(trial(&name("stdio"), servers, move |_| local(program, era)));
        }
        // That transport is of the first era only.
        let era = if eras.len() > 1 { "legacy" } else { "" };
        trials.push(trial(&format!("{library} over sse"), servers, move |servers| async move {
            remote(program, "sse", &servers.plain().await.url, sse, era).await;
        }));
    }
    trials.push(trial("a client logs in with an issuer that it discovers", servers, |_| log_in()));
    trials.push(trial(
        "the snippet of the page serves Python mcp 2",
        servers,
        |servers| async move {
            run(client("with_page.py").arg(&servers.plain().await.url)).await;
        },
    ));
    trials.extend(older_systems(servers));
    let name = "two clients with a data folder in common do not meet";
    trials.push(trial(name, servers, |_| neighbours()));
    trials
}

/// Two libraries at the same time, each with a server of its own on the same folder.
async fn neighbours() {
    let (data, meeting) = (own_data_dir(), data_dir());
    let with = |mut command: Command| {
        command.arg(meeting.path()).args(stdio_command(data.path()));
        command
    };
    let mut python = with(python("mcp1", "neighbour.py"));
    let mut javascript = with(node(&own("node/neighbour.mjs")));
    tokio::join!(run(&mut python), run(&mut javascript));
}

/// A server that accepts tokens; the client is told its address only.
async fn log_in() {
    let data = own_data_dir();
    run(client("with_oauth.py").args(bare_command(data.path()))).await;
}

async fn remote(program: &str, way: &str, url: &str, path: &str, era: &str) {
    let url = format!("{url}{path}");
    let arguments = [way, &url, era];
    run(client(program).args(arguments.iter().filter(|argument| !argument.is_empty()))).await;
}

/// Data of a server of one client, which does not import the larger libraries before it answers.
fn own_data_dir() -> TempDir {
    let data = data_dir();
    fs::write(data.path().join("woma.toml"), "preload = \"base\"\n").unwrap();
    data
}

async fn local(program: &str, era: &str) {
    let data = own_data_dir();
    let mut command = client(program);
    command.arg("stdio").args((!era.is_empty()).then_some(era)).args(stdio_command(data.path()));
    run(&mut command).await;
}

fn older_systems(servers: &Arc<Servers>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kind, path) in [("streamable-http", "/mcp"), ("sse", "/sse"), ("config", "/mcp/sse")] {
        let name = format!("mcpo bridges {kind}");
        trials.push(trial(&name, servers, move |servers| async move {
            let url = format!("{}{path}", servers.plain().await.url);
            run(client("with_mcpo.py").args([kind, &url])).await;
        }));
    }
    // A client that sends no header of its own: the key is in the address.
    trials.push(trial("mcpo bridges an older system with a key", servers, |servers| async move {
        let url = servers.service().await.url.replace("http://", &format!("http://woma:{KEY}@"));
        run(client("with_mcpo.py").args(["service", &format!("{url}/mcp/sse")])).await;
    }));
    for library in ["mcp1", "mcp2"] {
        let name = format!("the client program of an older system runs on {library}");
        trials.push(trial(&name, servers, move |_| fibonacci(library)));
        let name = format!("the batch of an older system runs on {library}");
        trials.push(trial(&name, servers, move |_| batch(library)));
    }
    trials
}

/// Data of a server with the defaults of the older system, set where a bare command finds them.
fn older_data_dir() -> TempDir {
    let data = data_dir();
    fs::write(data.path().join("woma.toml"), "preset = \"ibm-sandbox\"\npreload = \"base\"\n")
        .unwrap();
    data
}

async fn fibonacci(library: &str) {
    let data = older_data_dir();
    let printed = run(python(library, "seed_program.py").args(bare_command(data.path()))).await;
    let reply: Value = serde_json::from_str(&printed).unwrap();
    let numbers = "[0, 1, 1, 2, 3, 5, 8, 13, 21, 34]";
    assert_eq!(reply["success"], true, "{reply}");
    assert_eq!(reply["stdout"], format!("Fibonacci sequence: {numbers}\n"), "{reply}");
    assert_eq!(reply["stderr"], "", "{reply}");
    assert_eq!(reply["result"], serde_json::from_str::<Value>(numbers).unwrap(), "{reply}");
    assert!(reply["execution_time"].is_f64() && reply["execution_id"].is_string(), "{reply}");
    let variables = reply["variables"].as_array().unwrap();
    assert!(variables.contains(&"result".into()), "{reply}");
}

async fn batch(library: &str) {
    let data = older_data_dir();
    let printed = run(python(library, "seed_batch.py").args(bare_command(data.path()))).await;
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("Result: ")).collect();
    assert_eq!(lines.len(), 3, "{printed}");
    for (line, wanted) in lines.iter().zip(["Hello, World!", "'result': 45", "3.141592653589793"]) {
        assert!(line.contains("'success': True"), "{line}");
        assert!(line.contains(wanted), "no {wanted} in {line}");
    }
}

/// The program with the interpreter of its library.
fn client(program: &str) -> Command {
    match program {
        "with_mcp1.py" => python("mcp1", program),
        "with_mcp2.py" | "with_oauth.py" | "with_page.py" => python("mcp2", program),
        "with_mcpo.py" => python("mcpo", program),
        _ => node(&own(&format!("node/{program}"))),
    }
}

pub(crate) fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

fn python(library: &str, program: &str) -> Command {
    let mut command = fetched(&format!("{library}/bin/python"));
    command.arg("-B").arg(own(&format!("python/{program}")));
    command
}

pub(crate) fn node(script: &Path) -> Command {
    let mut command = fetched("node/bin/node");
    command.arg(script);
    command
}

pub(crate) fn fetched(name: &str) -> Command {
    Command::new(setting("WOMA_TEST_CLIENTS").join(name))
}

/// Runs a client to its end and returns its output; on failure, prints everything.
pub(crate) async fn run(command: &mut Command) -> String {
    let (code, stdout, stderr) = run_to_end(command, PROGRAM).await;
    assert_eq!(code, Some(0), "{:?}\n{stdout}\n{stderr}", command.as_std());
    stdout
}

pub(crate) async fn run_to_end(
    command: &mut Command,
    limit: Duration,
) -> (Option<i32>, String, String) {
    // Clients keep settings in the home folder, and a proxy is not asked for this machine.
    let home: TempDir = data_dir();
    command.env("HOME", home.path()).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    // Files, so that a client that hangs has still said how far it came.
    let (stdout, stderr) = (home.path().join("stdout"), home.path().join("stderr"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", command.as_std()));
    let ended = timeout(limit, child.wait()).await;
    let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    let Ok(status) = ended else {
        panic!("{:?} did not end within {limit:?}\n{stdout}\n{stderr}", command.as_std());
    };
    (status.unwrap().code(), stdout, stderr)
}
