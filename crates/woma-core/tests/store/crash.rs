//! A copy of this program writes and is killed, again and again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use uuid::Uuid;
use woma_core::blobs::Blobs;
use woma_core::store::{ExecutionStatus, Store, StoreConfig};

use crate::fixture::{self, Backend, Fixture, entry, finished, running, session};
use crate::{disk, postgres};

const BLOB_BYTES_MAX: u64 = 1 << 20;

/// What this program does when it was started to be killed.
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
    let (place, folder) = match role {
        "child-opens" | "child-writes" => (arguments.next()?, PathBuf::from(arguments.next()?)),
        _ => return None,
    };
    let config = match place.contains("://") {
        true => StoreConfig::Postgres { url: place, connections_max: 8 },
        false => StoreConfig::Sqlite { file: place.into() },
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

/// Says of each row and blob that it was acknowledged, once it was.
async fn write(store: Store, blobs: Blobs) {
    loop {
        let id = Uuid::new_v4().to_string();
        let row = running("ann", "a", &id);
        store.begin(&row, &entry("ann", "started")).await.unwrap();
        say(&format!("begun {id}"));
        let content = Bytes::from(id.repeat(500));
        let digest = blobs.put(content).await.unwrap();
        say(&format!("blob {digest}"));
        store.finish(&finished(row), &[], &entry("ann", "finished")).await.unwrap();
        say(&format!("finished {id}"));
    }
}

fn say(line: &str) {
    // One write, so that lines of several writers do not mix.
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

pub(crate) async fn nothing_acknowledged_is_lost(fixture: Fixture) {
    let cycles = match fixture.backend {
        Backend::Sqlite => 20,
        Backend::Postgres => 5,
    };
    let folder = fixture.folder.path().join("blobs");
    let Fixture { store, .. } = &fixture;
    for cycle in 0..cycles {
        let mut child = spawn("child-writes", &fixture.config(), &folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A different moment each time; what was said after it counts too.
        let mut said: Vec<String> =
            lines.by_ref().take(1 + cycle * 3).map(|line| line.unwrap()).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        said.extend(lines.map_while(Result::ok));
        assert!(said.len() > cycle * 3, "the writer failed after {} lines", said.len());

        let blobs = Blobs::in_folder(&folder).await.unwrap();
        blobs.sweep_leftovers().await.unwrap();
        for line in said {
            // The last line may be cut off in the middle.
            let Some((what, name)) = line.split_once(' ') else { continue };
            match (what, name.len()) {
                ("begun", 36) => {
                    assert!(store.execution("ann", name).await.unwrap().is_some(), "{line}");
                }
                ("finished", 36) => {
                    let row = store.execution("ann", name).await.unwrap().unwrap();
                    assert_eq!(row.status, ExecutionStatus::Finished, "{line}");
                }
                ("blob", 64) => {
                    blobs.read(name.parse().unwrap(), BLOB_BYTES_MAX).await.unwrap();
                }
                _ => {}
            }
        }
        // Whole or absent, also those of which nothing was said.
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
