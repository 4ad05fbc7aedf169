//! The outer half of the steward, started by the server as `woma steward`.
//!
//! It builds the template, forks the inner half into the outer sandbox, and stays behind for the one
//! thing that the inner half cannot do: turning a folder of the host into a mount for a room. It
//! never touches what is inside such a folder.
//!
//! Standard input is the server's control socket, standard output the socket for folder requests.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, Signal, geteuid, pidfd_send_signal, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use super::control::{Idmap, Owner, Report, Setup, TreeOrder, TreeReport};
use super::{inner, template};
use crate::channel;
use crate::failure::{Failure, step};
use crate::sys::{self, Forked, SingleThreaded};

const OUTER_NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// The step at which root without the rights of root ends.
pub(crate) const AS_ROOT: &str = "use root's rights";

/// Which ids the sessions of this steward run under.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ids {
    /// A range of host ids that nothing else uses; each session has one of its own.
    Range { base: u32, count: u32 },
    /// The id that we were started with; namespaces and Landlock keep the sessions apart.
    Own,
}

/// Entry point of the role.
pub(crate) fn main() -> ExitCode {
    let (Ok(control), Ok(trees)) = (sys::inherited_fd(0), sys::inherited_fd(1)) else {
        eprintln!("woma steward is started by the server, not by hand");
        return ExitCode::from(2);
    };
    match launch(&control, trees) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let report = Report::Broken { step: failure.step, reason: failure.source.to_string() };
            // The server may be gone already; then nobody is left to tell.
            if let Err(error) = channel::send(&control, &report, &[]) {
                eprintln!("steward: {report:?} ({error})");
            }
            ExitCode::FAILURE
        }
    }
}

fn launch(control: &OwnedFd, trees: OwnedFd) -> Result<(), Failure> {
    let proof = step("check threads", SingleThreaded::prove())?;
    let Some((setup, _)) = step("read the setup", channel::receive::<Setup>(control))? else {
        return Ok(());
    };
    let ids = enter_namespaces(proof)?;
    template::build(&setup)?;
    let (go, wait) = step("make a socket", channel::pair())?;
    let flags = OUTER_NAMESPACES
        | match ids {
            Ids::Range { .. } => libc::CLONE_NEWUSER,
            Ids::Own => 0,
        };
    match step("create the outer namespaces", sys::clone3(proof, widen(flags)))? {
        Forked::Child => {
            drop((go, trees));
            inner::main(control, &wait, &setup, ids, proof)
        }
        Forked::Parent { pid, pidfd } => {
            drop(wait);
            if let Ids::Range { base, count } = ids {
                write_maps(pid, &format!("0 {base} {count}"))?;
            }
            step("release the steward", channel::send_bytes(&go, b"go", &[]))?;
            serve_trees(&trees, &pidfd, proof)
        }
    }
}

pub(crate) fn widen(flags: i32) -> u64 {
    u64::from(flags.cast_unsigned())
}

/// As root, a mount namespace; as anybody else, a user namespace as well.
fn enter_namespaces(proof: SingleThreaded) -> Result<Ids, Failure> {
    if geteuid().is_root() {
        // Never with the ids of root itself: they own too much that Landlock alone would guard.
        let none = || io::Error::other("no unused ids are mapped here");
        let (base, count) = step(AS_ROOT, free_ids().ok_or_else(none))?;
        step(AS_ROOT, sys::unshare(proof, UnshareFlags::NEWNS))?;
        return Ok(Ids::Range { base, count });
    }
    let (uid, gid) = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    step(
        "create a user namespace",
        sys::unshare(proof, UnshareFlags::NEWUSER | UnshareFlags::NEWNS),
    )?;
    step("write setgroups", fs::write("/proc/self/setgroups", "deny"))?;
    step("write uid_map", fs::write("/proc/self/uid_map", format!("0 {uid} 1")))?;
    step("write gid_map", fs::write("/proc/self/gid_map", format!("0 {gid} 1")))?;
    Ok(Ids::Own)
}

/// 64 Ki ids that no user of this machine has: above every range that distributions hand out, at a
/// place that differs between servers; or the upper end of what a container was given.
fn free_ids() -> Option<(u32, u32)> {
    const WANTED: u32 = 65_536;
    const FIRST: u32 = 0x7000_0000;
    const LEAST: u32 = 1_024;
    let text = fs::read_to_string("/proc/self/uid_map").ok()?;
    let groups = fs::read_to_string("/proc/self/gid_map").ok()?;
    if text.split_whitespace().ne(groups.split_whitespace()) {
        return None;
    }
    let slot = random()? % 4_000;
    text.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u32>().ok());
        let (first, _, count) = (words.next()??, words.next()??, words.next()??);
        let end = first.saturating_add(count);
        let placed = FIRST + slot * WANTED;
        if first <= placed && placed + WANTED <= end {
            return Some((placed, WANTED));
        }
        // A container's own range: its upper half is the least likely to be in use.
        let half = count / 2;
        (half >= LEAST).then(|| (end - half, half.min(WANTED)))
    })
}

fn random() -> Option<u32> {
    use std::io::Read as _;
    let mut bytes = [0; 4];
    fs::File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
    Some(u32::from_ne_bytes(bytes))
}

pub(crate) fn write_maps(pid: Pid, map: &str) -> Result<(), Failure> {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    for file in ["uid_map", "gid_map"] {
        step(format!("write {file}"), fs::write(format!("{folder}/{file}"), map))?;
    }
    Ok(())
}

/// Answers folder requests until the server or the inner half is gone, then ends both.
fn serve_trees(trees: &OwnedFd, inner: &OwnedFd, proof: SingleThreaded) -> Result<(), Failure> {
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
            let answered = match tree(&order, fds, proof) {
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

/// A detached mount of the folder. The path was checked by the server; that it is still the same
/// folder is checked here, on the descriptor that is used.
fn tree(order: &TreeOrder, fds: Vec<OwnedFd>, proof: SingleThreaded) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder =
        step("open the folder", rustix::fs::openat(CWD, &order.path, flags, Mode::empty()))?;
    let folder = fs::File::from(folder);
    let metadata = step("look at the folder", folder.metadata())?;
    if (metadata.dev(), metadata.ino()) != (order.device, order.inode) {
        let error = io::Error::other("another folder has taken its place");
        return step("look at the folder", Err(error));
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = step("clone the folder's mount", open_tree(&folder, "", flags))?;
    let attributes = sys::MOUNT_NOSUID | sys::MOUNT_NODEV;
    step("restrict the folder's mount", sys::mount_setattr(&tree, false, attributes))?;
    let namespace = match order.owner {
        Owner::Same => None,
        Owner::Room => {
            let none = || io::Error::other("no user namespace came with the order");
            Some(step("find the mapping", fds.into_iter().next().ok_or_else(none))?)
        }
        Owner::Other(idmap) => Some(idmap_namespace(idmap, proof)?),
    };
    if let Some(namespace) = namespace {
        let mapped = sys::mount_idmap(&tree, namespace.as_fd());
        step("map the folder's owner (its file system may not support this)", mapped)?;
    }
    Ok(tree)
}

/// A user namespace whose only purpose is its mapping: owner on disk ↔ the session's id.
fn idmap_namespace(idmap: Idmap, proof: SingleThreaded) -> Result<OwnedFd, Failure> {
    let Idmap { disk_uid, disk_gid, session_id } = idmap;
    let forked = sys::clone3(proof, widen(libc::CLONE_NEWUSER));
    match step("create a mapping", forked)? {
        Forked::Child => loop {
            if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
                sys::exit_now(1);
            }
            // Until killed; a signal in between changes nothing.
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
