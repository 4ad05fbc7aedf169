//! Containment is proven from outside before a cell is used: what the kernel says of the process,
//! not what the process says of itself.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::Error;

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The namespaces of a process.
pub(crate) fn namespaces(pid: &str) -> io::Result<BTreeSet<String>> {
    let read = |name: &str| {
        let link = fs::read_link(format!("/proc/{pid}/ns/{name}"))?;
        Ok(link.display().to_string())
    };
    NAMESPACES.into_iter().map(read).collect()
}

/// What a cell's process must look like.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    /// The server's namespaces and the steward's; it must be in none of them.
    pub(crate) outside: [&'a BTreeSet<String>; 2],
    /// The host ids that the session runs under.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The name of its cgroup and in how many hierarchies, where there is one.
    pub(crate) cgroup: Option<(&'a str, usize)>,
    /// True if the ids are the session's own; then it must be in no other group either.
    pub(crate) own_ids: bool,
}

pub(crate) fn prove(pid: u32, expected: &Expected<'_>) -> Result<(), Error> {
    let unproven = |what: String| Error::Unproven { what };
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|error| unproven(format!("its status cannot be read: {error}")))?;
    check_status(&status, expected.uid, expected.gid).map_err(unproven)?;
    let inside = namespaces(&pid.to_string())
        .map_err(|error| unproven(format!("its namespaces cannot be read: {error}")))?;
    for outside in expected.outside {
        if let Some(shared) = inside.intersection(outside).next() {
            return Err(unproven(format!("it shares the namespace {shared} with us")));
        }
    }
    if let Some((group, hierarchies)) = expected.cgroup {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let joined = text.lines().filter(|line| line.ends_with(&format!("/{group}"))).count();
        if joined < hierarchies {
            return Err(unproven(format!("it is in {joined} of {hierarchies} cgroups")));
        }
    }
    if expected.own_ids && !field(&status, "Groups").is_empty() {
        return Err(unproven(format!("it has groups: {}", field(&status, "Groups"))));
    }
    if expected.uid == 0 {
        return Err(unproven("it runs as root".to_owned()));
    }
    Ok(())
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim).unwrap_or_default()
}

fn check_status(status: &str, uid: u32, gid: u32) -> Result<(), String> {
    let field = |name: &str| field(status, name);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
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

    const CONTAINED: &str = "Uid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\nCapInh:\t0000000000000000\n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n\
        NoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn a_contained_process_passes() {
        assert_eq!(check_status(CONTAINED, 7, 7), Ok(()));
    }

    #[test]
    fn each_missing_layer_is_named() {
        for (from, to, what) in [
            ("CapEff:\t0", "CapEff:\t1", "capabilities"),
            ("CapAmb:\t0", "CapAmb:\t1", "capabilities"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "privileges"),
            ("Seccomp:\t2", "Seccomp:\t0", "filter"),
            ("Uid:\t7", "Uid:\t0", "its Uid"),
            ("Gid:\t7", "Gid:\t0", "its Gid"),
            ("Seccomp:\t2\n", "", "filter"),
        ] {
            let status = CONTAINED.replace(from, to);
            let error = check_status(&status, 7, 7).unwrap_err();
            assert!(error.contains(what), "{from} → {to}: {error}");
        }
    }
}
