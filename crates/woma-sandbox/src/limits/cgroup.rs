//! Control groups, version 1 and version 2: one group per session, below the group that the server
//! was started in.
//!
//! A cell joins by itself: the server opens the group's file, the file travels with the order, and
//! the fork writes `0` ("me") to it. On version 1 that write goes to `tasks`, which moves one thread
//! and therefore does without the lock that makes a write to `cgroup.procs` cost 7 to 14 ms on a
//! quiet machine. On version 2 there is no such file for a group with a memory limit.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Limits, Usage};

/// The period over which processor time is shared out, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// How long what a dead server left is tried again, and how often.
const SWEEP_MAX: Duration = Duration::from_secs(10);
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// Where this server may make groups.
#[derive(Debug, Clone)]
pub(crate) enum Cgroups {
    V1 {
        memory: PathBuf,
        pids: PathBuf,
        cpu: PathBuf,
        cpuacct: PathBuf,
    },
    V2 {
        parent: PathBuf,
    },
    /// None to be had; the watchdog does what it can.
    Missing {
        why: String,
    },
}

impl Cgroups {
    /// Finds and prepares a place for the sessions' groups, and clears what a dead server left.
    pub(crate) fn prepare() -> Self {
        let found = v1().or_else(|one| v2().map_err(|two| format!("{two}; {one}")));
        match found {
            Ok(cgroups) => cgroups,
            Err(why) => Self::Missing { why },
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::V1 { .. } => "cgroup v1",
            Self::V2 { .. } => "cgroup v2",
            Self::Missing { .. } => "none",
        }
    }

    /// Removes the folder of this server's sessions, if they are all gone.
    pub(crate) fn dispose(&self) {
        let folders = match self {
            Self::V1 { memory, pids, cpu, cpuacct } => vec![memory, pids, cpu, cpuacct],
            Self::V2 { parent } => vec![parent],
            Self::Missing { .. } => Vec::new(),
        };
        for folder in folders {
            // Another sandbox of this process may still use it.
            if let Err(error) = fs::remove_dir(folder) {
                tracing::debug!(%error, "the cgroup folder stays");
            }
        }
    }

    /// Of all groups together.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        match self {
            Self::V1 { memory, .. } => Some(number(&memory.join("memory.usage_in_bytes"))),
            Self::V2 { parent } => Some(number(&parent.join("memory.current"))),
            Self::Missing { .. } => None,
        }
    }

    /// A group with these limits; `None` where there are no groups.
    pub(crate) fn create(&self, name: &str, limits: &Limits) -> io::Result<Option<Group>> {
        match self {
            Self::V1 { memory, pids, cpu, cpuacct } => {
                create_v1([memory, pids, cpu, cpuacct], name, limits).map(Some)
            }
            Self::V2 { parent } => create_v2(parent, name, limits).map(Some),
            Self::Missing { .. } => Ok(None),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.remove() {
            // A process is still on its way out; the next start clears what stays.
            tracing::debug!(folders = ?self.folders, "a cgroup stays for now");
        }
    }
}

/// One session's group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Deleted with the value.
    folders: Vec<PathBuf>,
    files: Files,
    /// What a process writes `0` to in order to join.
    pub(crate) join: Vec<OwnedFd>,
}

/// Where the figures are.
#[derive(Debug)]
enum Files {
    V1 { memory: PathBuf, cpuacct: PathBuf },
    V2(PathBuf),
}

impl Group {
    pub(crate) fn usage(&self) -> Usage {
        match &self.files {
            Files::V1 { memory, cpuacct } => Usage {
                cpu: Duration::from_nanos(number(&cpuacct.join("cpuacct.usage"))),
                memory_peak_bytes: number(&memory.join("memory.max_usage_in_bytes")),
                out_of_memory_kills: field(&memory.join("memory.oom_control"), "oom_kill "),
            },
            Files::V2(group) => Usage {
                cpu: Duration::from_micros(field(&group.join("cpu.stat"), "usage_usec ")),
                memory_peak_bytes: number(&group.join("memory.peak")),
                out_of_memory_kills: field(&group.join("memory.events"), "oom_kill "),
            },
        }
    }

    /// Another limit from now on. Refused when the session uses more than that already: the kernel
    /// would answer by killing.
    pub(crate) fn set_memory(&self, bytes: u64) -> io::Result<()> {
        let (folder, used, limit) = match &self.files {
            Files::V1 { memory, .. } => (memory, "memory.usage_in_bytes", "memory.limit_in_bytes"),
            Files::V2(group) => (group, "memory.current", "memory.max"),
        };
        if number(&folder.join(used)) > bytes {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let limit = folder.join(limit);
        // On version 1 the limit with swap may never be below the one without: raise it first.
        let with_swap = folder.join("memory.memsw.limit_in_bytes");
        let is_raised = bytes > number(&limit);
        let files = match (with_swap.exists(), is_raised) {
            (false, _) => vec![&limit],
            (true, true) => vec![&with_swap, &limit],
            (true, false) => vec![&limit, &with_swap],
        };
        files.into_iter().try_for_each(|file| set(file, &bytes))
    }

    /// Processor time alone, for the watchdog.
    pub(crate) fn cpu(&self) -> Duration {
        match &self.files {
            Files::V1 { cpuacct, .. } => {
                Duration::from_nanos(number(&cpuacct.join("cpuacct.usage")))
            }
            Files::V2(group) => {
                Duration::from_micros(field(&group.join("cpu.stat"), "usage_usec "))
            }
        }
    }

    /// Deletes the group; false while a process is left in it.
    pub(crate) fn remove(&self) -> bool {
        self.folders.iter().rev().all(|folder| remove_dir(folder))
    }
}

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn field(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// The folder of all sessions of one sandbox: the pid tells a later server whether it is stale.
fn own_folder() -> String {
    static FOLDERS: AtomicU64 = AtomicU64::new(1);
    format!("woma-{}-{}", std::process::id(), FOLDERS.fetch_add(1, Ordering::Relaxed))
}

fn v1() -> Result<Cgroups, String> {
    let own = own_folder();
    let find = |controller: &str| -> Result<PathBuf, String> {
        let mount = v1_mount(controller)?;
        let path = own_path(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            parts.next()?.split(',').any(|name| name == controller).then(|| parts.next())?
        });
        let parent = mount.join(path.unwrap_or_default().trim_start_matches('/'));
        sweep(&parent);
        let folder = parent.join(&own);
        match fs::create_dir(&folder) {
            Ok(()) => Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(folder),
            Err(error) => Err(format!("cgroup v1 {controller}: {}: {error}", parent.display())),
        }
    };
    Ok(Cgroups::V1 {
        memory: find("memory")?,
        pids: find("pids")?,
        cpu: find("cpu")?,
        cpuacct: find("cpuacct")?,
    })
}

fn v1_mount(controller: &str) -> Result<PathBuf, String> {
    mounts("cgroup")
        .into_iter()
        .find(|(_, options)| options.split(',').any(|option| option == controller))
        .map(|(path, _)| path)
        .ok_or_else(|| format!("cgroup v1 has no {controller} controller"))
}

/// Mount points of a file system type, with its options.
fn mounts(kind: &str) -> Vec<(PathBuf, String)> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let found = right.next()? == kind;
        let path = PathBuf::from(left.split(' ').nth(4)?);
        found.then(|| (path, right.nth(1).unwrap_or_default().to_owned()))
    };
    text.lines().filter_map(parse).collect()
}

fn own_path(pick: impl Fn(&str) -> Option<&str>) -> Option<String> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    text.lines().find_map(|line| pick(line).map(str::to_owned))
}

/// Removes the groups of servers that no longer live. A process that was killed a moment ago may
/// still be on its way out of one: those are tried again while the server starts.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let stale = entries.map(|entry| entry.path()).filter(|group| is_stale(group));
    let busy: Vec<PathBuf> = stale.filter(|group| !remove_tree(group)).collect();
    if busy.is_empty() {
        return;
    }
    let again = std::thread::Builder::new().name("woma-sweep".to_owned());
    if let Err(error) = again.spawn(move || sweep_again(busy)) {
        tracing::debug!(%error, "stale cgroups are left to the next start");
    }
}

#[expect(clippy::disallowed_methods, reason = "the kernel does not tell when a group is empty")]
fn sweep_again(mut busy: Vec<PathBuf>) {
    let started = Instant::now();
    while !busy.is_empty() && started.elapsed() < SWEEP_MAX {
        std::thread::sleep(SWEEP_PAUSE);
        // The id may be another server's by now, and the group with it.
        busy.retain(|group| is_stale(group) && !remove_tree(group));
    }
    if !busy.is_empty() {
        tracing::debug!(?busy, "stale cgroups cannot be removed");
    }
}

/// Whether this is a group of a server that is gone.
fn is_stale(group: &Path) -> bool {
    let name = group.file_name().and_then(OsStr::to_str);
    let pid = name.and_then(|name| name.strip_prefix("woma-")?.split('-').next());
    let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Removes a group with those in it; false while a process is left in one.
fn remove_tree(group: &Path) -> bool {
    for inner in fs::read_dir(group).into_iter().flatten().flatten() {
        if inner.path().is_dir() {
            // One that stays keeps its parent, which is what is told.
            fs::remove_dir(inner.path()).unwrap_or_default();
        }
    }
    remove_dir(group)
}

/// Whether it is gone, by us or by another server.
fn remove_dir(group: &Path) -> bool {
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn create_v1(parents: [&PathBuf; 4], name: &str, limits: &Limits) -> io::Result<Group> {
    let [memory, pids, cpu, cpuacct] = parents.map(|parent| parent.join(name));
    let files = Files::V1 { memory: memory.clone(), cpuacct: cpuacct.clone() };
    let mut group = Group { folders: Vec::new(), files, join: Vec::new() };
    for folder in [&memory, &pids, &cpu, &cpuacct] {
        // Controllers can share a mount; then two of these are the same folder.
        if group.folders.contains(folder) {
            continue;
        }
        fs::create_dir(folder)?;
        group.folders.push(folder.clone());
    }
    set(&memory.join("memory.limit_in_bytes"), &limits.memory_bytes)?;
    // Swap on top of it would make the limit a suggestion; the file is missing where swap is off.
    let swap = memory.join("memory.memsw.limit_in_bytes");
    if swap.exists() {
        set(&swap, &limits.memory_bytes)?;
    }
    // Buffers of TCP connections are counted apart on version 1, and only once they are limited.
    let tcp = memory.join("memory.kmem.tcp.limit_in_bytes");
    if tcp.exists() {
        set(&tcp, &limits.memory_bytes)?;
    }
    set(&pids.join("pids.max"), &limits.processes)?;
    set(&cpu.join("cpu.cfs_period_us"), &CPU_PERIOD_US)?;
    set(&cpu.join("cpu.cfs_quota_us"), &quota(limits))?;
    for folder in &group.folders {
        group.join.push(open(&folder.join("tasks"))?);
    }
    Ok(group)
}

fn quota(limits: &Limits) -> u64 {
    let share = Duration::from_micros(CPU_PERIOD_US).mul_f64(limits.cpu_cores.clamp(0.01, 1024.0));
    u64::try_from(share.as_micros()).unwrap_or(u64::MAX)
}

fn set(path: &Path, value: &dyn ToString) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::write(path, value.to_string()).map_err(named)
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let file: File = OpenOptions::new().write(true).open(path)?;
    Ok(file.into())
}

/// Version 2 allows processes only in leaves: the server moves into one and lets its siblings be the
/// sessions. That needs a group which is ours alone, as systemd's `Delegate=yes` and containers give;
/// failing that, root may have a folder at the top.
fn v2() -> Result<Cgroups, String> {
    let (mount, _) = mounts("cgroup2").into_iter().next().ok_or("no cgroup v2 is mounted")?;
    let own = own_path(|line| line.strip_prefix("0::")).unwrap_or_default();
    let own = mount.join(own.trim_start_matches('/'));
    let delegated = v2_delegated(&own);
    let parent = match delegated {
        Ok(parent) => parent,
        Err(first) => v2_top(&mount).map_err(|second| format!("{first}; {second}"))?,
    };
    Ok(Cgroups::V2 { parent })
}

const V2_CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

fn v2_delegated(own: &Path) -> Result<PathBuf, String> {
    let fail = |what: &str, error: &dyn std::fmt::Display| {
        format!("cgroup v2: cannot {what} in {}: {error}", own.display())
    };
    v2_has_controllers(own)?;
    let members = fs::read_to_string(own.join("cgroup.procs"))
        .map_err(|error| fail("list processes", &error))?;
    let me = std::process::id().to_string();
    let at_root = !own.join("cgroup.type").exists();
    if !at_root && members.lines().any(|pid| pid != me) {
        return Err(fail("make groups", &"other programs share it (use Delegate=yes)"));
    }
    sweep(own);
    let parent = own.join(own_folder());
    if !at_root {
        let leaf = own.join("woma-server");
        create_if_missing(&leaf).map_err(|error| fail("make groups", &error))?;
        fs::write(leaf.join("cgroup.procs"), "0").map_err(|error| fail("move", &error))?;
    }
    create_if_missing(&parent).map_err(|error| fail("make groups", &error))?;
    v2_enable(own).map_err(|error| fail("enable controllers", &error))?;
    v2_enable(&parent).map_err(|error| fail("enable controllers", &error))?;
    Ok(parent)
}

fn v2_top(mount: &Path) -> Result<PathBuf, String> {
    let fail = |error: io::Error| format!("cgroup v2: {}: {error}", mount.display());
    v2_has_controllers(mount)?;
    sweep(mount);
    v2_enable(mount).map_err(fail)?;
    let parent = mount.join(own_folder());
    create_if_missing(&parent).map_err(fail)?;
    v2_enable(&parent).map_err(fail)?;
    Ok(parent)
}

fn v2_has_controllers(group: &Path) -> Result<(), String> {
    let path = group.join("cgroup.controllers");
    let available = fs::read_to_string(&path).unwrap_or_default();
    let missing: Vec<&str> = V2_CONTROLLERS
        .into_iter()
        .filter(|wanted| !available.split_whitespace().any(|name| name == *wanted))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("cgroup v2: {} lacks {}", path.display(), missing.join(", ")))
}

fn v2_enable(group: &Path) -> io::Result<()> {
    let wanted = V2_CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    fs::write(group.join("cgroup.subtree_control"), wanted)
}

fn create_if_missing(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn create_v2(parent: &Path, name: &str, limits: &Limits) -> io::Result<Group> {
    let folder = parent.join(name);
    fs::create_dir(&folder)?;
    let files = Files::V2(folder.clone());
    let mut group = Group { folders: vec![folder.clone()], files, join: Vec::new() };
    set(&folder.join("memory.max"), &limits.memory_bytes)?;
    let swap = folder.join("memory.swap.max");
    if swap.exists() {
        set(&swap, &0)?;
    }
    set(&folder.join("pids.max"), &limits.processes)?;
    set(&folder.join("cpu.max"), &format!("{} {CPU_PERIOD_US}", quota(limits)))?;
    group.join.push(open(&folder.join("cgroup.procs"))?);
    Ok(group)
}
