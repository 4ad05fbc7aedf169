"""The fork of a session, without what the interpreter does for processes with many threads.

`os.fork` has libraries renew their locks and books of threads in the child. In a parent with one
thread nobody holds a lock, and the first touch of all that copies 600 KiB in every session. So the
bare fork is taken where we know each library that wants to be told; else it is the interpreter's.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

# They renew locks, forget threads, loops and processes, of which there are none, or empty a cache
# that `preload` has emptied. `random` draws its numbers anew, and the service sees to that.
_KNOWN = frozenset(
    """
    threading logging concurrent.futures.thread random asyncio.events kernel.channels
    IPython.core.history matplotlib.font_manager joblib.externals.loky.backend.resource_tracker
    """.split()
)

_register = os.register_at_fork
_bare: Any = ctypes.PyDLL(None, use_errno=True).fork  # which keeps the interpreter's lock
unknown: set[str] = set()  # modules; with any of them, sessions cost more memory


def watch() -> None:
    """From here on, remembers who wants to be told of forks."""

    def register_at_fork(**hooks: Any) -> None:
        name = sys._getframe(1).f_globals.get("__name__", "")
        if name not in _KNOWN:
            unknown.add(name)
        _register(**hooks)

    os.register_at_fork = register_at_fork  # type: ignore[assignment]


def fork() -> int:
    """Forks, and returns what `os.fork` would."""
    os.register_at_fork = _register
    if unknown or len(sys._current_frames()) != 1:
        return os.fork()
    pid: int = _bare()
    if pid < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return pid
