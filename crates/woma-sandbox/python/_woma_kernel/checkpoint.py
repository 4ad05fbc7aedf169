"""Variables of a session as a stream of bytes, written by a fork while the session goes on.

Three generations. The kernel forks a child that forks the *writer* and exits, so that no `wait()`
of user code sees an unknown process. The writer has *testers* pickle every variable without storing
it, to measure its size; a variable that hangs or kills its tester affects no other. Variables that
passed are then pickled into the pipe, in the order of the namespace. docs/PROTOCOL.md has the
format.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import signal
import struct
import sys
import time
import types
import warnings
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

from . import frames, mainfile, pickles
from .channels import channels
from .errors import cut

MAGIC = b"WOMAVARS"
END = b"WOMADONE"
VERSION = 1
HEADER = struct.Struct(">8s3B")
NAME = struct.Struct(">I")
RECORD = struct.Struct(">BQ")  # after the name
SUM = struct.Struct(">I")
SESSION, PICKLE, MODULE = 0, 1, 2  # kinds of records
LISTED_MAX = 1000
NAME_CHARS_MAX = 100
REASON_CHARS_MAX = 200
SESSION_BYTES_MAX = 1024 * 1024
TRAILER_BYTES_MAX = 1024 * 1024

# Our own references, whatever user code does to the module's.
_fork, _exit = os.fork, os._exit
_OUT = 3
_TESTERS_MAX = 10
_RECORD_BYTES = NAME.size + RECORD.size + SUM.size
# Results of earlier cells, in IPython's names; dunders belong to the module.
_NOT_THEIRS = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|__\w*__")
_MISSING = object()

Variable = tuple[str, Any]
pending: list[int] = []


def begin(shell: Any, wanted: dict[str, Any], fd: int) -> None:
    """Start the process that writes the checkpoint into `fd`, without waiting for it."""
    settle()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about threads; testers that hang on them are killed
            pid = _fork()
    except OSError as error:
        return _refuse(fd, f"the session cannot start another process: {error.strerror}")
    if pid == 0:
        _child(shell, wanted, fd)
    pending.append(pid)


def settle() -> None:
    """Called before user code runs again: reap the child that forked the writer."""
    while pending:
        with suppress(ChildProcessError):
            os.waitpid(pending.pop(), 0)


def _child(shell: Any, wanted: dict[str, Any], fd: int) -> NoReturn:
    """Run in the child, which must never return as a second kernel or run exit handlers."""
    try:
        if _fork() == 0:
            _leave_session(fd, wanted["wall_ms"] / 1000)
            fd = _OUT
            _write(shell, wanted)
    except BaseException as error:
        with suppress(BaseException):
            _refuse(fd, reason(error))
    finally:
        _exit(0)


def _leave_session(fd: int, seconds: float) -> None:
    """Drop everything of the kernel and its runs; keep the pipe, and set a deadline."""
    gc.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.dup2(fd, _OUT)
    os.closerange(_OUT + 1, os.sysconf("SC_OPEN_MAX"))
    channels.socket, channels.log_fd = None, 2
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_in(seconds)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the OOM killer should choose us rather than the session


def _die_in(seconds: float) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))


def _write(shell: Any, wanted: dict[str, Any]) -> None:
    now = time.monotonic()
    seconds = wanted["wall_ms"] / 1000
    pickles.bind(shell.user_ns)
    save = pickles.saver()
    # Values that are saved only as a reference to __main__ cannot be restored.
    sys.modules["__main__"] = types.ModuleType("__main__")
    variables = list(_variables(shell))
    sizes, skipped = _sizes(variables, save, wanted["variable_bytes_max"], now + seconds * 0.5)
    for name in _too_much(sizes, wanted["bytes_max"]):
        del sizes[name]
        skipped[name] = "there is no room for it: all variables together are too large to be saved"
    out = _Output(_OUT)
    out.write(HEADER.pack(MAGIC, VERSION, *sys.version_info[:2]))
    _record(out, "", SESSION, _session(shell))
    saved = []
    for name, value in variables:
        if name not in sizes:
            continue
        if time.monotonic() > now + seconds * 0.9:
            skipped[name] = "there was no time left to save it"
        elif (module := _module(value)) is not None:
            _record(out, name, MODULE, module.encode())
            saved.append(name)
        elif _pickled(out, name, value, sizes[name], save):
            saved.append(name)
        else:
            skipped[name] = "saving it twice did not give the same"
    order = {name: place for place, (name, _) in enumerate(variables)}
    unsaved = sorted(skipped.items(), key=lambda item: order[item[0]])
    _end(out, saved, unsaved, sum(sizes[name] for name in saved), None)


def _variables(shell: Any) -> Iterator[Variable]:
    """The user's names, including modules."""
    names, hidden = shell.user_ns, shell.user_ns_hidden
    for name, value in list(names.items()):
        if type(name) is not str or _NOT_THEIRS.fullmatch(name):
            continue
        if hidden.get(name, _MISSING) is not value and value is not names:
            yield name, value


def _module(value: Any) -> str | None:
    """Name by which a module is imported again."""
    if type(value) is types.ModuleType or issubclass(type(value), types.ModuleType):
        name = types.ModuleType.__getattribute__(value, "__dict__").get("__name__")
        if type(name) is str and name != "__main__" and sys.modules.get(name) is value:
            return name
    return None


def _session(shell: Any) -> bytes:
    """Context of the variables: sources of functions, search paths of modules."""
    session: dict[str, Any] = {
        "path": [entry for entry in sys.path if type(entry) is str],
        "flags": shell.compile.flags,
        "cells": mainfile.cells(SESSION_BYTES_MAX // 2),
    }
    with suppress(OSError):
        session["directory"] = os.getcwd()
    data = frames.to_json(session)
    return data if len(data) <= SESSION_BYTES_MAX else b"{}"


def _sizes(
    variables: list[Variable], save: Any, bytes_max: int, deadline: float
) -> tuple[dict[str, int], dict[str, str]]:
    """Size of each variable, and why some cannot be saved."""
    sizes: dict[str, int] = {}
    skipped: dict[str, str] = {}
    done = 0
    for _ in range(_TESTERS_MAX):
        if done == len(variables) or time.monotonic() > deadline:
            break
        read, write = os.pipe()
        pid = _fork()
        if pid == 0:
            _test(variables[done:], save, bytes_max, write, deadline)
        os.close(write)
        patience = (deadline - time.monotonic()) / 2
        late = False
        for size, why in _told(read, patience):
            if done == len(variables):
                break
            name = variables[done][0]
            if why == "late":
                late = True
                break
            if why is None:
                sizes[name] = size
            else:
                skipped[name] = why
            done += 1
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if done < len(variables):
            skipped[variables[done][0]] = "saving it takes too long" if late else _death(status)
            done += 1
    for name, _ in variables[done:]:
        skipped[name] = "there was no time left to save it"
    return sizes, skipped


def _test(
    variables: list[Variable], save: Any, bytes_max: int, fd: int, deadline: float
) -> NoReturn:
    """Pickle every variable without storing it, and report the result."""
    try:
        os.close(_OUT)
        _die_in(deadline - time.monotonic())
        pid = os.getpid()
        for _, value in variables:
            size, why = 0, None
            try:
                if (module := _module(value)) is not None:
                    size = len(module)
                else:
                    counter = _Counter(bytes_max)
                    save(value, counter)
                    size = counter.size
                    if size > bytes_max:
                        raise _TooLarge
            except _TooLarge:
                why = f"it is larger than {_amount(bytes_max)}"
            except BaseException as error:
                why = reason(error)
            if os.getpid() != pid:
                break
            os.write(fd, json.dumps([size, why]).encode() + b"\n")
    finally:
        _exit(0)


def _told(fd: int, patience: float) -> Iterator[tuple[int, str | None]]:
    """Reports of a tester until it ends; the last is "late" if it stops reporting."""
    buffer = b""
    while True:
        if not select.select([fd], [], [], max(patience, 0.0))[0]:
            yield 0, "late"
            return
        data = os.read(fd, 65536)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            size, why = json.loads(line)
            yield int(size), why


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"saving it ended the process that did it, by signal {os.WTERMSIG(status)}"
    return "saving it ended the process that did it"


def _too_much(sizes: dict[str, int], bytes_max: int) -> list[str]:
    """Variables that do not fit when the smallest are saved first."""
    left = bytes_max
    late = []
    for name, size in sorted(sizes.items(), key=lambda item: item[1]):
        left -= size + len(name.encode("utf-8", "replace")) + _RECORD_BYTES
        if left < 0:
            late.append(name)
    return late


def _record(out: _Output, name: str, kind: int, data: bytes) -> None:
    _begin_record(out, name, kind, len(data))
    out.write(data)
    out.write(SUM.pack(zlib.crc32(data)))


def _begin_record(out: _Output, name: str, kind: int, size: int) -> None:
    text = name.encode("utf-8", "surrogatepass")
    # One more than the length: a length of zero marks the end.
    out.write(NAME.pack(len(text) + 1) + text + RECORD.pack(kind, size))


def _pickled(out: _Output, name: str, value: Any, size: int, save: Any) -> bool:
    """Write a record of exactly this size, with a wrong checksum if the value has changed."""
    _begin_record(out, name, PICKLE, size)
    part = _Part(out, size)
    with suppress(Exception):
        save(value, part)
    is_whole = part.left == 0 and not part.over
    part.pad()
    out.write(SUM.pack(part.sum if is_whole else part.sum ^ 0xFFFFFFFF))
    return is_whole


def _refuse(fd: int, why: str) -> None:
    """Write a stream that says why it is empty."""
    out = _Output(fd)
    out.write(HEADER.pack(MAGIC, VERSION, *sys.version_info[:2]))
    _end(out, [], [], 0, why)


def _end(
    out: _Output,
    saved: list[str],
    skipped: list[tuple[str, str]],
    size: int,
    error: str | None,
) -> None:
    trailer = frames.to_json(
        {**summary("saved", saved, "skipped", skipped), "bytes": size, "error": error}
    )
    out.write(NAME.pack(0) + trailer + NAME.pack(len(trailer)) + END)


def summary(
    done: str, names: list[str], undone: str, others: list[tuple[str, str]]
) -> dict[str, Any]:
    """Lists of names and reasons that fit into a small frame."""
    for count in (LISTED_MAX, LISTED_MAX // 4, 0):
        told: dict[str, Any] = {
            done: [cut(name, NAME_CHARS_MAX) for name in names[:count]],
            undone: [
                {"name": cut(name, NAME_CHARS_MAX), "reason": cut(why, REASON_CHARS_MAX)}
                for name, why in others[:count]
            ],
        }
        if len(frames.to_json(told)) < TRAILER_BYTES_MAX - 4096:
            break
    return told


def reason(error: BaseException) -> str:
    """One line."""
    kind = type.__dict__["__name__"].__get__(type(error))
    try:
        text = " ".join(str(error).split())
    except BaseException:
        text = ""
    if isinstance(error, RecursionError):
        text = "it is nested too deeply"
    if kind in ("TypeError", "PicklingError", "RecursionError") and text:
        return text[:REASON_CHARS_MAX]
    return (f"{kind}: {text}" if text else kind)[:REASON_CHARS_MAX]


def _amount(size: int) -> str:
    return f"{size / 1_000_000:.0f} MB" if size >= 1_000_000 else f"{size:,} bytes"


class _TooLarge(BaseException):
    pass


class _Counter:
    """Sink that measures a pickle."""

    def __init__(self, size_max: int) -> None:
        self.size = 0
        self._size_max = size_max

    def write(self, data: Any) -> None:
        self.size += memoryview(data).nbytes
        if self.size > self._size_max:
            raise _TooLarge


class _Output:
    """The pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    def write(self, data: Any) -> None:
        if os.getpid() != self._pid:  # a variable has forked
            _exit(0)
        left = memoryview(data).cast("B")
        while left:
            left = left[os.write(self._fd, left) :]


class _Part:
    """Part of the stream, limited to this many bytes."""

    def __init__(self, out: _Output, size: int) -> None:
        self.left = size
        self.sum = 0
        self.over = False
        self._out = out

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        if view.nbytes > self.left:
            self.over = True
            raise ValueError("it is not as large as it was")
        self._out.write(view)
        self.sum = zlib.crc32(view, self.sum)
        self.left -= view.nbytes

    def pad(self) -> None:
        while self.left:
            self.write(bytes(min(self.left, 65536)))
