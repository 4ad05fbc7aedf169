"""The zygote: a warm interpreter that is forked for every session and never runs user code.

It runs inside the outer sandbox, imports the libraries of sessions, loads the seccomp filter that
all of them inherit, and waits on descriptor 3 for rooms to fork a child into. A child waits for the
room's session, performs the steps of `lock_down` in order, and only then starts the kernel. No step
is best effort: if one fails, the child exits before it has read any user code.
"""

import ctypes
import errno
import gc
import json
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from typing import Any, NoReturn

STARTED = time.monotonic()
CONTROL_FD = 3
KERNEL_PID = 2
WARM_RUNS = 64
# So many objects of one size that lie in a row show that there is no gap left; and the most that are
# made to find out.
NEW_POOL_ROW = 24
GAPS_MAX = 20_000
MESSAGE_BYTES_MAX = 65536
# Open files that a process here may have at most; `ulimit -n` of who started the server.
FILES_MAX = resource.getrlimit(resource.RLIMIT_NOFILE)[1] & 0xFFFF_FFFF
# Descriptors that the child keeps: the standard streams, and these two, high and out of the way.
KERNEL_FD = min(900, FILES_MAX - 2)
LOG_FD = KERNEL_FD + 1

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
ROOM = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_SET_MODE_FILTER = 1
MADV_COLLAPSE = 25
# Missing from `resource` in some versions.
RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_RTPRIO = 11, 12, 13, 14
LINUX_CAPABILITY_VERSION_3 = 0x20080522

SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_READ_FILE, LANDLOCK_READ_DIR = 1 << 2, 1 << 3
# The minder keeps the same ones open (`steward/shared/minder.rs`).
OWN_FILES = (
    "auxv cmdline comm environ fd fdinfo io limits maps oom_score smaps smaps_rollup stat statm status"
).split()
OWN_FOLDERS = ("fd", "fdinfo")
# setns, unshare, seccomp, capset, setresuid, setresgid, tgkill
NUMBERS = {"x86_64": (308, 272, 317, 126, 117, 119, 234), "aarch64": (268, 97, 277, 91, 147, 149, 131)}
SYS_SETNS, SYS_UNSHARE, SYS_SECCOMP, SYS_CAPSET, SYS_SETRESUID, SYS_SETRESGID, SYS_TGKILL = NUMBERS[
    platform.machine()
]

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def system_call(number: int, *arguments: Any) -> int:
    """One raw system call; integers go as longs, bytes as pointers."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"system call {number}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0, extra: int = 0) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(extra), 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")


class Filter:
    """A seccomp program with the structure that points to it; created once and used by every
    child.
    """

    def __init__(self, program: bytes) -> None:
        self._program = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(self._program))
        self._header = ctypes.create_string_buffer(header, len(header))

    def load(self) -> None:
        system_call(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, 0, self._header)


class Settings:
    """First message of the steward, prepared so that a child only has to use it."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.tier: str = message["tier"]
        self.filters = [Filter(bytes.fromhex(text)) for text in message["filters"]]
        self.final_filters = [Filter(bytes.fromhex(text)) for text in message["final_filters"]]
        self.room_uid: int = message["room_uid"]
        self.room_gid: int = message["room_gid"]
        self.workspace: str = message["workspace"]
        # Not Linux, but gVisor: it has no ambient capabilities, cgroups and Landlock.
        self.has_own_kernel: bool = message.get("has_own_kernel", False)
        # Without namespaces: the child stays in those of the server.
        self.shared: bool = message.get("shared", False)
        self.unscoped: bool = message.get("unscoped", False)
        self.data_bytes = 0  # our data, which counts against RLIMIT_DATA of a child
        self.no_capabilities = bytes(24)
        self.capability_header = struct.pack("Ii", LINUX_CAPABILITY_VERSION_3, 0)
        # All capabilities that this kernel knows.
        self.capabilities = [n for n in range(64) if libc.prctl(PR_CAPBSET_READ, n, 0, 0, 0) >= 0]


def lock_down(
    settings: Settings,
    workspace: str,
    room_fd: int | None,
    ruleset_fd: int | None,
    join_fds: list[int],
    limits: dict[str, Any],
) -> None:
    """Turn a fork of the zygote into a cell. The order matters: each step needs the one before.

    The Python of a container is in its room already.
    """
    # First the cgroup: everything after this line is charged to the session. Writing 0 to a file
    # that the server opened moves the writer, and avoids a kernel lock that costs milliseconds.
    for fd in join_fds:
        os.write(fd, b"0")
    if settings.shared:
        os.setsid()
        add_own_folder(ruleset_fd)
    else:
        enter_room(settings, room_fd)
    if not settings.has_own_kernel:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    system_call(SYS_CAPSET, settings.capability_header, settings.no_capabilities)
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.chdir(workspace)
    # A new open file: flags and locks of an inherited one would be shared by all sessions.
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0, inheritable=True)
    set_limit = lower if settings.has_own_kernel else limit
    # Not 0, which still lets a core dump go to a program of the host (core_pattern with a pipe).
    set_limit(resource.RLIMIT_CORE, 1)
    set_limit(resource.RLIMIT_NOFILE, min(limits["open_files"], FILES_MAX))
    set_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    set_limit(resource.RLIMIT_NPROC, limits["processes"])
    set_limit(resource.RLIMIT_MEMLOCK, 8 << 20)
    # These are charged to the owner of the namespaces, which is the server's user. A kernel of its
    # own has no such limits.
    if not settings.has_own_kernel:
        limit(RLIMIT_SIGPENDING, 1024)
        for none_at_all in (RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_RTPRIO):
            limit(none_at_all, 0)
    # Allocations that cannot fit fail at once. The rest of the limit is enforced from outside.
    hard = limits["data_bytes_max"] or resource.RLIM_INFINITY
    if settings.has_own_kernel:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (settings.data_bytes + limits["data_bytes"], hard))
    if ruleset_fd is not None:
        system_call(SYS_LANDLOCK_RESTRICT_SELF, ruleset_fd, 0)
    os.closerange(3, KERNEL_FD)
    os.closerange(LOG_FD + 1, 4096)
    if settings.unscoped:
        only_to_itself().load()
    # Last, because it forbids what the other steps call.
    for program in settings.final_filters:
        program.load()


def enter_room(settings: Settings, room_fd: int | None) -> None:
    """Enter the room's namespaces, unless this process is in them, and take its user."""
    if room_fd is not None:
        system_call(SYS_SETNS, room_fd, ROOM)
    # Not init's: from there, /proc/self/cgroup would reveal the position of our group in the host's
    # tree.
    if not settings.has_own_kernel:
        system_call(SYS_UNSHARE, CLONE_NEWCGROUP)
    os.setsid()
    for capability in settings.capabilities:
        prctl(PR_CAPBSET_DROP, capability)
    uid, gid = settings.room_uid, settings.room_gid
    system_call(SYS_SETRESGID, gid, gid, gid)
    system_call(SYS_SETRESUID, uid, uid, uid)


def add_own_folder(ruleset_fd: int | None) -> None:
    """Allow the session to read about this process in `/proc`, and about no other.

    File by file: `net`, `mountinfo` and `cgroup` describe what it shares with the server.
    """
    for name in OWN_FILES:
        own = os.open("/proc/self/" + name, os.O_PATH | os.O_CLOEXEC)
        access = LANDLOCK_READ_FILE | (LANDLOCK_READ_DIR if name in OWN_FOLDERS else 0)
        rule = struct.pack("=Qi", access, own)
        system_call(SYS_LANDLOCK_ADD_RULE, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        os.close(own)


def only_to_itself() -> Filter:
    """A filter that lets threads be signalled in this process only; other signals are refused to all."""
    load, equal, give = 0x20, 0x15, 0x06
    program = [
        (load, 0, 0, 0),  # the number of the call
        (equal, 0, 3, SYS_TGKILL),
        (load, 0, 0, 16),  # the lower half of the first argument, a process id
        (equal, 1, 0, os.getpid()),
        (give, 0, 0, 0x00050000 | errno.EPERM),
        (give, 0, 0, 0x7FFF0000),  # allowed
    ]
    return Filter(b"".join(struct.pack("HBBI", *instruction) for instruction in program))


def move_in(workspace: str, scratch: str) -> None:
    """Name the session's folders in the environment, where no mounts give them fixed names."""
    before = {os.environ["HOME"]: workspace, os.environ["TMPDIR"].removesuffix("/tmp"): scratch}
    for name, value in os.environ.items():
        for old, new in before.items():
            if value == old or value.startswith(old + "/"):
                os.environ[name] = new + value[len(old) :]


def limit(what: int, value: int) -> None:
    resource.setrlimit(what, (value, value))


def lower(what: int, value: int) -> None:
    """As `limit`, where a limit that is lower already cannot be raised."""
    hard = resource.getrlimit(what)[1]
    limit(what, value if hard == resource.RLIM_INFINITY else min(value, hard))


def live(settings: Settings, kernel: Any, orders: socket.socket) -> NoReturn:
    """Run in the child, already pid 2 of its room: wait for a session, lock down, serve."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.limber_up()
        message, fds = receive(orders)
        bell_fd, room_fd, kernel_fd, log_fd, *join_fds = fds
        os.dup2(kernel_fd, KERNEL_FD, inheritable=False)
        os.dup2(log_fd, LOG_FD, inheritable=False)
        # The room is furnished while we are being forked.
        with socket.socket(fileno=bell_fd) as bell:
            rung, ruleset_fds, _, _ = socket.recv_fds(bell, MESSAGE_BYTES_MAX, 1)
        if not rung:
            os._exit(119)
        limits = message["rlimits"]
        workspace = settings.workspace
        if settings.shared:
            paths = json.loads(rung)
            workspace = paths["workspace"]
            move_in(workspace, paths["scratch"])
            kernel.keep_owners()
        lock_down(settings, workspace, room_fd, ruleset_fds[0], join_fds, limits)
    except BaseException:
        os.write(2, b"cell: " + traceback.format_exc().encode())
        os._exit(120)
    try:
        memory = {"limit_bytes": limits["memory_bytes"], "data_bytes": limits["data_bytes"]}
        kernel.serve(KERNEL_FD, LOG_FD, memory)
    except BaseException:
        os.write(LOG_FD, traceback.format_exc().encode())
    os._exit(121)


def fill_gaps() -> list[Any]:
    """Objects that fill the gaps between those of our libraries; the caller keeps them.

    A child would put its own objects into these gaps, and each would copy a page. Without gaps they
    lie side by side: 0.2 MiB less a session.
    """
    filling: list[Any] = []
    for size in range(16, 513, 16):  # the allocator's size classes
        in_a_row = last = 0
        for number in range(GAPS_MAX):
            made: Any = object() if size == 16 else float(number) if size == 32 else bytes(size - 33)
            filling.append(made)
            in_a_row = in_a_row + 1 if id(made) == last + size else 0
            if in_a_row == NEW_POOL_ROW:
                break
            last = id(made)
    return filling


def collapse_heap() -> None:
    """Back our memory with huge pages: a fork then copies 512 times fewer page table entries.

    The kernel may refuse (before 6.1, or if none are free); then forks are slower.
    """
    huge = 2 << 20
    with open("/proc/self/maps") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        fields = line.split()
        if not fields[1].startswith("rw") or fields[4] != "0":
            continue
        if len(fields) > 5 and fields[5] != "[heap]":
            continue
        start, end = (int(word, 16) for word in fields[0].split("-"))
        start, end = (start + huge - 1) & -huge, end & -huge
        if end > start:
            size = ctypes.c_size_t(end - start)
            libc.madvise(ctypes.c_void_p(start), size, MADV_COLLAPSE)


def data_bytes() -> int:
    """Size of our data segment, as the kernel counts it against RLIMIT_DATA."""
    with open("/proc/self/statm", "rb") as sizes:
        return int(sizes.read().split()[5]) * resource.getpagesize()


def receive(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 12)
    if not data:
        os._exit(0)  # the steward has ended, and with it all that we could serve
    return json.loads(data), fds


def report(control: socket.socket, kind: str, body: dict[str, Any], *fds: int) -> None:
    text = json.dumps({kind: body}).encode()
    if fds:
        socket.send_fds(control, [text], list(fds))
    else:
        control.send(text)


def reap(control: socket.socket, cells: dict[int, int]) -> None:
    """Report how each child ended; a room cannot finish dying before its kernel is reaped."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in cells:
            report(control, "exited", {"room": cells.pop(pid), "status": status})


def serve(control: socket.socket, settings: Settings, kernel: Any) -> NoReturn:
    """Fork a child into each room that arrives, forever."""
    own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    cells: dict[int, int] = {}
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake_read in ready:
            os.read(wake_read, 4096)
            reap(control, cells)
        if control.fileno() not in ready:
            continue
        message, fds = receive(control)
        namespace_fd, orders_fd = fds
        if not settings.shared:
            system_call(SYS_SETNS, namespace_fd, CLONE_NEWPID)
        pid = kernel.fork()
        if pid == 0:
            # The steward detects our death by the end of this socket; a child must not keep it
            # open.
            control.close()
            if settings.shared:
                # A session does not outlive its zygote, which reports its end.
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            live(settings, kernel, socket.socket(fileno=orders_fd))
        if not settings.shared:
            system_call(SYS_SETNS, own_namespace, CLONE_NEWPID)
        cells[pid] = message["room"]
        process = os.pidfd_open(pid)
        report(control, "born", {"room": message["room"]}, process)
        for fd in (process, *fds):
            os.close(fd)


def main() -> NoReturn:
    gc.disable()
    # Who started the server may have chosen a lower limit than the descriptors of a kernel need.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft <= LOG_FD:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LOG_FD + 1, hard))
    control = socket.socket(fileno=CONTROL_FD)
    message, _ = receive(control)
    settings = Settings(message)
    # A kernel is pid 2 of its room. OpenSSL detects a fork by a changed pid, and must.
    same = not settings.shared and os.getpid() == KERNEL_PID
    assert not same, "the zygote must not have the process id of its children"
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import _woma_kernel as kernel

    sys.path.pop(0)  # a session must not find these files in its own path

    kernel.prepare()
    preloaded = kernel.preload(settings.tier)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for program in settings.filters:
        program.load()
    # The interpreter counts executions and specializes code. Done here, it does not copy memory in
    # every child.
    kernel.warm_up(WARM_RUNS)
    # The first collection in a child would touch, and so copy, every object that we made.
    gc.collect()
    _filling = fill_gaps()  # kept by this frame, which never returns
    gc.freeze()
    collapse_heap()
    settings.data_bytes = data_bytes()
    boot_ms = round((time.monotonic() - STARTED) * 1000)
    report(control, "ready", {"boot_ms": boot_ms, **preloaded})
    serve(control, settings, kernel)


if __name__ == "__main__":
    main()
