//! A room: one session's namespaces, and `init`, the small process that is pid 1 in them.
//!
//! Init makes the mounts, then waits for one-letter commands from the server. It runs no user code
//! and is out of its reach: it holds capabilities that the cell lacks, the cell is in a Landlock
//! domain that init is not in, and signals from inside its own pid namespace do not reach a pid 1.
//! When its socket closes, because the server let go of the session or died, init ends, and the
//! kernel ends everything in the room with it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind_recursive,
    mount_remount, move_mount, open_tree, unmount,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Gid, Pid, Signal, Uid, chdir, kill_process, kill_process_group, pivot_root,
    set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_thread_res_gid,
    set_thread_res_uid,
};

use super::control::Furnishing;
use super::launcher::{widen, write_maps};
use super::template::{SCRATCH, SESSIONS, TEMPLATE, WORKSPACE};
use crate::channel;
use crate::failure::{Failure, step};
use crate::sys::{self, Forked, SingleThreaded};

const ROOM_NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// The session's user and group inside the room.
pub(crate) const ROOM_ID: u32 = 1000;
/// The kernel is the first process that enters the room after init, and it leads its own group.
const KERNEL_PID: i32 = 2;

/// Parts of /proc that tell about the machine and not about the room. What only root may read is
/// not listed, for nobody in a room is root, nor what every program may know (cpuinfo, meminfo).
const MASKED_FILES: &[&str] = &[
    "cmdline",
    "config.gz",
    "diskstats",
    "interrupts",
    "kallsyms",
    "key-users",
    "keys",
    "modules",
    "partitions",
    "swaps",
];

/// What the kernel counts per user and not per cgroup, and would put on the account of the server's
/// own user: each room has bounds of its own.
const COUNTED: &[(&str, &str)] =
    &[("max_inotify_instances", "16"), ("max_inotify_watches", "8192")];

/// Commands that init takes from the server; each is answered by `ok` and a count, or by the reason
/// why not.
pub(crate) const COMMAND_INTERRUPT: &[u8] = b"I";
pub(crate) const COMMAND_SWEEP: &[u8] = b"S";
/// Followed by the session's name if it has one; with a descriptor if its workspace is a folder.
pub(crate) const COMMAND_WORKSPACE: u8 = b'W';
/// As above, for a session to come: answered with a descriptor of where its name goes.
pub(crate) const COMMAND_PREPARE: &[u8] = b"P";
/// The kernel is in: from now on nobody in the room may look at init.
pub(crate) const COMMAND_SEAL: &[u8] = b"L";

const NAMES: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// A room with its init, empty until it is furnished.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) id: u64,
    /// Init's command socket.
    pub(crate) commands: OwnedFd,
    pub(crate) init: OwnedFd,
    /// The session's id in the steward's user namespace.
    pub(crate) uid: u32,
    /// A zygote enters by this; init itself cannot be looked at while it changes its ids.
    pub(crate) pid_namespace: OwnedFd,
    /// One byte can be read here when the room is furnished; the end, if it never will be. So the
    /// fork, the longest step of all, does not have to wait for the mounts.
    pub(crate) bell: OwnedFd,
}

/// Creates a room and sets its init to work on what every room has.
pub(crate) fn create(id: u64, uid: u32, proof: SingleThreaded) -> Result<Room, Failure> {
    let (commands, theirs) = step("make a socket", channel::pair())?;
    let (bell, rope) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
    match step("create the room's namespaces", sys::clone3(proof, widen(ROOM_NAMESPACES)))? {
        Forked::Child => main(theirs, rope),
        Forked::Parent { pid, pidfd: init } => {
            drop((theirs, rope));
            write_maps(pid, &format!("{ROOM_ID} {uid} 1"))?;
            let path = format!("/proc/{}/ns/pid", pid.as_raw_nonzero());
            let pid_namespace = step("open the pid namespace", fs::File::open(path))?.into();
            step("release init", channel::send_bytes(&commands, b"go", &[]))?;
            Ok(Room { id, commands, init, uid, pid_namespace, bell })
        }
    }
}

impl Room {
    /// Has init mount what this session gets.
    pub(crate) fn furnish(&self, furnishing: &Furnishing) -> Result<(), Failure> {
        step("furnish the room", channel::send(&self.commands, furnishing, &[]))
    }

    /// How furnishing went, to be read when it is there.
    pub(crate) fn hear(&self) -> Result<(), Failure> {
        let mut answer = [0; 256];
        let heard = channel::receive_bytes(&self.commands, &mut answer);
        let (length, _) = step("wait for init", heard)?;
        match answer.get(..length) {
            Some(b"ok") => Ok(()),
            Some(b"") | None => step("furnish the room", Err(io::Error::other("init died"))),
            Some(text) => {
                let text = String::from_utf8_lossy(text).into_owned();
                step("furnish the room", Err(io::Error::other(text)))
            }
        }
    }
}

/// Pid 1 of the room. Never returns into the steward's code.
fn main(commands: OwnedFd, rope: OwnedFd) -> ! {
    // This is a copy of the steward: its descriptors go before anything else. What is left is the
    // socket, as number 0, and the bell's rope, as number 1.
    let kept = keep(commands, rope);
    let Ok((commands, rope)) = kept else { sys::exit_now(3) };
    let furnished = build(&commands)
        .and_then(|()| furnish(&commands))
        .and_then(|()| step("ring the bell", rustix::io::write(&rope, b"!")).map(|_| ()));
    drop(rope);
    let served = match furnished {
        Ok(()) => serve(&commands),
        Err(failure) => channel::send_bytes(&commands, failure.to_string().as_bytes(), &[]),
    };
    sys::exit_now(i32::from(served.is_err()))
}

fn keep(commands: OwnedFd, rope: OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
    // Either may sit on the other's number.
    let high = rustix::io::fcntl_dupfd_cloexec(&rope, 100)?;
    sys::place_fd(commands.as_fd(), 0)?;
    sys::place_fd(high.as_fd(), 1)?;
    std::mem::forget((commands, rope, high));
    sys::close_from(2)?;
    Ok((sys::inherited_fd(0)?, sys::inherited_fd(1)?))
}

fn serve(commands: &OwnedFd) -> io::Result<()> {
    channel::send_bytes(commands, b"ok", &[])?;
    let mut buffer = [0; 512];
    let mut has_spare = false;
    loop {
        let (length, mut fds) = channel::receive_bytes(commands, &mut buffer)?;
        let mut given = None;
        let answer = match buffer.get(..length).unwrap_or_default() {
            b"" => return Ok(()),
            COMMAND_INTERRUPT => interrupt().map(|()| 0),
            COMMAND_SWEEP => sweep(),
            COMMAND_SEAL => seal().map(|()| 0),
            COMMAND_PREPARE => {
                has_spare = !fds.is_empty();
                prepare(fds.pop()).map(|names| given = names).map(|()| 0)
            }
            [COMMAND_WORKSPACE, name @ ..] => move_in(fds.pop(), name, has_spare).map(|()| 0),
            _ => Err(io::Error::other("unknown command")),
        };
        let text = match answer {
            Ok(count) => format!("ok {count}"),
            Err(error) => error.to_string(),
        };
        let given: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        channel::send_bytes(commands, text.as_bytes(), &given)?;
    }
}

/// What a session brings along: its folder, and the name under which it looks for it.
fn move_in(tree: Option<OwnedFd>, name: &[u8], has_spare: bool) -> io::Result<()> {
    if let Some(tree) = tree {
        if has_spare {
            // Not on top of it: a mount goes when the folder goes that it is on.
            unmount(WORKSPACE, UnmountFlags::DETACH)?;
        }
        attach(tree.as_fd(), WORKSPACE)?;
    }
    if name.is_empty() || !mount_names()? {
        return Ok(());
    }
    symlink(WORKSPACE, Path::new(SESSIONS).join(OsStr::from_bytes(name)))?;
    close_names()
}

/// For a session whose name is not known yet: a mount of the same place that is not closed, and
/// that only who holds the descriptor can reach.
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

/// Where the environment lives at that path the name gives way.
fn mount_names() -> io::Result<bool> {
    if !Path::new(SESSIONS).is_dir() {
        return Ok(false);
    }
    mount("tmpfs", SESSIONS, "tmpfs", NAMES, Some(c"mode=755,size=4k,nr_inodes=4"))?;
    Ok(true)
}

/// Before any code of a user runs.
fn close_names() -> io::Result<()> {
    Ok(mount_remount(SESSIONS, NAMES | MountFlags::RDONLY | MountFlags::BIND, "")?)
}

fn seal() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn interrupt() -> io::Result<()> {
    let Some(kernel) = Pid::from_raw(KERNEL_PID) else { return Ok(()) };
    Ok(kill_process_group(kernel, Signal::INT)?)
}

/// Kills every process of the room except the kernel; says how many are still there at the end.
/// A few rounds are enough for everything but a fork bomb, and for that the room itself must go.
fn sweep() -> io::Result<usize> {
    const ROUNDS_MAX: usize = 50;
    let mut left = 0;
    for _ in 0..ROUNDS_MAX {
        let others = others()?;
        left = others.len();
        if left == 0 {
            break;
        }
        for pid in others {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        rustix::thread::sched_yield();
    }
    Ok(left)
}

fn others() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(raw) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if raw == 1 || raw == KERNEL_PID || is_zombie(raw) {
            continue;
        }
        pids.extend(Pid::from_raw(raw));
    }
    Ok(pids)
}

/// A zombie is a child that the kernel process has not waited for: dead, and not ours to reap.
fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// What every room has.
fn build(commands: &OwnedFd) -> Result<(), Failure> {
    let mut go = [0; 8];
    let death = set_parent_process_death_signal(Some(Signal::KILL));
    step("die with the steward", death)?;
    let (length, _) = step("wait for the id map", channel::receive_bytes(commands, &mut go))?;
    if length == 0 {
        sys::exit_now(0);
    }
    become_room_user()?;
    step("bind the template", mount_bind_recursive(TEMPLATE, TEMPLATE))?;
    proc(&format!("{TEMPLATE}/proc"))?;
    step("enter the template", chdir(TEMPLATE))?;
    pivot()?;
    for (what, most) in COUNTED {
        step(format!("limit {what}"), fs::write(format!("/proc/sys/user/{what}"), most))?;
    }
    step("name the room", rustix::system::sethostname(b"woma"))?;
    step("bring loopback up", sys::loopback_up())?;
    step("reap children", sys::reap_automatically())
}

/// What this session has. A spare room waits here.
fn furnish(commands: &OwnedFd) -> Result<(), Failure> {
    let Some((furnishing, _)) = step("wait for a session", channel::receive(commands))? else {
        sys::exit_now(0);
    };
    let Furnishing { workspace_bytes, workspace_files, scratch_bytes } = furnishing;
    mount_memory(WORKSPACE, workspace_bytes, workspace_files, 0o700)?;
    scratch(SCRATCH, scratch_bytes)
}

/// Takes the room's id but keeps the capabilities: they reach no further than the room.
fn become_room_user() -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(ROOM_ID), Gid::from_raw(ROOM_ID));
    step("keep capabilities", set_keep_capabilities(true))?;
    step("set the group", set_thread_res_gid(gid, gid, gid))?;
    step("set the user", set_thread_res_uid(uid, uid, uid))?;
    let all = rustix::thread::capabilities(None);
    let permitted = step("read capabilities", all)?.permitted;
    let sets =
        CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    step("raise capabilities", set_capabilities(None, sets))?;
    // Changing ids clears both. The zygote enters this room through our pidfd, which it may only do
    // while we can be looked at; the server has that closed again before any user code runs.
    let death = set_parent_process_death_signal(Some(Signal::KILL));
    step("die with the steward", death)?;
    step("be enterable", set_dumpable_behavior(DumpableBehavior::Dumpable))
}

/// The private memory of a process tree: temporary files, shared memory, configuration folders.
pub(crate) fn scratch(at: &str, bytes: u64) -> Result<(), Failure> {
    const FILES_MAX: u64 = 65_536;
    mount_memory(at, bytes, FILES_MAX, 0o755)?;
    for folder in ["tmp", "shm", "config"] {
        step("make scratch folders", fs::create_dir(Path::new(at).join(folder)))?;
    }
    Ok(())
}

fn mount_memory(at: &str, bytes: u64, files: u64, mode: u32) -> Result<(), Failure> {
    // The root folder takes one inode of its own.
    let options = format!("size={bytes},nr_inodes={},mode={mode:o}\0", files.saturating_add(1));
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes());
    let options = step("mount memory", options.map_err(io::Error::other))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    step(format!("mount memory on {at}"), mount("tmpfs", at, "tmpfs", flags, Some(options)))
}

fn attach(tree: BorrowedFd<'_>, at: &str) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn proc(at: &str) -> Result<(), Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    step("mount proc", mount("proc", at, "proc", flags, None))?;
    let mask = format!("{TEMPLATE}/opt/woma/empty");
    for name in MASKED_FILES {
        let target = format!("{at}/{name}");
        if !Path::new(&target).exists() {
            continue;
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = step("hide a part of proc", open_tree(CWD, &mask, flags))?;
        step(format!("hide /proc/{name}"), attach(tree.as_fd(), &target))?;
    }
    Ok(())
}

/// Makes the current directory the root and lets go of the old one.
pub(crate) fn pivot() -> Result<(), Failure> {
    step("pivot_root", pivot_root(".", "."))?;
    step("leave the old root", unmount(".", UnmountFlags::DETACH))?;
    step("enter the new root", chdir("/"))
}
