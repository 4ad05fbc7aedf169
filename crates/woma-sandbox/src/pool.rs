//! Cells that wait for their session, and what is prepared for it: a folder that is mounted already,
//! and the place of its name. Giving one out wakes nobody: it is a rename and a link.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with, unlinkat};

use crate::Error;
use crate::cell::{Cell, Lodging};
use crate::open::{folder_tree, gone, is_name, show_name};
use crate::sandbox::{STEWARD_DELAY_MIN, Sandbox, Shared, lock};
use crate::spec::{Spec, Workspace};
use crate::steward::control::Tier;
use crate::workspace::{Allowance, Contents, Folder};

/// How long the pool waits before it replaces a cell that was taken.
const REFILL_PAUSE: Duration = Duration::from_millis(5);

pub(crate) type Pool = Mutex<VecDeque<Pooled>>;

/// A cell that is nobody's yet. No code of a user has run in it.
#[derive(Debug)]
pub(crate) struct Pooled {
    cell: Cell,
    /// Where the session's name goes; `None` where a room shows no names.
    names: Option<OwnedFd>,
    spare: Option<SpareFolder>,
}

/// An empty folder that is some pooled cell's workspace already. A mount stays with its folder,
/// whatever that is called: it becomes a session's by getting its name.
#[derive(Debug)]
struct SpareFolder {
    path: PathBuf,
    folder: Arc<Folder>,
    is_given: bool,
}

impl SpareFolder {
    fn make(path: PathBuf) -> io::Result<Self> {
        let folder = Arc::new(Folder::make(&path)?);
        Ok(Self { path, folder, is_given: false })
    }

    /// Becomes the folder at that path, if nothing is there, not even a link.
    fn become_that(&mut self, path: &Path) -> io::Result<()> {
        renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE)?;
        self.is_given = true;
        Ok(())
    }
}

impl Drop for SpareFolder {
    fn drop(&mut self) {
        // Nothing was ever put into it.
        if !self.is_given
            && let Err(error) = unlinkat(CWD, &self.path, AtFlags::REMOVEDIR)
        {
            tracing::debug!(%error, "a folder that nobody needs stays");
        }
    }
}

impl Sandbox {
    /// Cells that wait in the pool.
    pub fn pooled_cells(&self) -> usize {
        lock(&self.shared.pool).len()
    }

    /// A session in a folder that is not there yet, from the pool and at once: one of the folders
    /// below [`Config::spare_folders`](crate::Config) gets that name, and is handed over with the
    /// cell that has it. `None` if there is no such cell, or anything at that path: then the folder
    /// is the caller's to make, and [`Self::open`] opens it.
    pub fn open_at_once(&self, spec: &Spec) -> Option<(Cell, Arc<Folder>)> {
        let Workspace::Folder(path) = &spec.workspace else { return None };
        let name = spec.name.as_deref().unwrap_or_default();
        if !self.fits_pool(spec) || !is_name(name) {
            return None;
        }
        let (pooled, mut spare) = self.pop_with_spare()?;
        if let Err(error) = spare.become_that(path) {
            tracing::debug!(%error, "a session's folder is not made of a spare one");
            // As good for the next one as it was for this.
            lock(&self.shared.pool).push_front(Pooled { spare: Some(spare), ..pooled });
            return None;
        }
        self.shared.pool_wanted.notify_one();
        let Pooled { mut cell, names, .. } = pooled;
        if let Some(names) = &names
            && let Err(error) = show_name(names, name, &cell)
        {
            tracing::warn!(%error, "a session's name cannot be shown; it gets another cell");
            return None;
        }
        let allowance = Allowance::new(spec.limits.workspace(), Contents::default());
        cell.folder = Some(Lodging { path: path.to_owned(), allowance, is_stale: false });
        Some((cell, Arc::clone(&spare.folder)))
    }

    /// A cell from the pool, for a session in memory or in a folder that is there.
    pub(crate) async fn take_pooled(&self, spec: &Spec) -> Result<Option<Cell>, Error> {
        let shared = &self.shared;
        // Where folders are spare, the memory of pooled cells is out of sight.
        let in_memory = spec.workspace == Workspace::Memory;
        if !self.fits_pool(spec) || in_memory && shared.config.spare_folders.is_some() {
            return Ok(None);
        }
        let pooled = self.living().pop_front();
        let Some(Pooled { mut cell, names, .. }) = pooled else { return Ok(None) };
        shared.pool_wanted.notify_one();
        shared.move_in(&mut cell, spec, names.as_ref()).await?;
        Ok(Some(cell))
    }

    fn fits_pool(&self, spec: &Spec) -> bool {
        spec.limits == self.shared.config.limits && spec.tier != Some(Tier::Base)
    }

    /// The pool, without cells that have died: they would keep their places for ever.
    fn living(&self) -> MutexGuard<'_, VecDeque<Pooled>> {
        let mut pool = lock(&self.shared.pool);
        let before = pool.len();
        pool.retain(|it| it.cell.is_alive());
        if pool.len() < before {
            self.shared.pool_wanted.notify_one();
        }
        pool
    }

    fn pop_with_spare(&self) -> Option<(Pooled, SpareFolder)> {
        let mut pool = self.living();
        let at = pool.iter().position(|it| it.spare.is_some())?;
        let mut pooled = pool.remove(at)?;
        let spare = pooled.spare.take()?;
        Some((pooled, spare))
    }
}

/// Opens cells until the pool is full, and again whenever one has been taken.
pub(crate) async fn fill(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        if lock(&strong.pool).len() >= strong.config.pool {
            let wanted = Arc::clone(&strong.pool_wanted);
            drop(strong);
            wanted.notified().await;
            // Whoever took a cell is about to use it, and needs the processors more.
            tokio::time::sleep(REFILL_PAUSE).await;
            continue;
        }
        match strong.open_for_pool().await {
            Ok(pooled) => lock(&strong.pool).push_back(pooled),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the pool cannot be filled"
                );
                drop(strong);
                tokio::time::sleep(STEWARD_DELAY_MIN).await;
            }
        }
    }
}

impl Shared {
    async fn open_for_pool(&self) -> Result<Pooled, Error> {
        let spec = Spec { limits: self.config.limits.clone(), ..Spec::default() };
        let cell = self.open(&spec).await?;
        let (spare, tree) = match &self.config.spare_folders {
            Some(root) => self.spare_folder(root, &cell).await.unzip(),
            None => (None, None),
        };
        let prepared = cell.room.prepare(tree.as_ref()).await;
        let names = prepared.map_err(|error| gone(&error.to_string()))?;
        Ok(Pooled { cell, names, spare })
    }

    /// A folder and its mount. A cell without them is slower to give out, and as good.
    async fn spare_folder(&self, root: &Path, cell: &Cell) -> Option<(SpareFolder, OwnedFd)> {
        let path = root.join(format!("spare-{}", cell.id()));
        let making = path.clone();
        let made = tokio::task::spawn_blocking(move || SpareFolder::make(making)).await;
        let made = made.map_err(io::Error::other).and_then(|made| made);
        let spare = match made {
            Ok(spare) => spare,
            Err(error) => {
                tracing::warn!(%error, "a pooled session has no folder yet");
                return None;
            }
        };
        let (client, _) = lock(&self.steward).clone()?;
        match folder_tree(&client, &path, cell).await {
            Ok(tree) => Some((spare, tree)),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the folder of a pooled session cannot be mounted");
                None
            }
        }
    }
}
