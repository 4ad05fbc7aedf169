//! Folders of the host in a room: its workspace, the datasets of its caller, its packages. The
//! launcher makes a mount of each, and init moves it to its place.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{CWD, Mode, OFlags};
use tokio::io::unix::AsyncFd;

use crate::Error;
use crate::cell::Cell;
use crate::limits::watchdog;
use crate::open::{SessionIds, gone, room_ids};
use crate::room_handles::Commands;
use crate::sandbox::ActiveSteward;
use crate::steward::client::Client;
use crate::steward::control::{Idmap, Owner, Quota, TreeAccess, TreeOrder};
use crate::sync::lock;
use crate::workspace::{Contents, projects};

/// Shows folders in a room, also during its runs. Does not keep the room alive.
#[derive(Debug, Clone)]
pub struct RoomFolders {
    commands: Arc<Commands>,
    kernel: Arc<AsyncFd<OwnedFd>>,
    ids: SessionIds,
    steward: ActiveSteward,
    has_own_kernel: bool,
    /// Folder that is shown as `/packages`.
    packages: Arc<tokio::sync::Mutex<Option<PathBuf>>>,
}

impl RoomFolders {
    /// Shows a folder of the host read-only as `/packages` in the room, on top of what was shown
    /// before: what runs keeps the files that it has open. Works during runs.
    pub async fn show_packages(&self, folder: &Path) -> Result<(), Error> {
        let refused = |reason: String| Error::Workspace { path: folder.to_owned(), reason };
        let mut shown = self.packages.lock().await;
        if shown.as_deref() == Some(folder) {
            return Ok(());
        }
        if self.has_own_kernel {
            let reason = "a gVisor container cannot be shown packages after its start";
            return Err(refused(reason.to_owned()));
        }
        let (client, _) = lock(&self.steward).clone().ok_or_else(|| gone("not running"))?;
        let place = Place { ids: self.ids, kernel: Some(&self.kernel), quota: None };
        let tree = folder_tree(&client, folder, &place, FolderUse::Packages).await?;
        let attached = self.commands.attach_packages(&tree).await;
        attached.map_err(|error| refused(error.to_string()))?;
        *shown = Some(folder.to_owned());
        Ok(())
    }
}

impl Cell {
    /// Shows a folder of the host read-only as `/datasets`, from now on and whatever becomes of its
    /// files. Does nothing if it is shown already; a cell shows one folder only.
    pub async fn show_datasets(&mut self, folder: &Path) -> Result<(), Error> {
        let refused = |reason: String| Error::Workspace { path: folder.to_owned(), reason };
        match self.datasets.as_deref() {
            Some(shown) if shown == folder => return Ok(()),
            Some(_) => return Err(refused("the session shows another folder".to_owned())),
            None => {}
        }
        if self.has_own_kernel() {
            let reason = "a gVisor container cannot be shown datasets after its start";
            return Err(refused(reason.to_owned()));
        }
        let (client, _) = lock(&self.steward).clone().ok_or_else(|| gone("not running"))?;
        let tree = folder_tree(&client, folder, &self.place(), FolderUse::Datasets).await?;
        let attached = self.room.attach_datasets(&tree).await;
        attached.map_err(|error| refused(error.to_string()))?;
        self.datasets = Some(folder.to_owned());
        Ok(())
    }

    /// Handle that shows folders in the cell's room; clones of one handle know of each other.
    pub fn folders(&self) -> RoomFolders {
        RoomFolders {
            commands: Arc::clone(self.room.commands()),
            kernel: Arc::clone(&self.room.kernel),
            ids: self.ids,
            steward: Arc::clone(&self.steward),
            has_own_kernel: self.has_own_kernel(),
            packages: Arc::clone(&self.packages),
        }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        let Contents { bytes, files } = self.limits().workspace();
        Place {
            ids: self.ids,
            kernel: Some(&self.room.kernel),
            quota: Some(Quota { bytes, files }),
        }
    }
}

/// Room in which a folder is mounted.
pub(crate) struct Place<'a> {
    pub(crate) ids: SessionIds,
    /// A process of the room; `None` before there is any.
    pub(crate) kernel: Option<&'a AsyncFd<OwnedFd>>,
    pub(crate) quota: Option<Quota>,
}

/// Place of a host folder in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderUse {
    Workspace,
    /// Read-only, without devices and programs.
    Datasets,
    /// Read-only, with programs.
    Packages,
}

/// Why a session without mounts cannot show a folder that it was not opened with.
const WITHOUT_MOUNTS: &str = "sessions have no mounts at this level of isolation, so datasets and \
                              packages cannot be shown to them; `woma doctor` says what is missing";

/// Detached mount of a host folder, mapped so that its owner owns the session's files.
pub(crate) async fn folder_tree(
    client: &Client,
    path: &Path,
    place: &Place<'_>,
    used: FolderUse,
) -> Result<OwnedFd, Error> {
    let ids = &place.ids;
    let refused = |reason: String| Error::Workspace { path: path.to_owned(), reason };
    if watchdog::SHARED.load(Ordering::Relaxed) {
        return Err(refused(WITHOUT_MOUNTS.to_owned()));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|error| refused(io::Error::from(error).to_string()))?;
    let metadata = File::from(folder).metadata()?;
    let (disk_uid, disk_gid) = (metadata.uid(), metadata.gid());
    let room_ids = room_ids();
    let mut process = None;
    let owner = if !ids.own || disk_uid == ids.uid {
        Owner::Same
    } else if (disk_uid, disk_gid) == (room_ids.uid, room_ids.gid) {
        process = place.kernel.map(AsFd::as_fd);
        Owner::Room
    } else {
        Owner::Other(Idmap { disk_uid, disk_gid, session_id: ids.uid })
    };
    let (device, inode) = (metadata.dev(), metadata.ino());
    let (access, quota, released) = match used {
        FolderUse::Workspace => (TreeAccess::Write, place.quota, projects::take_released()),
        FolderUse::Datasets => (TreeAccess::Read, None, Vec::new()),
        FolderUse::Packages => (TreeAccess::Execute, None, Vec::new()),
    };
    let path = path.to_owned();
    let order = TreeOrder { path, device, inode, owner, access, quota, released };
    let tree = client.tree(&order, process).await;
    tree.map_err(|error| refused(error.to_string()))
}
