//! Checks of what the machine can enforce, made by doing it: builds the outer sandbox, and opens
//! and verifies a cell if there is an environment.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde::Serialize;
use tokio::time::timeout;

use crate::limits::cgroup::Cgroups;
use crate::rung::{self, Rung};
use crate::spec::{Config, Environment, Outcome, Run, Spec};
use crate::steward::control::{StewardInfo, Tier};
use crate::workspace::projects;
use crate::{Sandbox, advice, keeper, landlock, rights};

pub use crate::advice::fix;
pub use crate::deployments::markdown as deployments;
pub use crate::isolation::Isolation;

/// Longest time to build the outer sandbox.
const BUILD_TIME_MAX: Duration = Duration::from_secs(10);
/// Landlock version that enforces all of our rules.
const LANDLOCK_ABI_WANTED: i32 = rung::SCOPED_ABI;

/// Layers that are enforced on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Examination {
    pub isolation: Isolation,
    pub layers: Vec<Layer>,
}

/// One layer of containment, or one mechanism that enforces limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layer {
    pub name: &'static str,
    pub state: LayerState,
    /// Effect of the layer, or why it is not enforced.
    pub detail: String,
    /// How to enforce more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerState {
    Enforced,
    /// Enforced in part.
    Partly,
    Missing,
    /// Not checked, because an earlier layer is missing.
    Unknown,
}

/// Caller of an examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The server, about itself.
    Server,
    /// An operator, about a server to be started.
    Operator,
}

/// Checks all layers. `environment` is used to open a real cell; `folder` is the existing or future
/// folder of the sessions' files; `lowest` the rung of the server, or the lowest to try.
pub async fn examine(
    steward: &Path,
    environment: Option<Environment>,
    folder: Option<&Path>,
    asker: Asker,
    lowest: Rung,
) -> Examination {
    // First of all: on cgroup v2 our initial group must not contain other processes.
    let limits = match keeper::of_this_process() {
        Some(keeper) => memory_layer(keeper.cgroups()),
        None => {
            let cgroups = Cgroups::prepare();
            let layer = memory_layer(&cgroups);
            cgroups.dispose();
            layer
        }
    };
    let (info, rung) = find_rung(steward, lowest).await;
    let is_shared = rung.is_some_and(Rung::is_shared);
    let mut layers = vec![kernel(), namespaces(&info)];
    if is_shared {
        layers.extend(shared_layers());
    } else {
        layers.extend([session_ids(&info), inodes(&info)]);
    }
    layers.push(landlock_layer());
    layers.push(seccomp_layer());
    layers.push(core_dumps());
    layers.push(limits);
    layers.push(server_layer(steward, asker).await);
    layers.extend(folder.map(|folder| disk_layer(&info, folder)));
    // A confined server reaches its own folders only.
    let is_confined = keeper::of_this_process().is_some();
    let scratch = folder.filter(|_| is_shared && is_confined);
    layers.push(cell(steward, environment, rung, scratch).await);
    Examination { isolation: Isolation::of(&layers, rung), layers }
}

/// Tries the rungs from the highest; returns the result of the highest, and the one that works.
async fn find_rung(steward: &Path, lowest: Rung) -> (Outer, Option<Rung>) {
    let rooms = rung::try_rung(steward, Rung::Rooms).await;
    if rooms.is_ok() {
        return (rooms, Some(Rung::Rooms));
    }
    for rung in [Rung::Restricted, Rung::Minimal] {
        if rung >= lowest && rung::try_rung(steward, rung).await.is_ok() {
            return (rooms, Some(rung));
        }
    }
    (rooms, None)
}

/// Layers of sessions without namespaces: what they share, and what separates them all the same.
fn shared_layers() -> [Layer; 4] {
    let partly = |name, detail: &str| Layer {
        name,
        state: LayerState::Partly,
        detail: detail.to_owned(),
        fix: None,
    };
    [
        partly(
            "session-ids",
            "the server and all sessions have one user id; Landlock keeps files and signals apart, \
             seccomp modes, owners and priorities",
        ),
        partly(
            "inodes",
            "sessions show the container's own files: locks on those that all may read reach others",
        ),
        partly(
            "processes",
            "sessions share the server's process ids: they see which numbers exist, and nothing of \
             the processes behind them",
        ),
        partly(
            "sockets",
            "sessions have none: no network, no listeners, no datasets, packages and ports, which \
             need sockets and mounts of their own",
        ),
    ]
}

fn kernel() -> Layer {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (state, fix) = if version >= (6, 1) {
        (LayerState::Enforced, None)
    } else if version >= (5, 19) {
        let fix = "Linux 6.1 or newer forks faster (huge pages on request)";
        (LayerState::Partly, Some(fix.to_owned()))
    } else {
        (LayerState::Missing, Some("Linux 5.19 or newer is required".to_owned()))
    };
    Layer { name: "kernel", state, detail: format!("Linux {release}"), fix }
}

type Outer = Result<StewardInfo, (String, String)>;

fn namespaces(info: &Outer) -> Layer {
    let name = "namespaces";
    match info {
        Ok(_) => {
            let detail =
                "user, mount, pid, network, ipc, uts and cgroup, two levels; read-only root";
            Layer { name, state: LayerState::Enforced, detail: detail.to_owned(), fix: None }
        }
        Err((step, reason)) => Layer {
            name,
            state: LayerState::Missing,
            detail: format!("{step}: {reason}"),
            fix: hint(step, reason).or_else(|| Some(advice::about_namespaces())),
        },
    }
}

fn session_ids(info: &Outer) -> Layer {
    let name = "session-ids";
    let (state, detail, fix) = match info {
        Ok(StewardInfo { uid_base: Some(base), uid_count, .. }) => {
            let detail = format!("each session has a user id of its own, {uid_count} from {base}");
            (LayerState::Enforced, detail, None)
        }
        Ok(_) => {
            let detail = "all sessions share your user id; namespaces and Landlock separate them";
            let fix = "start as root to give each session its own user id";
            (LayerState::Partly, detail.to_owned(), Some(fix.to_owned()))
        }
        Err(_) => (LayerState::Unknown, "not tried".to_owned(), None),
    };
    Layer { name, state, detail, fix }
}

/// Whether locks and watches of one session affect the host or other sessions.
fn inodes(info: &Outer) -> Layer {
    let name = "inodes";
    let (state, detail, fix) = match info {
        Ok(StewardInfo { shared_inodes: Some(why), .. }) => {
            let detail =
                format!("sessions show the host's own files ({why}): locks on them reach the host");
            let fix = "overlay mounts in user namespaces: Linux 5.11 or newer, and at most one \
                       overlay below; in a container, put /usr on a volume";
            (LayerState::Partly, detail, Some(fix.to_owned()))
        }
        Ok(StewardInfo { own_devices: false, .. }) => {
            let detail = "files are each session's own; the five device nodes are the host's";
            let fix = "start as root with CAP_MKNOD to give sessions devices of their own";
            (LayerState::Partly, detail.to_owned(), Some(fix.to_owned()))
        }
        Ok(_) => {
            let detail = "each session has its own, over shared contents; devices are the server's";
            (LayerState::Enforced, detail.to_owned(), None)
        }
        Err(_) => (LayerState::Unknown, "not tried".to_owned(), None),
    };
    Layer { name, state, detail, fix }
}

/// A crash in a session must not start a core dump handler of the host.
fn core_dumps() -> Layer {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let detail = match pattern.trim().strip_prefix('|') {
        // A limit of 1 byte disables dumps to a pipe, too.
        Some(program) => {
            let program = program.split_whitespace().next().unwrap_or_default();
            format!("none; the host's handler ({program}) is not called for sessions")
        }
        None => "none".to_owned(),
    };
    Layer { name: "core-dumps", state: LayerState::Enforced, detail, fix: None }
}

fn landlock_layer() -> Layer {
    let abi = landlock::abi();
    let (state, fix) = match abi {
        LANDLOCK_ABI_WANTED.. => (LayerState::Enforced, None),
        1.. => {
            let fix = "Linux 6.12 or newer also scopes signals and abstract sockets";
            (LayerState::Partly, Some(fix.to_owned()))
        }
        _ => {
            let fix = "boot with `lsm=landlock,…`; in a container, allow the landlock_* calls";
            (LayerState::Missing, Some(fix.to_owned()))
        }
    };
    let detail = match abi {
        1.. => format!("interface version {abi}"),
        _ => "the kernel does not offer it".to_owned(),
    };
    Layer { name: "landlock", state, detail, fix }
}

fn seccomp_layer() -> Layer {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    let offered = actions.is_ok_and(|text| text.split_whitespace().any(|word| word == "errno"));
    let (state, detail, fix) = if offered {
        let detail = "system calls are on an allow list; each cell proves that it is loaded";
        (LayerState::Enforced, detail, None)
    } else {
        let fix = "a kernel with CONFIG_SECCOMP_FILTER";
        (LayerState::Missing, "the kernel has no seccomp filters", Some(fix.to_owned()))
    };
    Layer { name: "seccomp", state, detail: detail.to_owned(), fix }
}

fn memory_layer(cgroups: &Cgroups) -> Layer {
    match cgroups {
        Cgroups::V1 { .. } | Cgroups::V2 { .. } => Layer {
            name: "limits",
            state: LayerState::Enforced,
            detail: format!("memory, processes and processor time by {}", cgroups.name()),
            fix: None,
        },
        Cgroups::Missing { why } => Layer {
            name: "limits",
            state: LayerState::Partly,
            detail: format!(
                "memory by a watchdog that looks ten times a second, processes by rlimit, \
                 processor share not at all ({why})"
            ),
            fix: Some(
                "run under systemd with `Delegate=yes`, or in a container with a cgroup of its own"
                    .to_owned(),
            ),
        },
    }
}

/// Privileges of the server's own process, which an exploit would gain.
async fn server_layer(steward: &Path, asker: Asker) -> Layer {
    let (state, detail, fix) = match (rights::given_up(), geteuid().is_root()) {
        (Some((uid, _)), _) => (LayerState::Enforced, confined(uid), None),
        (None, false) => {
            let detail = "the server has your rights, and so has a fault in it";
            let fix = "start it as root, which it gives up, or under a user of its own";
            (LayerState::Partly, detail.to_owned(), Some(fix.to_owned()))
        }
        (None, true) if asker == Asker::Server => {
            let fix = "leave RUN_AS and --user out, or name another user";
            let detail = "the server is root, and so is a fault in it";
            (LayerState::Partly, detail.to_owned(), Some(fix.to_owned()))
        }
        (None, true) => match try_rights(steward).await {
            Ok(uid) => (LayerState::Enforced, format!("started as root: {}", confined(uid)), None),
            Err(reason) => (LayerState::Missing, reason, None),
        },
    };
    Layer { name: "server", state, detail, fix }
}

fn confined(uid: u32) -> String {
    format!(
        "runs as user {uid} without capabilities, reaches its own files only, starts no program; \
         a keeper does what needs root"
    )
}

/// Has a process drop root as a server does.
async fn try_rights(steward: &Path) -> Result<u32, String> {
    let mut command = tokio::process::Command::new(steward);
    command.args([keeper::ROLE, rights::TRIAL, "{}"]).env_clear().kill_on_drop(true);
    let tried = timeout(BUILD_TIME_MAX, command.output()).await;
    let tried = tried.map_err(|_| "dropping root takes too long".to_owned())?;
    let tried = tried.map_err(|error| error.to_string())?;
    if !tried.status.success() {
        let reason = String::from_utf8_lossy(&tried.stderr);
        return Err(format!("root's rights cannot be given up: {}", reason.trim()));
    }
    let found: serde_json::Value =
        serde_json::from_slice(&tried.stdout).map_err(|error| error.to_string())?;
    let uid = found.get("uid").and_then(serde_json::Value::as_u64);
    uid.and_then(|uid| u32::try_from(uid).ok())
        .ok_or_else(|| "the trial reported no user".to_owned())
}

/// Whether the size of sessions' folders is enforced or watched.
fn disk_layer(info: &Outer, folder: &Path) -> Layer {
    let name = "disk";
    let is_root = matches!(info, Ok(StewardInfo { uid_base: Some(_), .. }));
    let there = folder.ancestors().find_map(|folder| fs::File::open(folder).ok());
    let is_enforced = there.as_ref().is_some_and(|it| projects::are_enforced(it).unwrap_or(false));
    let kind = there.as_ref().map_or("unknown", file_system);
    if is_root && is_enforced {
        let detail = format!("held by project quotas of {kind}: size and files of each folder");
        return Layer { name, state: LayerState::Enforced, detail, fix: None };
    }
    let fix = match kind {
        _ if is_enforced => "start as root: only root may set project quotas",
        "ext4" => {
            "`tune2fs -O project,quota -Q prjquota` on the unmounted file system, and mount it with \
             `prjquota`"
        }
        "xfs" => "mount the file system with `prjquota`",
        _ => "put the data folder on xfs or ext4 that is mounted with `prjquota`",
    };
    let detail = format!(
        "watched: folders on {kind} are measured ten times a second and can overshoot in between; \
         MIN_FREE_DISK keeps a reserve"
    );
    Layer { name, state: LayerState::Partly, detail, fix: Some(fix.to_owned()) }
}

fn file_system(file: &fs::File) -> &'static str {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const TMPFS: u64 = 0x0102_1994;
    const OVERLAY: u64 = 0x794c_7630;
    let found = rustix::fs::fstatfs(file).map(|found| u64::try_from(found.f_type).unwrap_or(0));
    match found {
        Ok(EXT4) => "ext4",
        Ok(XFS) => "xfs",
        Ok(BTRFS) => "btrfs",
        Ok(TMPFS) => "tmpfs",
        Ok(OVERLAY) => "overlayfs",
        _ => "another file system",
    }
}

async fn cell(
    steward: &Path,
    environment: Option<Environment>,
    rung: Option<Rung>,
    scratch: Option<&Path>,
) -> Layer {
    let name = "cell";
    let Some(environment) = environment else {
        let detail = "not tried: there is no environment yet".to_owned();
        let fix = Some("`woma env create`".to_owned());
        return Layer { name, state: LayerState::Unknown, detail, fix };
    };
    let Some(rung) = rung else {
        let detail = "not tried: nothing to contain it works here".to_owned();
        return Layer { name, state: LayerState::Unknown, detail, fix: None };
    };
    match try_cell(steward, environment, rung, scratch).await {
        Ok(took) => {
            let milliseconds = took.as_secs_f64() * 1e3;
            let detail = format!(
                "opened, proven from outside (no capabilities, filter on{}), first answer after \
                 {milliseconds:.1} ms",
                if rung.is_shared() { "" } else { ", own namespaces" }
            );
            Layer { name, state: LayerState::Enforced, detail, fix: None }
        }
        Err(reason) => Layer { name, state: LayerState::Missing, detail: reason, fix: None },
    }
}

async fn try_cell(
    steward: &Path,
    environment: Environment,
    rung: Rung,
    scratch: Option<&Path>,
) -> Result<Duration, String> {
    let mut config = Config::new(environment);
    config.steward = steward.to_owned();
    config.preload = Tier::Base;
    (config.highest, config.lowest) = (rung, rung);
    config.spare_folders = scratch.map(Path::to_owned);
    let sandbox = Sandbox::start(config).await.map_err(|error| error.to_string())?;
    let started = Instant::now();
    let mut cell = sandbox.open(&Spec::default()).await.map_err(|error| error.to_string())?;
    let exit = cell.run(&Run::new("1"), &mut |_| ()).await;
    match exit.outcome {
        Outcome::Completed => Ok(started.elapsed()),
        other => Err(format!("the first run ended as {other:?}")),
    }
}

/// Advice to the operator about a failed step.
pub fn hint(step: &str, reason: &str) -> Option<String> {
    match step {
        _ if step.contains("Landlock") || reason.contains("Landlock") => Some(
            "Landlock is missing: boot with `lsm=landlock,…`; in a container, allow the landlock_* \
             calls"
                .to_owned(),
        ),
        "create a user namespace"
        | "write uid_map"
        | "create the outer namespaces"
        | "make the mount namespace our own"
        | "mount proc"
        | "pivot_root"
        | "use root's rights"
        | "create the room's namespaces"
        | "furnish the room" => Some(advice::about_namespaces()),
        _ if reason.contains("ermitted") || reason.contains("ermission denied") => {
            Some(advice::about_namespaces())
        }
        _ => None,
    }
}
