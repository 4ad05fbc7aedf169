//! The only `unsafe` code of the project: one safe function per system call that rustix does not
//! wrap.
//!
//! No function decides anything: it takes descriptors and plain values, makes one call, and returns
//! the kernel's result.
#![expect(unsafe_code, reason = "the one room where it is allowed")]

pub(crate) mod quota;

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use tokio::io::unix::AsyncFd;

/// The two sides of a fork-style `clone3`.
#[derive(Debug)]
pub(crate) enum Forked {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

/// `struct clone_args` of the kernel, version 2 (88 bytes).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Proof that this process had one thread when asked. The roles that fork (steward, init) ask once,
/// at the start, and never create a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SingleThreaded(());

impl SingleThreaded {
    pub(crate) fn prove() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        match threads.map(str::trim) {
            Some("1") => Ok(Self(())),
            other => Err(io::Error::other(format!("this process has {other:?} threads, not one"))),
        }
    }
}

impl SingleThreaded {
    /// As [`Self::prove`], for a process that had other threads: the kernel still counts a joined
    /// thread for a moment.
    pub(crate) fn prove_soon(most: Duration) -> io::Result<Self> {
        let until = Instant::now() + most;
        loop {
            match Self::prove() {
                Err(_) if Instant::now() < until => rustix::thread::sched_yield(),
                other => return other,
            }
        }
    }
}

/// Forks into the namespaces named by `flags`. The child continues with a copy of this thread and
/// may allocate, which is sound only because no other thread can hold a lock: hence the proof.
pub(crate) fn clone3(_proof: SingleThreaded, flags: u64) -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    let arguments = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: the structure and `pidfd` live across the call; no stack is given, so the child runs on
    // a copy of ours as after fork(); the process has one thread, as the proof says.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, mem::size_of::<CloneArgs>())
    };
    forked(pid, pidfd)
}

/// Result of a fork that makes a pidfd.
fn forked(pid: libc::c_long, pidfd: RawFd) -> io::Result<Forked> {
    match pid {
        0 => Ok(Forked::Child),
        pid if pid > 0 => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(bad_answer)?;
            // SAFETY: the kernel has just written a new descriptor there, which has no other owner.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid, pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks without namespaces, also where `clone3` is refused, as containers do.
pub(crate) fn fork(_proof: SingleThreaded) -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_PIDFD | libc::SIGCHLD;
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: as above: no stack, so the child runs on a copy of ours; `pidfd` lives across the call,
    // and is the third argument on all architectures.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone, flags, nothing, &raw mut pidfd, nothing, nothing) };
    forked(pid, pidfd)
}

/// Leaves the namespaces named by `flags` for new ones.
pub(crate) fn unshare(_proof: SingleThreaded, flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: with one thread, no other thread's view of files or descriptors can change.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

fn bad_answer() -> io::Error {
    io::Error::other("the kernel returned an invalid value")
}

/// `struct mount_attr` of the kernel.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

pub(crate) const MOUNT_RDONLY: u64 = 0x1;
pub(crate) const MOUNT_NOSUID: u64 = 0x2;
pub(crate) const MOUNT_NODEV: u64 = 0x4;
pub(crate) const MOUNT_NOEXEC: u64 = 0x8;
const MOUNT_IDMAP: u64 = 0x0010_0000;

/// Sets attributes on the mount (or detached tree) behind `tree`, on all of it when `recursive`.
pub(crate) fn mount_setattr(tree: impl AsFd, recursive: bool, set: u64) -> io::Result<()> {
    mount_setattr_raw(
        tree.as_fd(),
        recursive,
        &MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 },
    )
}

/// Maps owners on the detached tree by a user namespace.
pub(crate) fn mount_idmap(tree: impl AsFd, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let user_namespace = u64::try_from(user_namespace.as_raw_fd()).map_err(|_| bad_answer())?;
    mount_setattr_raw(
        tree.as_fd(),
        false,
        &MountAttributes { set: MOUNT_IDMAP, clear: 0, propagation: 0, user_namespace },
    )
}

fn mount_setattr_raw(
    tree: BorrowedFd<'_>,
    recursive: bool,
    attributes: &MountAttributes,
) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static C string, the attributes outlive the call and their size is given.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            mem::size_of::<MountAttributes>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Brings the loopback interface of the current network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(|_| bad_answer())?;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives across the call.
    let status = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, std::ptr::from_ref(&request))
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// While this value lives, this thread accesses files as another user, without the privileges of
/// root. It cannot be sent to another thread.
#[derive(Debug)]
pub(crate) struct ActingAs {
    uid: u32,
    gid: u32,
    _thread: PhantomData<*const ()>,
}

/// Switches this thread's file system ids to another user; only root can.
pub(crate) fn act_as(uid: u32, gid: u32) -> io::Result<ActingAs> {
    let acting = ActingAs {
        gid: set_file_system_group(gid),
        uid: set_file_system_user(uid),
        _thread: PhantomData,
    };
    // The calls do not fail; they return the previous id. An invalid id changes nothing.
    if (set_file_system_user(u32::MAX), set_file_system_group(u32::MAX)) == (uid, gid) {
        Ok(acting)
    } else {
        Err(io::Error::other("cannot switch to the folder's owner"))
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        set_file_system_user(self.uid);
        set_file_system_group(self.gid);
    }
}

fn set_file_system_user(uid: u32) -> u32 {
    // SAFETY: setfsuid takes an integer, concerns the calling thread only, and cannot fail.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

fn set_file_system_group(gid: u32) -> u32 {
    // SAFETY: as above.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

/// Registers a descriptor with the async runtime.
pub(crate) fn watch_fd(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` returns the same open descriptor from every `as_raw_fd` while it lives,
    // which is what the function requires.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Exits at once: no destructors, no flushing of buffers that a fork has duplicated.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Makes orphans below this process its children.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: prctl with this option takes integers only.
    let status = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1_u64, 0_u64, 0_u64, 0_u64) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the kernel reap children automatically.
pub(crate) fn reap_automatically() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_IGN)
}

/// Restores the default disposition of SIGCHLD, before an exec.
pub(crate) fn reap_by_hand() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_DFL)
}

fn set_disposition(signal: i32, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: SIG_IGN and SIG_DFL are no function pointers; no handler of ours can run.
    let previous = unsafe { libc::signal(signal, disposition) };
    if previous == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Duplicates `fd` to the number `to`, kept open on exec, for a process that is about to exec.
pub(crate) fn place_fd(fd: BorrowedFd<'_>, to: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == to {
        // SAFETY: F_SETFD takes an integer only.
        let status = unsafe { libc::fcntl(to, libc::F_SETFD, 0) };
        return if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    }
    // SAFETY: dup2 takes two integers; the caller is a fork about to exec and owns every number.
    let status = unsafe { libc::dup2(fd.as_raw_fd(), to) };
    if status == to { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from `first` on. Only for processes that own none of them any more.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: close_range takes integers only; the caller gives up every descriptor in the range.
    let status = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Descriptor inherited from the parent under a fixed number.
pub(crate) fn inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD takes an integer only and fails on a number that is not open.
    let status = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number is open, and by the contract of the role it was handed over to us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Replaces this process. Returns only on failure.
pub(crate) fn exec(program: &CStr, arguments: &[&CStr], environment: &[&CStr]) -> io::Error {
    let pointers = |strings: &[&CStr]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end in a null pointer and point to C strings that live across the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Version of the Landlock interface.
pub(crate) fn landlock_abi() -> io::Result<i32> {
    const VERSION: u32 = 1;
    let nothing: *const u8 = std::ptr::null();
    // SAFETY: with a null pointer, size zero and this flag the call only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    if version < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(version).map_err(|_| bad_answer())
}

/// Loads a system call filter, eight bytes per instruction, for this thread and its future
/// children.
pub(crate) fn load_filter(program: &[u8]) -> io::Result<()> {
    const SET_MODE_FILTER: u32 = 1;
    let mut instructions: Vec<libc::sock_filter> = Vec::with_capacity(program.len() / 8);
    for instruction in program.chunks_exact(8) {
        let &[c0, c1, jt, jf, k0, k1, k2, k3] = instruction else { return Err(bad_answer()) };
        let (code, k) = (u16::from_ne_bytes([c0, c1]), u32::from_ne_bytes([k0, k1, k2, k3]));
        instructions.push(libc::sock_filter { code, jt, jf, k });
    }
    let length = u16::try_from(instructions.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: the program and the instructions that it points to live across the call; the kernel
    // copies and checks them.
    let status =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps the allocator from retaining memory that a run needed once: few arenas, and large blocks
/// mapped separately, which are returned when freed. By default, glibc raises that threshold to 32
/// MiB after the first large block, and then keeps twice as much at the end of every arena.
#[cfg(target_env = "gnu")]
pub(crate) fn bound_allocator(arenas: i32, own_block_bytes: i32, kept_bytes: i32) {
    let options = [
        (libc::M_ARENA_MAX, arenas),
        (libc::M_MMAP_THRESHOLD, own_block_bytes),
        (libc::M_TRIM_THRESHOLD, kept_bytes),
    ];
    for (option, value) in options {
        // SAFETY: it takes two plain numbers and may be called at any time.
        let is_set = unsafe { libc::mallopt(option, value) } == 1;
        if !is_set {
            tracing::warn!(option, value, "the allocator refused an option");
        }
    }
}

/// Returns unused pages to the system.
#[cfg(target_env = "gnu")]
pub(crate) fn trim_allocator() {
    // SAFETY: it takes a plain number and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}
