//! Crash-safe file replacement: write to a temporary file, sync, rename, sync the folder. A rename
//! is durable only after its folder is synced.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Replaces a file atomically and durably; a failure leaves the old content. Mode 0600.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, |_| Ok(()))
}

/// As [`replace`]; calls `prepare` with the new file before its content is written.
pub(crate) fn replace_as(
    path: &Path,
    content: &[u8],
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    let written = write(&temporary, content, prepare).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The disk may be full: a half-written file must not take space.
        fs::remove_file(&temporary).unwrap_or_default();
    }
    written?;
    sync_folder_of(path)
}

/// Folder of a file; `.` for a name alone.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Removes temporary files of killed writers. The caller must be the only writer of `path`.
pub(crate) fn remove_leftovers(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
    else {
        return Ok(());
    };
    let is_leftover = |other: &str| {
        let rest = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| rest.split('.').next_back() == Some("new"))
    };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_leftover) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes renames and new files in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// As [`sync_folder`], for the folder of a file.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    sync_folder(folder_of(path))
}

fn write(
    path: &Path,
    content: &[u8],
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    prepare(&file)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Temporary name, unique because several servers may replace the same file.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", Uuid::new_v4()));
    name.into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::{folder_of, remove_leftovers, replace, replace_as, sync_folder, temporary};

    #[test]
    fn replaces_whole_or_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"old").unwrap();
        let refused = |_: &fs::File| Err(io::Error::other("refused"));
        assert!(replace_as(&path, b"new", refused).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        assert!(replace(&folder.path().join("none/file"), b"x").is_err());
        assert!(sync_folder(&folder.path().join("none")).is_err());
    }

    #[test]
    fn every_file_has_a_folder() {
        for (path, folder) in [("/a/b", "/a"), ("a/b", "a"), ("/b", "/"), ("b", "."), ("", ".")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
    }

    #[test]
    fn removes_its_own_temporary_files_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let left = temporary(&path);
        let others = ["file", "file.old", "file.new.old", "filed.x.new", "other.x.new"];
        for name in others {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        fs::write(&left, b"half").unwrap();
        remove_leftovers(&path).unwrap();
        assert!(!left.exists());
        for name in others {
            assert!(folder.path().join(name).exists(), "{name}");
        }
        assert!(remove_leftovers(&folder.path().join("none/file")).is_err());
    }
}
