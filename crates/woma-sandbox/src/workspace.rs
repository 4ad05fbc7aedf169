//! Folders that hostile code can change under us: the only place that looks into one, and always
//! through descriptors that cannot lead out of it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat,
};

/// What is in a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Bytes that its files take on disk.
    pub bytes: u64,
    /// Files and folders.
    pub files: u64,
}

/// Adds up a folder. Stops once there are more than `files_max` in it: a look must not take for ever
/// because the folder is huge.
pub fn measure(folder: &Path, files_max: u64) -> io::Result<Contents> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, folder, flags, Mode::empty())?;
    let mut contents = Contents::default();
    let mut waiting: Vec<OwnedFd> = vec![root];
    while let Some(folder) = waiting.pop() {
        add(&folder, &mut contents, &mut waiting, files_max)?;
        if contents.files > files_max {
            break;
        }
    }
    Ok(contents)
}

fn add(
    folder: &OwnedFd,
    contents: &mut Contents,
    waiting: &mut Vec<OwnedFd>,
    files_max: u64,
) -> io::Result<()> {
    /// Open folders at a time; a tree that is deeper or wider than this counts as what was seen.
    const OPEN_MAX: usize = 256;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        contents.files += 1;
        if contents.files > files_max {
            return Ok(());
        }
        // It may be gone again, or be something else by now; then the next look counts it.
        let Ok(metadata) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        contents.bytes += u64::try_from(metadata.st_blocks).unwrap_or(0).saturating_mul(512);
        if FileType::from_raw_mode(metadata.st_mode) == FileType::Directory
            && waiting.len() < OPEN_MAX
        {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            if let Ok(inner) = openat2(folder.as_fd(), name, flags, Mode::empty(), resolve) {
                waiting.push(inner);
            }
        }
    }
    Ok(())
}
