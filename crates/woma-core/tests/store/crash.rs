//! Crash safety: a copy of this program writes and is killed repeatedly.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use uuid::Uuid;
use woma_core::blobs::Blobs;
use woma_core::store::{ExecutionStatus, Store, StoreConfig};

use crate::fixture::{self, Backend, Fixture, entry, finish, finished, running, session};
use crate::{disk, postgres};

const BLOB_BYTES_MAX: u64 = 1 << 20;

/// Runs this program as a helper process, if its arguments say so.
pub(crate) fn child() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next()?;
    match role.as_str() {
        "child-fills" => fixture::run(disk::full()),
        "child-reads" => fixture::run(disk::read_only()),
        _ => return writer(&role, arguments),
    }
    Some(ExitCode::SUCCESS)
}

fn writer(role: &str, mut arguments: impl Iterator<Item = String>) -> Option<ExitCode> {
    let (location, folder) = match role {
        "child-opens" | "child-writes" => (arguments.next()?, PathBuf::from(arguments.next()?)),
        _ => return None,
    };
    let config = match location.contains("://") {
        true => StoreConfig::Postgres { url: location, connections_max: 8 },
        false => StoreConfig::Sqlite { file: location.into() },
    };
    fixture::run(async {
        let store = Store::open(config).await.unwrap();
        if role == "child-writes" {
            let blobs = Blobs::in_folder(&folder).await.unwrap();
            let writers = (0..4).map(|_| tokio::spawn(write(store.clone(), blobs.clone())));
            futures_util::future::join_all(writers.collect::<Vec<_>>()).await;
        }
    });
    Some(ExitCode::SUCCESS)
}

/// Writes rows and blobs, and prints each one after it was acknowledged.
async fn write(store: Store, blobs: Blobs) {
    loop {
        let id = Uuid::new_v4().to_string();
        let content = Bytes::from(id.repeat(500));
        let digest = blobs.put(content).await.unwrap();
        say(&format!("blob {digest}"));
        let row = finished(running("ann", "a", &id));
        finish(&store, &row, &entry("ann", "finished")).await.unwrap();
        say(&format!("finished {id}"));
    }
}

fn say(line: &str) {
    // One write, so that lines of concurrent writers do not mix.
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn spawn(role: &str, config: &StoreConfig, folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.arg(role);
    match config {
        StoreConfig::Sqlite { file } => child.arg(file),
        StoreConfig::Postgres { url, .. } => child.arg(url),
    };
    child.arg(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    child.spawn().unwrap()
}

pub(crate) async fn acknowledged_writes_survive_a_kill(fixture: Fixture) {
    let cycles = match fixture.backend {
        Backend::Sqlite => 20,
        Backend::Postgres => 5,
    };
    let folder = fixture.folder.path().join("blobs");
    let Fixture { store, .. } = &fixture;
    for cycle in 0..cycles {
        let mut child = spawn("child-writes", &fixture.config(), &folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A different moment each time; lines printed until the kill count too.
        let mut said: Vec<String> =
            lines.by_ref().take(1 + cycle * 3).map(|line| line.unwrap()).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        said.extend(lines.map_while(Result::ok));
        assert!(said.len() > cycle * 3, "the writer failed after {} lines", said.len());

        let blobs = Blobs::in_folder(&folder).await.unwrap();
        blobs.sweep_leftovers().await.unwrap();
        let rows = store.executions("ann", None, u32::MAX, None).await.unwrap();
        for line in said {
            // The last line may be incomplete.
            let Some((what, name)) = line.split_once(' ') else { continue };
            match (what, name.len()) {
                ("finished", 36) => {
                    let row = rows.iter().find(|row| row.id == name);
                    let status = row.map(|row| row.status);
                    assert_eq!(status, Some(ExecutionStatus::Finished), "{line}");
                }
                ("blob", 64) => {
                    blobs.read(name.parse().unwrap(), BLOB_BYTES_MAX).await.unwrap();
                }
                _ => {}
            }
        }
        // Every blob is whole, also those that were not acknowledged.
        for (digest, _) in blobs.list().await.unwrap() {
            blobs.read(digest, BLOB_BYTES_MAX).await.unwrap();
        }
    }
}

pub(crate) async fn a_start_may_be_killed_at_any_time(fixture: Fixture) {
    let folder = TempDir::new().unwrap();
    let database = match fixture.backend {
        Backend::Sqlite => String::new(),
        Backend::Postgres => postgres::shared().fresh(),
    };
    let config = fixture::config(fixture.backend, &folder, &database);
    for step in 0..15 {
        let mut child = spawn("child-opens", &config, folder.path());
        tokio::time::sleep(Duration::from_millis(step * 2)).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let store = Store::open(config).await.unwrap();
    store.put_session(&session("ann", "a")).await.unwrap();
    store.append_audit(&entry("ann", "x")).await.unwrap();
    assert!(store.health().await.is_healthy);
}
