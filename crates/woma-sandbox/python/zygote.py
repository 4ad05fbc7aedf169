"""The zygote: a warm interpreter that is forked for every session and never runs user code.

It runs inside the outer sandbox, imports what sessions will want, loads the seccomp filter that all
of them inherit, and then waits on descriptor 3 for rooms to fork a child into. A child waits for the
session that the room is for, does the steps of `lock_down` in order, and only then starts the
kernel. No step is best effort: one that fails ends the child before it has seen a byte of user code.
"""

import ctypes
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
MESSAGE_BYTES_MAX = 65536
# What the child keeps: the three standard streams, and these two, high up and out of the way.
KERNEL_FD = 900
LOG_FD = 901

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
ROOM = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP

PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_SET_MODE_FILTER = 1
MADV_COLLAPSE = 25
# Missing from `resource` in some versions.
RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_RTPRIO = 11, 12, 13, 14
LINUX_CAPABILITY_VERSION_3 = 0x20080522

SYS_LANDLOCK_RESTRICT_SELF = 446
# setns, seccomp, capset, setresuid, setresgid
NUMBERS = {"x86_64": (308, 317, 126, 117, 119), "aarch64": (268, 277, 91, 147, 149)}
SYS_SETNS, SYS_SECCOMP, SYS_CAPSET, SYS_SETRESUID, SYS_SETRESGID = NUMBERS[platform.machine()]

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
    """A seccomp program with the structure that points to it, made once and used by every child."""

    def __init__(self, program: bytes) -> None:
        self._program = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(self._program))
        self._header = ctypes.create_string_buffer(header, len(header))

    def load(self) -> None:
        system_call(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, 0, self._header)


class Settings:
    """What the steward said first, made ready so that a child only has to use it."""

    def __init__(self, message: dict[str, Any], ruleset_fd: int) -> None:
        self.tier: str = message["tier"]
        self.filters = [Filter(bytes.fromhex(text)) for text in message["filters"]]
        self.final_filters = [Filter(bytes.fromhex(text)) for text in message["final_filters"]]
        self.room_id: int = message["room_id"]
        self.workspace: str = message["workspace"]
        self.ruleset_fd = ruleset_fd
        self.no_capabilities = bytes(24)
        self.capability_header = struct.pack("Ii", LINUX_CAPABILITY_VERSION_3, 0)


def lock_down(settings: Settings, room_fd: int, join_fds: list[int], limits: dict[str, Any]) -> None:
    """From a fork of the zygote to a cell. The order is the argument; each step needs the one before."""
    # First the cgroup: everything after this line is on the session's account. Writing 0 to a file
    # that the server opened moves the writer, and spares the kernel a lock that costs milliseconds.
    for fd in join_fds:
        os.write(fd, b"0")
    system_call(SYS_SETNS, room_fd, ROOM)
    os.setsid()
    identity = settings.room_id
    system_call(SYS_SETRESGID, identity, identity, identity)
    system_call(SYS_SETRESUID, identity, identity, identity)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    system_call(SYS_CAPSET, settings.capability_header, settings.no_capabilities)
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.chdir(settings.workspace)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NOFILE, limits["open_files"])
    limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    limit(resource.RLIMIT_NPROC, limits["processes"])
    limit(resource.RLIMIT_MEMLOCK, 8 << 20)
    # These count against whoever owns the namespaces, which is the server's user.
    limit(RLIMIT_SIGPENDING, 1024)
    for none_at_all in (RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_RTPRIO):
        limit(none_at_all, 0)
    if limits["data_bytes"] is not None:
        limit(resource.RLIMIT_DATA, limits["data_bytes"])
    system_call(SYS_LANDLOCK_RESTRICT_SELF, settings.ruleset_fd, 0)
    os.closerange(3, KERNEL_FD)
    os.closerange(LOG_FD + 1, 4096)
    # Last, for it forbids what the others call.
    for program in settings.final_filters:
        program.load()


def limit(what: int, value: int) -> None:
    resource.setrlimit(what, (value, value))


def live(settings: Settings, kernel: Any, orders: socket.socket) -> NoReturn:
    """In the child, which is pid 2 of its room already: wait for a session, lock down, serve."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.limber_up()
        message, fds = receive(orders)
        bell_fd, room_fd, kernel_fd, log_fd, *join_fds = fds
        os.dup2(kernel_fd, KERNEL_FD, inheritable=False)
        os.dup2(log_fd, LOG_FD, inheritable=False)
        # The room is furnished while we are being forked.
        if os.read(bell_fd, 1) != b"!":
            os._exit(119)
        lock_down(settings, room_fd, join_fds, message["rlimits"])
    except BaseException:
        os.write(2, b"cell: " + traceback.format_exc().encode())
        os._exit(120)
    try:
        kernel.serve(KERNEL_FD, LOG_FD)
    except BaseException:
        os.write(LOG_FD, traceback.format_exc().encode())
    os._exit(121)


def collapse_heap() -> None:
    """Backs our memory with huge pages: a fork then copies 512 times fewer page table entries.

    The kernel may refuse (before 6.1, or none free); forks are slower then, and nothing else.
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


def receive(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 12)
    if not data:
        os._exit(0)  # the steward is gone, and with it everything that we could serve
    return json.loads(data), fds


def report(control: socket.socket, kind: str, body: dict[str, Any], *fds: int) -> None:
    text = json.dumps({kind: body}).encode()
    if fds:
        socket.send_fds(control, [text], list(fds))
    else:
        control.send(text)


def reap(control: socket.socket, cells: dict[int, int]) -> None:
    """Tells how each ended child ended; a room cannot finish dying before its kernel is reaped."""
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
    """Forks a child into each room that comes, for ever."""
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
        system_call(SYS_SETNS, namespace_fd, CLONE_NEWPID)
        pid = kernel.fork()
        if pid == 0:
            # The steward knows our death by the end of this socket; a child must not keep it open.
            control.close()
            live(settings, kernel, socket.socket(fileno=orders_fd))
        system_call(SYS_SETNS, own_namespace, CLONE_NEWPID)
        cells[pid] = message["room"]
        process = os.pidfd_open(pid)
        report(control, "born", {"room": message["room"]}, process)
        for fd in (process, *fds):
            os.close(fd)


def main() -> NoReturn:
    gc.disable()
    # A kernel is process 2 of its room. OpenSSL notices a fork by a changed process id, and must.
    assert os.getpid() != KERNEL_PID, "the zygote must not have the process id of its children"
    control = socket.socket(fileno=CONTROL_FD)
    message, fds = receive(control)
    settings = Settings(message, fds[0])
    sys.path.insert(0, "/opt/woma")
    import kernel

    kernel.prepare()
    preloaded = kernel.preload(settings.tier)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for program in settings.filters:
        program.load()
    # The interpreter counts and rewrites code that is new to it. Done here, it is not done, and no
    # memory is copied for it, in every child.
    kernel.warm_up(WARM_RUNS)
    # The first collection in a child would touch, and so copy, every object that we made.
    gc.collect()
    gc.freeze()
    collapse_heap()
    boot_ms = round((time.monotonic() - STARTED) * 1000)
    report(control, "ready", {"boot_ms": boot_ms, **preloaded})
    serve(control, settings, kernel)


main()
