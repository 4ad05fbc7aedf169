//! Project ids of sessions' folders: the range in use, and ids that were released.

use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

use crate::sync::lock;
use crate::sys::quota::project_of;

/// First of our ids: far above those that operators and distributions assign, and below the sign
/// bit, which some programs mishandle.
pub(crate) const FIRST: u32 = 0x5000_0000;
pub(crate) const COUNT: u32 = 0x1000_0000;
/// Most released ids kept for the launcher.
const RELEASED_MAX: usize = 4_096;

/// Ids of deleted folders, until the launcher removes their limits, which only it may.
static RELEASED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

pub(crate) fn is_ours(project: u32) -> bool {
    (FIRST..FIRST + COUNT).contains(&project)
}

/// Project id of a folder, if it is one of ours.
pub(crate) fn of(folder: impl AsFd) -> Option<u32> {
    // A file system without projects has none of ours.
    project_of(folder.as_fd()).ok().filter(|project| is_ours(*project))
}

/// Releases the project of a deleted folder; the launcher removes its limits.
pub(crate) fn release(project: Option<u32>) {
    let mut released = lock(&RELEASED);
    if released.len() < RELEASED_MAX {
        released.extend(project);
    }
}

/// Takes the released ids, for the launcher.
pub(crate) fn take_released() -> Vec<u32> {
    std::mem::take(&mut lock(&RELEASED))
}

/// Whether the folder's file system enforces project quotas.
pub(crate) fn are_enforced(folder: impl AsFd) -> io::Result<bool> {
    crate::sys::quota::enforces_projects(folder.as_fd())
}
