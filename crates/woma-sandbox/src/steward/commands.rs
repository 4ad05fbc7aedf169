//! Commands of the server to the init of a room, each a message on its socket.

/// Commands of the server to init. The reply is `ok` and a count, `errno` and a number, or an error.
pub(crate) const COMMAND_INTERRUPT: &[u8] = b"I";
pub(crate) const COMMAND_SWEEP: &[u8] = b"S";
/// Kills the child with the most memory, if it has more than the kernel; the count is then 1.
pub(crate) const COMMAND_KILL_LARGEST: &[u8] = b"R";
/// Raises a `MemoryError` in the kernel's code.
pub(crate) const COMMAND_MEMORY_ERROR: &[u8] = b"T";
/// Kills every current process but the kernel; the count is their number.
pub(crate) const COMMAND_KILL_CHILDREN: &[u8] = b"E";
/// Followed by the kernel's data limit in bytes, and the hard limit if there is one.
pub(crate) const COMMAND_DATA_LIMIT: u8 = b'D';
/// As `COMMAND_DATA_LIMIT`, but never raises the limit.
pub(crate) const COMMAND_LOWER_DATA_LIMIT: u8 = b'd';
/// Followed by the session's name if it has one; with a descriptor if its workspace is a folder.
pub(crate) const COMMAND_WORKSPACE: u8 = b'W';
/// As `COMMAND_WORKSPACE`, for a future session: replies with a descriptor of the folder for its
/// name.
pub(crate) const COMMAND_PREPARE: &[u8] = b"P";
/// With a descriptor of the folder to show read-only as `/datasets`; sent once at most.
pub(crate) const COMMAND_DATASETS: &[u8] = b"M";
/// With a descriptor of the folder to show read-only as `/packages`, on top of an earlier one.
pub(crate) const COMMAND_PACKAGES: &[u8] = b"K";
/// With the kernel's pidfd, from the steward to a minder; not answered.
pub(crate) const COMMAND_KERNEL: &[u8] = b"k";
/// Sent once the kernel has entered: from then on no process of the room may inspect init.
pub(crate) const COMMAND_SEAL: &[u8] = b"L";
/// Followed by a socket to make in the room's network namespace, as JSON; replies with its
/// descriptor.
pub(crate) const COMMAND_SOCKET: u8 = b'N';
