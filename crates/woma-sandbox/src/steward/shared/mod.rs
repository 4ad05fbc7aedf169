//! Sessions in the namespaces of the server, where the machine refuses others: Landlock, seccomp,
//! limits and the watchdog contain them. docs/THREATS.md says what that holds and what it does not.
//!
//! Instead of a room, a session has a *minder*: a process that does for it what init does for a
//! room. All processes of a session have one session id, which they cannot change
//! (`seccomp/cell-shared.toml`); by it the minder finds and kills them.

mod base;
mod landlock;
mod members;
mod minder;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

pub(crate) use base::{Base, Places};
pub(crate) use members::{Orphans, kill_orphans, members};
pub(crate) use minder::create;

use super::control::{Setup, StewardInfo};
use super::inner;
use super::launcher::{AS_ROOT, Ids};
use super::room::RoomPlan;
use crate::failure::{Failure, step};
use crate::sys::{self, SingleThreaded};

/// The whole steward: launcher and inner steward are one process here.
pub(crate) fn launch(
    control: &OwnedFd,
    setup: &Setup,
    proof: SingleThreaded,
) -> Result<(), Failure> {
    become_user(setup)?;
    step("adopt children", sys::adopt_orphans())?;
    step("reap children", sys::reap_automatically())?;
    let base = step("make the folder of the sessions", Base::make(setup))?;
    let info = StewardInfo {
        uid_base: None,
        uid_count: 1,
        namespaces: BTreeSet::new(),
        shared_inodes: Some("there are no mounts of their own".to_owned()),
        own_devices: false,
    };
    let plan = RoomPlan::shared(base, setup.room_ids);
    let served = inner::serve(control, setup, (Ids::Own, plan), info, proof);
    // Minders see the ends of their sockets; this is for what is left of sessions without one.
    kill_orphans(Orphans::All);
    served
}

/// A steward that was started by root takes the server's user: nothing here needs root.
fn become_user(setup: &Setup) -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(setup.room_ids.uid), Gid::from_raw(setup.room_ids.gid));
    step(AS_ROOT, set_thread_groups(&[]))?;
    step(AS_ROOT, set_thread_res_gid(gid, gid, gid))?;
    step(AS_ROOT, set_thread_res_uid(uid, uid, uid))?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    step(AS_ROOT, set_capabilities(None, sets))
}
