//! The template root: everything that sessions may read, built once per environment by the
//! launcher.
//!
//! It is built on a tmpfs that is mounted over `/sys` in a private mount namespace: `/sys` exists
//! everywhere, and nothing shown to sessions comes from it. Every room gets a read-only view: an
//! overlay over each part, so that its inodes, and with them locks and watches, are the room's own
//! (`steward::root`). Landlock rules apply to directories, so everything writable is below two of
//! them, `/mnt` (the workspace) and `/run` (scratch). Other names of the workspace are links in the
//! template: they cost a room nothing, and all libraries and subprocesses agree on them.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    mount_remount, move_mount, open_tree,
};

use super::control::{RoomIds, Setup};
use super::trust::{self, Trust};
use crate::failure::{Failure, step};
use crate::sys;

/// Mount point of the template; becomes the steward's root.
pub(crate) const OUTER: &str = "/sys";
/// Folder of the template's parts, once `OUTER` is the steward's root. Parts are not nested: the
/// kernel does not allow splitting mounts that came from a more privileged namespace.
const PARTS: &str = "/parts";
/// Mount point at which a room or a zygote assembles its root, and an empty folder.
pub(crate) const ROOM: &str = "/room";
pub(crate) const NOTHING: &str = "/nothing";
/// The session's folder, working directory and home.
pub(crate) const WORKSPACE: &str = "/mnt/data";
/// Private memory of a room: `TMPDIR`, `/dev/shm`, configuration folders of libraries.
pub(crate) const SCRATCH: &str = "/run/scratch";

/// Parent of the link that shows a named session its own workspace, and no other.
pub(crate) const SESSIONS: &str = "/app/sandbox_data";
/// Files of the operator that every session may read; empty if there are none.
pub(crate) const UPLOADS: &str = "/uploads";

/// Datasets of the session's caller, once there are any; empty before.
pub(crate) const DATASETS: &str = "/datasets";

/// Packages of the session, once it has installed any; empty before.
pub(crate) const PACKAGES: &str = "/packages";
/// Program that installs packages. No search path has it.
pub const INSTALLER_PROGRAM: &str = "/opt/woma/installer/uv";

/// Programs that pass requests for packages on to the server: first in the search path.
pub(crate) const SHIM_PROGRAMS: &str = "/opt/woma/shims/bin";
/// Modules that every Python of a session finds first.
pub(crate) const SHIM_MODULES: &str = "/opt/woma/shims/modules";

/// Unix sockets of the server, in rooms that have any.
pub(crate) const SERVICES: &str = "/run/woma";

/// Paths used by programs written for other platforms; all link to the workspace.
pub(crate) const ALIASES: &[&str] = &[
    "/tmp",
    "/var/tmp",
    "/temp",
    "/workspace",
    "/home/user",
    "/content",
    "/kaggle/input",
    "/kaggle/working",
    "/mnt/user-data/outputs",
    "/mnt/user-data/uploads",
    "/home/jovyan",
    "/data",
];

/// Host files that libraries read and that reveal nothing about the host.
pub(crate) const ETC_COPIES: &[&str] =
    &["/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/services", "/etc/protocols"];
pub(crate) const ETC_MOUNTS: &[&str] = &["/etc/alternatives", "/etc/fonts", "/etc/ssl/certs"];

const UPLOADS_ALIASES: &[&str] = &["/app/uploads", "/home/ubuntu/uploads"];

/// Names and minor numbers of the memory devices, whose major number is 1.
const DEVICES: &[(&str, u32)] =
    &[("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)];
const MEMORY_DEVICES: u32 = 1;

/// Files that rooms mount over hidden parts of /proc.
pub(crate) const EMPTY_FILE: &str = "/opt/woma/empty";
pub(crate) const EMPTY_FOLDER: &str = "/opt/woma/nothing";
/// Copy of the few kernel settings that programs read; rooms show it as /proc/sys.
pub(crate) const KERNEL_SETTINGS: &str = "/opt/woma/sys";

/// Entries of /proc that rooms show unchanged.
pub(crate) const PROC_SHOWN: &[&str] =
    &["cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat"];

/// Kernel settings that allocators, servers and tools read, and that reveal nothing about the
/// machine's activity.
pub(crate) const PROC_SYS_COPIES: &[&str] = &[
    "fs/file-max",
    "fs/nr_open",
    "fs/pipe-max-size",
    "kernel/cap_last_cap",
    "kernel/ngroups_max",
    "kernel/osrelease",
    "kernel/ostype",
    "kernel/pid_max",
    "kernel/threads-max",
    "kernel/version",
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "vm/max_map_count",
    "vm/overcommit_memory",
    "vm/overcommit_ratio",
];

/// The template, as rooms use it.
#[derive(Debug, Default)]
pub(crate) struct Template {
    /// In mount order; the first is the root.
    pub(crate) parts: Vec<Part>,
    /// Hidden entries of /proc, covered by an empty file or an empty folder.
    pub(crate) hidden_files: Vec<String>,
    pub(crate) hidden_folders: Vec<String>,
    /// False if the device nodes are the host's.
    pub(crate) own_devices: bool,
}

/// One mount of the template.
#[derive(Debug)]
pub(crate) struct Part {
    /// Path as the steward sees it.
    pub(crate) source: PathBuf,
    /// Path as a room sees it, such as `/usr`.
    pub(crate) path: PathBuf,
    pub(crate) kind: PartKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// A folder that does not change while it is shown; rooms mount an overlay over it.
    Static,
    /// A file, a device, or a folder of the operator whose contents may change while it is shown,
    /// which an overlay need not notice: rooms share its inodes.
    Live,
}

pub(crate) const KERNEL_FILES: &[(&str, &str)] =
    &include!(concat!(env!("OUT_DIR"), "/kernel_files.rs"));

pub(crate) fn build(setup: &Setup) -> Result<Template, Failure> {
    // Slave, not private: a disk that the operator mounts later must be usable as a workspace.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    step("make the mount namespace our own", mount_change("/", slave))?;
    let mounted = step("list the mounts", mount_points())?;
    mount_memory(Path::new(OUTER))?;
    for folder in ["/proc", ROOM, NOTHING] {
        make_dir(Path::new(&format!("{OUTER}{folder}")))?;
    }
    let mut builder = Builder { template: Template::default(), mounted };
    let root = builder.place("/".into(), PartKind::Static, true)?;
    mount_memory(&root)?;
    let own = [WORKSPACE, SCRATCH, "/proc", "/dev", "/etc", UPLOADS, SESSIONS, DATASETS, PACKAGES];
    for folder in own.into_iter().chain([SERVICES]) {
        make_dir(&inside(&root, folder))?;
    }
    builder.programs(&root)?;
    builder.etc(&root, setup.room_ids)?;
    for (from, to) in &setup.mounts {
        builder.show(&root, from, to)?;
    }
    kernel(&root)?;
    if let Some(own) = &setup.trust {
        builder.trust(&root, &Trust::gather(own, &setup.mounts))?;
    }
    builder.devices()?;
    links(&root, ALIASES, WORKSPACE)?;
    links(&root, UPLOADS_ALIASES, UPLOADS)?;
    let read_only = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::BIND;
    step("make the template read-only", mount_remount(&root, read_only, ""))?;
    let mut template = builder.template;
    (template.hidden_files, template.hidden_folders) = hidden_in_proc()?;
    // Parents before what is mounted in them.
    template.parts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(template)
}

struct Builder {
    template: Template,
    /// Every mount point of the host.
    mounted: Vec<PathBuf>,
}

impl Builder {
    /// Creates the mount point of the next part, outside of all others.
    fn place(&mut self, path: PathBuf, kind: PartKind, is_dir: bool) -> Result<PathBuf, Failure> {
        let source = Path::new(PARTS).join(self.template.parts.len().to_string());
        let place = inside(Path::new(OUTER), &source);
        make_mount_point(&place, is_dir)?;
        self.template.parts.push(Part { source, path, kind });
        Ok(place)
    }

    /// Shows a host file or folder read-only, including mounts below it.
    fn show(&mut self, root: &Path, from: &Path, to: &Path) -> Result<(), Failure> {
        make_mount_point(&inside(root, to), from.is_dir())?;
        if !self.clone_mount(from, to)? {
            return Ok(());
        }
        let within = |point: &&PathBuf| point.starts_with(from) && point.as_path() != from;
        let within: Vec<PathBuf> = self.mounted.iter().filter(within).cloned().collect();
        for point in within {
            let rest = point.strip_prefix(from).unwrap_or(&point);
            // A mount point that is covered or unreachable is not visible on the host either.
            if point.symlink_metadata().is_ok() {
                self.clone_mount(&point, &to.join(rest))?;
            }
        }
        Ok(())
    }

    /// Adds a read-only clone of one mount as a part. True if it came without the mounts below it;
    /// an ordinary user has to clone those too.
    fn clone_mount(&mut self, from: &Path, to: &Path) -> Result<bool, Failure> {
        let name = format!("show {} read-only", from.display());
        let is_dir = from.is_dir();
        let is_live = !is_dir || to.starts_with(UPLOADS);
        let kind = if is_live { PartKind::Live } else { PartKind::Static };
        let place = self.place(to.to_owned(), kind, is_dir)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let alone = open_tree(CWD, from, flags);
        let is_alone = alone.is_ok();
        let tree = alone.or_else(|_| open_tree(CWD, from, flags | OpenTreeFlags::AT_RECURSIVE));
        let tree = step(&name, tree)?;
        let attributes = sys::MOUNT_RDONLY | sys::MOUNT_NOSUID | sys::MOUNT_NODEV;
        step(&name, sys::mount_setattr(&tree, true, attributes))?;
        step(&name, move_mount(&tree, "", CWD, &place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH))?;
        Ok(is_alone)
    }

    /// Shows `/usr`, and the folders that are links into it on most systems but real on some.
    fn programs(&mut self, root: &Path) -> Result<(), Failure> {
        self.show(root, Path::new("/usr"), Path::new("/usr"))?;
        for name in ["/bin", "/sbin", "/lib", "/lib64", "/lib32"] {
            match fs::read_link(name) {
                Ok(target) => step(format!("link {name}"), symlink(target, inside(root, name)))?,
                Err(_) if Path::new(name).is_dir() => {
                    self.show(root, Path::new(name), Path::new(name))?;
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn etc(&mut self, root: &Path, ids: RoomIds) -> Result<(), Failure> {
        for path in ETC_MOUNTS.iter().map(Path::new).filter(|path| path.is_dir()) {
            self.show(root, path, path)?;
        }
        etc(root, ids)
    }

    /// Shows certificate authorities in files of their own, and in place of those that programs have.
    fn trust(&mut self, root: &Path, trusted: &Trust) -> Result<(), Failure> {
        make_dir(inside(root, trust::ALL).parent().unwrap_or(root))?;
        write(root, trust::OWN, &trusted.own)?;
        write(root, trust::ALL, &trusted.all)?;
        for path in &trusted.replaced {
            self.clone_mount(&inside(root, trust::ALL), path)?;
        }
        Ok(())
    }

    /// Creates device nodes, or mounts the host's if that is not allowed.
    fn devices(&mut self) -> Result<(), Failure> {
        let folder = self.place("/dev".into(), PartKind::Live, true)?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        let options = Some(c"mode=755,size=64k,nr_inodes=32");
        step("mount memory for /dev", mount("tmpfs", &folder, "tmpfs", flags, options))?;
        self.template.own_devices = make_devices(&folder).is_ok();
        if !self.template.own_devices {
            show_devices(&folder)?;
        }
        device_links(&folder)?;
        let read_only = flags | MountFlags::RDONLY | MountFlags::BIND;
        step("make /dev read-only", mount_remount(&folder, read_only, ""))
    }
}

fn make_mount_point(path: &Path, is_dir: bool) -> Result<(), Failure> {
    if is_dir {
        return make_dir(path);
    }
    make_dir(path.parent().unwrap_or(path))?;
    step(format!("make {}", path.display()), fs::write(path, ""))
}

/// Every mount point, as the kernel lists them.
fn mount_points() -> io::Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped);
    let mut points: Vec<PathBuf> = points.map(PathBuf::from).collect();
    points.sort();
    points.dedup();
    Ok(points)
}

/// Decodes the kernel's octal escapes of spaces and similar characters.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Entries of /proc that everyone may read and that rooms do not show. Entries readable by root
/// only need no cover: no process in a room is root.
fn hidden_in_proc() -> Result<(Vec<String>, Vec<String>), Failure> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in step("list /proc", fs::read_dir("/proc"))?.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        let is_process = name.bytes().all(|byte| byte.is_ascii_digit());
        let is_open = metadata.permissions().mode() & 0o004 != 0;
        if is_process || metadata.is_symlink() || !is_open || PROC_SHOWN.contains(&name.as_str()) {
            continue;
        }
        match metadata.is_dir() {
            // Rooms show a copy.
            true if name == "sys" => {}
            true => folders.push(name),
            false => files.push(name),
        }
    }
    Ok((files, folders))
}

/// Creates the folder and its missing parents, readable by sessions whatever the umask.
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

fn etc(root: &Path, ids: RoomIds) -> Result<(), Failure> {
    for path in ETC_COPIES {
        match fs::read(path) {
            Ok(content) => write(root, path, content)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return step(format!("read {path}"), Err(error)),
        }
    }
    let RoomIds { uid, gid } = ids;
    let users = format!("root:x:0:0::/:/bin/sh\nuser:x:{uid}:{gid}::{WORKSPACE}:/bin/sh\n");
    write(root, "/etc/passwd", users)?;
    write(root, "/etc/group", format!("root:x:0:\nuser:x:{gid}:\n"))?;
    write(root, "/etc/hosts", "127.0.0.1 localhost woma\n::1 localhost\n")?;
    write(root, "/etc/hostname", "woma\n")?;
    // The server answers there in rooms with a network. In others nothing does, so that a lookup
    // fails at once instead of timing out.
    write(root, "/etc/resolv.conf", "nameserver 127.0.0.1\n")?;
    write(root, "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")?;
    step("link /etc/os-release", symlink("../usr/lib/os-release", inside(root, "/etc/os-release")))
}

fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    step(format!("write {path}"), fs::write(inside(root, path), content))
}

fn kernel(root: &Path) -> Result<(), Failure> {
    make_dir(&inside(root, "/opt/woma"))?;
    write(root, EMPTY_FILE, "")?;
    make_dir(&inside(root, EMPTY_FOLDER))?;
    for name in PROC_SYS_COPIES {
        let Ok(value) = fs::read(format!("/proc/sys/{name}")) else { continue };
        let path = format!("{KERNEL_SETTINGS}/{name}");
        make_dir(inside(root, &path).parent().unwrap_or(root))?;
        write(root, &path, value)?;
    }
    for (name, source) in KERNEL_FILES {
        let path = format!("/opt/woma/{name}");
        make_dir(inside(root, &path).parent().unwrap_or(root))?;
        write(root, &path, source)?;
        if path.starts_with(SHIM_PROGRAMS) {
            let mode = fs::Permissions::from_mode(0o755);
            step(format!("make {path} a program"), fs::set_permissions(inside(root, &path), mode))?;
        }
    }
    Ok(())
}

/// Creates device nodes; refused to ordinary users and in many containers.
fn make_devices(folder: &Path) -> io::Result<()> {
    for (name, minor) in DEVICES {
        let (path, mode) = (folder.join(name), Mode::from_raw_mode(0o666));
        let number = makedev(MEMORY_DEVICES, *minor);
        mknodat(CWD, &path, FileType::CharacterDevice, mode, number)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        // An existing device may still be denied by a device cgroup.
        fs::File::open(&path)?;
    }
    Ok(())
}

fn show_devices(folder: &Path) -> Result<(), Failure> {
    for (name, _) in DEVICES {
        let (from, to) = (format!("/dev/{name}"), folder.join(name));
        if to.symlink_metadata().is_ok() {
            step(format!("replace {from}"), fs::remove_file(&to))?;
        }
        step(format!("make {from}"), fs::write(&to, ""))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = step(format!("show {from}"), open_tree(CWD, &from, flags))?;
        // Read-only: a device can still be written to, but its node cannot be changed.
        let attributes = sys::MOUNT_RDONLY | sys::MOUNT_NOSUID | sys::MOUNT_NOEXEC;
        step(format!("show {from}"), sys::mount_setattr(&tree, false, attributes))?;
        let moved = move_mount(&tree, "", CWD, &to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
        step(format!("show {from}"), moved)?;
    }
    Ok(())
}

fn device_links(folder: &Path) -> Result<(), Failure> {
    for (link, target) in [
        ("fd", "/proc/self/fd".to_owned()),
        ("stdin", "/proc/self/fd/0".to_owned()),
        ("stdout", "/proc/self/fd/1".to_owned()),
        ("stderr", "/proc/self/fd/2".to_owned()),
        ("shm", format!("{SCRATCH}/shm")),
    ] {
        step(format!("link /dev/{link}"), symlink(target, folder.join(link)))?;
    }
    Ok(())
}

/// Creates links; skips an alias if the environment itself occupies that path.
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

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn parses_escaped_mount_points() {
        assert_eq!(unescaped("/sys/tpl/usr"), "/sys/tpl/usr");
        assert_eq!(unescaped(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescaped(r"/trailing\04"), r"/trailing\04");
    }
}
