//! Disk space reserved for the server: its journal and database must be able to write when sessions
//! have filled the disk.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::statvfs;

const GIB: u64 = 1024 * 1024 * 1024;
/// Default reserve: this percentage, but no more than these amounts.
const DEFAULT_PERCENT: f64 = 5.0;
const DEFAULT_BYTES_MAX: u64 = 5 * GIB;
const DEFAULT_FILES_MAX: u64 = 100_000;

/// Space to keep free.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum ReserveSize {
    /// The smaller of 5 % and 5 GiB; of inodes the smaller of 5 % and 100,000.
    #[default]
    Usual,
    /// This many bytes, and the default share of the inodes; 0 disables the reserve.
    Bytes(u64),
    /// Percentage of bytes and of inodes.
    Percent(f64),
}

/// A file system and its reserve, shared by all that write to it.
#[derive(Debug)]
pub struct Reserve {
    folder: PathBuf,
    size: ReserveSize,
    is_low: AtomicBool,
}

/// Capacity and free space of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub reserve_bytes: u64,
    /// Number of inodes; 0 if the file system creates them on demand.
    pub total_files: u64,
    pub free_files: u64,
    pub reserve_files: u64,
}

impl DiskSpace {
    /// Whether free space is below the reserve.
    pub fn is_low(&self) -> bool {
        self.is_low_after(0)
    }

    /// Whether it would be after writing this many more bytes.
    pub fn is_low_after(&self, bytes: u64) -> bool {
        let has_files = self.total_files > 0;
        self.free_bytes < self.reserve_bytes.saturating_add(bytes) && self.reserve_bytes > 0
            || has_files && self.free_files < self.reserve_files
    }
}

impl Reserve {
    /// Reserve on the file system of this folder.
    pub fn new(folder: PathBuf, size: ReserveSize) -> Self {
        Self { folder, size, is_low: AtomicBool::new(false) }
    }

    /// Queries the file system, which takes a microsecond on a local disk.
    pub fn look(&self) -> io::Result<DiskSpace> {
        let found = statvfs(&self.folder)?;
        let (reserve_bytes, reserve_files) =
            self.size.of(found.f_blocks.saturating_mul(found.f_frsize), found.f_files);
        let space = DiskSpace {
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            reserve_bytes,
            total_files: found.f_files,
            free_files: found.f_favail,
            reserve_files,
        };
        self.is_low.store(space.is_low(), Ordering::Relaxed);
        Ok(space)
    }

    /// Result of the latest query.
    pub fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }

    /// Whether writing this many bytes would reach the reserve. A file system that cannot be
    /// queried reports errors when it is written to.
    pub fn refuses(&self, bytes: u64) -> bool {
        self.look().is_ok_and(|space| space.is_low_after(bytes))
    }

    /// Queries now; false if the file system cannot be queried.
    pub(crate) fn is_low_now(&self) -> bool {
        match self.look() {
            Ok(space) => space.is_low(),
            Err(error) => {
                tracing::warn!(%error, "cannot read the free space of the sessions' disk");
                false
            }
        }
    }
}

impl ReserveSize {
    /// Reserve of a file system with this many bytes and inodes.
    fn of(self, total_bytes: u64, total_files: u64) -> (u64, u64) {
        let usual_files = part(total_files, DEFAULT_PERCENT).min(DEFAULT_FILES_MAX);
        match self {
            Self::Usual => (part(total_bytes, DEFAULT_PERCENT).min(DEFAULT_BYTES_MAX), usual_files),
            Self::Bytes(0) => (0, 0),
            Self::Bytes(bytes) => (bytes, usual_files),
            Self::Percent(percent) => (part(total_bytes, percent), part(total_files, percent)),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a disk need not be exact, and is never negative"
)]
fn part(of: u64, percent: f64) -> u64 {
    (of as f64 * percent / 100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_reserve_is_a_share_with_an_upper_bound() {
        let usual = ReserveSize::Usual;
        assert_eq!(usual.of(20 * GIB, 1_000), (GIB, 50));
        assert_eq!(usual.of(1000 * GIB, 10_000_000), (5 * GIB, 100_000));
        assert_eq!(ReserveSize::Bytes(7).of(20 * GIB, 1_000), (7, 50));
        assert_eq!(ReserveSize::Bytes(0).of(20 * GIB, 1_000), (0, 0));
        assert_eq!(ReserveSize::Percent(10.0).of(20 * GIB, 1_000), (2 * GIB, 100));
    }

    #[test]
    fn lack_of_bytes_or_of_inodes_is_low() {
        let well = DiskSpace {
            total_bytes: 100,
            free_bytes: 10,
            reserve_bytes: 5,
            total_files: 100,
            free_files: 10,
            reserve_files: 5,
        };
        assert!(!well.is_low() && !well.is_low_after(5) && well.is_low_after(6));
        assert!(DiskSpace { free_bytes: 4, ..well }.is_low());
        assert!(DiskSpace { free_files: 4, ..well }.is_low());
        assert!(
            !DiskSpace { free_files: 0, total_files: 0, ..well }.is_low(),
            "inodes are not counted"
        );
        let none = DiskSpace { reserve_bytes: 0, reserve_files: 0, ..well };
        assert!(!none.is_low_after(u64::MAX), "no reserve");
    }
}
