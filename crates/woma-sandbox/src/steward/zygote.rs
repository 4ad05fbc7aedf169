//! The warm interpreter from the steward's side: starting it and exchanging messages. Its own code
//! is `python/zygote.py`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Signal, chdir, pidfd_send_signal, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::control::{Rlimits, Tier};
use super::room::{self, Room, RoomPlan};
use super::root;
use super::shared::Base;
use super::template::{PACKAGES, ROOM, SCRATCH, SHIM_MODULES, SHIM_PROGRAMS, WORKSPACE};
use super::trust;
use crate::channel;
use crate::failure::{Failure, step};
use crate::rung::Rung;
use crate::seccomp::Filters;
use crate::sys::{self, Forked, SingleThreaded};

/// Parts that all zygotes of a steward share.
#[derive(Debug)]
pub(crate) struct ZygoteParts {
    pub(crate) python: PathBuf,
    pub(crate) filters: Filters,
    /// Whether the template has a file of certificate authorities.
    pub(crate) has_trust: bool,
    pub(crate) rung: Rung,
}

#[derive(Debug)]
pub(crate) struct Zygote {
    pub(crate) socket: OwnedFd,
    process: OwnedFd,
}

/// First message to a zygote.
#[derive(Debug, Serialize)]
struct Settings<'a> {
    tier: &'a str,
    filters: Vec<String>,
    final_filters: Vec<String>,
    room_uid: u32,
    room_gid: u32,
    workspace: &'a str,
    /// Without namespaces: the child enters none.
    shared: bool,
    /// The kernel cannot keep signals inside of a session.
    unscoped: bool,
}

/// Descriptors: the room's pid namespace, and the socket that tells the child its session.
#[derive(Debug, Serialize)]
struct Fork {
    room: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ZygoteReport {
    Ready {
        boot_ms: u64,
        loaded: Vec<String>,
        failed: BTreeMap<String, String>,
    },
    /// One descriptor: the child's pidfd.
    Born {
        room: u64,
    },
    Exited {
        room: u64,
        status: i32,
    },
}

/// Tells a child its session. Descriptors: the ready socket of the room, init's pidfd, the kernel
/// socket, the log pipe, the cgroup files to join.
#[derive(Debug, Serialize)]
pub(crate) struct SessionOrder<'a> {
    pub(crate) rlimits: &'a Rlimits,
}

/// Complete environment of every cell: no variable of the server is inherited. The home folder is
/// the workspace; temporary and configuration files of libraries are kept out of it.
const ENVIRONMENT: &[&CStr] = &[
    c"HOME=/mnt/data",
    c"USER=user",
    c"LOGNAME=user",
    c"SHELL=/bin/sh",
    c"LANG=C.UTF-8",
    c"TZ=UTC",
    c"TERM=dumb",
    c"NO_COLOR=1",
    c"COLUMNS=200",
    c"TMPDIR=/run/scratch/tmp",
    c"XDG_CACHE_HOME=/run/scratch/config",
    c"XDG_CONFIG_HOME=/run/scratch/config",
    c"XDG_DATA_HOME=/run/scratch/config",
    c"XDG_STATE_HOME=/run/scratch/config",
    c"IPYTHONDIR=/run/scratch/config/ipython",
    c"MPLCONFIGDIR=/run/scratch/config/matplotlib",
    c"NUMBA_CACHE_DIR=/run/scratch/config/numba",
    c"PYTHONUTF8=1",
    c"PYTHONDONTWRITEBYTECODE=1",
    c"PYTHONUNBUFFERED=1",
    c"TQDM_MININTERVAL=1",
    // Otherwise its first use reserves a gibibyte of data segment.
    c"MIMALLOC_ARENA_EAGER_COMMIT=0",
    c"PIP_DISABLE_PIP_VERSION_CHECK=1",
];

/// The program of a zygote.
const PROGRAM: &str = "/opt/woma/zygote.py";

/// Scratch memory of a zygote, for caches that imports write.
const ZYGOTE_SCRATCH_BYTES: u64 = 64 * 1024 * 1024;

pub(crate) fn start(
    parts: &ZygoteParts,
    plan: &RoomPlan,
    tier: Tier,
    proof: SingleThreaded,
) -> Result<Zygote, Failure> {
    let (ours, theirs) = step("make a socket", channel::pair())?;
    let forked = match plan.base {
        Some(_) => sys::fork(proof),
        None => sys::clone3(proof, 0),
    };
    match step("fork the zygote", forked)? {
        Forked::Child => {
            let failure = run(parts, plan, &theirs, proof);
            eprintln!("zygote {}: {failure}", tier.name());
            sys::exit_now(127)
        }
        Forked::Parent { pidfd, .. } => {
            let settings = Settings {
                tier: tier.name(),
                filters: hex_all(&parts.filters.zygote),
                final_filters: hex_all(&parts.filters.cell),
                room_uid: plan.ids.uid,
                room_gid: plan.ids.gid,
                workspace: WORKSPACE,
                shared: plan.base.is_some(),
                unscoped: parts.rung == Rung::Minimal,
            };
            step("send the zygote its settings", channel::send(&ours, &settings, &[]))?;
            Ok(Zygote { socket: ours, process: pidfd })
        }
    }
}

/// Environment of a session's Python, as names and values. Called where the template is the root.
pub(crate) fn variables(python: &std::path::Path) -> Vec<(String, String)> {
    let has_trust = std::path::Path::new(trust::ALL).is_file();
    let trusted = if has_trust { trusted() } else { Vec::new() };
    let fixed = ENVIRONMENT.iter().copied().chain(trusted.iter().map(CString::as_c_str));
    let fixed = fixed.filter_map(|variable| variable.to_str().ok());
    let fixed = fixed.filter_map(|variable| variable.split_once('='));
    let own = [("PATH", search_path(python)), ("PYTHONPATH", SHIM_MODULES.to_owned())];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).chain(own).collect()
}

fn search_path(python: &std::path::Path) -> String {
    format!("{SHIM_PROGRAMS}:{PACKAGES}/bin:{}:/usr/local/bin:/usr/bin:/bin", bin(python))
}

/// Filters as text.
pub(crate) fn hex_all(programs: &[Vec<u8>]) -> Vec<String> {
    programs.iter().map(|program| hex(program)).collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

impl Zygote {
    /// Has a child forked into the room; it waits on `orders` for its session.
    pub(crate) fn fork_into(&self, room: &Room, orders: &OwnedFd) -> io::Result<()> {
        let fds = [room.pid_namespace.as_fd(), orders.as_fd()];
        channel::send(&self.socket, &Fork { room: room.id }, &fds)
    }

    pub(crate) fn receive(&self) -> io::Result<Option<(ZygoteReport, Vec<OwnedFd>)>> {
        channel::receive(&self.socket)
    }

    pub(crate) fn kill(&self) {
        // It may be dead already.
        if let Err(error) = pidfd_send_signal(&self.process, Signal::KILL)
            && error != rustix::io::Errno::SRCH
        {
            eprintln!("steward: cannot kill a zygote: {error}");
        }
    }
}

/// In the fork: sets up a root, three standard streams and one socket, then runs Python.
fn run(parts: &ZygoteParts, plan: &RoomPlan, socket: &OwnedFd, proof: SingleThreaded) -> Failure {
    if let Some(base) = &plan.base {
        return run_shared(parts, base, socket);
    }
    match prepare(plan, socket, proof) {
        Err(failure) => failure,
        Ok(()) => {
            let python = CString::new(parts.python.as_os_str().as_bytes()).unwrap_or_default();
            let arguments =
                [python.as_c_str(), c"-I", c"-B", c"-X", c"utf8", c"/opt/woma/zygote.py"];
            let path =
                CString::new(format!("PATH={}", search_path(&parts.python))).unwrap_or_default();
            // The zygote itself ignores it.
            let modules = CString::new(format!("PYTHONPATH={SHIM_MODULES}")).unwrap_or_default();
            let trusted = if parts.has_trust { trusted() } else { Vec::new() };
            let last = [path.as_c_str(), modules.as_c_str()];
            let last = last.into_iter().chain(trusted.iter().map(CString::as_c_str));
            let environment: Vec<&CStr> = ENVIRONMENT.iter().copied().chain(last).collect();
            let source = sys::exec(&python, &arguments, &environment);
            Failure { step: format!("start {}", parts.python.display()), source }
        }
    }
}

/// Variables that lead programs to the certificate authorities of the template.
fn trusted() -> Vec<CString> {
    let all = trust::VARIABLES.iter().map(|name| format!("{name}={}", trust::ALL));
    let own = format!("{}={}", trust::ADDED_VARIABLE, trust::OWN);
    all.chain([own]).map(|variable| CString::new(variable).unwrap_or_default()).collect()
}

/// In the fork, without a root of its own: the same with the paths of the host.
fn run_shared(parts: &ZygoteParts, base: &Base, socket: &OwnedFd) -> Failure {
    let begun = step("die with the steward", set_parent_process_death_signal(Some(Signal::KILL)))
        .and_then(|()| step("reap children", sys::reap_by_hand()))
        .and_then(|()| step("leave the server's folder", chdir("/")))
        .and_then(|()| place_descriptors(socket));
    if let Err(failure) = begun {
        return failure;
    }
    let text = |path: PathBuf| CString::new(path.into_os_string().as_bytes()).unwrap_or_default();
    let (python, program) = (text(parts.python.clone()), text(base.of_room(PROGRAM)));
    let arguments = [python.as_c_str(), c"-I", c"-B", c"-X", c"utf8", program.as_c_str()];
    let places = base.zygote();
    let here = |value: &CStr| {
        let value = value.to_string_lossy();
        let value = value.replace(WORKSPACE, &places.workspace.to_string_lossy());
        CString::new(value.replace(SCRATCH, &places.scratch.to_string_lossy())).unwrap_or_default()
    };
    let mut environment: Vec<CString> = ENVIRONMENT.iter().map(|value| here(value)).collect();
    let shims = base.of_room(SHIM_PROGRAMS);
    let path =
        format!("PATH={}:{}:/usr/local/bin:/usr/bin:/bin", shims.display(), bin(&parts.python));
    environment.extend([
        CString::new(path).unwrap_or_default(),
        text(PathBuf::from(format!("PYTHONPATH={}", base.of_room(SHIM_MODULES).display()))),
    ]);
    let environment: Vec<&CStr> = environment.iter().map(CString::as_c_str).collect();
    let source = sys::exec(&python, &arguments, &environment);
    Failure { step: format!("start {}", parts.python.display()), source }
}

fn bin(python: &std::path::Path) -> String {
    python.parent().map(|folder| folder.display().to_string()).unwrap_or_default()
}

fn prepare(plan: &RoomPlan, socket: &OwnedFd, proof: SingleThreaded) -> Result<(), Failure> {
    step("die with the steward", set_parent_process_death_signal(Some(Signal::KILL)))?;
    step("reap children", sys::reap_by_hand())?;
    step("unshare mounts", sys::unshare(proof, UnshareFlags::NEWNS))?;
    let inside = |path: &str| format!("{ROOM}{path}");
    root::build(&plan.template, &plan.inodes)?;
    room::scratch(&inside(SCRATCH), ZYGOTE_SCRATCH_BYTES)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    step("mount proc", mount("proc", inside("/proc"), "proc", flags, None))?;
    step("enter the root", chdir(ROOM))?;
    root::pivot()?;
    place_descriptors(socket)
}

/// Standard input, output and error, and the socket as number 3; nothing else.
fn place_descriptors(socket: &OwnedFd) -> Result<(), Failure> {
    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR, Mode::empty());
    let null = step("open /dev/null", null)?;
    // The socket may have a number that is about to be reused.
    let socket = step("keep the socket", rustix::io::fcntl_dupfd_cloexec(socket, 100))?;
    step("set standard input", sys::place_fd(null.as_fd(), 0))?;
    let stderr = step("find standard error", sys::inherited_fd(2))?;
    step("set standard output", sys::place_fd(stderr.as_fd(), 1))?;
    step("place the socket", sys::place_fd(socket.as_fd(), 3))?;
    std::mem::forget((null, stderr, socket));
    step("close the rest", sys::close_from(4))
}
