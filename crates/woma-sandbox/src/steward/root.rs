//! Root of a room: a view of the template with inodes of its own.
//!
//! Locks and watches belong to inodes. If rooms showed the host's `/usr` itself, a session could
//! slow the host down with locks on it, and watch what others do with it. So a room mounts an
//! overlay over each part of the template: contents and page cache are the host's, the inodes are
//! the room's and end with it. An overlay costs 25 µs and a negligible amount of memory.
//!
//! The kernel may refuse, if the template already lies on too many overlays, as in nested
//! containers. Then rooms show the template's own inodes, and `woma doctor` says so.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind_recursive,
    move_mount, open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};

use super::template::{
    EMPTY_FILE, EMPTY_FOLDER, KERNEL_SETTINGS, NOTHING, Part, PartKind, ROOM, Template,
};
use crate::failure::{Failure, step};

const READ_ONLY: MountFlags = MountFlags::RDONLY.union(MountFlags::NOSUID).union(MountFlags::NODEV);

/// Inodes that rooms have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inodes {
    Own,
    /// The template's, with the reason.
    Shared(String),
}

/// Determines the kind of inodes by mounting what a room would mount.
pub(crate) fn probe(template: &Template) -> Result<Inodes, Failure> {
    probe_at(template, "")
}

/// As [`probe`], for a process that sees the template's root at `outer`.
pub(crate) fn probe_at(template: &Template, outer: &str) -> Result<Inodes, Failure> {
    let mut fixed = template.parts.iter().filter(|part| part.kind == PartKind::Static);
    let tried = fixed.try_for_each(|part| cover(outer, part));
    match unmount(format!("{outer}{ROOM}"), UnmountFlags::DETACH) {
        Ok(()) => {}
        // The first mount was refused.
        Err(rustix::io::Errno::INVAL) if tried.is_err() => {}
        Err(error) => return step("unmount a trial root", Err(error)),
    }
    Ok(match tried {
        Ok(()) => Inodes::Own,
        Err(error) => Inodes::Shared(error.to_string()),
    })
}

/// Assembles the root of a room at `ROOM`.
pub(crate) fn build(template: &Template, inodes: &Inodes) -> Result<(), Failure> {
    for part in &template.parts {
        let built = match (part.kind, inodes) {
            (PartKind::Static, Inodes::Own) => cover("", part),
            _ => mount_bind_recursive(&part.source, place(part)).map_err(io::Error::from),
        };
        step(format!("show {}", part.path.display()), built)?;
    }
    Ok(())
}

/// Path of a part in the root that is being assembled.
fn place(part: &Part) -> PathBuf {
    Path::new(ROOM).join(part.path.strip_prefix("/").unwrap_or(&part.path))
}

/// Mounts an overlay of the part at its path.
fn cover(outer: &str, part: &Part) -> io::Result<()> {
    // The kernel requires two layers; the second is empty.
    let options = format!("lowerdir={outer}{}:{outer}{NOTHING}", part.source.display());
    let options = CString::new(options).map_err(io::Error::other)?;
    let at = format!("{outer}{}", place(part).display());
    Ok(mount("overlay", at, "overlay", READ_ONLY, Some(options.as_c_str()))?)
}

/// Moves a detached mount to its place.
pub(crate) fn attach(tree: BorrowedFd<'_>, at: &str) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Hides the parts of /proc that describe the machine and not the room.
pub(crate) fn cover_proc(template: &Template) -> Result<(), Failure> {
    let covers = [(EMPTY_FILE, &template.hidden_files), (EMPTY_FOLDER, &template.hidden_folders)];
    for (cover, names) in covers {
        for name in names {
            cover_with(cover, &format!("/proc/{name}"))?;
        }
    }
    cover_with(KERNEL_SETTINGS, "/proc/sys")
}

/// Hides a part of /proc.
pub(crate) fn cover_with(cover: &str, target: &str) -> Result<(), Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = step("hide a part of /proc", open_tree(CWD, cover, flags))?;
    match attach(tree.as_fd(), target) {
        // The template was made from the host's /proc, which may have more entries than a room's.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => step(format!("hide {target}"), other),
    }
}

/// Makes the current directory the root and detaches the old one.
pub(crate) fn pivot() -> Result<(), Failure> {
    step("pivot_root", pivot_root(".", "."))?;
    step("leave the old root", unmount(".", UnmountFlags::DETACH))?;
    step("enter the new root", chdir("/"))
}
