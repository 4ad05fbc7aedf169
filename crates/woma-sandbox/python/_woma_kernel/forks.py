"""Fork of a session, without the interpreter's handling of multi-threaded processes.

`os.fork` makes libraries renew their locks and thread records in the child. In a parent with one
thread no lock is held, and touching all of that copies 600 KiB in every session. So the bare fork
is used if every registered handler is known; otherwise the interpreter's.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

# They renew locks, forget threads, loops and processes, of which there are none, or empty a cache
# that `preload` has emptied. `random` reseeds itself, which the service does instead.
_KNOWN = frozenset(
    """
    threading logging concurrent.futures.thread random asyncio.events _woma_kernel.channels
    IPython.core.history matplotlib.font_manager joblib.externals.loky.backend.resource_tracker
    """.split()
)

_register = os.register_at_fork
_bare: Any = ctypes.PyDLL(None, use_errno=True).fork  # keeps the interpreter's lock
unknown: set[str] = set()  # modules with unknown handlers; they make sessions cost more memory


def watch() -> None:
    """From now on, record which modules register fork handlers."""

    def register_at_fork(**hooks: Any) -> None:
        name = sys._getframe(1).f_globals.get("__name__", "")
        if name not in _KNOWN:
            unknown.add(name)
        _register(**hooks)

    os.register_at_fork = register_at_fork  # type: ignore[assignment]


def fork() -> int:
    """Fork, and return what `os.fork` would."""
    os.register_at_fork = _register
    if unknown or len(sys._current_frames()) != 1:
        return os.fork()
    pid: int = _bare()
    if pid < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return pid
