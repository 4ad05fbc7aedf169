//! The launcher of containers, started by the server as `woma containers`.
//!
//! It builds the template in a mount namespace of its own, writes a bundle for each container, has
//! the runtime start it, and removes what the runtime keeps when its first process has ended. One
//! thread, one loop, no user code. Standard input is the server's control socket.
//!
//! For a server that dropped root, the keeper starts it with [`PrivilegeBounds`] as an argument. The
//! program of the runtime and the bundle are the launcher's own: the server names a runtime and
//! limits, and passes descriptors.
//!
//! [`PrivilegeBounds`]: crate::steward::control::PrivilegeBounds

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, waitid,
};

use super::bundle::{self, HostIds, INIT_PROGRAM, Plan};
use super::control::{LauncherOrder, LauncherReport, LauncherSetup, Start};
use super::{Runtime, missing};
use crate::channel;
use crate::failure::{Failure, step};
use crate::proof;
use crate::steward::launcher::{Ids, bounds, enter_namespaces};
use crate::steward::root::{self, Inodes};
use crate::steward::template::{self, OUTER, Template};
use crate::sys::{self, Forked, SingleThreaded};

/// Folder of bundles and of the runtime's state, in the launcher's own memory.
const BUNDLES: &str = "oci";
const CGROUPS: &str = "/sys/fs/cgroup";
/// Bytes of a runtime's messages that a report repeats.
const LOG_BYTES_MAX: usize = 1_000;
/// Descriptors of the launcher are moved out of the way of those that a runtime preserves.
const HIGH: i32 = 100;

pub(super) fn main() -> ExitCode {
    let Ok(control) = sys::inherited_fd(0) else {
        eprintln!("woma containers is started by the server, not by hand");
        return ExitCode::from(2);
    };
    match launch(&control) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { step, source }) => {
            let report = LauncherReport::Broken { step, reason: source.to_string() };
            // The server may have ended already.
            if let Err(error) = channel::send(&control, &report, &[]) {
                eprintln!("containers: {report:?} ({error})");
            }
            ExitCode::FAILURE
        }
    }
}

fn launch(control: &OwnedFd) -> Result<(), Failure> {
    let proof = step("check threads", SingleThreaded::prove())?;
    let bounds = bounds()?;
    let Some((setup, _)) = step("read the setup", channel::receive::<LauncherSetup>(control))?
    else {
        return Ok(());
    };
    let LauncherSetup { runtime, mut shown } = setup;
    if let Some(bounds) = &bounds {
        step("read the setup", bounds.check(&shown))?;
    }
    let none = || io::Error::other(missing(runtime).to_string());
    let program = step("find the runtime", runtime.program().ok_or_else(none))?;
    let init = step("find this program", fs::read_link("/proc/self/exe"))?;
    shown.mounts.push((init, INIT_PROGRAM.into()));
    let ids = enter_namespaces(proof)?;
    let cgroups = cgroups(runtime);
    let template = template::build(&shown)?;
    // Some runtimes look at this folder even if they are to make no group.
    step("keep the cgroups", fs::create_dir_all(CGROUPS))?;
    if let Some(tree) = cgroups {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        step("keep the cgroups", move_mount(&tree, "", CWD, CGROUPS, flags))?;
    }
    let inodes = root::probe_at(&template, OUTER)?;
    let bundles = Path::new(OUTER).join(BUNDLES);
    step("make a folder for bundles", fs::create_dir_all(bundles.join("state")))?;
    let namespaces = step("read the namespaces", proof::namespaces("self"))?;
    step("report", channel::send(control, &LauncherReport::Ready { namespaces }, &[]))?;
    let mut launcher = Launcher {
        control,
        runtime,
        program,
        template,
        own_inodes: inodes == Inodes::Own,
        room: shown.room_ids,
        ids,
        bundles,
        started: 0,
        containers: BTreeMap::new(),
        proof,
    };
    while launcher.turn()? {}
    launcher.end_all();
    Ok(())
}

/// The host's cgroups, for a runtime that insists on a group of its own. They would be covered by
/// the template.
fn cgroups(runtime: Runtime) -> Option<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    (runtime == Runtime::Runc).then(|| open_tree(CWD, CGROUPS, flags).ok()).flatten()
}

/// A container, by the process that is waited for.
#[derive(Debug)]
enum Phase {
    /// The runtime builds it.
    Starting {
        runtime: OwnedFd,
        uid: Option<u32>,
    },
    Running {
        init: OwnedFd,
    },
    /// The runtime forgets it.
    Ending {
        runtime: OwnedFd,
    },
}

impl Phase {
    fn process(&self) -> &OwnedFd {
        match self {
            Self::Starting { runtime, .. } | Self::Ending { runtime } => runtime,
            Self::Running { init } => init,
        }
    }
}

struct Launcher<'a> {
    control: &'a OwnedFd,
    runtime: Runtime,
    program: PathBuf,
    template: Template,
    own_inodes: bool,
    room: crate::steward::control::RoomIds,
    ids: Ids,
    bundles: PathBuf,
    started: u32,
    containers: BTreeMap<u64, Phase>,
    proof: SingleThreaded,
}

impl Launcher<'_> {
    /// Waits for events and handles them. False when the server is gone.
    fn turn(&mut self) -> Result<bool, Failure> {
        let ids: Vec<u64> = self.containers.keys().copied().collect();
        let mut fds = vec![PollFd::new(self.control, PollFlags::IN)];
        fds.extend(self.containers.values().map(|at| PollFd::new(at.process(), PollFlags::IN)));
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            other => step("wait for orders", other)?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let ended = ids.into_iter().zip(ready.iter().skip(1)).filter(|(_, ended)| **ended);
        for (id, _) in ended.collect::<Vec<_>>() {
            self.advance(id)?;
        }
        if !ready.first().is_some_and(|ready| *ready) {
            return Ok(true);
        }
        let Some((order, fds)) = step("read an order", channel::receive(self.control))? else {
            return Ok(false);
        };
        match order {
            LauncherOrder::Start(start) => {
                if let Err(failure) = self.start(&start, fds) {
                    self.remove_bundle(start.id);
                    self.report_failure(start.id, failure)?;
                }
            }
            LauncherOrder::Kill { id } => self.kill(id),
        }
        Ok(true)
    }

    fn start(&mut self, start: &Start, fds: Vec<OwnedFd>) -> Result<(), Failure> {
        let Start { id, has_workspace, .. } = *start;
        let furnishing = start.furnishing.clone();
        if self.containers.contains_key(&id) {
            return step("start a container", Err(io::Error::other("its number is taken")));
        }
        let mut fds = fds.into_iter();
        let none = || io::Error::other("a descriptor is missing");
        let commands = step("read an order", fds.next().ok_or_else(none))?;
        let folder = self.bundle(id);
        step("make a bundle", fs::create_dir_all(&folder))?;
        let workspace = folder.join("workspace");
        if has_workspace {
            let tree = step("read an order", fds.next().ok_or_else(none))?;
            step("make a bundle", fs::create_dir(&workspace))?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            step("show the workspace", move_mount(&tree, "", CWD, &workspace, flags))?;
        }
        let (ids, uid) = self.next_ids();
        let plan = Plan {
            runtime: self.runtime,
            template: &self.template,
            own_inodes: self.own_inodes,
            room: self.room,
            ids,
            furnishing,
            workspace: has_workspace.then_some(workspace.as_path()),
        };
        let config = step("make a bundle", serde_json::to_vec(&bundle::config(&plan)))?;
        step("make a bundle", fs::write(folder.join("config.json"), config))?;
        let mut arguments = self.arguments(&folder);
        let words: &[&str] = match self.runtime {
            Runtime::Runsc => &["run", "-detach"],
            Runtime::Crun | Runtime::Runc => &["run", "--detach", "--preserve-fds=1"],
        };
        arguments.extend(words.iter().map(|word| (*word).to_owned()));
        let at = |name: &str| folder.join(name).display().to_string();
        let bundle = folder.display().to_string();
        arguments.extend(["--bundle".to_owned(), bundle, "--pid-file".to_owned(), at("pid")]);
        arguments.push(name_of(id));
        let join: Vec<OwnedFd> = fds.collect();
        let runtime = self.run(&arguments, Some(&commands), &join)?;
        self.containers.insert(id, Phase::Starting { runtime, uid });
        Ok(())
    }

    /// Two unused host ids: the container's root, and the session's user.
    fn next_ids(&mut self) -> (HostIds, Option<u32>) {
        let number = self.started;
        self.started = self.started.wrapping_add(1);
        match self.ids {
            Ids::Range { base, count } => {
                let first = base + number % (count / 2) * 2;
                (HostIds { root: Some(first), session: first + 1 }, Some(first + 1))
            }
            // The only id of this user namespace.
            Ids::Own => (HostIds { root: None, session: 0 }, None),
        }
    }

    /// The options that come before a runtime's command.
    fn arguments(&self, folder: &Path) -> Vec<String> {
        let log = folder.join("log").display().to_string();
        let state = self.bundles.join("state").display().to_string();
        let mut arguments = vec![self.program.display().to_string()];
        arguments.extend([format!("--root={state}"), format!("--log={log}")]);
        let own: &[&str] = match self.runtime {
            Runtime::Crun => &["--cgroup-manager=disabled"],
            Runtime::Runc => &[],
            Runtime::Runsc => &["--network=none", "--ignore-cgroups", "--log-format=text"],
        };
        arguments.extend(own.iter().map(|word| (*word).to_owned()));
        arguments
    }

    /// Starts the runtime. With its own kernel, the sandbox itself is limited by the cgroup.
    fn run(
        &self,
        arguments: &[String],
        commands: Option<&OwnedFd>,
        join: &[OwnedFd],
    ) -> Result<OwnedFd, Failure> {
        match step("fork", sys::clone3(self.proof, 0))? {
            Forked::Parent { pidfd, .. } => Ok(pidfd),
            Forked::Child => {
                let failure = self.become_runtime(arguments, commands, join);
                eprintln!("containers: {failure}");
                sys::exit_now(127)
            }
        }
    }

    fn become_runtime(
        &self,
        arguments: &[String],
        commands: Option<&OwnedFd>,
        join: &[OwnedFd],
    ) -> Failure {
        let prepared = (|| {
            let death = set_parent_process_death_signal(Some(Signal::KILL));
            step("die with the launcher", death)?;
            for file in join {
                step("join the cgroup", rustix::io::write(file, b"0"))?;
            }
            let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR, Mode::empty());
            let null = high(step("open /dev/null", null)?.as_fd())?;
            let commands = commands.map(|fd| high(fd.as_fd())).transpose()?;
            let stderr = step("find standard error", sys::inherited_fd(2))?;
            let own_kernel = self.runtime.has_own_kernel();
            let input = commands.as_ref().filter(|_| own_kernel).unwrap_or(&null);
            step("set standard input", sys::place_fd(input.as_fd(), 0))?;
            step("set standard output", sys::place_fd(stderr.as_fd(), 1))?;
            let mut kept = 3;
            if let (Some(commands), false) = (&commands, own_kernel) {
                step("place the socket", sys::place_fd(commands.as_fd(), kept))?;
                kept += 1;
            }
            std::mem::forget((null, commands, stderr));
            step("close the rest", sys::close_from(kept))
        })();
        if let Err(failure) = prepared {
            return failure;
        }
        let words: Vec<CString> =
            arguments.iter().map(|word| CString::new(word.as_str()).unwrap_or_default()).collect();
        let words: Vec<_> = words.iter().map(CString::as_c_str).collect();
        let program = CString::new(self.program.as_os_str().as_bytes()).unwrap_or_default();
        // Some runtimes refuse to start without a search path.
        let source = sys::exec(&program, &words, &[c"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin"]);
        Failure { step: format!("start {}", self.program.display()), source }
    }

    /// The process of a container's phase has ended.
    fn advance(&mut self, id: u64) -> Result<(), Failure> {
        let Some(phase) = self.containers.remove(&id) else { return Ok(()) };
        match phase {
            Phase::Starting { runtime, uid } => {
                let found = reap(&runtime).and_then(|status| self.find(id, status));
                match found {
                    Ok(init) => {
                        let report = LauncherReport::Started { id, uid };
                        step("report", channel::send(self.control, &report, &[init.as_fd()]))?;
                        self.containers.insert(id, Phase::Running { init });
                    }
                    Err(failure) => {
                        self.report_failure(id, failure)?;
                        self.forget(id);
                    }
                }
            }
            Phase::Running { .. } => self.forget(id),
            Phase::Ending { runtime } => {
                if let Err(failure) = reap(&runtime) {
                    eprintln!("containers: {failure}");
                }
                self.remove_bundle(id);
            }
        }
        Ok(())
    }

    /// First process of a container that its runtime has started.
    fn find(&self, id: u64, status: i32) -> Result<OwnedFd, Failure> {
        let folder = self.bundle(id);
        let name = self.runtime.name();
        if status != 0 {
            let text = fs::read(folder.join("log")).unwrap_or_default();
            let end = text.get(text.len().saturating_sub(LOG_BYTES_MAX)..).unwrap_or_default();
            let said = String::from_utf8_lossy(end).trim().to_owned();
            let error = io::Error::other(format!("it ended with status {status}: {said}"));
            return step(format!("run {name}"), Err(error));
        }
        let pid = step("read the process id", fs::read_to_string(folder.join("pid")))?;
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
        let none = || io::Error::other("it is no number");
        let pid = step("read the process id", pid.ok_or_else(none))?;
        step("open the container's process", pidfd_open(pid, PidfdFlags::empty()))
    }

    /// Has the runtime remove what it keeps of an ended container.
    fn forget(&mut self, id: u64) {
        let mut arguments = self.arguments(&self.bundle(id));
        arguments.extend(["delete".to_owned(), "--force".to_owned(), name_of(id)]);
        match self.run(&arguments, None, &[]) {
            Ok(runtime) => {
                self.containers.insert(id, Phase::Ending { runtime });
            }
            Err(failure) => {
                eprintln!("containers: {failure}");
                self.remove_bundle(id);
            }
        }
    }

    fn kill(&self, id: u64) {
        let Some(Phase::Running { init }) = self.containers.get(&id) else { return };
        match pidfd_send_signal(init, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => eprintln!("containers: cannot kill container {id}: {error}"),
        }
    }

    fn report_failure(&self, id: u64, failure: Failure) -> Result<(), Failure> {
        let Failure { step: name, source } = failure;
        let report = LauncherReport::Failed { id, step: name, reason: source.to_string() };
        step("report", channel::send(self.control, &report, &[]))
    }

    fn bundle(&self, id: u64) -> PathBuf {
        self.bundles.join(name_of(id))
    }

    fn remove_bundle(&self, id: u64) {
        let folder = self.bundle(id);
        let workspace = folder.join("workspace");
        if workspace.is_dir() {
            match unmount(&workspace, UnmountFlags::DETACH) {
                // A runtime that failed early has mounted nothing.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                // The bundle stays, rather than the session's files being removed with it.
                Err(error) => return eprintln!("containers: cannot unmount a workspace: {error}"),
            }
        }
        if let Err(error) = fs::remove_dir_all(&folder) {
            eprintln!("containers: cannot remove the bundle of container {id}: {error}");
        }
    }

    /// The server has ended: so do its containers, and the runtime forgets them.
    fn end_all(&mut self) {
        let ids: Vec<u64> = self.containers.keys().copied().collect();
        for id in &ids {
            self.kill(*id);
        }
        while !self.containers.is_empty() {
            let ids: Vec<u64> = self.containers.keys().copied().collect();
            let mut fds: Vec<PollFd<'_>> = self
                .containers
                .values()
                .map(|phase| PollFd::new(phase.process(), PollFlags::IN))
                .collect();
            if poll(&mut fds, None).is_err() {
                return;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for (id, _) in ids.into_iter().zip(ready).filter(|(_, ready)| *ready) {
                // A report to a server that is gone fails.
                if let Err(failure) = self.advance(id) {
                    eprintln!("containers: {failure}");
                }
                self.kill(id);
            }
        }
    }
}

/// A copy of a descriptor out of the way of those that are placed.
fn high(fd: BorrowedFd<'_>) -> Result<OwnedFd, Failure> {
    step("keep a descriptor", rustix::io::fcntl_dupfd_cloexec(fd, HIGH))
}

fn name_of(id: u64) -> String {
    format!("woma-{id}")
}

/// Exit status of an ended child, 128 and the signal if it was killed.
fn reap(process: &OwnedFd) -> Result<i32, Failure> {
    let waited = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    let status = step("reap the runtime", waited)?;
    let status = status.ok_or_else(|| io::Error::other("it has not ended"));
    let status = step("reap the runtime", status)?;
    let number = status.exit_status().or_else(|| status.terminating_signal().map(|it| it + 128));
    Ok(number.unwrap_or(128))
}
