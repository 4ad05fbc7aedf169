//! The data folder of a server that dropped root.
//!
//! The folder itself still belongs to root, with the server's group and the sticky bit: the server
//! creates files in it, but cannot replace what root reads or runs from it at the next start
//! (environments, the tools that create them, the settings file). Everything else belongs to the
//! server.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, fstat, openat,
};
use rustix::io::Errno;

use super::user::User;

/// Entries that root created and still uses.
const ROOTS: &[&str] = &["envs", "environments", "tools", "woma.toml"];
/// Deepest folder that is handed over; deeper than any path of a session.
const LEVELS_MAX: u32 = 2_048;
/// Time after which a progress message is shown.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Creates a folder and changes the owner of the server's files in it to its user. Returns the
/// folders that contain them: that one, and the targets of root's links in it.
///
/// The folder must belong to root or to the user. Links are not followed, except those that root
/// has made in the folder itself; files with several hard links are left as they are.
pub fn hand_over(
    folder: &Path,
    user: &User,
    report: &mut dyn FnMut(&str),
) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty())?;
    let stat = fstat(&opened)?;
    let mut places = vec![folder.to_owned()];
    let is_roots = stat.st_uid == 0;
    if !is_roots && stat.st_uid != user.uid {
        let owner = stat.st_uid;
        return Err(io::Error::other(format!("it belongs to the user {owner}, not to {user}")));
    }
    let mut change =
        OwnerChange { user, since: Instant::now(), has_reported: false, left: 0, report };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, metadata) = (entry.path(), entry.metadata()?);
        if ROOTS.iter().any(|name| entry.file_name() == *name) || metadata.uid() == user.uid {
            continue;
        }
        if metadata.is_symlink() {
            // Only links of root are trusted by the operator.
            if !is_roots || metadata.uid() != 0 {
                continue;
            }
            let target = path.canonicalize()?;
            if fs::metadata(&target)?.uid() != user.uid {
                change.apply(CWD, target.as_os_str().as_encoded_bytes(), 0)?;
            }
            places.push(target);
            continue;
        }
        change.apply(&opened, entry.file_name().as_encoded_bytes(), 0)?;
    }
    let left = change.left;
    if left > 0 {
        report(&format!("{left} files have another name somewhere and stay as they are"));
    }
    let mode = Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o755);
    let mode = mode | Mode::RWXG | Mode::SVTX;
    // Only if needed: the folder may be on a read-only file system.
    if is_roots && (stat.st_gid, Mode::from_raw_mode(stat.st_mode)) != (user.gid, mode) {
        fchown(&opened, None, Some(Gid::from_raw(user.gid)))?;
        fchmod(&opened, mode)?;
    }
    Ok(places)
}

/// The reverse, for a server that runs as root again: gives the folder's entries back to root, so
/// that a later [`hand_over`] processes them again.
pub fn take_back(folder: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match openat(CWD, folder, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    if fstat(&opened)?.st_uid != 0 {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.uid() != 0 {
            let name = entry.file_name();
            chownat(&opened, name, Some(Uid::ROOT), None, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

struct OwnerChange<'a> {
    user: &'a User,
    since: Instant,
    has_reported: bool,
    /// Number of files that were left as they are.
    left: u64,
    report: &'a mut dyn FnMut(&str),
}

impl OwnerChange<'_> {
    /// A folder is changed after its contents: interrupted work is resumed at the next start.
    fn apply(&mut self, parent: impl AsFd, name: &[u8], level: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match openat(&parent, name, flags, Mode::empty()) {
            // Removed meanwhile.
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let stat = fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.apply_inside(&found, level)?;
        } else if stat.st_nlink > 1 {
            // Another hard link may be anywhere, and in use by another user.
            self.left += u64::from(stat.st_uid != self.user.uid);
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(self.user.uid), Gid::from_raw(self.user.gid));
        Ok(chownat(&found, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
    }

    fn apply_inside(&mut self, folder: &OwnedFd, level: u32) -> io::Result<()> {
        if level > LEVELS_MAX {
            return Err(io::Error::other("a folder is too deep to be handed over"));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(folder, ".", flags, Mode::empty())?;
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                self.apply(&folder, entry.file_name().to_bytes(), level + 1)?;
            }
        }
        self.progress();
        Ok(())
    }

    fn progress(&mut self) {
        if !self.has_reported && self.since.elapsed() > QUIET_TIME {
            self.has_reported = true;
            let text = format!("what the server keeps is handed over to {}; once", self.user);
            (self.report)(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_too_deep_is_not_handed_over() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b/c")).unwrap();
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let user = User::of(uid, gid);
        let mut report = |text: &str| panic!("{text}");
        let mut change = OwnerChange {
            user: &user,
            since: Instant::now(),
            has_reported: true,
            left: 0,
            report: &mut report,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, root.path(), flags, Mode::empty()).unwrap();
        // `c` is two levels below `a`.
        change.apply(&opened, b"a", LEVELS_MAX - 2).unwrap();
        let refused = change.apply(&opened, b"a", LEVELS_MAX - 1).unwrap_err();
        assert_eq!(refused.to_string(), "a folder is too deep to be handed over");
    }
}
