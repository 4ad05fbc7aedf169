//! Project quotas: where the file system has them, the kernel itself limits a session's folder,
//! including deleted files that are open, and code gets its error at the line that writes.
//! Elsewhere the folder is watched.
//!
//! All functions need root on the host and are called by the launcher only: once for each folder
//! that it mounts, before any code can reach it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::fs::{Dir, Mode, OFlags, fstat, openat};

use super::control::Quota;
use crate::failure::{Failure, step};
use crate::sync::lock;
use crate::sys::quota::{enforces_projects, limit_project, project_of, project_used, set_project};
use crate::workspace::projects::{COUNT, FIRST, is_ours};

/// Attempts to find a free project id.
const TRIES_MAX: u32 = 64;
/// Most ids waiting for their last file to be closed.
const WAITING_MAX: usize = 4_096;

/// Projects of deleted folders that still have open files.
static WAITING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Sets a folder's quota; returns whether it is enforced. It is not if the file system has no
/// project quotas, the folder belongs to another project, or it already had files.
pub(crate) fn enforce(folder: &impl AsFd, quota: Quota, released: &[u32]) -> Result<bool, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(folder, ".", flags, Mode::empty());
    // An ordinary user's folder may be unreadable to its owner, and has no quota.
    let Ok(folder) = opened else { return Ok(false) };
    // Fails without quotas, on other file systems, on older kernels and without privileges.
    if !enforces_projects(folder.as_fd()).unwrap_or(false) {
        return Ok(false);
    }
    let project = match step("read the folder's project", project_of(folder.as_fd()))? {
        0 => match step("choose a project", new_project(&folder))? {
            Some(project) => project,
            None => return Ok(false),
        },
        project if is_ours(project) => project,
        _operators => return Ok(false),
    };
    // Limits first: a project never has files but no limits. The folder counts as a file too.
    let (bytes, files) = (quota.bytes.max(1), quota.files.saturating_add(1));
    match limit_project(folder.as_fd(), project, bytes, files) {
        // Root of a container cannot set the host's quotas.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        other => step("limit the folder's project", other)?,
    }
    step("set the folder's project", set_project(folder.as_fd(), project))?;
    release(folder.as_fd(), released);
    Ok(true)
}

/// Chooses a free id for an empty folder; existing files would not be counted. Ids derive from the
/// inode number, which no other existing folder has, unless it is truncated.
fn new_project(folder: &OwnedFd) -> io::Result<Option<u32>> {
    for entry in Dir::read_from(folder)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(None);
        }
    }
    let start = u32::try_from(fstat(folder)?.st_ino % u64::from(COUNT)).unwrap_or(0);
    for further in 0..TRIES_MAX {
        let project = FIRST + (start + further) % COUNT;
        match project_used(folder.as_fd(), project) {
            Ok(used) if used.files == 0 && used.bytes == 0 => return Ok(Some(project)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Removes the limits of projects whose folders were deleted.
fn release(on: BorrowedFd<'_>, released: &[u32]) {
    let mut waiting = lock(&WAITING);
    waiting.extend(released.iter().copied().filter(|project| is_ours(*project)));
    waiting.retain(|project| match project_used(on, *project) {
        Ok(used) if used.files == 0 => {
            if let Err(error) = limit_project(on, *project, 0, 0) {
                eprintln!("steward: cannot remove the limits of project {project}: {error}");
            }
            false
        }
        Ok(_) => true,
        Err(_) => false,
    });
    // Ids dropped here are harmless: an id without files counts as free, whatever its limits.
    waiting.truncate(WAITING_MAX);
}

#[cfg(test)]
mod tests {
    //! On a file system with project quotas: one that `WOMA_TEST_QUOTA_FOLDER` names, or an image
    //! that is made and mounted for it. Kernels without quotas for ext4 (`CONFIG_QFMT_V2`) exist:
    //! there, and without root, the test shows that a folder is left to be watched, and says why.

    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::os::unix::process::CommandExt as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::workspace::{Folder, projects, remove_tree};

    const MIB: u64 = 1024 * 1024;
    const NOBODY: u32 = 65_534;
    const FOLDER: &str = "WOMA_TEST_QUOTA_FOLDER";
    const WRITER: &str = "WOMA_TEST_QUOTA_WRITER";
    const NAME: &str = "steward::quota::tests::a_folder_is_held_to_its_quota";
    const MOUNT: &str = "mke2fs -q -t ext4 -O project,quota -E quotatype=prjquota \"$1\" 64M && \
                         mkdir \"$1.at\" && mount -o loop,prjquota \"$1\" \"$1.at\" && \
                         WOMA_TEST_QUOTA_FOLDER=\"$1.at\" \"$2\" --exact \"$3\" --nocapture";

    #[test]
    fn a_folder_is_held_to_its_quota() {
        if let Some(path) = std::env::var_os(WRITER) {
            return write_until_refused(Path::new(&path));
        }
        if let Some(folder) = std::env::var_os(FOLDER) {
            return holds(Path::new(&folder));
        }
        let around = tempfile::tempdir_in("/var/tmp").unwrap();
        let image = around.path().join("image");
        let itself = std::env::current_exe().unwrap();
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", MOUNT, "sh"])
            .args([image.as_os_str(), itself.as_os_str(), NAME.as_ref()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if said.contains("it was held") {
            assert!(output.status.success(), "{said}");
            return;
        }
        assert!(!said.contains("panicked"), "{said}");
        eprintln!("no project quotas can be had here, so the other way is tested: {said}");
        let folder = File::open(around.path()).unwrap();
        assert!(!enforce(&folder, Quota { bytes: MIB, files: 10 }, &[]).unwrap());
        assert_eq!(projects::of(&folder), None);
    }

    fn holds(around: &Path) {
        let path = around.join("session");
        fs::create_dir(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(around, fs::Permissions::from_mode(0o755)).unwrap();
        let folder = File::open(&path).unwrap();
        let quota = Quota { bytes: 4 * MIB, files: 20 };
        assert!(enforce(&folder, quota, &[]).unwrap());
        let project = projects::of(&folder).expect("it has a project of ours");
        let said = write(&path.join("large"));
        let (written, errno) = (said[0], said[1]);
        assert!((3 * MIB..=4 * MIB).contains(&written), "{said:?}");
        assert!([i64::from(libc::EDQUOT), i64::from(libc::ENOSPC)].contains(&errno.cast_signed()));
        assert_eq!(said[2..], [0, 0], "no more can be written while the deleted file is open");
        // A spare folder keeps its project when it is renamed or mounted again.
        let named = around.join("named");
        fs::rename(&path, &named).unwrap();
        assert!(enforce(&File::open(&named).unwrap(), quota, &[]).unwrap());
        assert_eq!(projects::of(File::open(&named).unwrap()), Some(project));
        let files = (0..40).take_while(|n| made(&named.join(format!("file{n}")))).count();
        assert!((15..=20).contains(&files), "{files} files");
        // Another folder has another project; a folder with files or of the operator has none of
        // ours.
        let other = around.join("other");
        fs::create_dir(&other).unwrap();
        assert!(enforce(&File::open(&other).unwrap(), quota, &[]).unwrap());
        assert_ne!(projects::of(File::open(&other).unwrap()), Some(project));
        let used = around.join("used");
        fs::create_dir(&used).unwrap();
        fs::write(used.join("before"), "x").unwrap();
        assert!(!enforce(&File::open(&used).unwrap(), quota, &[]).unwrap());
        let operators = around.join("operators");
        fs::create_dir(&operators).unwrap();
        set_project(File::open(&operators).unwrap().as_fd(), 42).unwrap();
        assert!(!enforce(&File::open(&operators).unwrap(), quota, &[]).unwrap());
        assert_eq!(project_of(File::open(&operators).unwrap().as_fd()).unwrap(), 42);
        // A deleted folder leaves no limits behind.
        drop(folder);
        assert_eq!(Folder::at(&named).unwrap().project(), Some(project));
        remove_tree(&named, 1_000).unwrap();
        let released = projects::take_released();
        assert_eq!(released, [project]);
        let other = File::open(&other).unwrap();
        assert!(enforce(&other, quota, &released).unwrap());
        assert_eq!(limits(&other, project), (0, 0));
        assert_eq!(limits(&other, projects::of(&other).unwrap()), (4 * MIB, 21));
        println!("it was held");
    }

    fn limits(on: &File, project: u32) -> (u64, u64) {
        crate::sys::quota::project_limits(on.as_fd(), project).unwrap()
    }

    fn itself(path: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]).env(WRITER, path);
        // Quotas do not apply to root.
        command.uid(NOBODY).gid(NOBODY);
        command
    }

    fn write(path: &Path) -> Vec<u64> {
        let output = itself(path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, line) = text.split_once("written ").unwrap_or(("", &text));
        let line = line.lines().next().unwrap_or_default();
        line.split(' ').map(|word| word.parse().unwrap()).collect()
    }

    fn made(path: &Path) -> bool {
        let output = itself(path).env("WOMA_TEST_QUOTA_EMPTY", "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("made")
    }

    /// As an unprivileged user: writes until refused, and again after deleting the open file.
    fn write_until_refused(path: &Path) {
        if std::env::var_os("WOMA_TEST_QUOTA_EMPTY").is_some() {
            if File::create(path).is_ok() {
                println!("made");
            }
            return;
        }
        let piece = vec![1; 64 * 1024];
        let mut written = [0, 0];
        let (mut errno, mut held) = (0, Vec::new());
        for sum in &mut written {
            let Ok(mut file) = File::create(path) else { break };
            while let Ok(()) = file.write_all(&piece) {
                *sum += piece.len();
                assert!(*sum < 64 << 20, "the quota is not enforced");
            }
            errno = file.write(&piece).unwrap_err().raw_os_error().unwrap_or(0);
            file.sync_all().unwrap();
            fs::remove_file(path).unwrap();
            held.push(file);
        }
        println!("written {} {errno} {} 0", written[0], written[1]);
    }
}
