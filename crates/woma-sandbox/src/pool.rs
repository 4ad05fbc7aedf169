//! Pool of cells that wait for a session. Each has a mounted folder and a prepared place for the
//! session's name: handing one out is a rename and a link, and wakes no other process if the server
//! is root.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with, unlinkat};

use crate::Error;
use crate::cell::{Cell, MountedWorkspace};
use crate::open::{gone, is_name, may_show_names, show_name};
use crate::room_folders::{FolderUse, folder_tree};
use crate::sandbox::{STEWARD_DELAY_MIN, Sandbox, Shared};
use crate::spec::{Spec, Workspace};
use crate::steward::control::Tier;
use crate::sync::lock;
use crate::workspace::{Allowance, Contents, Folder, projects};

/// Delay before a cell that was taken is replaced.
const REFILL_PAUSE: Duration = Duration::from_millis(5);

pub(crate) type Pool = Mutex<VecDeque<Pooled>>;

/// A cell without a session. No user code has run in it.
#[derive(Debug)]
pub(crate) struct Pooled {
    cell: Cell,
    /// Folder for the session's name; `None` if the room shows no names.
    names: Option<OwnedFd>,
    spare: Option<SpareFolder>,
}

/// An empty folder that is already mounted as a pooled cell's workspace. A mount follows its folder
/// under any name, so the folder becomes a session's by a rename.
#[derive(Debug)]
struct SpareFolder {
    path: PathBuf,
    folder: Arc<Folder>,
    is_taken: bool,
}

impl SpareFolder {
    fn make(path: PathBuf) -> io::Result<Self> {
        let folder = Arc::new(Folder::make(&path)?);
        Ok(Self { path, folder, is_taken: false })
    }

    /// Renames the folder to that path, if nothing exists there, not even a link.
    fn rename_to(&mut self, path: &Path) -> io::Result<()> {
        renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE)?;
        self.is_taken = true;
        Ok(())
    }
}

impl Drop for SpareFolder {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let project = self.folder.project();
        // It is always empty: no code has run in the cell.
        match unlinkat(CWD, &self.path, AtFlags::REMOVEDIR) {
            Ok(()) => projects::release(project),
            Err(error) => tracing::debug!(%error, "cannot remove an unused spare folder"),
        }
    }
}

impl Sandbox {
    /// Number of cells in the pool.
    pub fn pooled_cells(&self) -> usize {
        lock(&self.shared.pool).len()
    }

    /// Opens a session whose folder does not exist yet, from the pool: a spare folder below
    /// [`Config::spare_folders`](crate::Config) is renamed to that path and returned with its cell.
    /// `None` if the pool has no matching cell, or the path exists; the caller then creates the
    /// folder and calls [`Self::open`].
    pub async fn open_at_once(&self, spec: &Spec) -> Option<(Cell, Arc<Folder>)> {
        let Workspace::Folder(path) = &spec.workspace else { return None };
        let name = spec.name.as_deref().unwrap_or_default();
        if !self.fits_pool(spec) || !is_name(name) {
            return None;
        }
        let (pooled, mut spare) = self.pop_with_spare()?;
        if let Err(error) = spare.rename_to(path) {
            tracing::debug!(%error, "cannot rename a spare folder for a session");
            // Still usable for the next session.
            lock(&self.shared.pool).push_front(Pooled { spare: Some(spare), ..pooled });
            return None;
        }
        self.shared.pool_wanted.notify_one();
        let Pooled { mut cell, names, .. } = pooled;
        let shown = match &names {
            Some(names) if may_show_names() => show_name(names, name, &cell),
            Some(_) => cell.room.attach_workspace(None, name).await,
            None => Ok(()),
        };
        if let Err(error) = shown {
            tracing::warn!(%error, "cannot link a session's name; using another sandbox");
            return None;
        }
        let allowance = Allowance::new(spec.limits.workspace(), Contents::default());
        let reserve = self.shared.config.reserve.clone();
        cell.folder = Some(MountedWorkspace::new(path.to_owned(), allowance, &cell.room, reserve));
        Some((cell, Arc::clone(&spare.folder)))
    }

    /// Takes a cell from the pool, for a session in memory or in an existing folder.
    pub(crate) async fn take_pooled(&self, spec: &Spec) -> Result<Option<Cell>, Error> {
        let shared = &self.shared;
        // The spare folder is mounted over the memory of pooled cells.
        let in_memory = spec.workspace == Workspace::Memory;
        if !self.fits_pool(spec) || in_memory && shared.config.spare_folders.is_some() {
            return Ok(None);
        }
        let pooled = self.living().pop_front();
        let Some(Pooled { mut cell, names, .. }) = pooled else { return Ok(None) };
        shared.pool_wanted.notify_one();
        shared.attach_workspace(&mut cell, spec, names.as_ref()).await?;
        Ok(Some(cell))
    }

    fn fits_pool(&self, spec: &Spec) -> bool {
        !spec.container
            && spec.limits == self.shared.config.limits
            && matches!(spec.tier, None | Some(Tier::Full))
    }

    /// The pool, after removing dead cells, which would occupy it for ever.
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
            // The caller that took a cell is about to use it, and needs the processors more.
            tokio::time::sleep(REFILL_PAUSE).await;
            continue;
        }
        match strong.open_for_pool().await {
            Ok(pooled) => lock(&strong.pool).push_back(pooled),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot fill the pool");
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

    /// Creates a spare folder and its mount. A cell without them works too, but is slower to hand
    /// out.
    async fn spare_folder(&self, root: &Path, cell: &Cell) -> Option<(SpareFolder, OwnedFd)> {
        let path = root.join(format!("spare-{}", cell.id()));
        let making = path.clone();
        let made = tokio::task::spawn_blocking(move || SpareFolder::make(making)).await;
        let made = made.map_err(io::Error::other).and_then(|made| made);
        let spare = match made {
            Ok(spare) => spare,
            Err(error) => {
                tracing::warn!(%error, "cannot create a folder ahead of a session");
                return None;
            }
        };
        let (client, _) = lock(&self.steward).clone()?;
        match folder_tree(&client, &path, &cell.place(), FolderUse::Workspace).await {
            Ok(tree) => Some((spare, tree)),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot mount a folder ahead of a session");
                None
            }
        }
    }
}
