//! The folder of one caller's datasets: `<name>.parquet` for each, made from the stored contents.
//! Sessions see it read-only. The database decides: a file that differs from its row is written
//! again, one without a row is removed. A file is its row's if size and modification time are.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::mpsc;
use uuid::Uuid;
use woma_sandbox::sync::lock;
use woma_sandbox::workspace::{Bounds, Entry, Folder, WorkspacePath};

use super::DATASETS_MAX;
use crate::error::Error;
use crate::model::caller::CallerId;
use crate::storage::blobs::Blob;
use crate::storage::db::{DatasetRow, name_key};
use crate::storage::layout::{closed_folder, session_folder};
use crate::workspace::Workspaces;
use crate::workspace::files::blocking;

const EXTENSION: &str = ".parquet";
/// Files of a shelf that are looked at.
const LISTED_MAX: u64 = 4 * DATASETS_MAX as u64;
/// Pieces of a content that wait for the disk.
const PIECES_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Shelf {
    owner: CallerId,
    path: PathBuf,
    /// Held while rows and files are compared or changed.
    turn: tokio::sync::Mutex<()>,
    /// Generation in which it was compared with the database.
    generation: AtomicU64,
    /// Versions whose files are in place.
    placed: Mutex<BTreeSet<Uuid>>,
}

impl Shelf {
    pub(super) fn new(owner: &CallerId, path: PathBuf) -> Self {
        let (owner, turn, placed) =
            (owner.clone(), tokio::sync::Mutex::default(), Mutex::default());
        Self { owner, path, turn, generation: AtomicU64::new(0), placed }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    pub(super) fn has_all(&self, names: &[(String, Uuid)]) -> bool {
        let placed = lock(&self.placed);
        names.iter().all(|(_, id)| placed.contains(id))
    }

    /// Makes the folder, for a caller that has none yet.
    pub(super) async fn make(&self) -> Result<(), Error> {
        if !self.exists() {
            self.folder().await?;
        }
        Ok(())
    }

    async fn folder(&self) -> Result<Arc<Folder>, Error> {
        let path = self.path.clone();
        blocking(move || {
            path.parent().map_or(Ok(()), closed_folder)?;
            Ok(Arc::new(session_folder(&path)?.0))
        })
        .await
    }

    /// Brings the folder to the state of the database.
    pub(super) async fn compare(
        &self,
        workspaces: &Workspaces,
        generation: u64,
    ) -> Result<(), Error> {
        let _turn = self.turn().await;
        if self.generation() == generation && generation > 0 {
            // Another call has done it meanwhile.
            let db = &workspaces.storage.db;
            let names = db.dataset_names(self.owner.as_str(), DATASETS_MAX).await?;
            if self.has_all(&names) {
                return Ok(());
            }
        }
        let folder = self.folder().await?;
        // Files first: a file that is there has its row already, unless that is gone.
        let bounds = Bounds { entries: LISTED_MAX, hidden: true, ..Bounds::default() };
        let looked = Arc::clone(&folder);
        let files = blocking(move || Ok(looked.list(bounds)?.entries)).await?;
        let owner = self.owner.as_str();
        let rows = workspaces.storage.db.datasets(owner, None, DATASETS_MAX).await?;
        let expected: BTreeSet<String> = rows.iter().map(|row| file_name(&row.name)).collect();
        for stray in files.iter().filter(|file| file.addressable && !expected.contains(&file.path))
        {
            remove(&folder, &stray.path).await?;
        }
        let mut placed = BTreeSet::new();
        for row in &rows {
            let name = file_name(&row.name);
            let is_there = files.iter().any(|file| file.path == name && is_of(file, row));
            if is_there || write(workspaces, &folder, row).await {
                placed.insert(row.id);
            }
        }
        *lock(&self.placed) = placed;
        self.generation.store(generation, Ordering::Relaxed);
        Ok(())
    }

    /// Puts the file of a new row into its place; to be called with the turn.
    pub(super) async fn place(
        &self,
        workspaces: &Workspaces,
        row: &DatasetRow,
        movable: Option<PathBuf>,
        earlier: Option<&DatasetRow>,
    ) -> Result<(), Error> {
        let folder = self.folder().await?;
        if let Some(earlier) = earlier {
            lock(&self.placed).remove(&earlier.id);
            // With another spelling it is another file.
            if earlier.name != row.name {
                remove(&folder, &file_name(&earlier.name)).await?;
            }
        }
        let to = self.path.join(file_name(&row.name));
        let time = SystemTime::from(row.created_at);
        let moved = match movable {
            Some(from) => blocking(move || {
                std::fs::File::open(&from)?.set_modified(time)?;
                Ok(std::fs::rename(&from, &to)?)
            })
            .await
            .inspect_err(|error| tracing::debug!(%error, "A dataset is copied, not moved"))
            .is_ok(),
            None => false,
        };
        if moved || write(workspaces, &folder, row).await {
            lock(&self.placed).insert(row.id);
        }
        Ok(())
    }

    /// Removes the file of a dataset that was dropped; to be called with the turn.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        if !self.exists() {
            return Ok(());
        }
        let folder = self.folder().await?;
        remove(&folder, &file_name(name)).await
    }
}

fn file_name(name: &str) -> String {
    format!("{name}{EXTENSION}")
}

/// Whether a file is the version that a row tells of.
fn is_of(file: &Entry, row: &DatasetRow) -> bool {
    let modified = Timestamp::try_from(file.modified);
    file.size_bytes == row.size_bytes
        && modified
            .is_ok_and(|modified| modified.as_microsecond() == row.created_at.as_microsecond())
}

async fn remove(folder: &Arc<Folder>, name: &str) -> Result<(), Error> {
    let (folder, name) = (Arc::clone(folder), name.to_owned());
    blocking(move || {
        let path = path_of(&name)?;
        match folder.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    })
    .await
}

fn path_of(name: &str) -> Result<WorkspacePath, Error> {
    WorkspacePath::parse(&format!("./{name}"))
        .map_err(|why| Error::BadPath { path: name.to_owned(), why })
}

/// Writes a stored content; one that cannot be had is missing, and the others are there.
async fn write(workspaces: &Workspaces, folder: &Arc<Folder>, row: &DatasetRow) -> bool {
    let written = async {
        if workspaces.storage.sessions_reserve.refuses(row.size_bytes) {
            return Err(Error::DiskReserve);
        }
        let blob = workspaces.storage.blobs.get(row.digest).await?;
        write_blob(Arc::clone(folder), row, blob).await
    };
    match written.await {
        Ok(()) => true,
        Err(error) => {
            let (owner, name) = (&row.owner, name_key(&row.name));
            tracing::warn!(%error, owner, name, "A dataset cannot be shown to sessions");
            false
        }
    }
}

async fn write_blob(folder: Arc<Folder>, row: &DatasetRow, blob: Blob) -> Result<(), Error> {
    let (path, time) = (path_of(&file_name(&row.name))?, SystemTime::from(row.created_at));
    let (size_bytes, mut stream) = (row.size_bytes, blob.stream);
    let (pieces, mut written) = mpsc::channel::<bytes::Bytes>(PIECES_MAX);
    let writing = blocking(move || {
        let mut draft = folder.create(&path)?;
        let mut bytes = 0;
        while let Some(piece) = written.blocking_recv() {
            bytes += piece.len() as u64;
            draft.write_all(&piece)?;
        }
        if bytes != size_bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        draft.set_modified(time)?;
        draft.commit()?;
        Ok(())
    });
    let sending = async move {
        while let Some(piece) = stream.next().await {
            if pieces.send(piece?).await.is_err() {
                break;
            }
        }
        Ok::<(), Error>(())
    };
    let (written, sent) = tokio::join!(writing, sending);
    sent.and(written)
}
