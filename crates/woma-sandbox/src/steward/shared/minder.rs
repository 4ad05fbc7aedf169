//! The minder of a session: what init is to a room. It runs no user code. Landlock keeps the session
//! from signalling or inspecting it; on kernels where it does not, seccomp does.
//!
//! It ends the session when its socket closes or the kernel has ended, and removes its folders.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::base::{Base, Places};
use super::landlock;
use super::members::{kill, kill_all, members};
use crate::channel;
use crate::failure::{Failure, step};
use crate::limits::watchdog::data_bytes;
use crate::room_handles::pid_of;
use crate::steward::commands::{
    COMMAND_DATA_LIMIT, COMMAND_INTERRUPT, COMMAND_KERNEL, COMMAND_KILL_CHILDREN,
    COMMAND_KILL_LARGEST, COMMAND_LOWER_DATA_LIMIT, COMMAND_MEMORY_ERROR, COMMAND_SEAL,
    COMMAND_SWEEP,
};
use crate::steward::control::Furnishing;
use crate::steward::processes::{MEMORY_SIGNAL, data_limit, held_kib, limit_data};
use crate::steward::room::{Room, RoomPlan, THREAD_DATA_BYTES, keep, seal};
use crate::sys::{self, Forked, SingleThreaded};

/// Starts the minder of a future session.
pub(crate) fn create(id: u64, plan: &RoomPlan, proof: SingleThreaded) -> Result<Room, Failure> {
    let (commands, theirs) = step("make a socket", channel::pair())?;
    let (ready_socket, ready_sender) = step("make a socket", channel::pair())?;
    match step("fork a minder", sys::fork(proof))? {
        Forked::Child => main(theirs, ready_sender, plan, id),
        Forked::Parent { pidfd: init, .. } => {
            drop((theirs, ready_sender));
            // The zygote expects a namespace here, and enters none.
            let nothing = rustix::fs::openat(CWD, "/dev/null", OFlags::CLOEXEC, Mode::empty());
            let pid_namespace = step("open /dev/null", nothing)?;
            let places = plan.base.as_ref().map(|base| base.session(id));
            Ok(Room { id, commands, init, uid: 0, pid_namespace, ready_socket, places })
        }
    }
}

fn main(commands: OwnedFd, ready_sender: OwnedFd, plan: &RoomPlan, id: u64) -> ! {
    let kept = keep(commands, ready_sender);
    let Ok((commands, ready_sender)) = kept else { sys::exit_now(3) };
    // What the zygote and other sessions leave behind is the steward's to reap.
    let Some(base) = plan.base.as_ref() else { sys::exit_now(4) };
    let places = base.session(id);
    let furnished = step("reap children", sys::reap_automatically())
        .and_then(|()| furnish(&commands, &ready_sender, plan, &places));
    drop(ready_sender);
    let mut minder = Minder { kernel: None };
    let served = match furnished {
        Ok(true) => minder.serve(&commands),
        Ok(false) => Ok(()),
        Err(failure) => channel::send_bytes(&commands, failure.to_string().as_bytes(), &[]),
    };
    let ended = minder.end();
    let removed = places.remove();
    sys::exit_now(i32::from(served.and(ended).and(removed).is_err()))
}

/// Waits for a session and makes its folders and its ruleset. False if there will be none.
fn furnish(
    commands: &OwnedFd,
    ready_sender: &OwnedFd,
    plan: &RoomPlan,
    places: &Places,
) -> Result<bool, Failure> {
    let received = channel::receive::<Furnishing>(commands);
    let Some((furnishing, _)) = step("wait for a session", received)? else { return Ok(false) };
    let Some(base) = plan.base.as_ref() else { return Ok(false) };
    step("make the session's folders", Base::make_places(places))?;
    let workspace = furnishing.workspace.as_deref().unwrap_or(&places.workspace);
    let ruleset = step("make the Landlock ruleset", landlock::ruleset(base, places, workspace))?;
    let paths = Paths { workspace, scratch: &places.scratch };
    let text =
        step("name the session's folders", serde_json::to_vec(&paths).map_err(io::Error::other))?;
    let told = channel::send_bytes(ready_sender, &text, &[ruleset.as_fd()]);
    step("report that the session is ready", told)?;
    step("report", channel::send_bytes(commands, b"ok", &[]))?;
    Ok(true)
}

/// Message on the ready socket, for `python/zygote.py`.
#[derive(Debug, serde::Serialize)]
struct Paths<'a> {
    workspace: &'a Path,
    scratch: &'a Path,
}

/// As in `python/zygote.py`.
const OWN_FILES: &[&str] = &[
    "auxv",
    "cmdline",
    "comm",
    "environ",
    "fd",
    "fdinfo",
    "io",
    "limits",
    "maps",
    "oom_score",
    "smaps",
    "smaps_rollup",
    "stat",
    "statm",
    "status",
];

/// The kernel process, once it is known.
#[derive(Debug)]
struct Kernel {
    pid: Pid,
    process: OwnedFd,
    /// Keep the kernel's files in `/proc` in memory: the session's Landlock rules are about these
    /// very inodes.
    _entries: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Minder {
    kernel: Option<Kernel>,
}

impl Minder {
    fn serve(&mut self, commands: &OwnedFd) -> io::Result<()> {
        let mut buffer = [0; 512];
        loop {
            let mut fds = vec![PollFd::new(commands, PollFlags::IN)];
            if let Some(kernel) = &self.kernel {
                fds.push(PollFd::new(&kernel.process, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.get(1) == Some(&true) {
                return Ok(());
            }
            if ready.first() != Some(&true) {
                continue;
            }
            let (length, fds) = channel::receive_bytes(commands, &mut buffer)?;
            let command = buffer.get(..length).unwrap_or_default();
            if command.is_empty() {
                return Ok(());
            }
            if command == COMMAND_KERNEL {
                self.kernel = fds.into_iter().next().map(Kernel::new).transpose()?;
                continue;
            }
            let text = match self.answer(command) {
                Ok(count) => format!("ok {count}"),
                Err(error) => match error.raw_os_error() {
                    Some(code) => format!("errno {code}"),
                    None => error.to_string(),
                },
            };
            channel::send_bytes(commands, text.as_bytes(), &[])?;
        }
    }

    fn answer(&self, command: &[u8]) -> io::Result<usize> {
        let Some(Kernel { pid, .. }) = self.kernel else {
            return Err(io::Error::other("the kernel is not known yet"));
        };
        match command {
            COMMAND_INTERRUPT => Ok(kill_process_group(pid, Signal::INT).map(|()| 0)?),
            COMMAND_SWEEP => kill_all(pid, Some(pid)),
            COMMAND_KILL_CHILDREN => kill_children(pid),
            COMMAND_KILL_LARGEST => kill_largest_child(pid),
            COMMAND_MEMORY_ERROR => Ok(kill_process(pid, MEMORY_SIGNAL).map(|()| 0)?),
            COMMAND_SEAL => seal().map(|()| 0),
            [COMMAND_DATA_LIMIT, bytes @ ..] => limit_data(pid, bytes, 0, u64::MAX).map(|()| 0),
            [COMMAND_LOWER_DATA_LIMIT, bytes @ ..] => {
                let raw = pid.as_raw_nonzero().get();
                let least = data_bytes(raw.cast_unsigned()) + THREAD_DATA_BYTES;
                limit_data(pid, bytes, least, data_limit(raw)).map(|()| 0)
            }
            _ => Err(io::Error::other(
                "sessions without namespaces have no mounts and no sockets of their own",
            )),
        }
    }

    /// Kills the session; the kernel last, so that its children are not another's meanwhile.
    fn end(&self) -> io::Result<()> {
        let Some(kernel) = &self.kernel else { return Ok(()) };
        kill_all(kernel.pid, Some(kernel.pid))?;
        match rustix::process::pidfd_send_signal(&kernel.process, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
        kill_all(kernel.pid, None).map(drop)
    }
}

impl Kernel {
    fn new(process: OwnedFd) -> io::Result<Self> {
        let raw = pid_of(&process)?;
        let pid = Pid::from_raw(raw.cast_signed());
        let pid = pid.ok_or_else(|| io::Error::other("the kernel has no process id here"))?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let entry = |name: &&str| {
            rustix::fs::openat(CWD, format!("/proc/{raw}/{name}"), flags, Mode::empty()).ok()
        };
        let entries = OWN_FILES.iter().filter_map(entry).collect();
        Ok(Self { pid, process, _entries: entries })
    }
}

fn kill_children(kernel: Pid) -> io::Result<usize> {
    let others = children(kernel);
    for pid in &others {
        kill(*pid)?;
    }
    Ok(others.len())
}

fn children(kernel: Pid) -> Vec<Pid> {
    let leader = kernel.as_raw_nonzero().get().cast_unsigned();
    let all = members(&[leader]).into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed()));
    all.filter(|pid| *pid != kernel).collect()
}

/// As init's: kills the child with the most memory, if it has more than the kernel.
fn kill_largest_child(kernel: Pid) -> io::Result<usize> {
    let most = children(kernel).into_iter().map(|pid| (held_kib(pid), pid));
    let most = most.max_by_key(|(kib, _)| *kib).filter(|(kib, _)| *kib > held_kib(kernel));
    match most {
        Some((_, child)) => kill(child).map(|()| 1),
        None => Ok(0),
    }
}
