//! Folder requests: the launcher turns a host folder into a mount for a room. It never accesses the
//! folder's contents.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Signal, pidfd_send_signal, set_parent_process_death_signal};

use super::control::{Idmap, Owner, PrivilegeBounds, TreeAccess, TreeOrder, TreeReport};
use super::launcher::widen;
use super::quota;
use crate::channel;
use crate::failure::{Failure, step};
use crate::room_handles::pid_of;
use crate::sys::{self, Forked, SingleThreaded};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How folder requests are served.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Set for an untrusted server.
    pub(crate) bounds: Option<PrivilegeBounds>,
    pub(crate) proof: SingleThreaded,
}

/// Serves folder requests until the server or the inner steward has ended, then ends both.
pub(crate) fn serve_trees(
    trees: &OwnedFd,
    inner: &OwnedFd,
    folders: &Folders,
) -> Result<(), Failure> {
    loop {
        let mut fds = [PollFd::new(trees, PollFlags::IN), PollFd::new(inner, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => step("wait for requests", other)?,
        };
        let [request, death] = fds.map(|fd| !fd.revents().is_empty());
        if death {
            return Ok(());
        }
        if request {
            let Some((order, fds)) = step("read a request", channel::receive::<TreeOrder>(trees))?
            else {
                return step("end", pidfd_send_signal(inner, Signal::KILL));
            };
            let answered = match folders.tree(&order, fds) {
                Ok(tree) => channel::send(trees, &TreeReport::Tree, &[tree.as_fd()]),
                Err(Failure { step, source }) => {
                    let reason = source.to_string();
                    channel::send(trees, &TreeReport::Refused { step, reason }, &[])
                }
            };
            step("answer a request", answered)?;
        }
    }
}

impl Folders {
    /// Detached mount of the folder. The server checked the path; the descriptor in use is checked
    /// here to be the same folder.
    fn tree(&self, order: &TreeOrder, fds: Vec<OwnedFd>) -> Result<OwnedFd, Failure> {
        let folder = fs::File::from(step("open the folder", self.open(&order.path))?);
        let metadata = step("look at the folder", folder.metadata())?;
        if (metadata.dev(), metadata.ino()) != (order.device, order.inode) {
            let error = io::Error::other("another folder has replaced it");
            return step("look at the folder", Err(error));
        }
        if let Some(quota) = order.quota {
            quota::enforce(&folder, quota, &order.released)?;
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = step("clone the folder's mount", open_tree(&folder, "", flags))?;
        let mut attributes = sys::MOUNT_NOSUID | sys::MOUNT_NODEV;
        attributes |= match order.access {
            TreeAccess::Write => 0,
            TreeAccess::Execute => sys::MOUNT_RDONLY,
            TreeAccess::Read => sys::MOUNT_RDONLY | sys::MOUNT_NOEXEC,
        };
        step("restrict the folder's mount", sys::mount_setattr(&tree, false, attributes))?;
        let namespace = match order.owner {
            Owner::Same => None,
            Owner::Room => {
                let none = || io::Error::other("the order came without a process of the room");
                let process = step("find the mapping", fds.into_iter().next().ok_or_else(none))?;
                Some(step("find the mapping", user_namespace(&process))?)
            }
            Owner::Other(idmap) => {
                if self.bounds.is_some() {
                    let owner = (metadata.uid(), metadata.gid());
                    step("map the folder's owner", check_owner(idmap, owner))?;
                }
                Some(idmap_namespace(idmap, self.proof)?)
            }
        };
        if let Some(namespace) = namespace {
            let mapped = sys::mount_idmap(&tree, namespace.as_fd());
            step("map the folder's owner (its file system may not support this)", mapped)?;
        }
        Ok(tree)
    }

    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        match &self.bounds {
            Some(bounds) => bounds.open(path),
            None => Ok(openat(CWD, path, FOLDER, Mode::empty())?),
        }
    }
}

impl PrivilegeBounds {
    /// Opens a folder below the sessions' folders; no link can lead out of them.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let beneath = |(named, place): &'_ (PathBuf, PathBuf)| {
            Some((path.strip_prefix(named).ok()?.to_owned(), place.clone()))
        };
        let found = self.folders.iter().filter_map(beneath);
        let found = found.min_by_key(|(rest, _)| rest.as_os_str().len());
        let none = || io::Error::other("it is not below a sessions folder");
        let (rest, place) = found.ok_or_else(none)?;
        let place = openat(CWD, place, FOLDER, Mode::empty())?;
        let rest = if rest.as_os_str().is_empty() { PathBuf::from(".") } else { rest };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&place, rest, FOLDER, Mode::empty(), resolve)?)
    }
}

/// Rejects folders of root, and owners that differ from the claimed one.
fn check_owner(idmap: Idmap, owner: (u32, u32)) -> io::Result<()> {
    if owner == (idmap.disk_uid, idmap.disk_gid) && owner.0 != 0 && owner.1 != 0 {
        return Ok(());
    }
    Err(io::Error::other("it belongs to another user"))
}

/// User namespace of a room, through one of its processes. If the process is alive after the
/// namespace was opened, its pid had not been reused.
fn user_namespace(process: &OwnedFd) -> io::Result<OwnedFd> {
    let namespace = fs::File::open(format!("/proc/{}/ns/user", pid_of(process)?))?;
    pid_of(process)?;
    Ok(namespace.into())
}

/// User namespace that only serves as a mapping: owner on disk ↔ the session's id.
fn idmap_namespace(idmap: Idmap, proof: SingleThreaded) -> Result<OwnedFd, Failure> {
    let Idmap { disk_uid, disk_gid, session_id } = idmap;
    let forked = sys::clone3(proof, widen(libc::CLONE_NEWUSER));
    match step("create a mapping", forked)? {
        Forked::Child => loop {
            if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
                sys::exit_now(1);
            }
            // Waits to be killed; other signals change nothing.
            poll(&mut [], None).unwrap_or_default();
        },
        Forked::Parent { pid, pidfd } => {
            let folder = format!("/proc/{}", pid.as_raw_nonzero());
            let mapped =
                fs::write(format!("{folder}/uid_map"), format!("{disk_uid} {session_id} 1"))
                    .and_then(|()| {
                        fs::write(format!("{folder}/gid_map"), format!("{disk_gid} {session_id} 1"))
                    })
                    .and_then(|()| fs::File::open(format!("{folder}/ns/user")));
            step("end the mapping's holder", pidfd_send_signal(&pidfd, Signal::KILL))?;
            let waited = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            step("reap the mapping's holder", waited)?;
            Ok(step("write a mapping", mapped)?.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::steward::control::RoomIds;

    #[test]
    fn bounds_allow_only_folders_of_sessions() {
        let around = tempfile::tempdir().unwrap();
        let at = |path: &str| around.path().join(path);
        for folder in ["sessions/ann/one", "sessions-2", "other", "moved/two"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        symlink(at("other"), at("sessions/ann/link")).unwrap();
        symlink(at("other"), at("sessions/up")).unwrap();
        symlink(at("moved"), at("by-link")).unwrap();
        let bounds = PrivilegeBounds {
            server: RoomIds { uid: 7, gid: 7 },
            folders: vec![(at("sessions"), at("sessions")), (at("by-link"), at("moved"))],
            mounts: Vec::new(),
        };
        for good in ["sessions", "sessions/ann/one", "by-link/two"] {
            assert!(bounds.open(&at(good)).is_ok(), "{good}");
        }
        let strange = [
            "sessions/ann/link",
            "sessions/up",
            "sessions/up/x",
            "sessions/../other",
            "other",
            "sessions-2",
            "moved/two",
            "sessions/ann/one/../../../other",
            "",
        ];
        for path in strange {
            assert!(bounds.open(&at(path)).is_err(), "{path}");
        }
        for path in ["/", "/root", "sessions", "../sessions"] {
            assert!(bounds.open(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn refuses_to_map_folders_of_root() {
        let idmap = |uid, gid| Idmap { disk_uid: uid, disk_gid: gid, session_id: 70_000 };
        assert!(check_owner(idmap(7, 8), (7, 8)).is_ok());
        for (claimed, owner) in
            [((0, 0), (0, 0)), ((7, 0), (7, 0)), ((7, 8), (0, 0)), ((7, 8), (9, 8))]
        {
            assert!(check_owner(idmap(claimed.0, claimed.1), owner).is_err(), "{owner:?}");
        }
    }
}
