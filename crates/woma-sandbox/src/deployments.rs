//! The isolation that each way to run Woma gives, as data: `woma doctor --deployments` prints it, and
//! docs/DEPLOYMENT.md has what it prints.

use std::fmt::Write as _;

use crate::advice::Engine;
use crate::doctor::Isolation;
use crate::rung::{Rung, needed_abi};

/// A way to run Woma.
struct Deployment {
    name: &'static str,
    /// The best level that it gives.
    level: Isolation,
    limits: &'static str,
    user: &'static str,
    tried: &'static str,
}

const CONTAINER_LIMITS: &str = "watched; the container's own limit holds for all sessions together";
const SERVERS: &str = "the server's";

const DEPLOYMENTS: &[Deployment] = &[
    Deployment {
        name: "started as root, or by systemd",
        level: Isolation::Full,
        limits: "enforced by cgroups",
        user: "one of its own",
        tried: "`make test`, `make test-vm`",
    },
    Deployment {
        name: "ordinary user, by systemd with `Delegate=`",
        level: Isolation::Strong,
        limits: "enforced by cgroups",
        user: SERVERS,
        tried: "`make test-vm`",
    },
    Deployment {
        name: "ordinary user",
        level: Isolation::Strong,
        limits: "watched ten times a second",
        user: SERVERS,
        tried: "`make test`",
    },
    Deployment {
        name: "Docker, podman or Kubernetes with the options below",
        level: Isolation::Strong,
        limits: CONTAINER_LIMITS,
        user: SERVERS,
        tried: "podman in `make test`; Docker and Kubernetes: not on the real thing",
    },
    Deployment {
        name: "container with an engine's default profile, or with `--cap-drop ALL --security-opt \
               no-new-privileges --read-only`",
        level: Isolation::Restricted,
        limits: CONTAINER_LIMITS,
        user: SERVERS,
        tried: "podman in `make test`",
    },
    Deployment {
        name: "Kubernetes, Pod Security level `restricted`",
        level: Isolation::Restricted,
        limits: CONTAINER_LIMITS,
        user: SERVERS,
        tried: "the same options of podman in `make test`; not on a cluster",
    },
    Deployment {
        name: "the last two on Linux 6.2 to 6.11",
        level: Isolation::Minimal,
        limits: CONTAINER_LIMITS,
        user: SERVERS,
        tried: "its filters in `make test`, on a newer kernel",
    },
    Deployment {
        name: "the same on an older kernel, or where Landlock is off",
        level: Isolation::None,
        limits: "",
        user: "",
        tried: "calls that are refused: `make test`",
    },
];

/// Promises of each level, one row for each goal of an attacker.
const PROMISES: &[(&str, &str, &str, &str)] = &[
    ("files of the server and the host", "mounts, Landlock", "Landlock", "Landlock"),
    ("modes, owners and times of files", "mounts", "seccomp", "seccomp"),
    (
        "memory of other processes",
        "pid namespace, Landlock, seccomp",
        "Landlock, seccomp",
        "Landlock, seccomp",
    ),
    (
        "signals to other processes",
        "pid namespace, Landlock",
        "Landlock",
        "seccomp: none to anyone",
    ),
    (
        "which processes exist",
        "pid namespace",
        "their numbers are visible",
        "their numbers are visible",
    ),
    (
        "network, other sockets",
        "network namespace; a proxy by rules",
        "seccomp: no sockets",
        "seccomp: no sockets",
    ),
    (
        "processes after the end",
        "pid namespace",
        "session id, which seccomp fixes",
        "session id, which seccomp fixes",
    ),
    ("number of processes", "kernel", "watched; shared by all sessions in between", "as beside"),
    ("memory", "cgroup, or watched", "watched", "watched"),
    ("disk", "quota, or watched", "watched, with temporary files", "watched, with temporary files"),
    ("locks on shared files", "overlay: inodes of its own", "**not held**", "**not held**"),
    (
        "names of files outside",
        "mounts",
        "**not held**: only whether a guessed path exists",
        "**not held**",
    ),
    ("faults of the Linux kernel", "seccomp", "seccomp", "seccomp"),
    ("imports of the zygote", "outer sandbox", "the server's user", "the server's user"),
];

/// The tables and the command lines, as Markdown.
pub fn markdown() -> String {
    let mut text = String::from(
        "| way to run | isolation | limits of memory | user of a session | tried |\n|---|---|---|---|---|\n",
    );
    for Deployment { name, level, limits, user, tried } in DEPLOYMENTS {
        let level = match level {
            Isolation::None => "**none: the server does not start**".to_owned(),
            other => format!("`{}`", other.name()),
        };
        // Writing to a String cannot fail.
        writeln!(text, "| {name} | {level} | {limits} | {user} | {tried} |").unwrap_or_default();
    }
    text.push_str(
        "\n| against | `full`, `strong` | `restricted` | `minimal` |\n|---|---|---|---|\n",
    );
    for (goal, rooms, restricted, minimal) in PROMISES {
        writeln!(text, "| {goal} | {rooms} | {restricted} | {minimal} |").unwrap_or_default();
    }
    let versions = [Rung::Restricted, Rung::Minimal].map(needed_abi);
    writeln!(
        text,
        "\n`restricted` needs version {} of Landlock's interface (Linux 6.12), `minimal` version {} \
         (Linux 6.2).\n",
        versions[0], versions[1]
    )
    .unwrap_or_default();
    for engine in [Engine::Docker, Engine::Podman] {
        let command = engine.command().replace(" --", " \\\n  --").replace(" -e ", " \\\n  -e ");
        writeln!(text, "```bash\n{command}\n```\n").unwrap_or_default();
    }
    text
}
