//! Control groups, v1 and v2: one group per session, below the group that the server was started
//! in.
//!
//! A cell joins by itself: the server opens the group's file and sends it with the order, and the
//! fork writes `0` ("me") to it. On v1 it writes to `tasks`, which moves one thread and so avoids
//! the lock that makes a write to `cgroup.procs` cost 7 to 14 ms on a quiet machine. On v2 a group
//! with a memory limit has no such file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::ceiling::resident_bytes;
use super::{Limits, Usage, delegation, memory_reserve};
use crate::keeper::Keeper;

/// Period of the CPU quota, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// Pauses between attempts to remove a group whose last process is still exiting.
pub(crate) const REMOVAL_PAUSES_MS: [u64; 7] = [0, 1, 5, 20, 100, 500, 2_000];
/// How long and how often removal of a dead server's groups is retried.
const SWEEP_MAX: Duration = Duration::from_secs(10);
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// Parent groups below which this server may create groups.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// No usable cgroups; the watchdog enforces what it can.
    Missing {
        why: String,
    },
}

impl Cgroups {
    /// Finds and prepares the parent of the sessions' groups; removes groups of dead servers.
    pub(crate) fn prepare() -> Self {
        Self::prepare_for(std::process::id())
    }

    /// As [`Self::prepare`], with groups named after another process.
    pub(crate) fn prepare_for(server: u32) -> Self {
        let found = v1(server)
            .or_else(|one| delegation::find(server).map_err(|two| format!("{two}; {one}")));
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

    /// Removes the parent group of this server's sessions, if it is empty.
    pub(crate) fn dispose(&self) {
        let folders = match self {
            Self::V1 { memory, pids, cpu, cpuacct } => vec![memory, pids, cpu, cpuacct],
            Self::V2 { parent } => vec![parent],
            Self::Missing { .. } => Vec::new(),
        };
        for folder in folders {
            // Another sandbox of this process may still use it.
            if let Err(error) = fs::remove_dir(folder) {
                tracing::debug!(%error, "cannot remove the parent cgroup");
            }
        }
    }

    /// Memory of all groups together, not counting the file cache.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        match self {
            Self::V1 { memory: group, .. } | Self::V2 { parent: group } => {
                Some(resident_bytes(group))
            }
            Self::Missing { .. } => None,
        }
    }

    /// Processor time of all groups together.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        match self {
            Self::V1 { cpuacct, .. } => {
                Some(Duration::from_nanos(number(&cpuacct.join("cpuacct.usage"))))
            }
            Self::V2 { parent } => {
                Some(Duration::from_micros(field_of(&parent.join("cpu.stat"), "usage_usec ")))
            }
            Self::Missing { .. } => None,
        }
    }

    /// Creates a group with these limits; `None` without cgroups.
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
            // A process is still exiting; the next start of a server removes the group.
            tracing::debug!(folders = ?self.folders, "a cgroup is still in use");
        }
    }
}

/// One session's group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Removed when the value is dropped.
    folders: Vec<PathBuf>,
    pub(super) files: Files,
    /// Files that a process writes `0` to in order to join.
    pub(crate) join: Vec<OwnedFd>,
    /// Keeper that owns the group, and the group's name there; `None` if this process owns it.
    pub(super) keeper: Option<(&'static Keeper, String)>,
}

/// Paths of the group's counters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Files {
    V1 {
        memory: PathBuf,
        cpuacct: PathBuf,
        /// Processes that exceed the memory limit wait instead of being killed.
        waits_at_limit: bool,
    },
    V2(PathBuf),
}

impl Group {
    /// A group created by the keeper.
    pub(crate) fn from_keeper(
        keeper: &'static Keeper,
        name: String,
        files: Files,
        join: Vec<OwnedFd>,
    ) -> Self {
        Self { folders: Vec::new(), files, join, keeper: Some((keeper, name)) }
    }

    pub(crate) fn files(&self) -> Files {
        self.files.clone()
    }

    pub(crate) fn usage(&self) -> Usage {
        match &self.files {
            Files::V1 { memory, cpuacct, .. } => Usage {
                cpu: Duration::from_nanos(number(&cpuacct.join("cpuacct.usage"))),
                memory_peak_bytes: number(&memory.join("memory.max_usage_in_bytes")),
                out_of_memory_kills: self.out_of_memory_kills(),
            },
            Files::V2(group) => Usage {
                cpu: Duration::from_micros(field_of(&group.join("cpu.stat"), "usage_usec ")),
                memory_peak_bytes: number(&group.join("memory.peak")),
                out_of_memory_kills: self.out_of_memory_kills(),
            },
        }
    }

    /// Processes killed by the kernel for lack of memory.
    pub(crate) fn out_of_memory_kills(&self) -> u64 {
        match &self.files {
            Files::V1 { memory, .. } => field_of(&memory.join("memory.oom_control"), "oom_kill "),
            Files::V2(group) => field_of(&group.join("memory.events"), "oom_kill "),
        }
    }

    /// Memory that ending the session would free.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.files {
            Files::V1 { memory, .. } => resident_bytes(memory),
            Files::V2(group) => resident_bytes(group),
        }
    }

    /// CPU time only, for the watchdog.
    pub(crate) fn cpu(&self) -> Duration {
        match &self.files {
            Files::V1 { cpuacct, .. } => {
                Duration::from_nanos(number(&cpuacct.join("cpuacct.usage")))
            }
            Files::V2(group) => {
                Duration::from_micros(field_of(&group.join("cpu.stat"), "usage_usec "))
            }
        }
    }

    /// Processes in the group.
    pub(crate) fn pids(&self) -> BTreeSet<u32> {
        let folder = match &self.files {
            Files::V1 { memory, .. } => memory,
            Files::V2(group) => group,
        };
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Removes the group; false while a process is left in it.
    pub(crate) fn remove(&self) -> bool {
        if let Some((keeper, name)) = &self.keeper {
            return keeper.remove(name);
        }
        self.forget_cache();
        self.folders.iter().rev().all(|folder| remove_dir(folder))
    }

    /// Drops the file cache charged to the group, which would keep the group in kernel memory long
    /// after its folder is removed.
    fn forget_cache(&self) {
        let (file, amount) = match &self.files {
            Files::V1 { memory, .. } => (memory.join("memory.force_empty"), 0),
            Files::V2(group) => {
                (group.join("memory.reclaim"), number(&group.join("memory.current")))
            }
        };
        // Refused while a process is exiting; then the folder stays for now, too. Older kernels
        // with v2 have no such file.
        if let Err(error) = fs::write(&file, amount.to_string()) {
            tracing::trace!(%error, "cannot drop the file cache of a cgroup");
        }
    }
}

pub(super) fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

pub(super) fn field_of(path: &Path, name: &str) -> u64 {
    field(&fs::read_to_string(path).unwrap_or_default(), name)
}

pub(super) fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Name of the parent group of one sandbox; its pid tells a later server whether it is stale.
pub(super) fn own_folder(server: u32) -> String {
    static FOLDERS: AtomicU64 = AtomicU64::new(1);
    format!("woma-{server}-{}", FOLDERS.fetch_add(1, Ordering::Relaxed))
}

fn v1(server: u32) -> Result<Cgroups, String> {
    let own = own_folder(server);
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
pub(super) fn mounts(kind: &str) -> Vec<(PathBuf, String)> {
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

pub(super) fn own_path(pick: impl Fn(&str) -> Option<&str>) -> Option<String> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    text.lines().find_map(|line| pick(line).map(str::to_owned))
}

/// Removes groups of dead servers. A process that was killed a moment ago may still be exiting:
/// such groups are retried while the server starts.
pub(super) fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let stale = entries.map(|entry| entry.path()).filter(|group| is_stale(group));
    let busy: Vec<PathBuf> = stale.filter(|group| !remove_tree(group)).collect();
    if busy.is_empty() {
        return;
    }
    let again = std::thread::Builder::new().name("woma-sweep".to_owned());
    if let Err(error) = again.spawn(move || sweep_again(busy)) {
        tracing::debug!(%error, "cannot retry the removal of stale cgroups; the next start does");
    }
}

#[expect(clippy::disallowed_methods, reason = "the kernel does not tell when a group is empty")]
fn sweep_again(mut busy: Vec<PathBuf>) {
    let started = Instant::now();
    while !busy.is_empty() && started.elapsed() < SWEEP_MAX {
        std::thread::sleep(SWEEP_PAUSE);
        // The pid may have been reused by another server, which then owns the group.
        busy.retain(|group| is_stale(group) && !remove_tree(group));
    }
    if !busy.is_empty() {
        tracing::debug!(?busy, "cannot remove stale cgroups");
    }
}

/// Whether the group belongs to a server that has ended.
fn is_stale(group: &Path) -> bool {
    let name = group.file_name().and_then(OsStr::to_str);
    let pid = name.and_then(|name| name.strip_prefix("woma-")?.split('-').next());
    let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Removes a group and its children; false while a process is left in one of them.
fn remove_tree(group: &Path) -> bool {
    for inner in fs::read_dir(group).into_iter().flatten().flatten() {
        if inner.path().is_dir() {
            // A child that stays keeps its parent, whose removal then fails.
            fs::remove_dir(inner.path()).unwrap_or_default();
        }
    }
    remove_dir(group)
}

/// Removes a group; true if it is gone, even if another server removed it.
fn remove_dir(group: &Path) -> bool {
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn create_v1(parents: [&PathBuf; 4], name: &str, limits: &Limits) -> io::Result<Group> {
    let [memory, pids, cpu, cpuacct] = parents.map(|parent| parent.join(name));
    let files =
        Files::V1 { memory: memory.clone(), cpuacct: cpuacct.clone(), waits_at_limit: false };
    let mut group = Group { folders: Vec::new(), files, join: Vec::new(), keeper: None };
    for folder in [&memory, &pids, &cpu, &cpuacct] {
        // Controllers can share a mount; then two of these are the same folder.
        if group.folders.contains(folder) {
            continue;
        }
        fs::create_dir(folder)?;
        group.folders.push(folder.clone());
    }
    let waits_at_limit = memory_reserve::init_v1(&memory, limits.memory_bytes)?;
    group.files = Files::V1 { memory: memory.clone(), cpuacct, waits_at_limit };
    // On v1, TCP buffers are accounted separately, and only once a limit is set.
    let tcp = memory.join("memory.kmem.tcp.limit_in_bytes");
    if tcp.exists() {
        set(&tcp, &limits.tcp_bytes)?;
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

pub(super) fn set(path: &Path, value: &dyn ToString) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::write(path, value.to_string()).map_err(named)
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let file: File = OpenOptions::new().write(true).open(path)?;
    Ok(file.into())
}

fn create_v2(parent: &Path, name: &str, limits: &Limits) -> io::Result<Group> {
    let folder = parent.join(name);
    fs::create_dir(&folder)?;
    let files = Files::V2(folder.clone());
    let mut group = Group { folders: vec![folder.clone()], files, join: Vec::new(), keeper: None };
    group.set_soft_limit(limits.memory_bytes)?;
    let swap = folder.join("memory.swap.max");
    if swap.exists() {
        set(&swap, &0)?;
    }
    set(&folder.join("pids.max"), &limits.processes)?;
    set(&folder.join("cpu.max"), &format!("{} {CPU_PERIOD_US}", quota(limits)))?;
    group.join.push(open(&folder.join("cgroup.procs"))?);
    Ok(group)
}
