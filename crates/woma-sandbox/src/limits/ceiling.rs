//! Memory limit of all sessions together, its current use and memory pressure; and the resources of
//! this process, from which configuration defaults are derived.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::cgroup::{Cgroups, field_of, mounts, number, own_path, set};

/// CPU weight of all sessions together on cgroup v2, under contention; the default of a group, such
/// as the server's, is 100. On v1 they weigh as much as one thread of the server already.
const CPU_WEIGHT_V2: u64 = 50;
/// Fraction below the limit at which cgroup v2 starts to throttle sessions.
const SLOWED_BELOW: u64 = 16;

/// Resources available to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Machine {
    /// Memory of the machine, or of this process's cgroup if that has less.
    pub memory_bytes: u64,
    /// Descriptors that the process may open.
    pub descriptors: u64,
    /// Processors that the process may use.
    pub processors: u64,
    /// Limit of processes and threads in this process's cgroup, if there is one.
    pub tasks: Option<u64>,
}

/// Memory pressure of all sessions together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    /// Memory in use, not counting the file cache, and its limit; `None` without a cgroup.
    pub memory: Option<(u64, u64)>,
    /// Share of the last ten seconds in which all tasks stalled for memory, in percent: of the
    /// sessions where that is counted, otherwise of the whole machine. 0 if unknown.
    pub stalled: f64,
}

impl Machine {
    pub fn look() -> Self {
        let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let total = total.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        let total = total.unwrap_or(0).saturating_mul(1024);
        // `None` means unlimited.
        let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let memory = own_limit("memory", "memory.limit_in_bytes", "memory.max");
        let memory_bytes = memory.map_or(total, |limit| limit.min(total));
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let tasks = own_limit("pids", "pids.max", "pids.max");
        Self { memory_bytes, descriptors, processors, tasks }
    }
}

/// Lowest limit of this process's cgroup and its ancestors.
fn own_limit(controller: &str, v1: &str, v2: &str) -> Option<u64> {
    let of_v1 = own_path(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        parts.next()?.split(',').any(|name| name == controller).then(|| parts.next())?
    });
    let in_v1 = mounts("cgroup")
        .into_iter()
        .find(|(_, options)| options.split(',').any(|option| option == controller));
    let (mount, path, file) = match (in_v1, of_v1) {
        (Some((mount, _)), Some(path)) => (mount, path, v1),
        _ => {
            let (mount, _) = mounts("cgroup2").into_iter().next()?;
            (mount, own_path(|line| line.strip_prefix("0::"))?, v2)
        }
    };
    least(&mount, &mount.join(path.trim_start_matches('/')), file)
}

fn least(mount: &Path, group: &Path, file: &str) -> Option<u64> {
    let groups = group.ancestors().take_while(|above| above.starts_with(mount));
    // `max` is not a number, and the root group has no such file.
    let limits = groups.filter_map(|above| {
        fs::read_to_string(above.join(file)).ok().and_then(|text| text.trim().parse().ok())
    });
    limits.min()
}

impl Cgroups {
    /// Limits the memory of all sessions together. Call it before the first session is opened.
    pub(crate) fn set_ceiling(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::V1 { memory, .. } => {
                let hierarchy = memory.join("memory.use_hierarchy");
                if hierarchy.exists() && number(&hierarchy) == 0 {
                    set(&hierarchy, &1)?;
                }
                set(&memory.join("memory.limit_in_bytes"), &bytes)?;
                let with_swap = memory.join("memory.memsw.limit_in_bytes");
                if with_swap.exists() {
                    set(&with_swap, &bytes)?;
                }
                Ok(())
            }
            Self::V2 { parent } => {
                set(&parent.join("memory.max"), &bytes)?;
                set(&parent.join("memory.high"), &(bytes - bytes / SLOWED_BELOW))?;
                set(&parent.join("cpu.weight"), &CPU_WEIGHT_V2)
            }
            Self::Missing { .. } => Ok(()),
        }
    }

    pub(crate) fn pressure(&self, ceiling: Option<u64>) -> Pressure {
        let own = match self {
            Self::V2 { parent } => Some(parent.join("memory.pressure")),
            Self::V1 { .. } | Self::Missing { .. } => None,
        };
        let own = own.filter(|file| file.exists());
        let file = own.unwrap_or_else(|| PathBuf::from("/proc/pressure/memory"));
        Pressure { memory: self.memory_bytes().zip(ceiling), stalled: stalled(&file) }
    }
}

/// Memory of a group and its descendants, not counting the file cache.
pub(super) fn resident_bytes(group: &Path) -> u64 {
    let stat = group.join("memory.stat");
    let (used, cached) = match group.join("memory.usage_in_bytes") {
        used if used.exists() => (used, ["total_active_file ", "total_inactive_file "]),
        _ => (group.join("memory.current"), ["active_file ", "inactive_file "]),
    };
    let cached: u64 = cached.iter().map(|name| field_of(&stat, name)).sum();
    number(&used).saturating_sub(cached)
}

fn stalled(file: &Path) -> f64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("full avg10="));
    line.and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Machine, least, resident_bytes, stalled};

    #[test]
    fn uses_the_lowest_limit_of_all_ancestors() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("slice/service");
        fs::create_dir_all(&group).unwrap();
        assert_eq!(least(mount.path(), &group, "memory.max"), None);
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(least(mount.path(), &group, "memory.max"), None);
        fs::write(mount.path().join("slice/memory.max"), "1000\n").unwrap();
        assert_eq!(least(mount.path(), &group, "memory.max"), Some(1000));
        fs::write(group.join("memory.max"), "2000\n").unwrap();
        assert_eq!(least(mount.path(), &group, "memory.max"), Some(1000));
        fs::write(group.join("memory.max"), "500\n").unwrap();
        assert_eq!(least(mount.path(), &group, "memory.max"), Some(500));
    }

    #[test]
    fn file_cache_is_not_counted() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        write("memory.current", "1000\n");
        write("memory.stat", "anon 500\nactive_file 300\ninactive_file 100\n");
        assert_eq!(resident_bytes(group.path()), 600);
        write("memory.usage_in_bytes", "2000\n");
        write("memory.stat", "active_file 1\ntotal_inactive_file 10\ntotal_active_file 20\n");
        assert_eq!(resident_bytes(group.path()), 1970);
    }

    #[test]
    fn parses_pressure_stall_information() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.pressure");
        assert!(stalled(&file).abs() < f64::EPSILON);
        let text = "some avg10=40.50 avg60=1.00 avg300=0.00 total=9\n\
                    full avg10=12.25 avg60=0.00 avg300=0.00 total=7\n";
        fs::write(&file, text).unwrap();
        assert!((stalled(&file) - 12.25).abs() < f64::EPSILON);
    }

    #[test]
    fn reads_the_resources_of_this_machine() {
        let machine = Machine::look();
        assert!(machine.memory_bytes > 64 * 1024 * 1024, "{machine:?}");
        assert!(machine.descriptors > 100 && machine.processors > 0, "{machine:?}");
    }
}
