//! Verification of containment from outside, before a cell is used: by what the Linux kernel
//! reports about the process, not by what the process says.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::Error;
use crate::rung::Rung;

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The namespaces of a process.
pub(crate) fn namespaces(pid: &str) -> io::Result<BTreeSet<String>> {
    let read = |name: &str| {
        let link = fs::read_link(format!("/proc/{pid}/ns/{name}"))?;
        Ok(link.display().to_string())
    };
    NAMESPACES.into_iter().map(read).collect()
}

/// Required properties of a cell's process.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    /// Namespaces of the server and the steward; the cell must not be in any of them.
    pub(crate) outside: [&'a BTreeSet<String>; 2],
    /// Host ids of the session.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Name of its cgroup and the number of hierarchies, if there is one.
    pub(crate) cgroup: Option<(&'a str, usize)>,
    /// True if the session has ids of its own; it must then have no supplementary groups.
    pub(crate) own_ids: bool,
    /// Without namespaces, there are none to compare.
    pub(crate) rung: Rung,
}

pub(crate) fn prove(pid: u32, expected: &Expected<'_>) -> Result<(), Error> {
    check(pid, expected).map_err(|what| Error::Unproven { what })
}

/// As [`prove`], with a description of what is missing as the error.
pub(crate) fn check(pid: u32, expected: &Expected<'_>) -> Result<(), String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|error| format!("its status cannot be read: {error}"))?;
    check_status(&status, expected.uid, expected.gid, expected.rung)?;
    if expected.rung == Rung::Rooms {
        check_namespaces(pid, &expected.outside)?;
    }
    if let Some((group, hierarchies)) = expected.cgroup {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let joined = text.lines().filter(|line| line.ends_with(&format!("/{group}"))).count();
        if joined < hierarchies {
            return Err(format!("it is in {joined} of {hierarchies} cgroups"));
        }
    }
    if expected.own_ids && !field(&status, "Groups").is_empty() {
        return Err(format!("it has groups: {}", field(&status, "Groups")));
    }
    if expected.uid == 0 {
        return Err("it runs as root".to_owned());
    }
    Ok(())
}

fn check_namespaces(pid: u32, outside: &[&BTreeSet<String>]) -> Result<(), String> {
    let inside = namespaces(&pid.to_string())
        .map_err(|error| format!("its namespaces cannot be read: {error}"))?;
    for outside in outside {
        if let Some(shared) = inside.intersection(outside).next() {
            return Err(format!("it shares the namespace {shared} with us"));
        }
    }
    Ok(())
}

/// Verifies that this process is confined as a server that dropped root must be.
pub(crate) fn check_own(uid: u32, gid: u32) -> Result<(), String> {
    let status = fs::read_to_string("/proc/thread-self/status")
        .map_err(|error| format!("its status cannot be read: {error}"))?;
    check_status(&status, uid, gid, Rung::Rooms)?;
    if field(&status, "CapBnd") != "0000000000000000" {
        return Err(format!("it could get capabilities (CapBnd {})", field(&status, "CapBnd")));
    }
    if !field(&status, "Groups").is_empty() {
        return Err(format!("it has groups: {}", field(&status, "Groups")));
    }
    if uid == 0 { Err("it runs as root".to_owned()) } else { Ok(()) }
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim).unwrap_or_default()
}

fn check_status(status: &str, uid: u32, gid: u32, rung: Rung) -> Result<(), String> {
    let field = |name: &str| field(status, name);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        // An ordinary user in a container cannot empty it; without new privileges it gives nothing.
        if set == "CapBnd" && rung.is_shared() {
            continue;
        }
        if field(set) != "0000000000000000" {
            return Err(format!("it has capabilities ({set} {})", field(set)));
        }
    }
    if field("NoNewPrivs") != "1" {
        return Err("it may gain privileges (NoNewPrivs is not set)".to_owned());
    }
    if field("Seccomp") != "2" {
        return Err("it has no system call filter".to_owned());
    }
    for (name, expected) in [("Uid", uid), ("Gid", gid)] {
        let ids = field(name);
        let wanted = expected.to_string();
        if ids.is_empty() || ids.split_whitespace().any(|id| id != wanted) {
            return Err(format!("its {name} is {ids:?} and not {expected}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_status;
    use crate::rung::Rung;

    const CONTAINED: &str = "Uid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\nCapInh:\t0000000000000000\n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n\
        CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn a_contained_process_passes() {
        assert_eq!(check_status(CONTAINED, 7, 7, Rung::Rooms), Ok(()));
    }

    #[test]
    fn names_each_missing_layer() {
        for (from, to, what) in [
            ("CapEff:\t0", "CapEff:\t1", "capabilities"),
            ("CapBnd:\t0", "CapBnd:\t1", "capabilities"),
            ("CapAmb:\t0", "CapAmb:\t1", "capabilities"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "privileges"),
            ("Seccomp:\t2", "Seccomp:\t0", "filter"),
            ("Uid:\t7", "Uid:\t0", "its Uid"),
            ("Gid:\t7", "Gid:\t0", "its Gid"),
            ("Seccomp:\t2\n", "", "filter"),
        ] {
            let status = CONTAINED.replace(from, to);
            let error = check_status(&status, 7, 7, Rung::Rooms).unwrap_err();
            assert!(error.contains(what), "{from} → {to}: {error}");
        }
    }
}
