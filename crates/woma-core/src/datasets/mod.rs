//! The datasets of callers: rows in the database, contents as blobs, and on this server a folder of
//! Parquet files for each caller, which its sessions see read-only as `/datasets`. Calls
//! `workspace` and `storage`; knows neither sessions nor runs, and never parses a dataset.

mod register;
pub(crate) mod reply;
mod shelf;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;
use woma_sandbox::sync::lock;

use self::shelf::Shelf;
use crate::error::Error;
use crate::model::caller::{Caller, CallerId};
use crate::model::{DatasetColumn, DatasetError, DatasetInfo, DatasetName, DatasetProblem};
use crate::storage::db::{DatasetRow, DatasetsMark, StoreError};
use crate::workspace::Workspaces;

/// Datasets that one caller may have.
pub(crate) const DATASETS_MAX: u32 = 1_000;
/// How often it is looked whether other servers have changed datasets.
const REFRESH_TICK: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Datasets {
    workspaces: Arc<Workspaces>,
    /// Owners that have a dataset, as far as this server knows.
    owners: Mutex<HashSet<String>>,
    mark: Mutex<Option<DatasetsMark>>,
    /// Counts the changes by others; a shelf of an earlier generation is compared with the database.
    generation: AtomicU64,
    shelves: Mutex<HashMap<CallerId, Arc<Shelf>>>,
}

/// A dataset to be stored, as its cell has described it.
#[derive(Debug)]
pub(crate) struct NewDataset {
    pub(crate) name: DatasetName,
    pub(crate) format: String,
    pub(crate) row_count: u64,
    pub(crate) column_count: u64,
    pub(crate) columns: Vec<DatasetColumn>,
    pub(crate) session: Option<String>,
    pub(crate) source: Option<String>,
}

/// The Parquet file of a new dataset.
#[derive(Debug)]
pub(crate) struct NewContent {
    pub(crate) file: File,
    pub(crate) size_bytes: u64,
    /// Path of the file, if it can be moved: no process has it open.
    pub(crate) movable: Option<PathBuf>,
}

impl Datasets {
    pub(crate) async fn open(workspaces: Arc<Workspaces>) -> Self {
        let datasets = Self {
            workspaces,
            owners: Mutex::default(),
            mark: Mutex::default(),
            generation: AtomicU64::new(1),
            shelves: Mutex::default(),
        };
        if let Err(error) = datasets.refresh().await {
            tracing::warn!(%error, "The datasets of callers are not known yet");
        }
        datasets
    }

    /// Learns which callers have datasets, if that has changed.
    async fn refresh(&self) -> Result<(), StoreError> {
        let db = &self.workspaces.storage.db;
        let mark = db.in_time_unless_away(db.datasets_mark()).await?;
        if *lock(&self.mark) == mark {
            return Ok(());
        }
        let found = db.in_time(db.dataset_owners()).await?;
        lock(&self.owners).extend(found);
        *lock(&self.mark) = mark;
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the caller has datasets, or had some: without, nothing is to be shown.
    pub(crate) fn has_any(&self, owner: &CallerId) -> bool {
        lock(&self.owners).contains(owner.as_str())
    }

    /// The folder that the caller's sessions see as `/datasets`, with everything that is stored;
    /// `None` for a caller without datasets.
    pub(crate) async fn folder(&self, owner: &CallerId) -> Option<PathBuf> {
        if !self.has_any(owner) {
            return None;
        }
        let (shelf, generation) = (self.shelf(owner), self.generation.load(Ordering::Relaxed));
        if shelf.generation() != generation
            && let Err(error) = shelf.compare(&self.workspaces, generation).await
        {
            tracing::warn!(%error, "The folder of a caller's datasets may be out of date");
        }
        shelf.exists().then(|| shelf.path().to_owned())
    }

    /// Names and ids of all datasets of a caller, and the folder with a file for each of them.
    pub(crate) async fn current(
        &self,
        owner: &CallerId,
    ) -> Result<(Vec<(String, Uuid)>, PathBuf), Error> {
        let names = self.workspaces.storage.db.dataset_names(owner.as_str(), DATASETS_MAX).await?;
        let (shelf, generation) = (self.shelf(owner), self.generation.load(Ordering::Relaxed));
        if !shelf.has_all(&names) {
            shelf.compare(&self.workspaces, generation).await?;
        }
        shelf.make().await?;
        Ok((names, shelf.path().to_owned()))
    }

    fn shelf(&self, owner: &CallerId) -> Arc<Shelf> {
        let mut shelves = lock(&self.shelves);
        let made = || Arc::new(Shelf::new(owner, self.workspaces.storage.datasets_folder(owner)));
        Arc::clone(shelves.entry(owner.clone()).or_insert_with(made))
    }

    /// Stores a dataset; one of the same name is replaced. Returns whether there was one. The
    /// dataset is there when its row is: a killed server leaves it whole, or absent.
    pub(crate) async fn publish(
        &self,
        caller: &Caller,
        new: NewDataset,
        content: NewContent,
    ) -> Result<(DatasetInfo, bool), Error> {
        let storage = &self.workspaces.storage;
        let owner = caller.id.as_str();
        self.replaced_by(owner, &new.name).await?;
        let limit = self.workspaces.storage_of(caller);
        let grant = self.workspaces.grant(&caller.id, limit, content.size_bytes).await?;
        let source = content.file.try_clone()?;
        let (digest, size_bytes) = storage.blobs.put_reader(source, content.size_bytes).await?;
        let row = DatasetRow {
            id: Uuid::new_v4(),
            owner: owner.to_owned(),
            name: new.name.as_str().to_owned(),
            digest,
            size_bytes,
            row_count: new.row_count,
            column_count: new.column_count,
            columns: serde_json::to_string(&new.columns).map_err(|_| Error::Lost)?,
            format: new.format,
            session_id: new.session,
            source: new.source,
            created_at: Timestamp::now(),
        };
        let shelf = self.shelf(&caller.id);
        let turn = shelf.turn().await;
        // Others may have come while the content was stored.
        let earlier = self.replaced_by(owner, &new.name).await?;
        storage.db.put_dataset(&row).await?;
        if let Some(grant) = grant {
            grant.stored();
        }
        shelf.place(&self.workspaces, &row, content.movable, earlier.as_ref()).await?;
        drop(turn);
        lock(&self.owners).insert(owner.to_owned());
        if let Some(earlier) = &earlier {
            self.discard(earlier).await;
        }
        Ok((info_of(row), earlier.is_some()))
    }

    /// The dataset that one of this name replaces; an error if it would be one too many.
    async fn replaced_by(
        &self,
        owner: &str,
        name: &DatasetName,
    ) -> Result<Option<DatasetRow>, Error> {
        let db = &self.workspaces.storage.db;
        let earlier = db.dataset(owner, name.as_str()).await?;
        if earlier.is_none() && db.count_datasets(owner).await? >= u64::from(DATASETS_MAX) {
            let message = format!("a caller may have {DATASETS_MAX} datasets");
            let error = DatasetError::new(DatasetProblem::TooMany, message);
            return Err(error.with_hint("drop a dataset that is not needed").into());
        }
        Ok(earlier)
    }

    pub(crate) async fn find(&self, owner: &CallerId, name: &str) -> Result<DatasetInfo, Error> {
        let name = DatasetName::parse(name).map_err(|_| DatasetError::unknown(name))?;
        let found = self.workspaces.storage.db.dataset(owner.as_str(), name.as_str()).await?;
        Ok(found.map(info_of).ok_or_else(|| DatasetError::unknown(name.as_str()))?)
    }

    /// Datasets by name, the first `limit` after the name `after`.
    pub(crate) async fn list(
        &self,
        owner: &CallerId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<DatasetInfo>, Error> {
        let found = self.workspaces.storage.db.datasets(owner.as_str(), after, limit).await?;
        Ok(found.into_iter().map(info_of).collect())
    }

    pub(crate) async fn count(&self, owner: &CallerId) -> Result<u64, Error> {
        Ok(self.workspaces.storage.db.count_datasets(owner.as_str()).await?)
    }

    /// Deletes a dataset. Programs that have its file open can read on.
    pub(crate) async fn delete(&self, owner: &CallerId, name: &str) -> Result<DatasetInfo, Error> {
        let unknown = || Error::from(DatasetError::unknown(name));
        let name = DatasetName::parse(name).map_err(|_| unknown())?;
        let storage = &self.workspaces.storage;
        let shelf = self.shelf(owner);
        let turn = shelf.turn().await;
        let row = storage.db.dataset(owner.as_str(), name.as_str()).await?.ok_or_else(unknown)?;
        if !storage.db.drop_dataset(owner.as_str(), name.as_str()).await? {
            return Err(unknown());
        }
        shelf.remove(&row.name).await?;
        drop(turn);
        self.discard(&row).await;
        Ok(info_of(row))
    }

    /// Deletes the content of a row that is gone, unless another one has the same.
    async fn discard(&self, row: &DatasetRow) {
        let storage = &self.workspaces.storage;
        let discarded = storage.blobs.discard(&storage.db, row.digest, row.created_at).await;
        if let Err(error) = discarded {
            tracing::debug!(%error, "The content of a dropped dataset is collected later");
        }
    }
}

fn info_of(row: DatasetRow) -> DatasetInfo {
    let columns = serde_json::from_str(&row.columns).unwrap_or_else(|error| {
        tracing::error!(%error, dataset = %row.id, "The columns of a dataset cannot be read");
        Vec::new()
    });
    DatasetInfo {
        id: row.id,
        name: row.name,
        format: row.format,
        row_count: row.row_count,
        column_count: row.column_count,
        size_bytes: row.size_bytes,
        columns,
        session: row.session_id,
        source: row.source,
        created_at: row.created_at,
    }
}

/// Learns of datasets that other servers and processes have stored or dropped. Ends with the
/// service; `is_idle` says whether no session could see them.
pub(crate) async fn keep_current(datasets: Weak<Datasets>, is_idle: impl Fn() -> bool) {
    loop {
        tokio::time::sleep(REFRESH_TICK).await;
        let Some(datasets) = datasets.upgrade() else { return };
        if is_idle() {
            continue;
        }
        if let Err(error) = datasets.refresh().await {
            tracing::debug!(%error, "Changes of datasets by other servers are not known");
        }
    }
}
