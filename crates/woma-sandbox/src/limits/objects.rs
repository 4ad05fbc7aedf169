//! Counts of a session's kernel objects, read from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::keeper;

/// Most bytes of /proc/locks that are read at once.
const LOCKS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// File locks of all processes of the host, by process.
#[derive(Debug, Default)]
pub(crate) struct Locks(BTreeMap<u32, u64>);

impl Locks {
    pub(crate) fn read() -> Self {
        let mut bytes = Vec::new();
        let read = fs::File::open("/proc/locks")
            .and_then(|file| file.take(LOCKS_BYTES_MAX).read_to_end(&mut bytes));
        if let Err(error) = read {
            tracing::warn!(%error, "file locks cannot be counted");
        }
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for pid in text.lines().filter_map(owner) {
            *counts.entry(pid).or_default() += 1;
        }
        Self(counts)
    }

    pub(crate) fn of(&self, pids: &BTreeSet<u32>) -> u64 {
        let held = self.0.iter().filter(|(pid, _)| pids.contains(pid));
        held.map(|(_, count)| count).sum()
    }
}

/// Process id in a line like `1: POSIX  ADVISORY  WRITE 1234 08:01:123 0 EOF`; a line of a waiting
/// process has an arrow in front.
fn owner(line: &str) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1).peekable();
    words.next_if_eq(&"->");
    words.nth(3)?.parse().ok()
}

/// Number of files that these processes have open together. Stops counting above `enough`.
pub(crate) fn open_files(pids: &BTreeSet<u32>, enough: u64) -> u64 {
    let mut sum = 0;
    for pid in pids {
        match process_open_files(*pid) {
            Some(count) => sum += count,
            // A confined server may not read other processes; the keeper may.
            None => {
                let keeper = keeper::of_this_process();
                return keeper.and_then(|keeper| keeper.open_files(pids, enough)).unwrap_or(0);
            }
        }
        if sum > enough {
            break;
        }
    }
    sum
}

/// `None` if access is denied.
fn process_open_files(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/fd");
    // Since Linux 6.2 the size of the folder is the number of its entries.
    match fs::metadata(&path).map(|metadata| metadata.size()) {
        Ok(0) => match fs::read_dir(path) {
            Ok(entries) => Some(entries.count() as u64),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(_) => Some(0),
        },
        Ok(count) => Some(count),
        // The process has ended.
        Err(_) => Some(0),
    }
}

/// Number of sockets in the network namespace of this process.
pub(crate) fn sockets(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/net/sockstat")).unwrap_or_default();
    let used = text.lines().find_map(|line| line.strip_prefix("sockets: used "));
    used.and_then(|used| used.trim().parse().ok()).unwrap_or(0)
}

/// Number of sockets among the open files of these processes; links are read only if there are more
/// files than `enough`. With a keeper, open files count as sockets.
pub(crate) fn socket_pairs(pids: &BTreeSet<u32>, enough: u64) -> u64 {
    let files = open_files(pids, enough);
    if files <= enough || keeper::of_this_process().is_some() {
        return files;
    }
    let is_socket = |entry: &fs::DirEntry| {
        let link = fs::read_link(entry.path());
        link.is_ok_and(|link| link.as_os_str().as_bytes().starts_with(b"socket:"))
    };
    let of = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    pids.iter().flat_map(of).filter(is_socket).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_counted_by_process() {
        let text = "1: POSIX  ADVISORY  WRITE 12 08:01:5 0 EOF\n\
                    1: -> POSIX  ADVISORY  WRITE 13 08:01:5 0 EOF\n\
                    2: FLOCK  ADVISORY  WRITE 12 00:1a:7 0 EOF\n\
                    3: OFDLCK ADVISORY  READ -1 00:1a:7 0 EOF\n\n";
        let locks = Locks::parse(text);
        assert_eq!(locks.of(&[12].into()), 2);
        assert_eq!(locks.of(&[13].into()), 1);
        assert_eq!(locks.of(&[12, 13, 14].into()), 3);
    }

    #[test]
    fn open_files_of_this_process_are_counted() {
        let pids = BTreeSet::from([std::process::id()]);
        let before = open_files(&pids, u64::MAX);
        let held: Vec<_> = (0..500).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        // Other tests open files at the same time.
        assert!(open_files(&pids, u64::MAX) + 200 >= before + held.len() as u64);
        assert!(open_files(&pids, 10) > 10);
    }
}
