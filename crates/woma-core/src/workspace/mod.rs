//! A session's files: changes after a run, reading, writing, uploads, archives, links, quotas.
//! Calls `storage` and `net`; knows neither sessions nor runs.

pub(crate) mod allowance;
pub(crate) mod archive;
pub(crate) mod changes;
pub(crate) mod exports;
pub(crate) mod files;
pub(crate) mod links;
pub mod media;
pub(crate) mod quota;
pub(crate) mod uploads;
pub(crate) mod writes;

use std::sync::Arc;

use tokio::sync::Semaphore;
use woma_sandbox::workspace::Reserve;

use self::exports::Exports;
use self::quota::Meters;
use crate::net::fetch::Fetcher;
use crate::storage::layout::{OpenError, Storage, StorageSettings};

/// Files that are written or packed at once; each takes a thread.
const WRITERS_MAX: usize = 32;

/// The files of all sessions, over the storage that keeps them.
#[derive(Debug)]
pub(crate) struct Workspaces {
    pub(crate) storage: Storage,
    pub(crate) fetcher: Fetcher,
    pub(crate) writers: Arc<Semaphore>,
    /// Uploads to which a part is being added.
    pub(crate) uploading: Arc<uploads::Busy>,
    pub(crate) meters: Meters,
    /// Copies for clients that cannot download.
    pub(crate) exports: Option<Arc<Exports>>,
}

impl Workspaces {
    pub(crate) async fn open(settings: StorageSettings) -> Result<Self, OpenError> {
        let storage = Storage::open(settings).await?;
        let fetcher = Fetcher::new(storage.settings.fetch.clone());
        let writers = Arc::new(Semaphore::new(WRITERS_MAX));
        let (uploading, meters) = (Arc::default(), Meters::default());
        let exports = storage.settings.exports.as_ref().map(|root| {
            // Of the disk on which it will be, which its folder need not be made for.
            let existing = root.ancestors().find(|folder| folder.is_dir()).unwrap_or(root);
            let reserve = Reserve::new(existing.to_owned(), storage.settings.reserve);
            Arc::new(Exports::new(root, Arc::new(reserve), storage.settings.file_bytes_max))
        });
        Ok(Self { storage, fetcher, writers, uploading, meters, exports })
    }
}
