//! A room: one session's namespaces, and `init`, the small process that is pid 1 in them.
//!
//! Init makes the mounts, then serves one-letter commands of the server. It runs no user code and
//! user code cannot affect it: it has capabilities that the cell lacks, it is outside the cell's
//! Landlock domain, and a pid 1 ignores signals from its own pid namespace. When its socket closes,
//! because the server dropped the session or died, init exits, and the Linux kernel kills
//! everything in the room.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat, symlinkat};
use rustix::mount::{
    MountFlags, OpenTreeFlags, UnmountFlags, mount, mount_remount, open_tree, unmount,
};
use rustix::process::{
    DumpableBehavior, Gid, Signal, Uid, chdir, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_thread_res_gid,
    set_thread_res_uid,
};

use super::commands::{
    COMMAND_DATA_LIMIT, COMMAND_DATASETS, COMMAND_INTERRUPT, COMMAND_KERNEL, COMMAND_KILL_CHILDREN,
    COMMAND_KILL_LARGEST, COMMAND_LOWER_DATA_LIMIT, COMMAND_MEMORY_ERROR, COMMAND_PACKAGES,
    COMMAND_PREPARE, COMMAND_SEAL, COMMAND_SOCKET, COMMAND_SWEEP, COMMAND_WORKSPACE,
};
use super::control::{Furnishing, RoomIds};
use super::launcher::{widen, write_maps};
use super::processes::{
    KERNEL_PID, data_limit, interrupt, kernel_pid, kill_children, kill_largest_child, limit_data,
    raise_memory_error, sweep,
};
use super::root::{self, Inodes, attach, cover_proc, pivot};
use super::shared::{self, Base, Places};
use super::sockets;
use super::template::{DATASETS, PACKAGES, ROOM, SCRATCH, SESSIONS, Template, WORKSPACE};
use crate::channel;
use crate::failure::{Failure, step};
use crate::landlock;
use crate::limits::watchdog::data_bytes;
use crate::sys::{self, Forked, SingleThreaded};

const ROOM_NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// User and group of the session inside the room, unless the server has a user of its own.
pub(crate) const ROOM_ID: u32 = 1000;
/// Data of a thread that starts, with its stack, in bytes.
pub(super) const THREAD_DATA_BYTES: u64 = 9 * 1024 * 1024;

/// Settings of the room's network namespace: TCP buffers are charged to the whole host. Minimum,
/// initial and maximum bytes per connection.
const TCP_BUFFERS: &[(&str, &str)] =
    &[("tcp_rmem", "4096 65536 131072"), ("tcp_wmem", "4096 16384 131072")];

const NAMES: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// A room with its init, empty until it is furnished.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) id: u64,
    /// Init's command socket.
    pub(crate) commands: OwnedFd,
    pub(crate) init: OwnedFd,
    /// The session's uid in the steward's user namespace.
    pub(crate) uid: u32,
    /// Namespace that a zygote enters; init itself cannot be inspected while it changes its ids.
    pub(crate) pid_namespace: OwnedFd,
    /// Becomes readable when the room is furnished: one byte and the room's Landlock ruleset, or
    /// end of file on failure. So the fork, the slowest step, does not wait for the mounts.
    pub(crate) ready_socket: OwnedFd,
    /// Folders of a session without mounts.
    pub(crate) places: Option<Places>,
}

/// Plan from which all rooms of a steward are built.
#[derive(Debug)]
pub(crate) struct RoomPlan {
    pub(crate) template: Template,
    pub(crate) inodes: Inodes,
    pub(crate) ids: RoomIds,
    /// For sessions without rooms; the template is then empty.
    pub(crate) base: Option<Base>,
}

impl RoomPlan {
    pub(crate) fn shared(base: Base, ids: RoomIds) -> Self {
        let inodes = Inodes::Shared(String::new());
        Self { template: Template::default(), inodes, ids, base: Some(base) }
    }
}

/// Creates a room and starts its init on the parts that all rooms share.
pub(crate) fn create(
    id: u64,
    uid: u32,
    plan: &RoomPlan,
    proof: SingleThreaded,
) -> Result<Room, Failure> {
    let (commands, theirs) = step("make a socket", channel::pair())?;
    let (ready_socket, ready_sender) = step("make a socket", channel::pair())?;
    match step("create the room's namespaces", sys::clone3(proof, widen(ROOM_NAMESPACES)))? {
        Forked::Child => main(theirs, ready_sender, plan),
        Forked::Parent { pid, pidfd: init } => {
            drop((theirs, ready_sender));
            let RoomIds { uid: inside_uid, gid: inside_gid } = plan.ids;
            write_maps(pid, &format!("{inside_uid} {uid} 1"), &format!("{inside_gid} {uid} 1"))?;
            let path = format!("/proc/{}/ns/pid", pid.as_raw_nonzero());
            let pid_namespace = step("open the pid namespace", fs::File::open(path))?.into();
            step("release init", channel::send_bytes(&commands, b"go", &[]))?;
            Ok(Room { id, commands, init, uid, pid_namespace, ready_socket, places: None })
        }
    }
}

/// Makes one session's room, or what stands for it, and ends it again: some of what it needs is
/// refused although the outer sandbox could be built.
pub(crate) fn try_one(
    plan: &RoomPlan,
    has_ids: bool,
    proof: SingleThreaded,
) -> Result<(), Failure> {
    const MIB: u64 = 1024 * 1024;
    let room = match plan.base {
        Some(_) => shared::create(0, plan, proof)?,
        None => create(0, u32::from(has_ids), plan, proof)?,
    };
    room.furnish(&Furnishing {
        workspace_bytes: MIB,
        workspace_files: 16,
        scratch_bytes: MIB,
        workspace: None,
    })?;
    room.receive_reply()
}

impl Room {
    /// Has init mount the file systems of this session.
    pub(crate) fn furnish(&self, furnishing: &Furnishing) -> Result<(), Failure> {
        step("furnish the room", channel::send(&self.commands, furnishing, &[]))
    }

    /// Tells a minder its kernel; init knows it by its number.
    pub(crate) fn tell_kernel(&self, kernel: &OwnedFd) -> Result<(), Failure> {
        let told = channel::send_bytes(&self.commands, COMMAND_KERNEL, &[kernel.as_fd()]);
        step("tell the minder its kernel", told)
    }

    /// Reads init's reply to furnishing.
    pub(crate) fn receive_reply(&self) -> Result<(), Failure> {
        let mut answer = [0; 256];
        let received = channel::receive_bytes(&self.commands, &mut answer);
        let (length, _) = step("wait for init", received)?;
        match answer.get(..length) {
            Some(b"ok") => Ok(()),
            Some(b"") | None => step("furnish the room", Err(io::Error::other("init has ended"))),
            Some(text) => {
                let text = String::from_utf8_lossy(text).into_owned();
                step("furnish the room", Err(io::Error::other(text)))
            }
        }
    }
}

/// Pid 1 of the room. Never returns into the steward's code.
fn main(commands: OwnedFd, ready_sender: OwnedFd, plan: &RoomPlan) -> ! {
    // This is a copy of the steward: its descriptors are closed first. Only the command socket, as
    // number 0, and the ready socket, as number 1, are kept.
    let kept = keep(commands, ready_sender);
    let Ok((commands, ready_sender)) = kept else { sys::exit_now(3) };
    let furnished = build(&commands, plan).and_then(|ruleset| {
        furnish(&commands)?;
        step(
            "report that the room is ready",
            channel::send_bytes(&ready_sender, b"!", &[ruleset.as_fd()]),
        )
    });
    drop(ready_sender);
    let served = match furnished {
        Ok(()) => {
            channel::send_bytes(&commands, b"ok", &[]).and_then(|()| serve_commands(&commands))
        }
        Err(failure) => channel::send_bytes(&commands, failure.to_string().as_bytes(), &[]),
    };
    sys::exit_now(i32::from(served.is_err()))
}

pub(super) fn keep(commands: OwnedFd, ready_sender: OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
    // Each may have the other's number.
    let high = rustix::io::fcntl_dupfd_cloexec(&ready_sender, 100)?;
    sys::place_fd(commands.as_fd(), 0)?;
    sys::place_fd(high.as_fd(), 1)?;
    std::mem::forget((commands, ready_sender, high));
    sys::close_from(2)?;
    Ok((sys::inherited_fd(0)?, sys::inherited_fd(1)?))
}

/// Serves the server's commands until it closes the socket. Pid 1 of a container does so too.
pub(crate) fn serve_commands(commands: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0; 512];
    let mut has_spare = false;
    let mut names = None;
    loop {
        let (length, mut fds) = channel::receive_bytes(commands, &mut buffer)?;
        let mut given = None;
        let answer = match buffer.get(..length).unwrap_or_default() {
            b"" => return Ok(()),
            COMMAND_INTERRUPT => interrupt().map(|()| 0),
            COMMAND_SWEEP => sweep(),
            COMMAND_KILL_LARGEST => kill_largest_child(),
            COMMAND_MEMORY_ERROR => raise_memory_error().map(|()| 0),
            COMMAND_KILL_CHILDREN => kill_children(),
            [COMMAND_DATA_LIMIT, bytes @ ..] => {
                kernel_pid().and_then(|pid| limit_data(pid, bytes, 0, u64::MAX)).map(|()| 0)
            }
            [COMMAND_LOWER_DATA_LIMIT, bytes @ ..] => {
                let least = data_bytes(KERNEL_PID.cast_unsigned()) + THREAD_DATA_BYTES;
                let most = data_limit(KERNEL_PID);
                kernel_pid().and_then(|pid| limit_data(pid, bytes, least, most)).map(|()| 0)
            }
            COMMAND_SEAL => seal().map(|()| 0),
            COMMAND_PREPARE => {
                has_spare = !fds.is_empty();
                prepare(fds.pop()).and_then(|prepared| keep_names(prepared, &mut names, &mut given))
            }
            [COMMAND_WORKSPACE, name @ ..] => {
                attach_workspace(fds.pop(), name, has_spare, names.as_ref()).map(|()| 0)
            }
            COMMAND_DATASETS => attach_shown(fds.pop(), DATASETS).map(|()| 0),
            COMMAND_PACKAGES => attach_shown(fds.pop(), PACKAGES).map(|()| 0),
            [COMMAND_SOCKET, order @ ..] => sockets::make(order).map(|socket| {
                given = Some(socket);
                0
            }),
            _ => Err(io::Error::other("unknown command")),
        };
        let text = match answer {
            Ok(count) => format!("ok {count}"),
            Err(error) => match error.raw_os_error() {
                Some(code) => format!("errno {code}"),
                None => error.to_string(),
            },
        };
        let given: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        channel::send_bytes(commands, text.as_bytes(), &given)?;
    }
}

/// Keeps one descriptor for init: an unprivileged server has init link the name.
fn keep_names(
    prepared: Option<OwnedFd>,
    ours: &mut Option<OwnedFd>,
    given: &mut Option<OwnedFd>,
) -> io::Result<usize> {
    *ours = prepared.as_ref().map(OwnedFd::try_clone).transpose()?;
    *given = prepared;
    Ok(0)
}

/// Mounts the session's folder and links its name, in the prepared folder or in one that is mounted
/// now.
fn attach_workspace(
    tree: Option<OwnedFd>,
    name: &[u8],
    has_spare: bool,
    names: Option<&OwnedFd>,
) -> io::Result<()> {
    if let Some(tree) = tree {
        if has_spare {
            // Not mounted on top: a mount goes away with the folder it is on.
            unmount(WORKSPACE, UnmountFlags::DETACH)?;
        }
        attach(tree.as_fd(), WORKSPACE)?;
    }
    if name.is_empty() {
        return Ok(());
    }
    if let Some(names) = names {
        return Ok(symlinkat(WORKSPACE, names, OsStr::from_bytes(name))?);
    }
    if !mount_names()? {
        return Ok(());
    }
    symlink(WORKSPACE, Path::new(SESSIONS).join(OsStr::from_bytes(name)))?;
    close_names()
}

/// Mounts a folder that the launcher has made read-only.
fn attach_shown(tree: Option<OwnedFd>, at: &str) -> io::Result<()> {
    let tree = tree.ok_or_else(|| io::Error::other("no folder came with the command"))?;
    attach(tree.as_fd(), at)
}

/// Prepares a session whose name is not known yet: returns a writable mount of the names folder,
/// which only the holder of the descriptor can reach.
fn prepare(tree: Option<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    if let Some(tree) = tree {
        attach(tree.as_fd(), WORKSPACE)?;
    }
    if !mount_names()? {
        return Ok(None);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let open = open_tree(CWD, SESSIONS, flags)?;
    close_names()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some(openat(&open, ".", flags, Mode::empty())?))
}

/// Returns false if the environment occupies that path; the name is then not shown.
fn mount_names() -> io::Result<bool> {
    if !Path::new(SESSIONS).is_dir() {
        return Ok(false);
    }
    mount("tmpfs", SESSIONS, "tmpfs", NAMES, Some(c"mode=755,size=4k,nr_inodes=4"))?;
    Ok(true)
}

/// Makes the names folder read-only, before any user code runs.
fn close_names() -> io::Result<()> {
    Ok(mount_remount(SESSIONS, NAMES | MountFlags::RDONLY | MountFlags::BIND, "")?)
}

pub(super) fn seal() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Builds the parts that all rooms share, and their Landlock ruleset.
fn build(commands: &OwnedFd, plan: &RoomPlan) -> Result<OwnedFd, Failure> {
    let mut go = [0; 8];
    let death = set_parent_process_death_signal(Some(Signal::KILL));
    step("die with the steward", death)?;
    let (length, _) = step("wait for the id map", channel::receive_bytes(commands, &mut go))?;
    if length == 0 {
        sys::exit_now(0);
    }
    become_room_user(plan.ids)?;
    root::build(&plan.template, &plan.inodes)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // While the steward's /proc is still visible: a new one may only be mounted beside a complete
    // one.
    step("mount proc", mount("proc", format!("{ROOM}/proc"), "proc", flags, None))?;
    step("enter the root", chdir(ROOM))?;
    pivot()?;
    for (what, bytes) in TCP_BUFFERS {
        step(format!("limit {what}"), fs::write(format!("/proc/sys/net/ipv4/{what}"), bytes))?;
    }
    cover_proc(&plan.template)?;
    // Some containers refuse it. The name is no wall: it is then the container's, which every process
    // in it may read.
    if let Err(error) = rustix::system::sethostname(b"woma")
        && error != rustix::io::Errno::PERM
    {
        return step("name the room", Err(error));
    }
    step("bring loopback up", sys::loopback_up())?;
    step("reap children", sys::reap_automatically())?;
    step("make the Landlock ruleset", landlock::ruleset(Path::new("/")))
}

/// Mounts the file systems of the session. A spare room waits here.
fn furnish(commands: &OwnedFd) -> Result<(), Failure> {
    let Some((furnishing, _)) = step("wait for a session", channel::receive(commands))? else {
        sys::exit_now(0);
    };
    let Furnishing { workspace_bytes, workspace_files, scratch_bytes, .. } = furnishing;
    mount_memory(WORKSPACE, workspace_bytes, workspace_files, 0o700)?;
    scratch(SCRATCH, scratch_bytes)
}

/// Takes the room's ids but keeps the capabilities, which are confined to the room.
fn become_room_user(ids: RoomIds) -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    step("keep capabilities", set_keep_capabilities(true))?;
    step("set the group", set_thread_res_gid(gid, gid, gid))?;
    step("set the user", set_thread_res_uid(uid, uid, uid))?;
    let all = rustix::thread::capabilities(None);
    let permitted = step("read capabilities", all)?.permitted;
    let sets =
        CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    step("raise capabilities", set_capabilities(None, sets))?;
    // Changing ids clears both. The zygote enters the room through our pidfd, which requires that
    // we are dumpable; the server revokes that before any user code runs.
    let death = set_parent_process_death_signal(Some(Signal::KILL));
    step("die with the steward", death)?;
    step("become dumpable", set_dumpable_behavior(DumpableBehavior::Dumpable))
}

/// Private memory of a process tree: temporary files, shared memory, configuration folders.
pub(crate) fn scratch(at: &str, bytes: u64) -> Result<(), Failure> {
    const FILES_MAX: u64 = 65_536;
    mount_memory(at, bytes, FILES_MAX, 0o755)?;
    scratch_folders(at)
}

pub(crate) fn scratch_folders(at: &str) -> Result<(), Failure> {
    for folder in ["tmp", "shm", "config"] {
        step("make scratch folders", fs::create_dir(Path::new(at).join(folder)))?;
    }
    Ok(())
}

pub(crate) fn mount_memory(at: &str, bytes: u64, files: u64, mode: u32) -> Result<(), Failure> {
    // The root folder itself takes one inode.
    let options = format!("size={bytes},nr_inodes={},mode={mode:o}\0", files.saturating_add(1));
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes());
    let options = step("mount memory", options.map_err(io::Error::other))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    step(format!("mount memory on {at}"), mount("tmpfs", at, "tmpfs", flags, Some(options)))
}
