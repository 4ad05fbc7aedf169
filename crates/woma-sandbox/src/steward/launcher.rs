//! The outer steward, started by the server as `woma steward`.
//!
//! It builds the template, forks the inner steward into the outer sandbox, and stays outside for
//! what the inner one cannot do: mount a host folder for a room, and set its disk quota where the
//! file system has them. It never accesses the folder's contents.
//!
//! Standard input is the server's control socket, standard output the socket for folder requests.
//! For a server that dropped root, the keeper starts it with [`PrivilegeBounds`] as an argument:
//! requests beyond them are refused, whatever the server says.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::process::{Pid, Uid, geteuid};
use rustix::thread::{
    CapabilitySets, UnshareFlags, capabilities, set_capabilities, set_thread_res_uid,
};

use super::control::{PrivilegeBounds, Report, RoomIds, Setup};
use super::folders::{Folders, serve_trees};
use super::{inner, shared, template};
use crate::channel;
use crate::failure::{Failure, step};
use crate::sys::{self, Forked, SingleThreaded};

const OUTER_NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Step that fails if root lacks the privileges of root.
pub(crate) const AS_ROOT: &str = "use root's rights";

/// Host ids of this steward's sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ids {
    /// A range of host ids that nothing else uses; each session has its own.
    Range { base: u32, count: u32 },
    /// The id of the caller; namespaces and Landlock separate the sessions.
    Own,
}

/// Entry point of the role.
pub(crate) fn main() -> ExitCode {
    let (Ok(control), Ok(trees)) = (sys::inherited_fd(0), sys::inherited_fd(1)) else {
        eprintln!("woma steward is started by the server, not by hand");
        return ExitCode::from(2);
    };
    match bounds().and_then(|bounds| launch(&control, trees, bounds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let report = Report::Broken { step: failure.step, reason: failure.source.to_string() };
            // The server may have ended already.
            if let Err(error) = channel::send(&control, &report, &[]) {
                eprintln!("steward: {report:?} ({error})");
            }
            ExitCode::FAILURE
        }
    }
}

/// Reads the [`PrivilegeBounds`] that the keeper passes as an argument.
pub(crate) fn bounds() -> Result<Option<PrivilegeBounds>, Failure> {
    let read = |text: std::ffi::OsString| {
        serde_json::from_slice(text.as_encoded_bytes()).map_err(io::Error::other)
    };
    step("read the bounds", std::env::args_os().nth(2).map(read).transpose())
}

fn launch(
    control: &OwnedFd,
    trees: OwnedFd,
    bounds: Option<PrivilegeBounds>,
) -> Result<(), Failure> {
    let proof = step("check threads", SingleThreaded::prove())?;
    let Some((setup, _)) = step("read the setup", channel::receive::<Setup>(control))? else {
        return Ok(());
    };
    if let Some(bounds) = &bounds {
        step("read the setup", bounds.check(&setup))?;
    }
    if setup.rung.is_shared() {
        drop(trees);
        return shared::launch(control, &setup, proof);
    }
    let ids = enter_namespaces(proof)?;
    let template = template::build(&setup)?;
    let (go, wait) = step("make a socket", channel::pair())?;
    let flags = OUTER_NAMESPACES
        | match ids {
            Ids::Range { .. } => libc::CLONE_NEWUSER,
            Ids::Own => 0,
        };
    let owner = bounds.as_ref().map(|bounds| bounds.server);
    match step("create the outer namespaces", clone_as(owner, widen(flags), proof))? {
        Forked::Child => {
            drop((go, trees));
            inner::main(control, &wait, &setup, (ids, template), proof)
        }
        Forked::Parent { pid, pidfd } => {
            drop(wait);
            if let Ids::Range { base, count } = ids {
                let map = format!("0 {base} {count}");
                write_maps(pid, &map, &map)?;
            }
            step("release the steward", channel::send_bytes(&go, b"go", &[]))?;
            serve_trees(&trees, &pidfd, &Folders { bounds, proof })
        }
    }
}

/// A user namespace belongs to the effective user that creates it, who then has full power over the
/// processes inside. So the effective user is the server's during the clone; root's capabilities
/// stay.
fn clone_as(owner: Option<RoomIds>, flags: u64, proof: SingleThreaded) -> io::Result<Forked> {
    let Some(owner) = owner else { return sys::clone3(proof, flags) };
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(owner.uid), Uid::ROOT)?;
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets })?;
    let forked = sys::clone3(proof, flags)?;
    if matches!(forked, Forked::Parent { .. }) {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    }
    Ok(forked)
}

impl PrivilegeBounds {
    pub(crate) fn check(&self, setup: &Setup) -> io::Result<()> {
        let strange = setup.mounts.iter().find(|mount| !self.mounts.contains(mount));
        if let Some((from, _)) = strange {
            let text = format!("{} is not among the folders that sessions may see", from.display());
            return Err(io::Error::other(text));
        }
        if setup.room_ids == self.server {
            Ok(())
        } else {
            Err(io::Error::other("the room's user must be the server's user"))
        }
    }
}

pub(crate) fn widen(flags: i32) -> u64 {
    u64::from(flags.cast_unsigned())
}

/// Creates a mount namespace; unless root, also a user namespace.
pub(crate) fn enter_namespaces(proof: SingleThreaded) -> Result<Ids, Failure> {
    if geteuid().is_root() {
        // Never the ids of root itself: they own too much for Landlock to guard alone.
        let none = || io::Error::other("no unused ids are mapped in this user namespace");
        let (base, count) = step(AS_ROOT, free_ids().ok_or_else(none))?;
        step(AS_ROOT, sys::unshare(proof, UnshareFlags::NEWNS))?;
        return Ok(Ids::Range { base, count });
    }
    let (uid, gid) = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    step(
        "create a user namespace",
        sys::unshare(proof, UnshareFlags::NEWUSER | UnshareFlags::NEWNS),
    )?;
    step("write setgroups", fs::write("/proc/self/setgroups", "deny"))?;
    step("write uid_map", fs::write("/proc/self/uid_map", format!("0 {uid} 1")))?;
    step("write gid_map", fs::write("/proc/self/gid_map", format!("0 {gid} 1")))?;
    Ok(Ids::Own)
}

/// An id that is neither a user's nor a session's: just below the sessions' ids.
pub(crate) fn unused_id() -> io::Result<u32> {
    const WANTED: u32 = FIRST - 16;
    let none = || io::Error::other("no unused id is mapped in this user namespace");
    let text = fs::read_to_string("/proc/self/uid_map")?;
    let ranges: Vec<(u32, u32)> = text.lines().filter_map(id_range).collect();
    if ranges.iter().any(|(first, end)| (*first..*end).contains(&WANTED)) {
        return Ok(WANTED);
    }
    // A container's own range: sessions use its upper half.
    let (first, end) = *ranges.last().ok_or_else(none)?;
    let below = (end - (end - first) / 2).saturating_sub(1);
    if end - first >= 2 * LEAST { Ok(below) } else { Err(none()) }
}

/// First id, and the one after the last, of a line of `uid_map`.
fn id_range(line: &str) -> Option<(u32, u32)> {
    let mut words = line.split_whitespace().map(|word| word.parse::<u32>().ok());
    let (first, _, count) = (words.next()??, words.next()??, words.next()??);
    Some((first, first.saturating_add(count)))
}

/// First id of sessions, and the least number of ids.
const FIRST: u32 = 0x7000_0000;
const LEAST: u32 = 1_024;

/// 64 Ki ids that no user of this machine has: above every range that distributions assign, at an
/// offset that differs between servers; or the upper half of a container's range.
fn free_ids() -> Option<(u32, u32)> {
    const WANTED: u32 = 65_536;
    let text = fs::read_to_string("/proc/self/uid_map").ok()?;
    let groups = fs::read_to_string("/proc/self/gid_map").ok()?;
    if text.split_whitespace().ne(groups.split_whitespace()) {
        return None;
    }
    let slot = random()? % 4_000;
    text.lines().rev().find_map(|line| {
        let (first, end) = id_range(line)?;
        let placed = FIRST + slot * WANTED;
        if first <= placed && placed + WANTED <= end {
            return Some((placed, WANTED));
        }
        // A container's own range: its upper half is the least likely to be in use.
        let half = (end - first) / 2;
        (half >= LEAST).then(|| (end - half, half.min(WANTED)))
    })
}

fn random() -> Option<u32> {
    use std::io::Read as _;
    let mut bytes = [0; 4];
    fs::File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
    Some(u32::from_ne_bytes(bytes))
}

pub(crate) fn write_maps(pid: Pid, users: &str, groups: &str) -> Result<(), Failure> {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    for (file, map) in [("uid_map", users), ("gid_map", groups)] {
        step(format!("write {file}"), fs::write(format!("{folder}/{file}"), map))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_allow_only_configured_mounts() {
        let server = RoomIds { uid: 7, gid: 8 };
        let known = ("/env".into(), "/opt/env".into());
        let bounds = PrivilegeBounds { server, folders: Vec::new(), mounts: vec![known] };
        let setup = |from: &str, to: &str, room_ids| Setup {
            python: "/opt/env/bin/python".into(),
            mounts: vec![(from.into(), to.into())],
            tiers: Vec::new(),
            watched: false,
            room_ids,
            rotation: crate::Rotation::default(),
            trust: None,
            rung: crate::Rung::Rooms,
            scratch: "/tmp".into(),
        };
        assert!(bounds.check(&setup("/env", "/opt/env", server)).is_ok());
        for (from, to) in [("/root", "/opt/env"), ("/env", "/../../etc"), ("/env/..", "/opt/env")] {
            assert!(bounds.check(&setup(from, to, server)).is_err(), "{from} at {to}");
        }
        let other = RoomIds { uid: 0, gid: 8 };
        assert!(bounds.check(&setup("/env", "/opt/env", other)).is_err());
    }
}
