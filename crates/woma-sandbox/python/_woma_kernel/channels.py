"""Output of the kernel: two pipes for text, one socket for frames, and their order.

Text is written unbuffered, so that it survives a crash of this process. Before writing to another
channel than the last one, the host must have read the last one empty; the wait is bounded, so that
a stuck host cannot hang the run. The host does not watch the pipes of a run that has just begun: it
is asked to read them.
"""

from __future__ import annotations

import fcntl
import io
import os
import select
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import ceiling
from .frames import READ_FRAME

STDOUT, STDERR, FRAMES = 1, 2, 3
SWITCH_SECONDS_MAX = 1.0
SPINS = 40
YOUNG_SECONDS = 0.01  # the host watches the pipes of a run long before this age
HELD_BYTES_MAX = 64 * 1024

_get_ident = threading.get_ident
_write = os.write
_ioctl = fcntl.ioctl
_NOTHING = b"\0\0\0\0"


class Channels:
    """State shared by both streams and the socket; one per process."""

    def __init__(self) -> None:
        self.run = 0  # our own counter, so that runs are never confused; 0 between runs
        self._runs = 0
        self.pid = os.getpid()
        self.main_ident = _get_ident()
        self.log_fd = 2
        self.socket: socket.socket | None = None
        self._last = 0
        self._young_until = 0.0
        self._spawned = False
        self._stuck = False
        self._held = b""  # a frame that is sent with the next one, or before any other output
        self._lock = threading.RLock()

    def begin(self) -> None:
        self._runs += 1
        self.run, self._last, self._spawned, self._stuck = self._runs, 0, False, False
        self._young_until = time.monotonic() + YOUNG_SECONDS

    def end(self) -> bytes:
        """End the run. The returned frame must be sent before DONE."""
        with self._lock:
            held, self._held = self._held, b""
            if held:
                self._switch(FRAMES)
            self.run, self._last, self._spawned, self._young_until = 0, 0, False, 0.0
            return held

    def spawned(self) -> None:
        """Called before a process starts that shares our pipes: its output must follow ours, and
        from now on both pipes are checked.
        """
        if self.run:
            with self._lock:
                self._switch(0)
                self._spawned = True

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._held = b""
        self.main_ident = _get_ident()

    def own(self) -> bool:
        """Whether the caller belongs to the current run, in the process that serves it."""
        return self.run != 0 and not self._stale() and os.getpid() == self.pid

    def write(self, fd: int, data: bytes) -> None:
        """Write all bytes. A closed channel discards them: printing never raises."""
        if _get_ident() != self.main_ident and self._stale():
            self._write_all(self.log_fd, data)
            return
        with self._lock:
            if self._last != fd or self._spawned or self._held:
                self._switch(fd)
            self._write_all(fd, data)

    def send(self, frame: bytes) -> None:
        """Send a frame; if the host is gone, this process exits."""
        with self._lock:
            self._switch(FRAMES)
            self._send_all(frame)

    def send_soon(self, frame: bytes) -> None:
        """As `send`, for a frame that only the end of the run should follow: the host is woken once
        for both.
        """
        if len(frame) > HELD_BYTES_MAX:
            self.send(frame)
            return
        with self._lock:
            self.release()
            self._held = frame

    def release(self) -> None:
        """Send the held frame, because something slow may follow."""
        if self._held:
            with self._lock:
                self._switch(FRAMES)

    def _stale(self) -> bool:
        """Whether this thread was started by an earlier run."""
        ident = _get_ident()
        if ident == self.main_ident:
            return False
        thread = threading._active.get(ident)  # type: ignore[attr-defined]
        return getattr(thread, "_kernel_run", self.run) != self.run

    def _switch(self, channel: int) -> None:
        if self._held:
            frame, self._held = self._held, b""
            self._switch(FRAMES)
            self._send_all(frame)
        if not self._last and not self._spawned:
            self._last = channel
            return
        if not self._stuck:
            others = (STDOUT, STDERR) if self._spawned else (self._last,)
            for other in others:
                if other not in (channel, 0, FRAMES):
                    self._drain(other, termios.FIONREAD)
            if self._last == FRAMES != channel and self.socket is not None:
                self._drain(self.socket.fileno(), termios.TIOCOUTQ)
        self._last = channel

    def _drain(self, fd: int, request: int) -> None:
        """Wait until the other end has read everything."""
        deadline = 0.0
        spins = 0
        try:
            while _ioctl(fd, request, _NOTHING) != _NOTHING:
                spins += 1
                if spins == 1 and request == termios.FIONREAD:
                    self._ask_to_read()
                if spins < SPINS:
                    os.sched_yield()
                    continue
                now = time.monotonic()
                deadline = deadline or now + SWITCH_SECONDS_MAX
                if now > deadline:
                    self._stuck = True
                    return
                time.sleep(min(0.002, 0.000_02 * (spins - SPINS + 1)))
        except OSError:
            self._stuck = True  # not a pipe (closed or replaced by the user): no order to keep

    def _send_all(self, frame: bytes) -> None:
        assert self.socket is not None
        try:
            self.socket.sendall(frame)
        except OSError:
            os._exit(0)

    def _ask_to_read(self) -> None:
        if time.monotonic() < self._young_until and os.getpid() == self.pid:
            self._send_all(READ_FRAME)

    def _write_all(self, fd: int, data: bytes) -> None:
        left: bytes | memoryview = data
        while left:
            try:
                written = _write(fd, left)
                if written == len(left):
                    return
                left = memoryview(left)[written:]
            except BlockingIOError:  # a child made the shared pipe non-blocking
                select.select([], [fd], [])
            except OSError:
                return


channels = Channels()


class _Binary(io.BufferedIOBase):
    """`sys.stdout.buffer`: unbuffered, and never closed."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name
        self.mode = "wb"

    @property
    def raw(self) -> _Binary:
        return self

    def write(self, data: Any) -> int:
        copy = bytes(data)
        channels.write(self._fd, copy)
        return len(copy)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        pass


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`."""

    encoding = "utf-8"
    errors = "backslashreplace"
    line_buffering = True
    write_through = True
    mode = "w"

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name
        self.buffer = _Binary(fd, name)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        channels.write(self._fd, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def reconfigure(self, **_options: object) -> None:
        """Programs request UTF-8 here, which is always used."""

    def detach(self) -> _Binary:  # type: ignore[override]
        return self.buffer

    def close(self) -> None:
        pass


def follow_threads_and_children() -> None:
    """Threads inherit the run that started them; work in a pool belongs to the run that submitted
    it.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def tag(thread: threading.Thread, run: int) -> None:
        thread._kernel_run = run  # type: ignore[attr-defined]

    def started(self: threading.Thread) -> None:
        tag(self, getattr(threading.current_thread(), "_kernel_run", channels.run))
        ceiling.make_room_for_a_thread()
        start(self)

    def submitted(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        run = getattr(threading.current_thread(), "_kernel_run", channels.run)

        def work(*args: Any, **kwargs: Any) -> Any:
            tag(threading.current_thread(), run)
            return fn(*args, **kwargs)

        return submit(self, work, *args, **kwargs)

    threading.Thread.start = started  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submitted  # type: ignore[method-assign]

    popen, system = subprocess.Popen.__init__, os.system

    def opened(self: Any, *args: Any, **kwargs: Any) -> None:
        channels.spawned()
        popen(self, *args, **kwargs)

    def ran(command: Any) -> int:
        channels.spawned()
        return system(command)

    subprocess.Popen.__init__ = opened  # type: ignore[method-assign]
    os.system = ran
    os.register_at_fork(before=channels.spawned, after_in_child=channels.after_fork_in_child)
