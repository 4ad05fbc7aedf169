//! The Landlock ruleset that every cell puts on itself: made once by the steward on the directories
//! of the template, handed on as a descriptor.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};

use crate::sys;

/// The newest interface that this file was written against; older kernels enforce less of it.
const NEWEST: ABI = ABI::V6;

/// The interface version of the running kernel; zero where Landlock is missing or off.
pub(crate) fn abi() -> i32 {
    sys::landlock_abi().unwrap_or(0)
}

pub(crate) fn ruleset(root: &Path) -> io::Result<OwnedFd> {
    let everything = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    let devices = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let unwanted = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let rule = |path: &str, access: BitFlags<AccessFs>| -> io::Result<PathBeneath<PathFd>> {
        let folder = PathFd::new(root.join(path)).map_err(io::Error::other)?;
        Ok(PathBeneath::new(folder, access))
    };
    let writable = everything & !unwanted;
    let mut ruleset = ruleset;
    for (path, access) in [("", read), ("dev", devices), ("mnt", writable), ("run", writable)] {
        ruleset = ruleset.add_rule(rule(path, access)?).map_err(io::Error::other)?;
    }
    Option::<OwnedFd>::from(ruleset).ok_or_else(|| io::Error::other("Landlock is not enabled"))
}
