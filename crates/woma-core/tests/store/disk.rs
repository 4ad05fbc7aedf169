//! Full, read-only and damaged disks, for `SQLite` and the folder of blobs.
//!
//! A small disk is a mount, created by a copy of this program in its own namespaces: this needs no
//! root, and no mount is left behind.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use woma_core::blobs::Blobs;
use woma_core::store::{Store, StoreConfig, StoreError};

use crate::fixture::{at, entry, session};

async fn open(folder: &Path) -> Result<Store, StoreError> {
    Store::open(StoreConfig::Sqlite { file: folder.join("woma.db") }).await
}

/// Small disk, unmounted on drop.
struct Disk(TempDir);

impl Disk {
    fn mount(options: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "woma-test"]).arg(folder.path());
        let done = mount.status().unwrap();
        assert!(done.success());
        Self(folder)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.0.path()).status().unwrap();
        assert!(done.success());
    }
}

async fn in_namespaces(role: &str) {
    let mut copy = tokio::process::Command::new("unshare");
    copy.args(["--user", "--map-root-user", "--mount"]);
    copy.arg(std::env::current_exe().unwrap()).arg(role);
    let output = copy.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) async fn a_full_disk_is_reported_until_it_has_space() {
    in_namespaces("child-fills").await;
}

pub(crate) async fn a_read_only_disk_is_reported() {
    in_namespaces("child-reads").await;
}

pub(crate) async fn full() {
    let disk = Disk::mount("size=4m");
    let folder = disk.0.path();
    let store = open(folder).await.unwrap();
    let blobs = Blobs::in_folder(&folder.join("blobs")).await.unwrap();
    store.put_session(&session("ann", "before")).await.unwrap();
    let ballast = folder.join("ballast");
    // `cp` fills the disk to the last byte.
    assert!(!Command::new("cp").arg("/dev/zero").arg(&ballast).status().unwrap().success());

    let mut large = entry("ann", "x");
    large.detail = "x".repeat(100_000);
    let mut errors = Vec::new();
    for _ in 0..20 {
        errors.extend(store.append_audit(&large).await.err());
    }
    assert!(!errors.is_empty() && errors.iter().all(|error| *error == StoreError::NoSpace));
    assert!(errors.iter().all(StoreError::is_retryable));
    let blob = Bytes::from(vec![1; 300_000]);
    assert_eq!(blobs.put(blob.clone()).await, Err(StoreError::NoSpace));
    assert_eq!(
        fs::read_dir(folder.join("blobs/tmp")).unwrap().count(),
        0,
        "a partial file is left"
    );
    assert!(store.session("ann", "before").await.unwrap().is_some(), "reads still work");
    errors.clear();
    while errors.is_empty() {
        errors.extend(store.append_audit(&large).await.err());
    }
    let health = store.health().await;
    assert!(!health.is_healthy, "{health:?}");

    fs::remove_file(&ballast).unwrap();
    store.append_audit(&large).await.unwrap();
    store.put_session(&session("ann", "after")).await.unwrap();
    blobs.put(blob).await.unwrap();
    assert!(store.health().await.is_healthy);
    assert_eq!(store.sessions("ann").await.unwrap().len(), 2);
}

pub(crate) async fn read_only() {
    let disk = Disk::mount("size=8m");
    let folder = disk.0.path();
    let store = open(folder).await.unwrap();
    store.put_session(&session("ann", "a")).await.unwrap();
    drop(store);
    // The writer thread closes the file a moment later.
    let remount = |mode: &str| {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,bind,{mode}")]).arg(folder);
        mount.stderr(std::process::Stdio::null()).status().unwrap().success()
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !remount("ro") {
        assert!(std::time::Instant::now() < deadline, "the file is still in use");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(open(folder).await.unwrap_err(), StoreError::ReadOnly);
    assert_eq!(Blobs::in_folder(&folder.join("b")).await.unwrap_err(), StoreError::ReadOnly);
    assert!(remount("rw"));
    assert!(open(folder).await.unwrap().session("ann", "a").await.unwrap().is_some());

    let absent = open(&folder.join("absent")).await.unwrap_err();
    assert!(matches!(absent, StoreError::Unavailable(_)), "{absent}");
    let file = fs::metadata(folder.join("woma.db")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600, "others may read it");
    assert_eq!(file.uid(), fs::metadata("/proc/self").unwrap().uid());
}

pub(crate) async fn a_damaged_file_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("woma.db");
    fs::write(&path, "this was a database once".repeat(1000)).unwrap();
    let error = open(folder.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");

    // Damage behind a valid header is found by the first read of it.
    fs::remove_file(&path).unwrap();
    let store = open(folder.path()).await.unwrap();
    for number in 0..200 {
        let mut row = session("ann", &format!("s{number}"));
        row.description = Some("x".repeat(2000));
        row.last_used_at = at(number);
        store.put_session(&row).await.unwrap();
    }
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0xa5; usize::try_from(length).unwrap() - 4096 * 3], 4096 * 3).unwrap();
    drop(connection);
    let fresh = open(folder.path()).await;
    let error = match fresh {
        Err(error) => error,
        Ok(store) => store.sessions("ann").await.unwrap_err(),
    };
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert!(!error.is_retryable());
}
