//! What the machine allows, found out by doing it: the outer sandbox is really built, a cell is
//! really opened and proven where there is an environment to open one with.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::timeout;

use crate::limits::cgroup::Cgroups;
use crate::spec::{Config, Environment, Outcome, Run, Spec};
use crate::steward::client::Client;
use crate::steward::control::{Report as StewardReport, Setup, Standing, Tier};
use crate::{Sandbox, landlock};

/// How long the outer sandbox may take to stand.
const STAND_TIME_MAX: Duration = Duration::from_secs(10);
/// The Landlock version from which on every rule that we make is enforced.
const LANDLOCK_ABI_WANTED: i32 = 6;

/// What is enforced here.
#[derive(Debug, Clone, Serialize)]
pub struct Examination {
    pub isolation: Isolation,
    pub layers: Vec<Layer>,
}

/// Less than `Full` does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Every wall stands. Limits may be held by the watchdog; the layers say so.
    Full,
    /// Sessions would not be contained: none are started.
    None,
}

/// One wall, or one thing that holds a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layer {
    pub name: &'static str,
    pub state: LayerState,
    /// What it does here, or why it does not.
    pub detail: String,
    /// How to get more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerState {
    Enforced,
    /// Enforced with less than the machine could give.
    Partly,
    Missing,
    /// Could not be tried, because something before it is missing.
    Unknown,
}

/// Looks at everything. `environment` is used for a real cell, if there is one.
pub async fn examine(steward: &Path, environment: Option<Environment>) -> Examination {
    let standing = stand(steward).await;
    let mut layers = vec![kernel(), namespaces(&standing), session_ids(&standing)];
    layers.push(landlock_layer());
    layers.push(seccomp_layer());
    layers.push(memory_layer(&Cgroups::prepare()));
    layers.push(cell(steward, environment).await);
    let walls = ["namespaces", "landlock", "seccomp", "cell"];
    let missing = |layer: &Layer| walls.contains(&layer.name) && layer.state == LayerState::Missing;
    let isolation = if layers.iter().any(missing) { Isolation::None } else { Isolation::Full };
    Examination { isolation, layers }
}

/// Builds the outer sandbox with no interpreter in it, and takes it down again.
async fn stand(steward: &Path) -> Result<Standing, (String, String)> {
    let setup = Setup {
        python: "/nonexistent".into(),
        mounts: Vec::new(),
        tiers: Vec::new(),
        watched: false,
    };
    let fail = |step: &str, reason: String| (step.to_owned(), reason);
    let client = Client::spawn(steward, &setup)
        .map_err(|error| fail("start the steward", error.to_string()))?;
    match timeout(STAND_TIME_MAX, client.next()).await {
        Ok(Ok(Some((StewardReport::Standing(standing), _)))) => Ok(standing),
        Ok(Ok(Some((StewardReport::Broken { step, reason }, _)))) => Err((step, reason)),
        Ok(Ok(other)) => Err(fail("hear from the steward", format!("it said {other:?}"))),
        Ok(Err(error)) => Err(fail("hear from the steward", error.to_string())),
        Err(_) => Err(fail("hear from the steward", format!("silence for {STAND_TIME_MAX:?}"))),
    }
}

fn kernel() -> Layer {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (state, fix) = if version >= (6, 1) {
        (LayerState::Enforced, None)
    } else if version >= (5, 19) {
        let fix = "6.1 or newer forks faster (huge pages on request)";
        (LayerState::Partly, Some(fix.to_owned()))
    } else {
        (LayerState::Missing, Some("5.19 is the oldest kernel with what is needed".to_owned()))
    };
    Layer { name: "kernel", state, detail: format!("Linux {release}"), fix }
}

type Stood = Result<Standing, (String, String)>;

fn namespaces(standing: &Stood) -> Layer {
    let name = "namespaces";
    match standing {
        Ok(_) => {
            let detail =
                "user, mount, pid, network, ipc, uts and cgroup, twice over; read-only root";
            Layer { name, state: LayerState::Enforced, detail: detail.to_owned(), fix: None }
        }
        Err((step, reason)) => Layer {
            name,
            state: LayerState::Missing,
            detail: format!("{step}: {reason}"),
            fix: hint(step, reason),
        },
    }
}

fn session_ids(standing: &Stood) -> Layer {
    let name = "session-ids";
    let (state, detail, fix) = match standing {
        Ok(Standing { uid_base: Some(base), uid_count, .. }) => {
            let detail = format!("each session has a user id of its own, {uid_count} from {base}");
            (LayerState::Enforced, detail, None)
        }
        Ok(_) => {
            let detail = "all sessions share your user id; namespaces and Landlock separate them";
            let fix = "start as root to give each session its own";
            (LayerState::Partly, detail.to_owned(), Some(fix.to_owned()))
        }
        Err(_) => (LayerState::Unknown, "not tried".to_owned(), None),
    };
    Layer { name, state, detail, fix }
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
        (LayerState::Missing, "the kernel has no filters", Some(fix.to_owned()))
    };
    Layer { name: "seccomp", state, detail: detail.to_owned(), fix }
}

fn memory_layer(cgroups: &Cgroups) -> Layer {
    let layer = match cgroups {
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
                "run under systemd with `Delegate=yes`, in a container with a cgroup of its own, \
                 or as root"
                    .to_owned(),
            ),
        },
    };
    cgroups.dispose();
    layer
}

async fn cell(steward: &Path, environment: Option<Environment>) -> Layer {
    let name = "cell";
    let Some(environment) = environment else {
        let detail = "not tried: there is no environment yet".to_owned();
        let fix = Some("`woma env create`".to_owned());
        return Layer { name, state: LayerState::Unknown, detail, fix };
    };
    match try_cell(steward, environment).await {
        Ok(took) => {
            let milliseconds = took.as_secs_f64() * 1e3;
            let detail = format!(
                "opened, proven from outside (no capabilities, filter on, own namespaces), \
                 first answer after {milliseconds:.1} ms"
            );
            Layer { name, state: LayerState::Enforced, detail, fix: None }
        }
        Err(reason) => Layer { name, state: LayerState::Missing, detail: reason, fix: None },
    }
}

async fn try_cell(steward: &Path, environment: Environment) -> Result<Duration, String> {
    let mut config = Config::new(environment);
    config.steward = steward.to_owned();
    config.preload = Tier::Base;
    let sandbox = Sandbox::start(config).await.map_err(|error| error.to_string())?;
    let started = Instant::now();
    let mut cell = sandbox.open(&Spec::default()).await.map_err(|error| error.to_string())?;
    let exit = cell.run(&Run::new("1"), &mut |_| ()).await;
    match exit.outcome {
        Outcome::Completed => Ok(started.elapsed()),
        other => Err(format!("a first run ended as {other:?}")),
    }
}

/// What an operator can do about a step that failed.
pub fn hint(step: &str, reason: &str) -> Option<String> {
    let denied = reason.contains("ermitted") || reason.contains("ermission denied");
    let hint = match step {
        "create a user namespace" | "create the outer namespaces"
            if is_limited("user/max_user_namespaces") =>
        {
            "user namespaces are switched off: `sysctl user.max_user_namespaces=15000`"
        }
        "create a user namespace" | "write uid_map" | "create the outer namespaces"
            if is_limited("kernel/unprivileged_userns_clone") =>
        {
            "unprivileged user namespaces are switched off: `sysctl kernel.unprivileged_userns_clone=1`"
        }
        _ if denied
            && fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                .is_ok_and(|text| text.trim() == "1") =>
        {
            "AppArmor restricts user namespaces: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for woma that says `userns,`"
        }
        "create a user namespace"
        | "create the outer namespaces"
        | "make the mount namespace our own"
            if denied =>
        {
            "namespaces are refused here; in Docker add `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`, in podman `--security-opt unmask=ALL`"
        }
        "mount proc" if denied => {
            "parts of /proc are covered; in Docker add `--security-opt systempaths=unconfined`, in podman `--security-opt unmask=ALL`"
        }
        "use root's rights" => {
            "root lacks the rights of root here (a container without SYS_ADMIN?): start woma as an ordinary user, in Docker with `--user 1000`"
        }
        "make the Landlock ruleset" => {
            "Landlock is missing: boot with `lsm=landlock,…`; in a container, allow the landlock_* calls"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn is_limited(setting: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/{setting}")).is_ok_and(|text| text.trim() == "0")
}
