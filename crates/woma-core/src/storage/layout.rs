//! Layout of the data folder: opens the store, the blobs, the outbox and the session folders.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use woma_sandbox::workspace::{Folder, Reserve, ReserveSize, remove_tree};

use super::claims::{Claim, Claims, NotClaimed};
use super::durable;
use super::ephemeral::EphemeralRoot;
use crate::model::caller::CallerId;
use crate::model::{ExecutionId, SessionId, hex};
use crate::net::fetch::FetchRules;
use crate::storage::blobs::{Blobs, S3};
use crate::storage::db::{Store, StoreConfig, StoreError, process_name};
use crate::storage::outbox::{Outbox, SETTLE_TIME_MAX};

/// Folder of sessions that end with their run. Other folders beside it are named by digests.
const EPHEMERAL: &str = "passing";
/// Folder of callers' datasets, beside their sessions, so that the same bounds hold for it.
const DATASETS: &str = "datasets";
/// Folder of layers of packages, beside it.
const PACKAGES: &str = "packages";
/// Layers of an owner that are counted, with their folders.
const LAYERS_MAX: usize = 20_000;
/// Folder of claims on sessions, beside them.
const CLAIMS: &str = "claims";
/// Most files and folders removed with one session.
const REMOVED_MAX: u64 = 10_000_000;
/// Size of the connection pool.
const CONNECTIONS_MAX: u32 = 10;

/// Storage locations, quotas and retention periods.
#[derive(Debug, Clone)]
pub struct StorageSettings {
    /// The data folder.
    pub folder: PathBuf,
    /// The folder of sessions' files, if it is outside the data folder.
    pub sessions_folder: Option<PathBuf>,
    /// URL of a `PostgreSQL` database; `None` uses `SQLite` in the data folder.
    pub database_url: Option<String>,
    /// Backend for the contents of files.
    pub contents: Contents,
    /// Largest file that gets a download link, and largest upload.
    pub file_bytes_max: u64,
    /// Files that get a download link after a run.
    pub linked: LinkedFiles,
    /// Storage quota of callers whose key has no quota of its own; `None` is unlimited.
    pub storage_bytes_max: Option<u64>,
    /// Lifetime of a download link; `None` never expires.
    pub file_ttl: Option<Duration>,
    /// Whether records of executions keep the code itself, not only its digest.
    pub keeps_code: bool,
    /// Idle time after which a session expires; `None` never expires.
    pub session_ttl: Option<Duration>,
    /// Retention of execution records and the audit trail; `None` keeps them for ever.
    pub audit_retention: Option<Duration>,
    /// Limit of the audit trail of one caller and day; entries beyond it are counted, not written.
    pub audit_day_bytes_max: u64,
    /// Largest checkpoint of one session's variables, in bytes; 0 disables checkpoints.
    pub checkpoint_bytes_max: u64,
    /// Folder of the host that gets copies of sessions' files; `None` copies nothing.
    pub exports: Option<PathBuf>,
    /// Rules for downloads on behalf of callers.
    pub fetch: FetchRules,
    /// Free space reserved on the disks of the data folder and of the sessions' files.
    pub reserve: ReserveSize,
}

/// Files that get a download link after a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkedFiles {
    /// All but hidden ones and Python's caches.
    All,
    /// Those with one of these extensions, in lower case and without a dot.
    Extensions(BTreeSet<String>),
}

impl LinkedFiles {
    pub(crate) fn has(&self, path: &str) -> bool {
        match self {
            Self::All => {
                let is_left_out = |part: &str| part.starts_with('.') || part == "__pycache__";
                !path.split('/').any(is_left_out)
            }
            Self::Extensions(extensions) => {
                let extension = path.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
                extension.is_some_and(|extension| extensions.contains(&extension))
            }
        }
    }
}

/// Backend for the contents of files, charts and checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// In the data folder.
    Folder,
    /// In `PostgreSQL`, for servers without a persistent disk.
    Database,
    /// In an S3 bucket, for many or large files.
    S3(S3),
}

impl StorageSettings {
    /// The documented defaults.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            sessions_folder: None,
            database_url: None,
            contents: Contents::Folder,
            file_bytes_max: 50 * 1024 * 1024,
            linked: LinkedFiles::All,
            storage_bytes_max: Some(10 * 1024 * 1024 * 1024),
            file_ttl: Some(Duration::from_hours(72)),
            keeps_code: false,
            session_ttl: Some(Duration::from_hours(30 * 24)),
            audit_retention: Some(Duration::from_hours(90 * 24)),
            audit_day_bytes_max: 64 * 1024 * 1024,
            checkpoint_bytes_max: 256 * 1024 * 1024,
            exports: None,
            fetch: FetchRules::default(),
            reserve: ReserveSize::default(),
        }
    }
}

impl StorageSettings {
    pub(crate) fn store(&self) -> StoreConfig {
        match &self.database_url {
            Some(url) => {
                StoreConfig::Postgres { url: url.clone(), connections_max: CONNECTIONS_MAX }
            }
            None => StoreConfig::Sqlite { file: self.folder.join("woma.db") },
        }
    }
}

/// Record beside a layer of packages.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    /// Disk usage.
    pub(crate) bytes: u64,
}

/// Failure to open the storage.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Shown to the operator only.
    #[error("the data folder {} cannot be used: {reason}", folder.display())]
    DataFolder { folder: PathBuf, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Open handles to everything in the data folder.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) settings: StorageSettings,
    pub(crate) db: Store,
    pub(crate) blobs: Blobs,
    pub(crate) outbox: Arc<Outbox>,
    sessions: PathBuf,
    ephemeral: EphemeralRoot,
    claims: Arc<Claims>,
    /// Identifies this server among those that share a database; survives restarts.
    pub(crate) server: String,
    /// Identifies this process as the holder of session leases.
    pub(crate) process: String,
    /// Reserve of the data folder's disk.
    pub(crate) reserve: Arc<Reserve>,
    /// Reserve of the disk of sessions' files.
    pub(crate) sessions_reserve: Arc<Reserve>,
}

impl Storage {
    /// Opens the data folder, the database and the contents of files.
    pub(crate) async fn open(settings: StorageSettings) -> Result<Self, OpenError> {
        let folder = settings.folder.clone();
        Self::open_in(settings).await.map_err(|error| {
            let reason = match error {
                OpenError::Io(error) => error.to_string(),
                OpenError::Store(error @ (StoreError::ReadOnly | StoreError::NoSpace)) => {
                    error.to_string()
                }
                other => return other,
            };
            OpenError::DataFolder { folder, reason }
        })
    }

    async fn open_in(settings: StorageSettings) -> Result<Self, OpenError> {
        let (folder, own) = (settings.folder.clone(), settings.sessions_folder.clone());
        let prepared = tokio::task::spawn_blocking(move || prepare(&folder, own));
        let (sessions, ephemeral, server) = prepared.await.map_err(io::Error::other)??;
        let process = process_name(&server);
        let claims = Arc::new(Claims::open(&sessions.join(CLAIMS), &process)?);
        let store = Store::open(settings.store()).await?;
        let store = store.with_audit_day_bytes(settings.audit_day_bytes_max);
        let store = store.with_audit_chain(&server);
        let contents = settings.folder.join("blobs");
        let blobs = match &settings.contents {
            Contents::Folder => Blobs::in_folder(&contents).await?,
            Contents::Database => Blobs::in_database(&contents, store.clone()).await?,
            Contents::S3(s3) => Blobs::in_s3(&contents, s3, &store).await?,
        };
        // Spool files of a killed server were never acknowledged.
        match blobs.sweep_leftovers().await {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(count, "Unfinished files of an earlier server were removed");
            }
            Err(error) => {
                tracing::warn!(%error, "Unfinished files of an earlier server could not be removed");
            }
        }
        let outbox = Outbox::open(&settings.folder.join("journal"), store.clone())?;
        let (reserve, sessions_reserve) = reserves(&settings, &sessions);
        blobs.keep_free(Arc::clone(&reserve));
        Ok(Self {
            settings,
            db: store,
            blobs,
            outbox,
            sessions,
            ephemeral,
            claims,
            process,
            server,
            reserve,
            sessions_reserve,
        })
    }

    /// Delivers the outbox, for a server that stops, and releases the lease on its sessions. Both
    /// have a time limit: undelivered records stay in the file, and a lease expires.
    pub(crate) async fn close(&self) {
        self.outbox.settle_in_time().await;
        let released = self.db.release_lease(&self.process);
        tokio::time::timeout(SETTLE_TIME_MAX, released).await.map(drop).unwrap_or_default();
    }

    /// Whether another server with another data folder would find records and contents.
    pub(crate) fn outlives_folder(&self) -> bool {
        self.db.is_shared() && self.settings.contents != Contents::Folder
    }

    /// Folder of a session's files. Callers choose ids, so names on disk are digests of them.
    pub(crate) fn folder(&self, owner: &CallerId, session: &SessionId) -> PathBuf {
        self.folders(owner).join(name_on_disk(session.as_str()))
    }

    /// Folder with the folders of an owner's sessions, which may not exist.
    pub(crate) fn folders(&self, owner: &CallerId) -> PathBuf {
        self.sessions.join(name_on_disk(owner.as_str()))
    }

    /// Folder of an owner's datasets, which may not exist.
    pub(crate) fn datasets_folder(&self, owner: &CallerId) -> PathBuf {
        self.sessions.join(DATASETS).join(name_on_disk(owner.as_str()))
    }

    /// Folder with a folder for each owner, of the layers of its sessions' packages.
    pub(crate) fn packages_root(&self) -> PathBuf {
        self.sessions.join(PACKAGES)
    }

    /// Size of the layers of an owner's packages, in bytes, as their records say.
    pub(crate) fn packages_bytes(&self, owner: &CallerId) -> u64 {
        let folder = self.packages_root().join(name_on_disk(owner.as_str()));
        let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
        let paths = entries.flatten().map(|entry| entry.path()).take(LAYERS_MAX);
        let records = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let read =
            records.filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok());
        read.map(|record: LayerRecord| record.bytes).sum()
    }

    /// Claims a session for this process, among those that share the folder.
    pub(crate) fn claim(&self, owner: &CallerId, session: &SessionId) -> Result<Claim, NotClaimed> {
        let (owner, session) = (name_on_disk(owner.as_str()), name_on_disk(session.as_str()));
        self.claims.take(&format!("{owner}-{session}"))
    }

    /// Root of all session folders: one folder per owner, in it one per session.
    pub(crate) fn sessions_folder(&self) -> &Path {
        &self.sessions
    }

    /// Folder of a session that ends with its run.
    pub(crate) fn ephemeral_folder(&self, id: &ExecutionId) -> PathBuf {
        self.ephemeral.folder.join(id.as_str())
    }

    /// Folder for session folders that are not assigned yet; removed with the ephemeral ones.
    pub(crate) fn spare_folders(&self) -> PathBuf {
        self.ephemeral.folder.clone()
    }

    /// Expiry of the download link of a file that is stored now.
    pub(crate) fn expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let ttl = self.settings.file_ttl?;
        now.checked_add(ttl).ok()
    }
}

pub(crate) fn name_on_disk(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    hex(&digest[..16])
}

/// Reserves of both disks; one shared reserve if they are the same disk.
fn reserves(settings: &StorageSettings, sessions: &Path) -> (Arc<Reserve>, Arc<Reserve>) {
    let of = |folder: &Path| Arc::new(Reserve::new(folder.to_owned(), settings.reserve));
    let reserve = of(&settings.folder);
    match settings.sessions_folder {
        None => (Arc::clone(&reserve), reserve),
        Some(_) => (reserve, of(sessions)),
    }
}

/// Opens the folder of a session or creates it; returns whether it existed.
pub(crate) fn session_folder(path: &Path) -> io::Result<(Folder, bool)> {
    match Folder::at(path) {
        Ok(folder) => return Ok((folder, true)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(owner) = path.parent() {
        closed_folder(owner)?;
    }
    match Folder::make(path) {
        Ok(folder) => Ok((folder, false)),
        // A concurrent call of the same session created it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Folder::at(path).map(|folder| (folder, true))
        }
        Err(error) => Err(error),
    }
}

fn prepare(folder: &Path, own: Option<PathBuf>) -> io::Result<(PathBuf, EphemeralRoot, String)> {
    std::fs::create_dir_all(folder)?;
    let sessions = own.unwrap_or_else(|| folder.join("sessions"));
    closed_folder(&sessions)?;
    let ephemeral = EphemeralRoot::open(&sessions.join(EPHEMERAL))?;
    let path = folder.join("server-id");
    let server = match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => {
            let id = uuid::Uuid::new_v4().to_string();
            durable::replace(&path, id.as_bytes())?;
            id
        }
    };
    Ok((sessions, ephemeral, server))
}

/// Removes the folder of a session that has ended. A missing folder is not an error.
pub(crate) fn remove_folder(path: PathBuf) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || match remove_tree(&path, REMOVED_MAX) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "The folder of an ended session could not be removed");
        }
        _ => {}
    })
}

/// Creates a folder with mode 0700, and its parents; new names are durable when this returns.
pub(crate) fn closed_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if path.is_dir() {
        return Ok(());
    }
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.is_dir()).collect();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.or_else(|error| if path.is_dir() { Ok(()) } else { Err(error) })?;
    missing.into_iter().rev().try_for_each(durable::sync_folder_of)
}

#[cfg(test)]
mod tests {
    use super::LinkedFiles;

    #[test]
    fn every_kind_of_file_is_linked_but_caches_and_hidden_ones() {
        for path in ["a.docx", "out/b.tar.gz", "c", "d.e/f.npz", "Makefile", "a..b"] {
            assert!(LinkedFiles::All.has(path), "{path}");
        }
        for path in [".env", ".cache/x.json", "a/__pycache__/b.pyc", "a/.git/HEAD"] {
            assert!(!LinkedFiles::All.has(path), "{path}");
        }
    }

    #[test]
    fn a_list_of_extensions_links_nothing_else() {
        let some = LinkedFiles::Extensions(["csv".to_owned()].into());
        for path in ["a.csv", "b.CSV", ".csv", "a/b.c.csv"] {
            assert!(some.has(path), "{path}");
        }
        for path in ["csv", "a.csv.gz", "a.tsv", "a.csv/b"] {
            assert!(!some.has(path), "{path}");
        }
    }
}
