//! Pid 1 of a container: mounts the session's memory, starts the kernel's Python, then serves the
//! server's commands as the init of any other room (`steward::room`).
//!
//! The Linux kernel ends everything in the container when it ends, which it does when its command
//! socket closes: because the server dropped the session, or died.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::mount::{MountFlags, mount_remount};
use rustix::process::{Pid, PidfdFlags, WaitOptions, getpid, pidfd_open, wait};
use serde::Serialize;

use super::control::{Contained, UP};
use crate::channel;
use crate::failure::{Failure, step};
use crate::landlock;
use crate::rung::Rung;
use crate::seccomp;
use crate::steward::control::{Furnishing, Rlimits};
use crate::steward::room;
use crate::steward::root::cover_with;
use crate::steward::template::{KERNEL_SETTINGS, SCRATCH, WORKSPACE};
use crate::steward::zygote::{hex_all, variables};
use crate::sys;

const KERNEL_PID: u32 = 2;

/// First message to `python/container.py`. Descriptors: kernel socket, log pipe, then the Landlock
/// ruleset if there is one, then the cgroup files to join.
#[derive(Debug, Serialize)]
struct Settings<'a> {
    tier: &'a str,
    filters: Vec<String>,
    final_filters: Vec<String>,
    room_uid: u32,
    room_gid: u32,
    workspace: &'a str,
    has_own_kernel: bool,
    rlimits: &'a Rlimits,
}

pub(super) fn main() -> ExitCode {
    let number = std::env::args().nth(2).and_then(|number| number.parse().ok());
    let Some(Ok(commands)) = number.map(sys::inherited_fd) else {
        eprintln!("woma contained is started by a container runtime, not by hand");
        return ExitCode::from(2);
    };
    match run(&commands) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            // The server may have ended already.
            if let Err(error) = channel::send_bytes(&commands, text.as_bytes(), &[]) {
                eprintln!("contained: {text} ({error})");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(commands: &OwnedFd) -> Result<(), Failure> {
    let Some((order, fds)) = step("wait for a session", channel::receive::<Contained>(commands))?
    else {
        return Ok(());
    };
    let mut fds = fds.into_iter();
    let none = || io::Error::other("a descriptor is missing");
    let mut next = || step("read the order", fds.next().ok_or_else(none));
    let (kernel, log, exits) = (next()?, next()?, next()?);
    furnish(&order)?;
    let ruleset = match order.has_own_kernel {
        true => None,
        false => Some(step("make the Landlock ruleset", landlock::ruleset(Path::new("/")))?),
    };
    let filters =
        step("compile the seccomp filters", seccomp::compile(order.watched, Rung::Rooms))?;
    let settings = Settings {
        tier: order.tier.name(),
        filters: hex_all(&filters.zygote),
        final_filters: hex_all(&filters.cell),
        room_uid: order.uid,
        room_gid: order.gid,
        workspace: WORKSPACE,
        has_own_kernel: order.has_own_kernel,
        rlimits: &order.rlimits,
    };
    let (ours, theirs) = step("make a socket", channel::pair())?;
    start_python(&order, theirs)?;
    let join: Vec<OwnedFd> = fds.collect();
    let passed = [Some(&kernel), Some(&log), ruleset.as_ref()].into_iter().flatten().chain(&join);
    let passed: Vec<_> = passed.map(AsFd::as_fd).collect();
    step("tell Python its session", channel::send(&ours, &settings, &passed))?;
    // The server learns of the kernel's end by the end of its socket.
    drop((ours, kernel, log, ruleset, join));
    let has_own_kernel = order.has_own_kernel;
    std::thread::spawn(move || reap(&exits, has_own_kernel));
    announce(commands, order.has_own_kernel)?;
    step("serve the server", room::serve_commands(commands))
}

/// Mounts the file systems of the session, unless the runtime has.
fn furnish(order: &Contained) -> Result<(), Failure> {
    if order.has_own_kernel {
        room::scratch_folders(SCRATCH)?;
        let at = Path::new(SCRATCH);
        for folder in ["tmp", "shm", "config"] {
            let owned = chown(at.join(folder), Some(order.uid), Some(order.gid));
            step("pass scratch folders on", owned)?;
        }
        return Ok(());
    }
    let Furnishing { workspace_bytes, workspace_files, scratch_bytes, .. } = order.furnishing;
    room::mount_memory(WORKSPACE, workspace_bytes, workspace_files, 0o700)?;
    room::scratch(SCRATCH, scratch_bytes)?;
    // Some runtimes make one, others do not.
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        step("replace /dev/shm", fs::remove_dir(shared))?;
    }
    step("link /dev/shm", symlink(format!("{SCRATCH}/shm"), shared))?;
    let closed = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::RDONLY | MountFlags::BIND;
    step("make /dev read-only", mount_remount("/dev", closed, ""))?;
    // A runtime may have used the numbers up. The kernel's process is the next one.
    match fs::write("/proc/sys/kernel/ns_last_pid", "1") {
        // A Linux kernel without it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => step("number the processes", other)?,
    }
    cover_with(KERNEL_SETTINGS, "/proc/sys")?;
    step("bring loopback up", sys::loopback_up())
}

fn start_python(order: &Contained, control: OwnedFd) -> Result<(), Failure> {
    let stderr = step("copy standard error", io::stderr().as_fd().try_clone_to_owned())?;
    let child = Command::new(&order.python)
        .args(["-I", "-B", "-X", "utf8", "/opt/woma/container.py"])
        .env_clear()
        .envs(variables(&order.python))
        .stdin(Stdio::from(control))
        .stdout(Stdio::from(stderr))
        .spawn();
    let child = step(format!("start {}", order.python.display()), child)?;
    if child.id() == KERNEL_PID {
        return Ok(());
    }
    let text = format!("it has the process id {} and not {KERNEL_PID}", child.id());
    step("start Python", Err(io::Error::other(text)))
}

/// Tells the server which processes pid 1 and the kernel are.
fn announce(commands: &OwnedFd, has_own_kernel: bool) -> Result<(), Failure> {
    if has_own_kernel {
        return step("report", channel::send_bytes(commands, UP, &[]));
    }
    let kernel = i32::try_from(KERNEL_PID).ok().and_then(Pid::from_raw).unwrap_or(Pid::INIT);
    let open = |pid| step("open a process", pidfd_open(pid, PidfdFlags::empty()));
    let (init, kernel) = (open(getpid())?, open(kernel)?);
    step("report", channel::send_bytes(commands, UP, &[init.as_fd(), kernel.as_fd()]))
}

/// Reaps every process of the container, and reports how the kernel ended. The host sees only
/// processes of its own kernel: elsewhere, the end of the kernel's process ends the container.
fn reap(exits: &OwnedFd, has_own_kernel: bool) {
    while let Ok(ended) = wait(WaitOptions::empty()) {
        let Some((pid, status)) = ended else { continue };
        if pid.as_raw_nonzero().get().cast_unsigned() == KERNEL_PID {
            let status = status.as_raw().cast_unsigned().to_ne_bytes();
            // The server may have dropped the session.
            if let Err(error) = rustix::io::write(exits, &status) {
                eprintln!("contained: cannot report the kernel's end: {error}");
            }
            if has_own_kernel {
                sys::exit_now(0);
            }
        }
    }
}
