//! A session's files: changes after a run, reading, writing, uploads, archives, links, quotas.
//! Calls `storage` and `net`; knows neither sessions nor runs.

pub(crate) mod allowance;
pub(crate) mod archive;
pub(crate) mod bring_back;
pub(crate) mod changes;
pub(crate) mod exports;
pub(crate) mod files;
pub(crate) mod links;
pub mod media;
pub(crate) mod quota;
pub(crate) mod uploads;
pub(crate) mod writes;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use woma_sandbox::workspace::Reserve;

use self::exports::Exports;
use self::quota::Meters;
use crate::error::Error;
use crate::model::caller::CallerId;
use crate::net::fetch::Fetcher;
use crate::shares::{Permit, PoolUse, Shares};
use crate::storage::layout::{OpenError, Storage, StorageSettings};

/// Files that are written or packed at once, shared among callers; each takes a thread.
const WRITERS_MAX: usize = 32;
/// How long a file waits to be written or packed.
const WRITER_WAIT_MAX: Duration = Duration::from_secs(30);

/// The files of all sessions, over the storage that keeps them.
#[derive(Debug)]
pub(crate) struct Workspaces {
    pub(crate) storage: Storage,
    pub(crate) fetcher: Fetcher,
    writers: Writers,
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
        let writers = Writers::default();
        let (uploading, meters) = (Arc::default(), Meters::default());
        let exports = storage.settings.exports.as_ref().map(|root| {
            // Of the disk on which it will be, which its folder need not be made for.
            let existing = root.ancestors().find(|folder| folder.is_dir()).unwrap_or(root);
            let reserve = Reserve::new(existing.to_owned(), storage.settings.reserve);
            Arc::new(Exports::new(root, Arc::new(reserve), storage.settings.file_bytes_max))
        });
        Ok(Self { storage, fetcher, writers, uploading, meters, exports })
    }

    /// A place among the files that are written or packed, when it is this caller's turn.
    pub(crate) async fn writer(&self, owner: &CallerId) -> Result<Permit, Error> {
        self.writers.place(owner).await
    }

    /// How full the pools are.
    pub(crate) fn pools(&self) -> [(&'static str, PoolUse); 2] {
        [("file_writers", self.writers.places.usage()), ("fetches", self.fetcher.usage())]
    }
}

/// Places of files that are written or packed, and how long one waits for a place.
#[derive(Debug)]
struct Writers {
    places: Arc<Shares>,
    wait_max: Duration,
}

impl Default for Writers {
    fn default() -> Self {
        Self { places: Arc::new(Shares::new(WRITERS_MAX)), wait_max: WRITER_WAIT_MAX }
    }
}

impl Writers {
    async fn place(&self, owner: &CallerId) -> Result<Permit, Error> {
        match timeout(self.wait_max, self.places.acquire(owner)).await {
            Ok(place) => Ok(place?),
            Err(_) => {
                let limit = self.places.most(owner);
                Err(Error::PoolBusy { what: "files that are written or packed", limit })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Writers;
    use crate::error::Code;
    use crate::model::caller::CallerId;

    #[tokio::test]
    async fn a_file_that_waits_too_long_for_a_writer_is_refused() {
        let writers = Writers { wait_max: Duration::from_millis(20), ..Writers::default() };
        let (alice, bob) = (CallerId::new("alice"), CallerId::new("bob"));
        let mut hers = Vec::new();
        for _ in 0..28 {
            hers.push(writers.place(&alice).await.unwrap());
        }
        let refused = writers.place(&alice).await.unwrap_err();
        assert_eq!(refused.code(), Code::Busy);
        assert!(refused.to_string().contains("28"), "{refused}");
        // Another caller has a place, and she has one when one of hers is done.
        drop(writers.place(&bob).await.unwrap());
        hers.pop();
        writers.place(&alice).await.unwrap();
    }
}
