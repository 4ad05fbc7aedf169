//! Opening a cell: create its cgroup, order it from the steward, await READY, verify it from
//! outside.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::symlinkat;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{getegid, geteuid};
use tokio::net::UnixListener;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::cell::{Cell, MountedWorkspace, Parts};
use crate::keeper::{self, Keeper};
use crate::limits::Limits;
use crate::limits::cgroup::Group;
use crate::limits::memory_reserve::{data_bytes, data_bytes_max};
use crate::proof::{self, Expected};
use crate::protocol::{Frame, FrameBudget, VERSION};
use crate::room_folders::{FolderUse, folder_tree};
use crate::room_handles::RoomHandles;
use crate::room_sockets::{RoomAddress, RoomSockets};
use crate::sandbox::{OpenReply, Shared, TierHealth};
use crate::spec::{Spec, Workspace};
use crate::steward::client::Client;
use crate::steward::control::{Furnishing, Open, Order, Rlimits, RoomIds, StewardInfo, Tier};
use crate::steward::room::ROOM_ID;
use crate::steward::shared::Places;
use crate::steward::template::WORKSPACE;
use crate::sync::lock;
use crate::sys;
use crate::wire::FrameReader;
use crate::workspace::{Allowance, Contents, counted_max, measure};

/// How long opening a cell may take before its zygote counts as stuck. A zygote that dies is noticed
/// at once; this is for one that hangs, and must not be met by a machine that is only busy.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);
/// Number of attempts to open a cell when the steward or a zygote fails.
const OPEN_TRIES_MAX: u32 = 3;
/// How long a caller waits for a zygote that is being replaced.
const HEAL_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest session name, in bytes.
const NAME_BYTES_MAX: usize = 255;

impl Shared {
    /// Opens a cell; retries if a zygote dies or hangs.
    pub(crate) async fn open(&self, spec: &Spec) -> Result<Cell, Error> {
        let mut tries = 1;
        loop {
            let tier = self.choose_tier(spec.tier).await?;
            match self.try_open(spec, tier).await {
                Err(Error::Open { step, reason }) if tries < OPEN_TRIES_MAX => {
                    tracing::warn!(step, reason, tries, "cannot prepare a sandbox; trying again");
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Returns the requested tier, or the best one that is ready.
    async fn choose_tier(&self, wanted: Option<Tier>) -> Result<Tier, Error> {
        let wanted = match wanted {
            Some(Tier::Light) if self.serves_light().await => return Ok(Tier::Light),
            Some(Tier::Light) => None,
            other => other,
        };
        let mut health = self.health.subscribe();
        let deadline = Instant::now() + HEAL_TIME_MAX;
        let serves = |tier: Tier, state: &TierHealth| {
            state.is_ready() && wanted.map_or(tier != Tier::Light, |wanted| wanted == tier)
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

    /// Whether the light tier is ready. Its zygote is started when it is first asked for: few
    /// servers need it.
    async fn serves_light(&self) -> bool {
        let Some((client, _)) = lock(&self.steward).clone() else { return false };
        let mut is_ready = false;
        let is_new = self.health.send_if_modified(|health| match health.tiers.get(&Tier::Light) {
            Some(state) => {
                is_ready = state.is_ready();
                false
            }
            None => {
                health.tiers.insert(Tier::Light, TierHealth::Starting);
                true
            }
        });
        if is_new && let Err(error) = client.order(&Order::Serve(Tier::Light), &[]).await {
            tracing::debug!(%error, "cannot ask the steward for the light tier");
        }
        is_ready
    }

    async fn try_open(&self, spec: &Spec, tier: Tier) -> Result<Cell, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (client, info) = lock(&self.steward).clone().ok_or_else(|| gone("not running"))?;
        let (name, group) = self.make_group(id, &spec.limits).await?;
        let ends = Ends::new()?;
        let mut open = open_order(id, tier, &spec.limits, group.is_none());
        if self.rung.is_shared() {
            adapt(&mut open, &spec.workspace);
        }
        let mut fds: Vec<BorrowedFd<'_>> = vec![ends.guest.as_fd(), ends.guest_log.as_fd()];
        fds.extend(group.iter().flat_map(|group| &group.join).map(AsFd::as_fd));
        let (exit_sender, exit) = oneshot::channel();
        lock(&self.exits).insert(id, exit_sender);
        let deadline = Instant::now() + OPEN_TIME_MAX;
        let entered = self.enter(&client, open, &fds, deadline).await;
        let (fds, uid, places) = entered.inspect_err(|_| drop(lock(&self.exits).remove(&id)))?;
        let room = RoomHandles::new(fds, group, self.cleanups.clone(), self.rung)?;
        drop((ends.guest, ends.guest_log));
        let mut frames = FrameReader::new(ends.host)?;
        check_ready(timeout_at(deadline, frames.next(FrameBudget::NONE)).await.ok())?;
        let cgroup = room.group.as_ref().map(|group| (name.as_str(), group.join.len()));
        let ids = SessionIds::new(&info, uid);
        let expected = Expected {
            outside: [&self.outside, &info.namespaces],
            uid: ids.uid,
            gid: ids.gid,
            cgroup,
            own_ids: ids.own,
            rung: self.rung,
        };
        let prepared = async {
            room.seal().await?;
            // Without a network namespace, sessions have no sockets.
            let service = self.config.service.filter(|_| !self.rung.is_shared());
            listen_for(&room, service).await
        };
        let (prepared, proven) = tokio::join!(prepared, prove(&room, &expected));
        let service = prepared.map_err(|error| gone(&error.to_string()))?;
        proven?;
        let log = pipe::Receiver::from_owned_fd(ends.log)?;
        let (limits, live) = (spec.limits.clone(), Arc::clone(&self.live));
        let objects = self.object_watch.add(id, &room, &limits);
        let steward = Arc::clone(&self.steward);
        let parts =
            Parts { id, tier, ids, room, objects, frames, log, limits, exit, live, steward };
        let mut cell = Cell::new(parts);
        cell.service = service;
        match places {
            Some(places) => self.watch_places(&mut cell, spec, places).await?,
            None => self.attach_workspace(&mut cell, spec, None).await?,
        }
        Ok(cell)
    }

    /// Creates the session's cgroup, through the keeper if there is one. Returns its name too.
    pub(crate) async fn make_group(
        &self,
        id: u64,
        limits: &Limits,
    ) -> io::Result<(String, Option<Group>)> {
        if let Some(keeper) = keeper::of_this_process() {
            let name = keeper.group_name();
            let group = keeper.group(&name, limits).await?;
            return Ok((name, group));
        }
        let name = format!("cell-{id}");
        let group = self.cgroups.create(&name, limits)?;
        Ok((name, group))
    }

    /// Has the steward build the room and a zygote enter it. Returns the room's handles.
    async fn enter(
        &self,
        client: &Client,
        open: Open,
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> OpenReply {
        let (id, tier) = (open.id, open.tier);
        let (sender, receiver) = oneshot::channel();
        lock(&self.pending_opens).insert(id, sender);
        let sent = client.order(&Order::Open(Box::new(open)), fds).await;
        if let Err(error) = sent {
            lock(&self.pending_opens).remove(&id);
            return Err(gone(&error.to_string()));
        }
        match timeout_at(deadline, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(gone("no reply")),
            Err(_) => {
                lock(&self.pending_opens).remove(&id);
                client.order(&Order::Restart(tier), &[]).await?;
                let reason = format!("the zygote did not answer within {OPEN_TIME_MAX:?}");
                Err(Error::Open { step: "enter the room".to_owned(), reason })
            }
        }
    }

    /// Watches the folders of a session without mounts: those in memory are on disk as well.
    async fn watch_places(
        &self,
        cell: &mut Cell,
        spec: &Spec,
        places: Places,
    ) -> Result<(), Error> {
        let path = match &spec.workspace {
            Workspace::Memory => places.workspace,
            Workspace::Folder(path) => path.clone(),
        };
        let limit = spec.limits.workspace();
        let allowance = match spec.allowance {
            Some(mut allowance) => {
                allowance.see_all(allowance.folder(), Contents::default());
                allowance
            }
            None => measure_folder(&path, limit).await.map_err(|error| Error::Open {
                step: format!("measure {}", path.display()),
                reason: format!(
                    "{error}; a server that was started as root must be started as an \
                                 ordinary user here, as by `--user 10001:10001`"
                ),
            })?,
        };
        let reserve = self.config.reserve.clone();
        let mut folder = MountedWorkspace::new(path, allowance, &cell.room, reserve);
        folder.scratch = Some(places.scratch);
        cell.folder = Some(folder);
        Ok(())
    }

    /// Mounts the session's folder over the in-memory workspace, if it has one, and shows the
    /// workspace under the session's name: in `names`, if the room has prepared that.
    pub(crate) async fn attach_workspace(
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
            return Err(refused("the session's name is not a valid folder name".to_owned()));
        }
        let tree = match &spec.workspace {
            Workspace::Memory => None,
            Workspace::Folder(path) => {
                let (client, _) = lock(&self.steward).clone().ok_or_else(|| gone("not running"))?;
                Some(folder_tree(&client, path, &cell.place(), FolderUse::Workspace).await?)
            }
        };
        let unnamed = match names {
            Some(names) if may_show_names() => {
                show_name(names, name, cell).map_err(|error| refused(error.to_string()))?;
                ""
            }
            _ => name,
        };
        let moved = cell.room.attach_workspace(tree.as_ref(), unnamed).await;
        moved.map_err(|error| refused(error.to_string()))?;
        if tree.is_some() {
            let limit = spec.limits.workspace();
            let allowance = match spec.allowance {
                // Files that an earlier kernel held open do not count for this one.
                Some(mut allowance) => {
                    allowance.see_all(allowance.folder(), Contents::default());
                    allowance
                }
                // Measured before anything runs, so that no run is charged for what was there.
                None => {
                    measure_folder(path, limit).await.map_err(|error| refused(error.to_string()))?
                }
            };
            let reserve = self.config.reserve.clone();
            cell.folder =
                Some(MountedWorkspace::new(path.to_owned(), allowance, &cell.room, reserve));
        }
        Ok(())
    }
}

/// Makes the listener of the service that every room has. It is the runtime's already, so that a
/// session that gets a pooled cell has nothing to register.
pub(crate) async fn listen_for(
    room: &RoomHandles,
    service: Option<&str>,
) -> io::Result<Option<UnixListener>> {
    let Some(name) = service else { return Ok(None) };
    let at = RoomAddress::Service(name.to_owned());
    let socket = RoomSockets::of(room).listen(&at).await?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(socket)).map(Some)
}

/// Whether a folder can have this name; the empty name is accepted.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && !name.contains(['/', '\0']) && !matches!(name, "." | "..")
}

/// Whether this process can call [`show_name`]; otherwise the room's init does it.
pub(crate) fn may_show_names() -> bool {
    keeper::of_this_process().is_none()
}

/// Links the workspace under the session's name in the folder that the room has prepared. Acts as
/// the session's user: no other user is mapped there.
pub(crate) fn show_name(names: &OwnedFd, name: &str, cell: &Cell) -> io::Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    let SessionIds { uid, gid, own } = cell.ids;
    let _user = own.then(|| sys::act_as(uid, gid)).transpose()?;
    Ok(symlinkat(WORKSPACE, names, name)?)
}

pub(crate) async fn measure_folder(path: &Path, limit: Contents) -> io::Result<Allowance> {
    let path = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || measure(&path, counted_max(limit.files)));
    let found = looked.await.map_err(io::Error::other)??;
    Ok(Allowance::new(limit, found))
}

pub(crate) fn gone(what: &str) -> Error {
    Error::Open {
        step: "ask the steward".to_owned(),
        reason: format!("the steward has ended ({what})"),
    }
}

/// Both ends of a cell's socket and log pipe.
pub(crate) struct Ends {
    pub(crate) host: OwnedFd,
    pub(crate) guest: OwnedFd,
    pub(crate) log: OwnedFd,
    pub(crate) guest_log: OwnedFd,
}

impl Ends {
    pub(crate) fn new() -> io::Result<Self> {
        let (host, guest) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (log, guest_log) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only the host's ends: the flag belongs to each end, not to the pair.
        rustix::io::ioctl_fionbio(&host, true)?;
        rustix::io::ioctl_fionbio(&log, true)?;
        Ok(Self { host, guest, log, guest_log })
    }
}

/// Host ids of a session's processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// True if the ids differ from the server's.
    pub(crate) own: bool,
}

impl SessionIds {
    fn new(info: &StewardInfo, uid: u32) -> Self {
        match info.uid_base {
            Some(base) => {
                let host = base.saturating_add(uid);
                Self { uid: host, gid: host, own: true }
            }
            None => Self { uid: geteuid().as_raw(), gid: getegid().as_raw(), own: false },
        }
    }
}

fn open_order(id: u64, tier: Tier, limits: &Limits, no_group: bool) -> Open {
    let furnishing = Furnishing {
        workspace_bytes: limits.workspace_bytes,
        workspace_files: limits.workspace_files,
        scratch_bytes: limits.scratch_bytes,
        workspace: None,
    };
    Open { id, tier, furnishing, rlimits: rlimits(limits, no_group) }
}

pub(crate) fn rlimits(limits: &Limits, no_group: bool) -> Rlimits {
    Rlimits {
        open_files: limits.open_files,
        file_bytes: limits.file_bytes,
        processes: limits.processes,
        memory_bytes: limits.memory_bytes,
        data_bytes: data_bytes(limits.memory_bytes, 0),
        data_bytes_max: no_group.then(|| data_bytes_max(limits.memory_bytes)),
    }
}

/// Processes of the same user that do not belong to the session: without a user namespace, the
/// kernel counts them all. The watchdog counts those of the session.
const FOREIGN_PROCESSES_MAX: u64 = 1_024;

/// Changes the order for a session without namespaces.
fn adapt(open: &mut Open, workspace: &Workspace) {
    open.rlimits.processes = open.rlimits.processes.saturating_add(FOREIGN_PROCESSES_MAX);
    if let Workspace::Folder(path) = workspace {
        open.furnishing.workspace = Some(path.clone());
    }
}

/// User and group of the session, as seen inside the room and on disk.
pub(crate) fn room_ids() -> RoomIds {
    let default = RoomIds { uid: ROOM_ID, gid: ROOM_ID };
    keeper::of_this_process().map_or(default, Keeper::user)
}

pub(crate) async fn prove(room: &RoomHandles, expected: &Expected<'_>) -> Result<(), Error> {
    match keeper::of_this_process() {
        Some(keeper) => keeper.prove(room.kernel.as_fd(), expected).await,
        None => proof::prove(room.kernel_pid, expected),
    }
}

/// The kernel's first frame must be READY with our protocol version.
pub(crate) fn check_ready(first: Option<io::Result<Option<Frame>>>) -> Result<(), Error> {
    let refused = |reason: String| Error::Open { step: "start the kernel".to_owned(), reason };
    match first {
        Some(Ok(Some(Frame::Ready(ready)))) if ready.protocol == VERSION => Ok(()),
        Some(Ok(Some(other))) => Err(refused(format!("it sent {other:?} instead of READY"))),
        Some(Ok(None)) => Err(refused("it exited before it was ready; see the log".to_owned())),
        Some(Err(error)) => Err(refused(error.to_string())),
        None => Err(refused(format!("it was not ready within {OPEN_TIME_MAX:?}"))),
    }
}
