"""DuckDB as the requests need it: an engine that only reads, and one for each file to be loaded."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from .. import ceiling
from .trouble import Trouble

T = TypeVar("T")

LOOK_SECONDS = 0.2  # between two looks at a file that is being written

# No statement may fetch code; each option is set before the first statement.
_CLOSED = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
}


def duckdb() -> Any:
    """The module, imported when a request first needs it."""
    try:
        import duckdb as module
    except ImportError as error:
        raise Trouble(
            "unavailable",
            f"the environment has no DuckDB: {error}",
            "the operator installs `duckdb` into the environment",
        ) from error
    return module


def connect(limits: dict[str, Any], temporary: str | None) -> Any:
    """An engine of its own, whose temporary files, if any, are in this folder."""
    config: dict[str, Any] = dict(_CLOSED)
    if limits.get("threads"):
        config["threads"] = max(1, int(limits["threads"]))
    if limits.get("memory_bytes"):
        config["memory_limit"] = f"{max(1, int(limits['memory_bytes']))}B"
    connection = duckdb().connect(":memory:", config=config)
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET temp_directory = {text(temporary or '')}")
    if temporary and limits.get("temp_bytes"):
        connection.execute(f"SET max_temp_directory_size = '{int(limits['temp_bytes'])}B'")
    return connection


def confine(connection: Any, folders: list[str], replaces: bool = False) -> None:
    """Take the file system away, but for these folders, for good; and Python's variables, unless
    `replaces`.
    """
    allowed = ", ".join(text(folder.rstrip("/") + "/") for folder in folders)
    if not replaces:
        connection.execute("SET python_enable_replacements = false")
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def run(connection: Any, work: Callable[[], T], look: Callable[[], None] | None = None) -> T:
    """Call `work`, which uses the connection, so that a signal ends it.

    A statement does not return to Python while it runs, so that no handler of a signal runs either.
    A thread reads the signals' numbers from a pipe and stops the statement. It also calls `look`
    now and then; if that raises, the statement is stopped too, and the error is raised here.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # signals are the main thread's
    watch = _Watch(connection, look)
    try:
        found = work()
    except BaseException as error:
        watch.end()
        if watch.reason is not None and not isinstance(error, KeyboardInterrupt):
            raise watch.reason from None
        raise
    watch.end()
    return found


class _Watch(threading.Thread):
    """Stops the statement of a connection; `reason` is what to raise then."""

    reason: BaseException | None = None

    def __init__(self, connection: Any, look: Callable[[], None] | None) -> None:
        super().__init__(name="woma-datasets", daemon=True)
        self._connection, self._look = connection, look
        self._has_ended = threading.Event()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        try:
            self.start()
        except BaseException:
            signal.set_wakeup_fd(self._before)
            raise

    def end(self) -> None:
        """Stop watching. A signal in the last moment is for Python's own handler, after this."""
        try:
            self._end()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._read < 0:
            return
        signal.set_wakeup_fd(self._before)
        os.write(self._write, b"\0")
        self._has_ended.wait()
        reading, self._read = self._read, -1
        os.close(reading)
        os.close(self._write)

    def run(self) -> None:
        waits = None if self._look is None else LOOK_SECONDS
        try:
            self._watch(waits)
        finally:
            self._has_ended.set()

    def _watch(self, waits: float | None) -> None:
        while True:
            ready = select.select([self._read], [], [], waits)[0]
            numbers = os.read(self._read, 64) if ready else b""
            if signal.SIGINT in numbers:
                self._halt(KeyboardInterrupt(), 0 not in numbers)
            elif ceiling.SIGNAL in numbers and 0 not in numbers:
                self._halt(MemoryError())
            if 0 in numbers:
                return
            if not ready and self._look is not None and self.reason is None:
                try:
                    self._look()
                except Exception as error:
                    self._halt(error)

    def _halt(self, reason: BaseException, runs: bool = True) -> None:
        self.reason = self.reason or reason
        if runs:
            self._connection.interrupt()


def settle(connection: Any) -> None:
    """Drop the rest of a result that was not read to its end: DuckDB 2 does nothing else before."""
    abort = getattr(connection, "abort", None)
    if abort is not None:
        abort()


def text(value: str) -> str:
    """A text literal."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """A quoted name."""
    return '"' + value.replace('"', '""') + '"'


def size(path: str) -> int:
    """Bytes of a file; 0 if there is none."""
    with suppress(OSError):
        return os.stat(path).st_size
    return 0
