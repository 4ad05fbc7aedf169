//! Project quotas and the project ids of folders.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::bad_answer;

const PROJECT: u32 = 2;
const GET: u32 = 0x80_0007;
const SET: u32 = 0x80_0008;
/// `Q_XGETQSTATV`, supported by every file system with quotas, without privileges.
const STATE: u32 = (b'X' as u32) << 8 | 8;
const STATE_VERSION: u64 = 1;
/// Project quotas are accounted, and their limits enforced.
const STATE_COUNTED: u16 = 1 << 4;
const STATE_ENFORCED: u16 = 1 << 5;
/// `QIF_LIMITS`: only the limits of blocks and inodes are set.
const LIMITS: u32 = 1 | 4;
/// Unit of block limits, in bytes.
const BLOCK_BYTES: u64 = 1024;

const FSGETXATTR: libc::Ioctl = 0x801c_581f;
const FSSETXATTR: libc::Ioctl = 0x401c_5820;
const INHERIT: u32 = 0x200;

/// `struct if_dqblk` of the kernel.
#[repr(C)]
#[derive(Debug, Default)]
struct Block {
    blocks_hard: u64,
    blocks_soft: u64,
    bytes: u64,
    inodes_hard: u64,
    inodes_soft: u64,
    inodes: u64,
    blocks_time: u64,
    inodes_time: u64,
    valid: u32,
}

/// `struct fsxattr` of the kernel.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// Usage of a project, in bytes and inodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

fn quotactl<T>(file: BorrowedFd<'_>, command: u32, project: u32, about: &mut T) -> io::Result<()> {
    let about: *mut T = about;
    // SAFETY: the descriptor is open; `about` lives across the call and is at least as large as what
    // the command reads or writes there, as each caller below argues.
    let status = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            file.as_raw_fd(),
            command << 8 | PROJECT,
            project,
            about,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the file system enforces project quotas.
pub(crate) fn enforces_projects(file: BorrowedFd<'_>) -> io::Result<bool> {
    // `struct fs_quota_statv` has less than 200 bytes; its first byte is the version, on both
    // supported architectures, and the third and fourth are the flags.
    let mut state = [0_u64; 32];
    state[0] = STATE_VERSION.to_le();
    quotactl(file, STATE, 0, &mut state)?;
    let [_, _, low, high, ..] = state[0].to_ne_bytes();
    let wanted = STATE_COUNTED | STATE_ENFORCED;
    Ok(u16::from_ne_bytes([low, high]) & wanted == wanted)
}

/// Usage of a project on this file system; 0 if it does not exist.
pub(crate) fn project_used(file: BorrowedFd<'_>, project: u32) -> io::Result<Used> {
    // The command writes one `if_dqblk`.
    let mut block = Block::default();
    match quotactl(file, GET, project, &mut block) {
        Ok(()) => Ok(Used { bytes: block.bytes, files: block.inodes }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Used::default()),
        Err(error) => Err(error),
    }
}

/// Sets the hard limits of a project; zero means unlimited.
pub(crate) fn limit_project(
    file: BorrowedFd<'_>,
    project: u32,
    bytes: u64,
    files: u64,
) -> io::Result<()> {
    // The command reads one `if_dqblk`.
    let mut block = Block {
        blocks_hard: bytes.div_ceil(BLOCK_BYTES),
        inodes_hard: files,
        valid: LIMITS,
        ..Block::default()
    };
    quotactl(file, SET, project, &mut block)
}

/// The hard limits of a project, in bytes and inodes.
#[cfg(test)]
pub(crate) fn project_limits(file: BorrowedFd<'_>, project: u32) -> io::Result<(u64, u64)> {
    // The command writes one `if_dqblk`.
    let mut block = Block::default();
    match quotactl(file, GET, project, &mut block) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok((block.blocks_hard * BLOCK_BYTES, block.inodes_hard)),
    }
}

/// Project of an open file or folder; 0 if it has none.
pub(crate) fn project_of(file: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(attributes(file)?.project)
}

/// Assigns a project to an open folder; new files in it inherit the project.
pub(crate) fn set_project(folder: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut attributes = attributes(folder)?;
    attributes.project = project;
    attributes.flags |= INHERIT;
    // SAFETY: FSSETXATTR reads one `fsxattr`, which lives across the call.
    let status =
        unsafe { libc::ioctl(folder.as_raw_fd(), FSSETXATTR, std::ptr::from_ref(&attributes)) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn attributes(file: BorrowedFd<'_>) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    if mem::size_of::<Attributes>() != 28 || mem::size_of::<Block>() != 72 {
        return Err(bad_answer());
    }
    // SAFETY: FSGETXATTR writes one `fsxattr` of 28 bytes, which lives across the call.
    let status =
        unsafe { libc::ioctl(file.as_raw_fd(), FSGETXATTR, std::ptr::from_mut(&mut attributes)) };
    if status == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}
