//! Opening a cell: cgroup, order to the steward, first word of the kernel, proof from outside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, symlinkat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{getegid, geteuid};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::cell::{Cell, Lodging, Parts};
use crate::limits::Limits;
use crate::proof::{self, Expected};
use crate::protocol::{Frame, VERSION};
use crate::room::Room;
use crate::sandbox::{Shared, TierHealth, lock};
use crate::spec::{Spec, Workspace};
use crate::steward::client::Client;
use crate::steward::control::{
    Furnishing, Idmap, Open, Order, Owner, Rlimits, Standing, Tier, TreeOrder,
};
use crate::steward::room::ROOM_ID;
use crate::steward::template::WORKSPACE;
use crate::sys;
use crate::wire::FrameReader;
use crate::workspace::{Allowance, Contents, counted_max, measure};

/// How long opening a cell may take before its zygote counts as stuck.
const OPEN_TIME_MAX: Duration = Duration::from_secs(3);
/// How often opening is tried when the machinery fails under it.
const OPEN_TRIES_MAX: u32 = 3;
/// How long a caller waits for a zygote that is being replaced.
const HEAL_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest name of a session, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Data segment that a fork of the zygote has from the start, thread stacks included, in bytes.
const DATA_BYTES_EXTRA: u64 = 2 * 1024 * 1024 * 1024;

impl Shared {
    /// Opens a cell, and again if a zygote dies or hangs under it.
    pub(crate) async fn open(&self, spec: &Spec) -> Result<Cell, Error> {
        let mut tries = 1;
        loop {
            let tier = self.choose_tier(spec.tier).await?;
            match self.try_open(spec, tier).await {
                Err(Error::Open { step, reason }) if tries < OPEN_TRIES_MAX => {
                    tracing::warn!(step, reason, tries, "a cell could not be opened; trying again");
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// The tier asked for, or the best one that is ready.
    async fn choose_tier(&self, wanted: Option<Tier>) -> Result<Tier, Error> {
        let mut health = self.health.subscribe();
        let deadline = Instant::now() + HEAL_TIME_MAX;
        let serves = |tier: Tier, state: &TierHealth| {
            state.is_ready() && wanted.is_none_or(|wanted| wanted == tier)
        };
        let ready = health.wait_for(|health| health.tiers.iter().any(|(t, s)| serves(*t, s)));
        let Ok(Ok(health)) = timeout_at(deadline, ready).await else {
            let reason = self.health.borrow().broken.clone();
            let reason = reason.unwrap_or_else(|| "no zygote is ready".to_owned());
            return Err(Error::Python { reason });
        };
        let best = health.tiers.iter().rev().find(|(tier, state)| serves(**tier, state));
        best.map(|(tier, _)| *tier).ok_or(Error::ShutDown)
    }

    async fn try_open(&self, spec: &Spec, tier: Tier) -> Result<Cell, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (client, standing) = lock(&self.steward).clone().ok_or_else(|| gone("find it"))?;
        let name = format!("cell-{id}");
        let group = self.cgroups.create(&name, &spec.limits)?;
        let ends = Ends::new()?;
        let open = order(id, tier, &spec.limits, group.is_none());
        let mut fds: Vec<BorrowedFd<'_>> = vec![ends.guest.as_fd(), ends.guest_log.as_fd()];
        fds.extend(group.iter().flat_map(|group| &group.join).map(AsFd::as_fd));
        let (exit_sender, exit) = oneshot::channel();
        lock(&self.exits).insert(id, exit_sender);
        let deadline = Instant::now() + OPEN_TIME_MAX;
        let entered = self.enter(&client, open, &fds, deadline).await;
        let (fds, uid) = entered.inspect_err(|_| drop(lock(&self.exits).remove(&id)))?;
        let room = Room::new(fds, group, self.graves.clone())?;
        drop((ends.guest, ends.guest_log));
        let mut frames = FrameReader::new(ends.host)?;
        check_first_word(timeout_at(deadline, frames.next()).await.ok())?;
        let cgroup = room.group.as_ref().map(|group| (name.as_str(), group.join.len()));
        let ids = SessionIds::new(&standing, uid);
        let expected = Expected {
            outside: [&self.outside, &standing.namespaces],
            uid: ids.uid,
            gid: ids.gid,
            cgroup,
            own_ids: ids.own,
        };
        let (sealed, proven) =
            tokio::join!(room.seal(), async { proof::prove(room.kernel_pid, &expected) });
        sealed.map_err(|error| gone(&error.to_string()))?;
        proven?;
        let log = pipe::Receiver::from_owned_fd(ends.log)?;
        let (limits, live) = (spec.limits.clone(), Arc::clone(&self.live));
        let mut cell = Cell::new(Parts { id, tier, ids, room, frames, log, limits, exit, live });
        self.move_in(&mut cell, spec, None).await?;
        Ok(cell)
    }

    /// Has the room built and entered; what comes back are the room's handles.
    async fn enter(
        &self,
        client: &Client,
        open: Open,
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(Vec<OwnedFd>, u32), Error> {
        let (id, tier) = (open.id, open.tier);
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).insert(id, sender);
        let sent = client.order(&Order::Open(Box::new(open)), fds).await;
        if let Err(error) = sent {
            lock(&self.waiting).remove(&id);
            return Err(gone(&error.to_string()));
        }
        match timeout_at(deadline, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(gone("hear from it")),
            Err(_) => {
                lock(&self.waiting).remove(&id);
                client.order(&Order::Restart(tier), &[]).await?;
                let reason = format!("the zygote did not answer within {OPEN_TIME_MAX:?}");
                Err(Error::Open { step: "enter the room".to_owned(), reason })
            }
        }
    }

    /// Puts a folder of the host in the place of the cell's workspace in memory, if that is what the
    /// session has, and shows the workspace under the session's name: in `names`, where the room has
    /// that prepared.
    pub(crate) async fn move_in(
        &self,
        cell: &mut Cell,
        spec: &Spec,
        names: Option<&OwnedFd>,
    ) -> Result<(), Error> {
        let name = spec.name.as_deref().unwrap_or_default();
        let path = match &spec.workspace {
            Workspace::Memory if name.is_empty() => return Ok(()),
            Workspace::Memory => Path::new(""),
            Workspace::Folder(path) => path,
        };
        let refused = |reason: String| Error::Workspace { path: path.to_owned(), reason };
        if !is_name(name) {
            return Err(refused("the session's name cannot be that of a folder".to_owned()));
        }
        let tree = match &spec.workspace {
            Workspace::Memory => None,
            Workspace::Folder(path) => {
                let (client, _) = lock(&self.steward).clone().ok_or_else(|| gone("find it"))?;
                Some(folder_tree(&client, path, cell).await?)
            }
        };
        let unnamed = match names {
            Some(names) => {
                show_name(names, name, cell).map_err(|error| refused(error.to_string()))?;
                ""
            }
            None => name,
        };
        let moved = cell.room.move_in(tree.as_ref(), unnamed).await;
        moved.map_err(|error| refused(error.to_string()))?;
        if tree.is_some() {
            let limit = spec.limits.workspace();
            let allowance = match spec.allowance {
                Some(allowance) => allowance,
                // Before anything runs: what a run finds there is not of its making.
                None => found_in(path, limit).await.map_err(|error| refused(error.to_string()))?,
            };
            cell.folder = Some(Lodging { path: path.to_owned(), allowance, is_stale: false });
        }
        Ok(())
    }
}

/// Whether a folder could be called so; no name is one too.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && !name.contains(['/', '\0']) && !matches!(name, "." | "..")
}

/// Shows the workspace under the session's name, in what the room has prepared for it. With the
/// rights of the session's user: nobody else has a number there.
pub(crate) fn show_name(names: &OwnedFd, name: &str, cell: &Cell) -> io::Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    let SessionIds { uid, gid, own } = cell.ids;
    let _user = own.then(|| sys::act_as(uid, gid)).transpose()?;
    Ok(symlinkat(WORKSPACE, names, name)?)
}

async fn found_in(path: &Path, limit: Contents) -> io::Result<Allowance> {
    let path = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || measure(&path, counted_max(limit.files)));
    let found = looked.await.map_err(io::Error::other)??;
    Ok(Allowance::new(limit, found))
}

pub(crate) fn gone(what: &str) -> Error {
    Error::Open { step: "ask the steward".to_owned(), reason: format!("it is gone ({what})") }
}

/// Both ends of a cell's socket and log pipe.
struct Ends {
    host: OwnedFd,
    guest: OwnedFd,
    log: OwnedFd,
    guest_log: OwnedFd,
}

impl Ends {
    fn new() -> io::Result<Self> {
        let (host, guest) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (log, guest_log) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our ends: the flag belongs to the end, not to the pair.
        rustix::io::ioctl_fionbio(&host, true)?;
        rustix::io::ioctl_fionbio(&log, true)?;
        Ok(Self { host, guest, log, guest_log })
    }
}

/// Under which ids of the host a session runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionIds {
    uid: u32,
    gid: u32,
    /// True if they are not the server's.
    own: bool,
}

impl SessionIds {
    fn new(standing: &Standing, uid: u32) -> Self {
        match standing.uid_base {
            Some(base) => {
                let host = base.saturating_add(uid);
                Self { uid: host, gid: host, own: true }
            }
            None => Self { uid: geteuid().as_raw(), gid: getegid().as_raw(), own: false },
        }
    }
}

fn order(id: u64, tier: Tier, limits: &Limits, no_group: bool) -> Open {
    let furnishing = Furnishing {
        workspace_bytes: limits.workspace_bytes,
        workspace_files: limits.workspace_files,
        scratch_bytes: limits.scratch_bytes,
    };
    let rlimits = Rlimits {
        open_files: limits.open_files,
        file_bytes: limits.file_bytes,
        processes: limits.processes,
        // Address space that is only reserved counts too, and the zygote brings some along: twice
        // the limit stops the worst, the watchdog does the rest.
        data_bytes: no_group.then(|| limits.memory_bytes.saturating_mul(2) + DATA_BYTES_EXTRA),
    };
    Open { id, tier, furnishing, rlimits }
}

/// A mount of a host folder. The owner of the folder sees the session's files as its own.
pub(crate) async fn folder_tree(
    client: &Client,
    path: &Path,
    cell: &Cell,
) -> Result<OwnedFd, Error> {
    let ids = &cell.ids;
    let refused = |reason: String| Error::Workspace { path: path.to_owned(), reason };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|error| refused(io::Error::from(error).to_string()))?;
    let metadata = File::from(folder).metadata()?;
    let (disk_uid, disk_gid) = (metadata.uid(), metadata.gid());
    let mut namespace = None;
    let owner = if !ids.own || disk_uid == ids.uid {
        Owner::Same
    } else if (disk_uid, disk_gid) == (ROOM_ID, ROOM_ID) {
        namespace = Some(user_namespace(cell).map_err(|error| refused(error.to_string()))?);
        Owner::Room
    } else {
        Owner::Other(Idmap { disk_uid, disk_gid, session_id: ids.uid })
    };
    let (device, inode) = (metadata.dev(), metadata.ino());
    let order = TreeOrder { path: path.to_owned(), device, inode, owner };
    let tree = client.tree(&order, namespace.as_ref()).await;
    tree.map_err(|error| refused(error.to_string()))
}

/// The room's user namespace. No user code has run in it yet; that it was the room's and not that of
/// another process with the same number is sure if the kernel is alive after it was opened.
fn user_namespace(cell: &Cell) -> io::Result<OwnedFd> {
    let namespace = File::open(format!("/proc/{}/ns/user", cell.room.kernel_pid))?;
    if cell.is_alive() { Ok(namespace.into()) } else { Err(io::Error::other("its kernel ended")) }
}

/// The kernel must say READY, in our version, before anything else.
fn check_first_word(first: Option<io::Result<Option<Frame>>>) -> Result<(), Error> {
    let refused = |reason: String| Error::Open { step: "start the kernel".to_owned(), reason };
    match first {
        Some(Ok(Some(Frame::Ready(ready)))) if ready.protocol == VERSION => Ok(()),
        Some(Ok(Some(other))) => Err(refused(format!("it said {other:?}"))),
        Some(Ok(None)) => Err(refused("it ended before it was ready; see the log".to_owned())),
        Some(Err(error)) => Err(refused(error.to_string())),
        None => Err(refused(format!("it was not ready within {OPEN_TIME_MAX:?}"))),
    }
}
