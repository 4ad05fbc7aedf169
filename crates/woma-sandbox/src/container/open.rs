//! Opening a session's container: from the order to the launcher to a proven cell.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{getegid, geteuid};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::client::{Containers, Launcher, broken};
use super::control::{Contained, Start, UP};
use super::{Runtime, missing};
use crate::cell::{Cell, MountedWorkspace, Parts};
use crate::limits::Limits;
use crate::open::{
    Ends, SessionIds, check_ready, gone, listen_for, measure_folder, prove, rlimits, room_ids,
};
use crate::proof::Expected;
use crate::protocol::FrameBudget;
use crate::room_folders::{FolderUse, Place, folder_tree};
use crate::room_handles::{ContainerKiller, RoomHandles};
use crate::rung::Rung;
use crate::sandbox::{Sandbox, Shared};
use crate::spec::{Spec, Workspace};
use crate::steward::client::Socket;
use crate::steward::control::{Furnishing, Quota, RoomIds, Setup, Tier};
use crate::sync::lock;
use crate::wire::FrameReader;
use crate::workspace::Contents;
use crate::{Error, channel};

/// Longest time until a container's Python is ready: it imports the libraries of sessions.
const OPEN_TIME_MAX: Duration = Duration::from_secs(90);

impl Sandbox {
    /// Fails if sessions in containers are disabled.
    pub fn check_containers(&self) -> Result<(), Error> {
        self.shared.containers.as_ref().map(|_| ()).ok_or_else(disabled)
    }

    /// The runtime of sessions in containers: the chosen one, or the ones that will be tried.
    pub fn container_runtimes(&self) -> &'static [Runtime] {
        self.shared.containers.as_ref().map_or(&[], Containers::candidates)
    }
}

fn disabled() -> Error {
    Error::Container {
        reason: "containers are disabled on this server".to_owned(),
        fix: "omit `use_container`, or have the operator set SANDBOX_ENABLE_CONTAINER_MODE=true"
            .to_owned(),
    }
}

impl Shared {
    /// Opens a session in a container.
    pub(crate) async fn open_contained(&self, spec: &Spec) -> Result<Cell, Error> {
        let containers = self.containers.as_ref().ok_or_else(disabled)?;
        let mut chosen = containers.chosen.lock().await;
        if let Some(runtime) = *chosen {
            drop(chosen);
            return self.open_with(runtime, spec).await;
        }
        let mut failures = Vec::new();
        for runtime in containers.candidates() {
            match self.open_with(*runtime, spec).await {
                Ok(cell) => {
                    tracing::info!(runtime = runtime.name(), "containers run by this runtime");
                    *chosen = Some(*runtime);
                    return Ok(cell);
                }
                // No runtime is to blame for a folder.
                Err(error @ (Error::Workspace { .. } | Error::Unproven { .. })) => {
                    return Err(error);
                }
                Err(error) => failures.push(error),
            }
        }
        Err(all_failed(failures))
    }

    pub(super) async fn open_with(&self, runtime: Runtime, spec: &Spec) -> Result<Cell, Error> {
        if runtime.program().is_none() {
            return Err(missing(runtime));
        }
        let Some(containers) = &self.containers else { return Err(Error::ShutDown) };
        let program = &self.config.steward;
        let launcher = containers.launcher(program, runtime, &self.setup).await?;
        let opened = self.open_in(&launcher, runtime, spec).await;
        opened.map_err(|error| match error {
            Error::Open { step, reason } => {
                let said = launcher.last_stderr_line();
                broken(runtime, format!("{step}: {reason} {said}").trim_end())
            }
            other => other,
        })
    }

    async fn open_in(
        &self,
        launcher: &Arc<Launcher>,
        runtime: Runtime,
        spec: &Spec,
    ) -> Result<Cell, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + OPEN_TIME_MAX;
        let has_own_kernel = runtime.has_own_kernel();
        let (name, group) = self.make_group(id, &spec.limits).await?;
        let join: Vec<BorrowedFd<'_>> =
            group.iter().flat_map(|group| &group.join).map(AsFd::as_fd).collect();
        let (commands, their_commands) = channel::pair()?;
        let tree = match &spec.workspace {
            Workspace::Folder(path) if has_own_kernel => Some(self.own_tree(path, spec).await?),
            _ => None,
        };
        let mut fds: Vec<BorrowedFd<'_>> = vec![their_commands.as_fd()];
        fds.extend(tree.iter().map(AsFd::as_fd));
        fds.extend(join.iter().filter(|_| has_own_kernel));
        let furnishing = furnishing(&spec.limits);
        let start = Start { id, furnishing, has_workspace: tree.is_some() };
        let (process, uid) = launcher.open(start, &fds).await?;
        drop(fds);
        drop(their_commands);
        let killer = ContainerKiller { launcher: Arc::clone(launcher), id };
        let ends = Ends::new()?;
        let (exits, their_exits) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut fds = vec![ends.guest.as_fd(), ends.guest_log.as_fd(), their_exits.as_fd()];
        fds.extend(join.iter().filter(|_| !has_own_kernel));
        let order = contained(runtime, &self.setup, spec, group.is_none());
        channel::send(&commands, &order, &fds)?;
        let processes = match announced(&commands, deadline).await? {
            Some(processes) => processes,
            None => [process.try_clone()?, process],
        };
        drop(fds);
        drop((ends.guest, ends.guest_log, their_exits));
        let joined = group.as_ref().map(|group| group.join.len());
        let room =
            RoomHandles::contained(commands, processes, group, self.cleanups.clone(), killer)?;
        let mut frames = FrameReader::new(ends.host)?;
        check_ready(timeout_at(deadline, frames.next(FrameBudget::NONE)).await.ok())?;
        let ids = session_ids(runtime, uid);
        if !has_own_kernel {
            let cgroup = joined.map(|count| (name.as_str(), count));
            self.prove_container(&room, launcher, ids, cgroup).await?;
        }
        let service = match (has_own_kernel, self.config.service) {
            (false, Some(service)) => listen_for(&room, Some(service)).await?,
            _ => None,
        };
        let log = pipe::Receiver::from_owned_fd(ends.log)?;
        let (limits, live) = (spec.limits.clone(), Arc::clone(&self.live));
        let objects = self.object_watch.add(id, &room, &limits);
        let (tier, exit) = (self.config.preload, exit_of(exits)?);
        let parts = Parts {
            id,
            tier,
            ids,
            room,
            objects,
            frames,
            log,
            limits,
            exit,
            live,
            steward: Arc::clone(&self.steward),
        };
        let mut cell = Cell::new(parts);
        cell.service = service;
        cell.runtime = Some(runtime);
        self.furnish_container(&mut cell, spec, has_own_kernel).await?;
        Ok(cell)
    }

    /// The same proof as of any other cell.
    async fn prove_container(
        &self,
        room: &RoomHandles,
        launcher: &Launcher,
        ids: SessionIds,
        cgroup: Option<(&str, usize)>,
    ) -> Result<(), Error> {
        let expected = Expected {
            outside: [&self.outside, &launcher.namespaces],
            uid: ids.uid,
            gid: ids.gid,
            cgroup,
            own_ids: ids.own,
            rung: Rung::Rooms,
        };
        room.seal().await?;
        prove(room, &expected).await
    }

    async fn furnish_container(
        &self,
        cell: &mut Cell,
        spec: &Spec,
        has_own_kernel: bool,
    ) -> Result<(), Error> {
        match (&spec.workspace, has_own_kernel) {
            (Workspace::Folder(path), true) => self.attach_own(cell, path, spec).await,
            (Workspace::Memory, true) => Ok(()),
            _ => self.attach_workspace(cell, spec, None).await,
        }
    }

    /// Mount of a session's folder for a sandbox that has the ids of its own kernel.
    async fn own_tree(&self, path: &Path, spec: &Spec) -> Result<OwnedFd, Error> {
        let (client, _) = lock(&self.steward).clone().ok_or_else(|| gone("not running"))?;
        let Contents { bytes, files } = spec.limits.workspace();
        let place = Place {
            ids: session_ids(Runtime::Runsc, None),
            kernel: None,
            quota: Some(Quota { bytes, files }),
        };
        folder_tree(&client, path, &place, FolderUse::Workspace).await
    }

    /// Takes account of a folder that was mounted when the container was started.
    async fn attach_own(&self, cell: &mut Cell, path: &Path, spec: &Spec) -> Result<(), Error> {
        let measured = match spec.allowance {
            Some(mut allowance) => {
                allowance.see_all(allowance.folder(), Contents::default());
                Ok(allowance)
            }
            None => measure_folder(path, spec.limits.workspace()).await,
        };
        let allowance = measured.map_err(|error| Error::Workspace {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let reserve = self.config.reserve.clone();
        cell.folder = Some(MountedWorkspace::new(path.to_owned(), allowance, &cell.room, reserve));
        Ok(())
    }
}

fn furnishing(limits: &Limits) -> Furnishing {
    let Limits { workspace_bytes, workspace_files, scratch_bytes, .. } = *limits;
    Furnishing { workspace_bytes, workspace_files, scratch_bytes, workspace: None }
}

fn contained(runtime: Runtime, setup: &Setup, spec: &Spec, no_group: bool) -> Contained {
    let RoomIds { uid, gid } = setup.room_ids;
    Contained {
        python: setup.python.clone(),
        tier: spec.tier.unwrap_or_else(|| setup.tiers.iter().copied().max().unwrap_or(Tier::Base)),
        furnishing: furnishing(&spec.limits),
        rlimits: rlimits(&spec.limits, no_group),
        uid,
        gid,
        watched: no_group && !runtime.has_own_kernel(),
        has_own_kernel: runtime.has_own_kernel(),
    }
}

/// Host ids of the session's processes. Those of a kernel of its own exist only there, and in the
/// mapping of its folder.
fn session_ids(runtime: Runtime, uid: Option<u32>) -> SessionIds {
    match uid {
        _ if runtime.has_own_kernel() => {
            let RoomIds { uid, gid } = room_ids();
            SessionIds { uid, gid, own: true }
        }
        Some(uid) => SessionIds { uid, gid: uid, own: true },
        None => SessionIds { uid: geteuid().as_raw(), gid: getegid().as_raw(), own: false },
    }
}

/// Waits until pid 1 has started the kernel's process; returns both, if the host can see them.
async fn announced(commands: &OwnedFd, deadline: Instant) -> Result<Option<[OwnedFd; 2]>, Error> {
    let refused = |reason: String| Error::Open { step: "furnish the container".to_owned(), reason };
    let socket = Socket::new(commands.try_clone()?)?;
    let mut buffer = [0; 512];
    let received = timeout_at(deadline, socket.receive_bytes(&mut buffer)).await;
    let (length, fds) = match received {
        Ok(received) => received?,
        Err(_) => return Err(refused(format!("no reply within {OPEN_TIME_MAX:?}"))),
    };
    match buffer.get(..length).unwrap_or_default() {
        UP if fds.is_empty() => Ok(None),
        UP => match <[OwnedFd; 2]>::try_from(fds) {
            Ok(processes) => Ok(Some(processes)),
            Err(fds) => Err(refused(format!("expected 2 descriptors, got {}", fds.len()))),
        },
        [] => Err(refused("its first process has ended; see the log".to_owned())),
        text => Err(refused(String::from_utf8_lossy(text).into_owned())),
    }
}

/// How the kernel ended, once pid 1 reports it.
fn exit_of(exits: OwnedFd) -> io::Result<oneshot::Receiver<i32>> {
    let (sender, receiver) = oneshot::channel();
    rustix::io::ioctl_fionbio(&exits, true)?;
    let mut exits = pipe::Receiver::from_owned_fd(exits)?;
    tokio::spawn(async move {
        let mut status = [0; 4];
        if exits.read_exact(&mut status).await.is_ok() {
            // The receiver is gone if the cell was dropped.
            sender.send(i32::from_ne_bytes(status)).unwrap_or_default();
        }
    });
    Ok(receiver)
}

/// The error of a choice among several runtimes, none of which works.
fn all_failed(failures: Vec<Error>) -> Error {
    let mut reasons = Vec::new();
    let mut fixes = Vec::new();
    for failure in failures {
        match failure {
            Error::Container { reason, fix } => {
                reasons.push(reason);
                fixes.push(fix);
            }
            other => reasons.push(other.to_string()),
        }
    }
    let fix = fixes.into_iter().next_back().unwrap_or_default();
    Error::Container { reason: reasons.join("; "), fix }
}
