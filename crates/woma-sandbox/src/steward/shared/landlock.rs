//! The Landlock ruleset of a session without mounts: what it may read, and the two folders that it
//! may write. Its own folder in `/proc` is added by the cell itself (`python/zygote.py`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::base::{Base, Places};
use crate::landlock::{Rules, sealed};
use crate::rung::Rung;
use crate::steward::template::{ETC_COPIES, ETC_MOUNTS, PROC_SHOWN, PROC_SYS_COPIES};

/// Folders of programs and libraries, where they are real folders.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"];
/// Files of the system's own that rooms have in another form.
const ETC: &[&str] = &[
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/python3",
    "/etc/ssl/openssl.cnf",
];
/// Files that libraries read to find the number of processors; they say no more than `/proc/cpuinfo`.
const PROCESSORS: &[&str] = &[
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
];
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

pub(super) fn ruleset(base: &Base, places: &Places, workspace: &Path) -> io::Result<OwnedFd> {
    let named = [PROGRAMS, ETC, ETC_COPIES, ETC_MOUNTS, PROCESSORS].concat();
    let mut readable: Vec<PathBuf> = named.into_iter().map(PathBuf::from).collect();
    readable.extend(PROC_SHOWN.iter().map(|name| Path::new("/proc").join(name)));
    readable.extend(PROC_SYS_COPIES.iter().map(|name| Path::new("/proc/sys").join(name)));
    readable.push(base.files());
    readable.extend(base.shown.iter().cloned());
    let writable = vec![workspace.to_owned(), places.scratch.clone()];
    let devices = DEVICES.iter().map(PathBuf::from).collect();
    let keeps_signals = base.rung != Rung::Minimal;
    sealed(&Rules { readable, writable, devices, keeps_signals })
}
