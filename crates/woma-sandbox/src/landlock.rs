//! Landlock rulesets: of every cell, made by its room's init for the room's folders and passed on
//! as a descriptor; and of a server that drops root.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::sys;

/// Newest interface version used here; older kernels enforce less.
const NEWEST: ABI = ABI::V6;

/// Interface version of the running kernel; zero if Landlock is missing or disabled.
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

/// Confines this thread and its future children to reading and writing below these paths; missing
/// paths are skipped. Nothing can be executed any more.
pub(crate) fn confine(readable: &[PathBuf], writable: &[PathBuf]) -> io::Result<()> {
    let everything = AccessFs::from_all(NEWEST);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let unwanted =
        AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::Execute;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let readable = readable.iter().map(|path| (path, read));
    for (path, access) in readable.chain(writable.iter().map(|path| (path, everything & !unwanted)))
    {
        if let Some(rule) = rule(path, access)? {
            ruleset = ruleset.add_rule(rule).map_err(io::Error::other)?;
        }
    }
    let restricted = ruleset.restrict_self().map_err(io::Error::other)?;
    match restricted.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::other("Landlock is not enabled")),
        _ => Ok(()),
    }
}

/// Paths that a session without mounts may reach.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Missing paths are skipped, here and below.
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) devices: Vec<PathBuf>,
    /// Whether signals are kept inside; if not, a filter refuses them all.
    pub(crate) keeps_signals: bool,
}

/// Ruleset of a session that sees the server's files: everything else is refused, and signals,
/// abstract sockets and TCP where the kernel can.
pub(crate) fn sealed(rules: &Rules) -> io::Result<OwnedFd> {
    let everything = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let unwanted = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|ruleset| match rules.keeps_signals {
            true => ruleset.scope(Scope::from_all(NEWEST)),
            false => Ok(ruleset),
        })
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let rules = [
        (&rules.readable, read),
        (&rules.writable, everything & !unwanted),
        (&rules.devices, device),
    ];
    for (paths, access) in rules {
        for path in paths {
            if let Some(rule) = rule(path, access)? {
                ruleset = ruleset.add_rule(rule).map_err(io::Error::other)?;
            }
        }
    }
    Option::<OwnedFd>::from(ruleset).ok_or_else(|| io::Error::other("Landlock is not enabled"))
}

/// `None` if the path does not exist.
fn rule(path: &Path, access: BitFlags<AccessFs>) -> io::Result<Option<PathBeneath<PathFd>>> {
    let is_folder = match std::fs::metadata(path) {
        Ok(found) => found.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        }
    };
    let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
    let place = PathFd::new(path).map_err(io::Error::other)?;
    Ok(Some(PathBeneath::new(place, access)))
}
