//! What outlives a kernel and a server: the store, the blobs, and the folder of each session.

mod passing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use woma_sandbox::workspace::{Folder, remove_tree};

use self::passing::PassingRoot;
use crate::Error;
use crate::blobs::{Blobs, S3};
use crate::caller::CallerId;
use crate::fetch::{FetchRules, Fetcher};
use crate::journal::Journal;
use crate::model::{ExecutionId, SessionId};
use crate::quota::Meters;
use crate::store::{Store, StoreConfig, StoreError};

/// Extensions of files that get an address of their own after a run.
pub const STORED_EXTENSIONS: [&str; 15] = [
    "xlsx", "xls", "csv", "tsv", "json", "pdf", "png", "jpg", "jpeg", "svg", "html", "txt", "md",
    "zip", "parquet",
];

/// What a server that stops gives the store to catch up.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// How long a reader of records waits for those of executions that have just ended.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// The folder of sessions that end with their run; no digest is called so.
const PASSING: &str = "passing";
/// Files and folders that are removed with a session.
const REMOVED_MAX: u64 = 10_000_000;
/// Connections to a database.
const CONNECTIONS_MAX: u32 = 10;
const WRITERS_MAX: usize = 32;

/// Where things are kept, and which of them for how long.
#[derive(Debug, Clone)]
pub struct VaultSettings {
    /// The data folder.
    pub folder: PathBuf,
    /// The folder of sessions' files, if it is not below the data folder.
    pub sessions_folder: Option<PathBuf>,
    /// The address of a `PostgreSQL`; without it, a file in the data folder.
    pub database_url: Option<String>,
    /// Where contents are kept.
    pub contents: Contents,
    /// The largest file that gets an address, and the largest upload.
    pub file_bytes_max: u64,
    /// What a caller may keep whose key does not say how much; `None` without a limit.
    pub storage_bytes_max: Option<u64>,
    /// How long an address works; `None` for ever.
    pub file_ttl: Option<Duration>,
    /// Whether the code itself is kept with the record of its execution, and not only its digest.
    pub keeps_code: bool,
    /// How long a session is kept that nobody uses; `None` for ever.
    pub session_ttl: Option<Duration>,
    /// How long records of executions and the audit trail are kept; `None` for ever.
    pub audit_retention: Option<Duration>,
    /// Variables of one session that are saved, in bytes; 0 saves none.
    pub checkpoint_bytes_max: u64,
    /// What may be fetched from elsewhere.
    pub fetch: FetchRules,
}

/// Where the contents of files, charts and checkpoints are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// In the data folder.
    Folder,
    /// In the database too, for servers without a disk that lasts.
    Database,
    /// The same with many or large files.
    S3(S3),
}

impl VaultSettings {
    /// As the documentation has them.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            sessions_folder: None,
            database_url: None,
            contents: Contents::Folder,
            file_bytes_max: 50 * 1024 * 1024,
            storage_bytes_max: Some(10 * 1024 * 1024 * 1024),
            file_ttl: Some(Duration::from_hours(72)),
            keeps_code: false,
            session_ttl: Some(Duration::from_hours(30 * 24)),
            audit_retention: Some(Duration::from_hours(90 * 24)),
            checkpoint_bytes_max: 256 * 1024 * 1024,
            fetch: FetchRules::default(),
        }
    }
}

impl VaultSettings {
    pub(crate) fn store(&self) -> StoreConfig {
        match &self.database_url {
            Some(url) => {
                StoreConfig::Postgres { url: url.clone(), connections_max: CONNECTIONS_MAX }
            }
            None => StoreConfig::Sqlite { file: self.folder.join("woma.db") },
        }
    }
}

/// The handles, opened.
#[derive(Debug)]
pub(crate) struct Vault {
    pub(crate) settings: VaultSettings,
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) journal: Arc<Journal>,
    sessions: PathBuf,
    passing: PassingRoot,
    /// Names this server among those that share a database; it stays over restarts.
    pub(crate) server: String,
    pub(crate) fetcher: Fetcher,
    /// Files that are written or packed at once; each takes a thread.
    pub(crate) writers: Arc<Semaphore>,
    pub(crate) uploading: Arc<crate::shelf::Busy>,
    pub(crate) meters: Meters,
}

impl Vault {
    /// A folder that cannot be used is named.
    pub(crate) async fn open(settings: VaultSettings) -> Result<Self, Error> {
        let folder = settings.folder.clone();
        Self::open_in(settings).await.map_err(|error| {
            let reason = match error {
                Error::Folder(error) => error.to_string(),
                Error::Store(error @ (StoreError::ReadOnly | StoreError::NoSpace)) => {
                    error.to_string()
                }
                other => return other,
            };
            Error::DataFolder { folder, reason }
        })
    }

    async fn open_in(settings: VaultSettings) -> Result<Self, Error> {
        let (folder, own) = (settings.folder.clone(), settings.sessions_folder.clone());
        let prepared = tokio::task::spawn_blocking(move || prepare(&folder, own));
        let (sessions, passing, server) = prepared.await.map_err(|_| Error::Lost)??;
        let store = Store::open(settings.store()).await?;
        store.keep_marks_in(settings.folder.join("forgotten"))?;
        let contents = settings.folder.join("blobs");
        let blobs = match &settings.contents {
            Contents::Folder => Blobs::in_folder(&contents).await?,
            Contents::Database => Blobs::in_database(&contents, store.clone()).await?,
            Contents::S3(s3) => Blobs::in_s3(&contents, s3, &store).await?,
        };
        // What a killed server was about to keep was promised to nobody.
        match blobs.sweep_leftovers().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "Half files of an earlier server were removed"),
            Err(error) => tracing::warn!(%error, "Half files of an earlier server stay"),
        }
        let journal = Journal::open(&settings.folder.join("journal"), store.clone())?;
        let fetcher = Fetcher::new(settings.fetch.clone());
        let writers = Arc::new(Semaphore::new(WRITERS_MAX));
        Ok(Self {
            settings,
            store,
            blobs,
            journal,
            sessions,
            passing,
            server,
            fetcher,
            writers,
            uploading: Arc::default(),
            meters: Meters::default(),
        })
    }

    /// Waits, bounded, until everything that was written down is in the store.
    pub(crate) async fn settle(&self) -> Result<(), StoreError> {
        // What is not carried in time is in the journal.
        tokio::time::timeout(SETTLE_MAX, self.journal.settle()).await.unwrap_or_default();
        self.store.flush().await
    }

    /// Before records are read: who has a reply finds its record. A store that is in trouble has
    /// other answers for the reader, and at once.
    pub(crate) async fn catch_up(&self) {
        if !self.store.is_in_trouble() {
            tokio::time::timeout(CATCH_UP_MAX, self.journal.settle()).await.unwrap_or_default();
        }
    }

    /// Where a session's files are on the host. Ids are chosen by callers, so they are no names here.
    pub(crate) fn folder(&self, owner: &CallerId, session: &SessionId) -> PathBuf {
        let name = |text: &str| {
            let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
            crate::keys::hex(&digest[..16])
        };
        self.sessions.join(name(owner.as_str())).join(name(session.as_str()))
    }

    /// Where the folders of owners are, and in them those of their sessions.
    pub(crate) fn sessions_folder(&self) -> &Path {
        &self.sessions
    }

    /// Where the files of a session are that ends with its run.
    pub(crate) fn passing_folder(&self, id: &ExecutionId) -> PathBuf {
        self.passing.folder.join(id.as_str())
    }

    /// Where folders lie that are no session's yet: what a server leaves there goes as the rest does.
    pub(crate) fn spare_folders(&self) -> PathBuf {
        self.passing.folder.clone()
    }

    /// When the address of a file that is stored now ends.
    pub(crate) fn expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let ttl = self.settings.file_ttl?;
        now.checked_add(ttl).ok()
    }
}

/// The folder of a session, made if it is not there; says whether it was.
pub(crate) fn session_folder(path: &Path) -> std::io::Result<(Folder, bool)> {
    match Folder::at(path) {
        Ok(folder) => return Ok((folder, true)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(owner) = path.parent() {
        closed_folder(owner)?;
    }
    match Folder::make(path) {
        Ok(folder) => Ok((folder, false)),
        // Another call of the same session was quicker.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Folder::at(path).map(|folder| (folder, true))
        }
        Err(error) => Err(error),
    }
}

fn prepare(folder: &Path, own: Option<PathBuf>) -> std::io::Result<(PathBuf, PassingRoot, String)> {
    use std::io::Write as _;
    std::fs::create_dir_all(folder)?;
    let sessions = own.unwrap_or_else(|| folder.join("sessions"));
    closed_folder(&sessions)?;
    let passing = PassingRoot::open(&sessions.join(PASSING))?;
    let path = folder.join("server-id");
    let server = match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => {
            let id = uuid::Uuid::new_v4().to_string();
            let mut file = std::fs::File::create(&path)?;
            file.write_all(id.as_bytes())?;
            file.sync_all()?;
            id
        }
    };
    Ok((sessions, passing, server))
}

/// Removes the folder of a session that has ended. One that is gone already is no failure.
pub(crate) fn remove_folder(path: PathBuf) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || match remove_tree(&path, REMOVED_MAX) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(%error, "The folder of an ended session could not be removed");
        }
        _ => {}
    })
}

/// Makes a folder that only its owner may look into.
pub(crate) fn closed_folder(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.or_else(|error| if path.is_dir() { Ok(()) } else { Err(error) })
}
