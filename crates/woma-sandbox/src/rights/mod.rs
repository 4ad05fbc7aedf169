//! Dropping root: a server that was started as root does it before it accepts input. A keeper
//! performs the few privileged operations ([`crate::keeper`]).
//!
//! The server keeps a user of its own, no capabilities and no way to gain any, access to the data
//! folder and to required system files, and a list of refused system calls. No step is best effort,
//! and [`check`] verifies the result: a server that is not confined does not start.

mod folders;
mod trial;
mod user;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, open};
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

pub use crate::Error;
pub use folders::{hand_over, take_back};
pub(crate) use trial::{ARGUMENT as TRIAL, main as trial};
pub use user::{User, choose};

use crate::failure::{Failure, step};
pub use crate::spec::Environment;
use crate::steward::control::{PrivilegeBounds, RoomIds};
use crate::sys::{self, SingleThreaded};
use crate::{keeper, landlock, proof, sandbox, seccomp};

/// Paths that every server reads: name resolution and certificates, the C library's modules for
/// both, the processes and groups of its sessions. `/etc` as a whole: files in it are replaced by
/// renaming, and a rule would stay with the old file.
const READABLE: &[&str] = &[
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/zoneinfo",
    "/proc",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/run/NetworkManager",
    "/run/nscd",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/dev/random",
    "/dev/urandom",
];
const WRITABLE: &[&str] = &["/dev/null"];
/// Time for which a thread that has ended may still be counted.
const THREADS_TIME_MAX: Duration = Duration::from_secs(2);
/// Number of capabilities that the kernel's interface can represent.
const CAPABILITIES: u32 = 64;

/// Access that a server needs after dropping root.
#[derive(Debug)]
pub struct Plan<'a> {
    pub user: User,
    /// Folders and files that it owns.
    pub writable: Vec<PathBuf>,
    /// Paths that it reads besides [`READABLE`].
    pub readable: Vec<PathBuf>,
    /// Folders that contain the sessions' folders.
    pub workspaces: Vec<PathBuf>,
    /// Environments that are shown to sessions.
    pub environments: &'a [Environment],
    pub uploads: Option<&'a Path>,
}

/// Starts the keeper and drops root permanently. Call it before any thread exists.
pub fn give_up(plan: &Plan<'_>) -> Result<(), Error> {
    let given_up = (|| {
        let alone = step("check threads", SingleThreaded::prove_soon(THREADS_TIME_MAX))?;
        let bounds = step("find the folders", bounds(plan))?;
        step("start the keeper", keeper::start(bounds))?;
        switch_user(&plan.user)?;
        for path in &plan.writable {
            step("reach its files", reach(path, &plan.user, WRITE))?;
        }
        // Sessions are shown only what the server itself can read.
        for (path, _) in shown(plan) {
            step("reach what sessions see", reach(&path, &plan.user, Access::READ_OK))?;
        }
        confine(&plan.readable, &plan.writable)?;
        step("look at the result", check(&plan.user, alone))
    })();
    given_up.map_err(refused)
}

/// Becomes another user permanently: for a command that works in the server's folder.
pub fn become_user(user: &User, folder: &Path) -> Result<(), Error> {
    let alone = step("check threads", SingleThreaded::prove_soon(THREADS_TIME_MAX));
    let switch_user = alone.and_then(|_| switch_user(user));
    let reached = switch_user.and_then(|()| step("reach its files", reach(folder, user, WRITE)));
    reached.map_err(refused)
}

/// User and group of this process, if it has dropped root.
pub fn given_up() -> Option<(u32, u32)> {
    keeper::of_this_process().map(|keeper| (keeper.user().uid, keeper.user().gid))
}

fn refused(failure: Failure) -> Error {
    Error::Rights { step: failure.step, reason: failure.source.to_string() }
}

fn bounds(plan: &Plan<'_>) -> io::Result<PrivilegeBounds> {
    let place = |folder: &PathBuf| Ok((std::path::absolute(folder)?, folder.canonicalize()?));
    Ok(PrivilegeBounds {
        server: RoomIds { uid: plan.user.uid, gid: plan.user.gid },
        folders: plan.workspaces.iter().map(place).collect::<io::Result<_>>()?,
        mounts: shown(plan),
    })
}

/// Host paths that sessions see, each with its path inside.
fn shown(plan: &Plan<'_>) -> Vec<(PathBuf, PathBuf)> {
    let mut shown = Vec::new();
    for environment in plan.environments {
        shown.extend(sandbox::shown(environment, plan.uploads));
    }
    shown.sort();
    shown.dedup();
    shown
}

/// The order matters: groups while still root, then the ids, then the remaining privileges.
fn switch_user(user: &User) -> Result<(), Failure> {
    for capability in 0..CAPABILITIES {
        let set = CapabilitySet::from_bits_retain(1 << capability);
        match remove_capability_from_bounding_set(set) {
            // Beyond the last capability of this kernel.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return step("empty the bounding set", Err(error)),
        }
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    step("drop groups", set_thread_groups(&[]))?;
    step("set the group", set_thread_res_gid(gid, gid, gid))?;
    step("set the user", set_thread_res_uid(uid, uid, uid))?;
    step("drop ambient capabilities", clear_ambient_capability_set())?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    step("drop capabilities", set_capabilities(None, sets))?;
    step("gain no privileges", set_no_new_privs(true))?;
    // This memory holds keys: no other process of the same user may read it, and no core file may
    // contain it.
    step("hide its memory", set_dumpable_behavior(DumpableBehavior::NotDumpable))
}

const WRITE: Access = Access::READ_OK.union(Access::WRITE_OK);

/// Checks that the user can access a path; the error names the folder that denies it.
fn reach(path: &Path, user: &User, wanted: Access) -> io::Result<()> {
    let may = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS);
    let path = std::path::absolute(path)?;
    let mut way: Vec<&Path> = path.ancestors().skip(1).collect();
    way.reverse();
    if let Some(closed) = way.into_iter().find(|folder| may(folder, Access::EXEC_OK).is_err()) {
        return Err(io::Error::other(format!(
            "{user} cannot reach {}: {} is closed to others",
            path.display(),
            closed.display(),
        )));
    }
    let wanted = if path.is_dir() { wanted | Access::EXEC_OK } else { wanted };
    match may(&path, wanted) {
        // Read-only file system; the store reports that best.
        Ok(()) | Err(rustix::io::Errno::ROFS) => Ok(()),
        Err(error) => {
            let error = io::Error::from(error);
            let text = format!("{user} may not use {}: {error}", path.display());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

fn confine(readable: &[PathBuf], writable: &[PathBuf]) -> Result<(), Failure> {
    let programs = step("compile the system call filter", seccomp::compile_server())?;
    let paths = |fixed: &[&str], more: &[PathBuf]| -> Vec<PathBuf> {
        fixed.iter().map(PathBuf::from).chain(more.iter().cloned()).collect()
    };
    let (readable, writable) = (paths(READABLE, readable), paths(WRITABLE, writable));
    step("confine it by Landlock", landlock::confine(&readable, &writable))?;
    for program in programs {
        step("load the system call filter", sys::load_filter(&program))?;
    }
    Ok(())
}

/// Verifies the credentials of this process, and that the kernel refuses what it must.
fn check(user: &User, alone: SingleThreaded) -> io::Result<()> {
    let failed = |what: String| Err(io::Error::other(what));
    if let Err(what) = proof::check_own(user.uid, user.gid) {
        return failed(what);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if open("/", flags, Mode::empty()).is_ok() {
        return failed("it can list the root folder: Landlock is not in effect".to_owned());
    }
    if sys::unshare(alone, UnshareFlags::empty()).is_ok() {
        return failed(
            "it can create namespaces: the system call filter is not in effect".to_owned(),
        );
    }
    if set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok() {
        return failed("it can become root again".to_owned());
    }
    Ok(())
}
