//! The template root: all that any session may read, built once per environment by the launcher.
//!
//! It stands on a file system in memory that is mounted over `/sys` in a mount namespace of our own:
//! `/sys` exists everywhere and nothing that we show comes from it. Every room gets a read-only
//! view of it. Landlock follows directories, so what is writable sits under two parents, `/mnt`
//! (the workspace) and `/run` (scratch), and nothing else does. Other names of the workspace are links
//! in the template: they cost a room nothing, and every library and subprocess agrees on them.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    mount_remount, move_mount, open_tree,
};

use super::control::Setup;
use crate::failure::{Failure, step};
use crate::sys;

/// Where the launcher builds; the steward makes this its root.
pub(crate) const OUTER: &str = "/sys";
/// The template as the steward sees it, once `OUTER` is its root.
pub(crate) const TEMPLATE: &str = "/tpl";
/// The session's folder, working directory and home.
pub(crate) const WORKSPACE: &str = "/mnt/data";
/// Private memory of a room: `TMPDIR`, `/dev/shm`, configuration folders of libraries.
pub(crate) const SCRATCH: &str = "/run/scratch";

/// Where a session that has a name finds its workspace under it, and no other session.
pub(crate) const SESSIONS: &str = "/app/sandbox_data";
/// What the operator lets every session read; an empty folder if there is nothing.
pub(crate) const UPLOADS: &str = "/uploads";

/// Paths that programs written for other places use; all of them mean the workspace.
pub(crate) const ALIASES: &[&str] = &[
    "/tmp",
    "/var/tmp",
    "/temp",
    "/workspace",
    "/home/user",
    "/content",
    "/kaggle/input",
    "/kaggle/working",
];

/// Host files that libraries read and that tell nothing about the host.
const ETC_COPIES: &[&str] =
    &["/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/services", "/etc/protocols"];
const ETC_MOUNTS: &[&str] = &["/etc/alternatives", "/etc/fonts", "/etc/ssl/certs"];

const UPLOADS_ALIASES: &[&str] = &["/app/uploads", "/home/ubuntu/uploads"];

const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];

const KERNEL_FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/kernel_files.rs"));

pub(crate) fn build(setup: &Setup) -> Result<(), Failure> {
    // Slave, not private: a disk that the operator mounts later must be usable as a workspace.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    step("make the mount namespace our own", mount_change("/", slave))?;
    let root = PathBuf::from(format!("{OUTER}{TEMPLATE}"));
    mount_memory(Path::new(OUTER))?;
    make_dir(&root)?;
    make_dir(Path::new(&format!("{OUTER}/proc")))?;
    mount_memory(&root)?;
    for folder in [WORKSPACE, SCRATCH, "/proc", "/dev", "/etc"] {
        make_dir(&inside(&root, folder))?;
    }
    programs(&root)?;
    etc(&root)?;
    for (from, to) in &setup.mounts {
        bind_read_only(from, &inside(&root, to))?;
    }
    kernel(&root)?;
    devices(&root)?;
    for folder in [UPLOADS, SESSIONS] {
        make_dir(&inside(&root, folder))?;
    }
    links(&root, ALIASES, WORKSPACE)?;
    links(&root, UPLOADS_ALIASES, UPLOADS)?;
    let read_only = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::BIND;
    step("make the template read-only", mount_remount(&root, read_only, ""))
}

/// Makes the folder and its missing parents, readable by the sessions whatever our umask.
fn make_dir(path: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    step(format!("make {}", path.display()), made)
}

fn inside(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn mount_memory(at: &Path) -> Result<(), Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mounted = mount("tmpfs", at, "tmpfs", flags, Some(c"mode=755,size=64m"));
    step(format!("mount memory on {}", at.display()), mounted)
}

fn bind_read_only(from: &Path, to: &Path) -> Result<(), Failure> {
    let name = format!("show {} read-only", from.display());
    if from.is_dir() {
        make_dir(to)?;
    } else {
        make_dir(to.parent().unwrap_or(to))?;
        step(&name, fs::write(to, ""))?;
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = step(&name, open_tree(CWD, from, flags))?;
    let attributes = sys::MOUNT_RDONLY | sys::MOUNT_NOSUID | sys::MOUNT_NODEV;
    step(&name, sys::mount_setattr(&tree, true, attributes))?;
    step(&name, move_mount(&tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH))
}

/// `/usr` and the folders that are links into it on most systems, and real ones on some.
fn programs(root: &Path) -> Result<(), Failure> {
    bind_read_only(Path::new("/usr"), &inside(root, "/usr"))?;
    for name in ["/bin", "/sbin", "/lib", "/lib64", "/lib32"] {
        match fs::read_link(name) {
            Ok(target) => step(format!("link {name}"), symlink(target, inside(root, name)))?,
            Err(_) if Path::new(name).is_dir() => {
                bind_read_only(Path::new(name), &inside(root, name))?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn etc(root: &Path) -> Result<(), Failure> {
    for path in ETC_COPIES {
        match fs::read(path) {
            Ok(content) => write(root, path, content)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return step(format!("read {path}"), Err(error)),
        }
    }
    for path in ETC_MOUNTS.iter().map(Path::new).filter(|path| path.is_dir()) {
        bind_read_only(path, &inside(root, path))?;
    }
    write(root, "/etc/passwd", "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/mnt/data:/bin/sh\n")?;
    write(root, "/etc/group", "root:x:0:\nuser:x:1000:\n")?;
    write(root, "/etc/hosts", "127.0.0.1 localhost woma\n::1 localhost\n")?;
    write(root, "/etc/hostname", "woma\n")?;
    // No name server at all: a lookup with the network off fails at once instead of timing out.
    write(root, "/etc/resolv.conf", "")?;
    write(root, "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")?;
    step("link /etc/os-release", symlink("../usr/lib/os-release", inside(root, "/etc/os-release")))
}

fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    step(format!("write {path}"), fs::write(inside(root, path), content))
}

fn kernel(root: &Path) -> Result<(), Failure> {
    make_dir(&inside(root, "/opt/woma/kernel"))?;
    // What rooms put over the parts of /proc that they must not show.
    write(root, "/opt/woma/empty", "")?;
    for (name, source) in KERNEL_FILES {
        write(root, &format!("/opt/woma/{name}"), source)?;
    }
    Ok(())
}

fn devices(root: &Path) -> Result<(), Failure> {
    for name in DEVICES {
        let (from, to) = (format!("/dev/{name}"), inside(root, format!("/dev/{name}")));
        step(format!("make {from}"), fs::write(&to, ""))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = step(format!("show {from}"), open_tree(CWD, &from, flags))?;
        // Read-only: a device can still be written to, but its node not changed.
        let attributes = sys::MOUNT_RDONLY | sys::MOUNT_NOSUID | sys::MOUNT_NOEXEC;
        step(format!("show {from}"), sys::mount_setattr(&tree, false, attributes))?;
        let moved = move_mount(&tree, "", CWD, &to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
        step(format!("show {from}"), moved)?;
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd".to_owned()),
        ("/dev/stdin", "/proc/self/fd/0".to_owned()),
        ("/dev/stdout", "/proc/self/fd/1".to_owned()),
        ("/dev/stderr", "/proc/self/fd/2".to_owned()),
        ("/dev/shm", format!("{SCRATCH}/shm")),
    ] {
        step(format!("link {link}"), symlink(target, inside(root, link)))?;
    }
    Ok(())
}

/// An alias gives way where the environment itself lives at that path.
fn links(root: &Path, aliases: &[&str], target: &str) -> Result<(), Failure> {
    for alias in aliases.iter().map(|alias| inside(root, alias)) {
        let folder = alias.parent().unwrap_or(root);
        if alias.symlink_metadata().is_ok() {
            continue;
        }
        make_dir(folder)?;
        step(format!("link {}", alias.display()), symlink(target, &alias))?;
    }
    Ok(())
}
