"""The session's memory limit as code meets it: a `MemoryError` at the line that exceeds it.

It is raised in two ways. A soft `RLIMIT_DATA` makes an allocation that cannot fit fail at once; and
if memory grows in a way that this limit does not count, the host sends a signal before its own
limit is reached. Neither is a security boundary: the host enforces the limit from outside, and ends
the session if the code goes on.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
import threading
import types
from _signal import raise_signal
from _signal import signal as set_signal
from contextlib import suppress
from resource import RLIMIT_DATA
from time import monotonic
from typing import Any

SIGNAL = 16  # SIGSTKFLT, otherwise unused; `signal` names it from Python 3.11 on
ROOM_BYTES = 32 << 20  # memory of our own code beyond the limit, to report an error
BALLAST_BYTES = 64 << 10
STACK_BYTES = 8 << 20  # stack of a thread, if the system does not say
THREAD_BYTES = 1 << 20  # what a thread needs beside its stack to start
SHORT_SECONDS = 0.001  # change of memory use by a run that is negligible
_MIB = 1 << 20
_COMPILING = ("_ast", "_compile")  # of the shell; deeply nested text raises `MemoryError` there
_OURS = os.path.dirname(__file__) + os.sep
_NO_LIMIT = resource.RLIM_INFINITY
_PAGE_BYTES = resource.getpagesize()

is_running = False  # whether user code runs; otherwise a signal is ignored
# User code may have deleted them from the builtins when we need them.
_is_instance, _MEMORY_ERROR = isinstance, MemoryError

_session: dict[str, int] | None = None  # `limit_bytes`, and `data_bytes` that code may allocate
_limit_bytes = 0  # limit of this run
_less_bytes = 0  # data that this run may not allocate
_inherited_bytes = 0  # resident from the start, and shared with other sessions
_began = 0.0
_low: int | None = None  # data limit of the next run, while our own code has more
_known: int | None = None  # the data limit as this module has seen it last
_has_failed = False  # whether the run has ended for lack of memory
_spared = 0  # id of the last handled error that was not interrupted by another
_was_tight = False  # whether the run began with hardly any memory left
_ballast: bytes | None = None  # freed if not even a number can be allocated any more


def begin_session(memory: dict[str, int] | None) -> None:
    """Called once in a fresh fork; `None` if there is no limit."""
    global _session, _inherited_bytes
    _session = memory
    _inherited_bytes = _sizes()[1]
    set_signal(SIGNAL, _hear)
    # Called once now: its stack pages must be ours before memory runs out.
    raise_signal(SIGNAL)


def _hear(_signal: int, frame: types.FrameType | None) -> None:
    """Raise in user code, but not in a frame of ours, which may be leaving it, and not twice at once:
    code that handles one such error may be freeing memory. The host repeats the signal.
    """
    global _spared
    if not is_running or frame is None or frame.f_code.co_filename.startswith(_OURS):
        return
    handled = sys.exc_info()[1]
    if _is_instance(handled, _MEMORY_ERROR) and _spared != id(handled):
        _spared = id(handled)
        return
    raise MemoryError


def begin_run(own: dict[str, int] | None) -> None:
    """Called before user code; a run may have a limit of its own."""
    global _began, _less_bytes, _limit_bytes, _has_failed, _was_tight, _ballast, _known
    _began = monotonic()
    if _session is None:
        return
    soft = resource.getrlimit(RLIMIT_DATA)[0]
    # The host adjusts the limit by what a probe has found, which may be no longer so: memory that
    # was in use at that moment is free.
    is_moved, _known = _known not in (None, soft), soft
    if _ballast is None:
        _ballast = bytes(BALLAST_BYTES)
    _has_failed, _was_tight = False, _low is not None
    _limit_bytes = _session["limit_bytes"]
    if _low is not None:
        _take_room_back()
    if own is not None:
        _limit_bytes, _less_bytes = own["limit_bytes"], own["less_bytes"]
    if own is not None or is_moved:
        _settle(0)


def end_code(error: BaseException | None) -> None:
    """Called after user code. Our own code follows, which must not fail for lack of memory."""
    global _has_failed, _ballast
    if error is not None:
        _ballast = None
        _has_failed = _is_instance(error, _MEMORY_ERROR)
        make_room()


def make_room() -> None:
    """Allow memory to grow a little beyond the limit, until the next run."""
    global _low
    soft, hard = resource.getrlimit(RLIMIT_DATA)
    if _low is None and soft != _NO_LIMIT:
        _set(soft + ROOM_BYTES, hard)
        _low = soft


def give_back() -> None:
    """Called before the reply, when the error and its frames are freed: the host probes memory
    then.
    """
    if _has_failed:
        gc.collect()
    if _has_failed or _was_tight:
        _settle(ROOM_BYTES, trims=True)


def end_run() -> None:
    """Called after the reply: adjust the data limit to what is in use."""
    global _less_bytes
    if _session is not None and (
        _less_bytes or _low is not None or monotonic() - _began > SHORT_SECONDS
    ):
        _less_bytes = 0
        _settle(ROOM_BYTES, trims=True)


def make_room_for_a_thread() -> None:
    """Allow one more thread, whose whole stack counts though little of it is used.

    Called before every start: a thread that gets its stack and no memory for its first object never
    says that it has started, and whoever started it waits for ever.
    """
    soft, hard = resource.getrlimit(RLIMIT_DATA)
    if soft == _NO_LIMIT:
        return
    stack = threading.stack_size() or resource.getrlimit(resource.RLIMIT_STACK)[0]
    with suppress(OSError):
        wanted = _sizes()[0] + (STACK_BYTES if stack == _NO_LIMIT else stack) + THREAD_BYTES
        if wanted > soft:
            _set(wanted, hard)


def explain(error: BaseException) -> str | None:
    """The amounts, and the state of the variables; `None` if no limit is the reason."""
    walk = error.__traceback__
    while walk is not None and walk.tb_next is not None:
        walk = walk.tb_next
    if _session is None or (walk is not None and walk.tb_frame.f_code.co_name in _COMPILING):
        return None
    return (
        f"The session may use {_limit_bytes // _MIB} MiB of memory, and Python has "
        f"{_own_bytes() // _MIB} MiB in use. Its variables are kept."
    )


def limit_bytes() -> int | None:
    """The memory limit of this run, or `None`."""
    return _limit_bytes if _session is not None else None


def used_bytes() -> int:
    """Memory of the session's processes that is not shared with other sessions."""
    try:
        pids = os.listdir("/proc")
    except OSError:  # a session that shares the server's processes does not see them
        return _own_bytes()
    return sum(_own_bytes(pid) for pid in pids if pid.isdecimal())


def _settle(room_bytes: int, trims: bool = False) -> None:
    """Allow code to allocate what is not in use; reserved memory is not in use.

    If less than `room_bytes` are left, our own code may use these until the next run.
    """
    global _low
    soft, hard = resource.getrlimit(RLIMIT_DATA)
    if soft == _NO_LIMIT or _session is None:
        return
    budget = _session["data_bytes"] - _less_bytes
    try:
        data, used = _sizes()
        if trims and used - _inherited_bytes > budget // 2:
            _trim(0)  # the allocator keeps freed memory, and may not be able to reuse it
            data, used = _sizes()
    except OSError:  # code holds all descriptors
        return
    left = max(budget - max(used - _inherited_bytes, 0), 0)
    _low = data + left if left < room_bytes else None
    _set(data + left + (room_bytes if left < room_bytes else 0), hard)


def _sizes() -> tuple[int, int]:
    """Data that counts against the limit, and how much of it is resident, private or shared."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _, resident, shared, _, _, data, _ = os.read(fd, 256).split()
    finally:
        os.close(fd)
    return int(data) * _PAGE_BYTES, (int(resident) - int(shared)) * _PAGE_BYTES


def _own_bytes(pid: str = "self") -> int:
    """Memory of a process that is not shared; 0 if that is not known."""
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Private_Dirty:"):
                return int(line.split()[1]) * 1024
    return 0


def _take_room_back() -> None:
    global _low
    soft, hard = resource.getrlimit(RLIMIT_DATA)
    if _low is not None and soft == _low + ROOM_BYTES:  # else the host has set another one
        _set(_low, hard)
    _low = None


def _set(soft: int, hard: int) -> None:
    global _known
    if hard != _NO_LIMIT and soft > hard:
        soft = hard
    with suppress(OSError, ValueError):  # code may have lowered the hard limit meanwhile
        resource.setrlimit(RLIMIT_DATA, (soft, hard))
        _known = soft


_trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", lambda _kept: 0)
