//! Endurance: shortages, parts that die under load, load for long. Short by default; `make soak` sets
//! the numbers (`scripts/soak`).

mod parts;
mod shortage;
mod soak;

use std::collections::BTreeMap;
use std::process::Command;
use std::{env, fs};

use crate::harness::descendants;

/// A number that `make soak` sets.
pub(crate) fn number<T: std::str::FromStr>(variable: &str, default: T) -> T {
    let text = env::var_os(variable).and_then(|text| text.into_string().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Resources that a server holds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Held {
    /// Private memory of the server itself, in KiB.
    memory_kib: f64,
    descriptors: f64,
    threads: f64,
    processes: f64,
    groups: f64,
}

impl Held {
    fn by(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let row = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Self {
            memory_kib: row("RssAnon:"),
            descriptors: float(descriptors),
            threads: row("Threads:"),
            processes: float(descendants(pid).len()),
            groups: float(groups_of(pid).len()),
        }
    }

    fn rows(&self) -> [(&'static str, f64); 5] {
        [
            ("memory, KiB", self.memory_kib),
            ("descriptors", self.descriptors),
            ("threads", self.threads),
            ("processes", self.processes),
            ("cgroups", self.groups),
        ]
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// Cgroups of a server, in every hierarchy.
fn groups_of(pid: u32) -> Vec<String> {
    let name = format!("*woma-{pid}-*");
    let arguments = ["/sys/fs/cgroup", "-mindepth", "1", "-type", "d", "-path", &name];
    let found = Command::new("find").args(arguments).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

/// Mounts that this process sees: those of sessions are in namespaces of their own.
fn mounts() -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().filter(|line| line.contains("woma")).count()
}

/// A part of a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Root's process for the server; without one if the server is an ordinary user's.
    Keeper,
    Launcher,
    Steward,
    Zygote,
    Init,
    Cell,
}

/// The processes of each part of a server.
fn parts(server: u32) -> BTreeMap<Part, Vec<u32>> {
    let own_depth = depth(server).map_or(1, |(depth, _)| depth);
    let mut found: BTreeMap<Part, Vec<u32>> = BTreeMap::new();
    for pid in descendants(server) {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let Some((depth, inner)) = depth(pid) else { continue };
        let is_python = line.contains("/opt/woma/zygote.py");
        let part = match (depth - own_depth, inner) {
            (0, _) if line.contains(" keeper") => Part::Keeper,
            (0, _) if line.contains(" steward") => Part::Launcher,
            (1, 1) => Part::Steward,
            (1, _) if is_python => Part::Zygote,
            (2, 1) => Part::Init,
            (2, 2) if is_python => Part::Cell,
            _ => continue,
        };
        found.entry(part).or_default().push(pid);
    }
    found
}

/// How many pid namespaces a process is in, and its id in the innermost.
fn depth(pid: u32) -> Option<(usize, u32)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let pids: Vec<u32> = pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    Some((pids.len(), *pids.last()?))
}
