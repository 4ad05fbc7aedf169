"""Top-level await, and asyncio as notebooks expect it: one loop for the whole session.

A cell that awaits, or that asks for the running loop at its top level, runs in that loop. Other
cells do not, so that `run_until_complete` works there as in a script. `asyncio.run` inside a running
loop gets a new one while ours is set aside. Ours is blocked meanwhile, as by any blocking call.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

_get_running_loop = asyncio._get_running_loop
_set_running_loop = asyncio._set_running_loop
_run = asyncio.run
_run_until_complete = asyncio.BaseEventLoop.run_until_complete
_get_event_loop = asyncio.get_event_loop
# Names in the top level of a cell that need a running loop, and those that need that none is running.
NEEDING = frozenset(["get_running_loop", "create_task", "ensure_future", "current_task"])
REFUSING = frozenset(["run_until_complete", "run_forever"])
_session_loop: asyncio.AbstractEventLoop | None = None


def session_loop() -> asyncio.AbstractEventLoop:
    """Created on first use: a descriptor from before the fork would be shared by all sessions."""
    global _session_loop
    if _session_loop is None or _session_loop.is_closed():
        _session_loop = asyncio.new_event_loop()
    return _session_loop


def run_in_session_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs the coroutine of a cell to its end."""
    loop = session_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt as interrupt:
        if task.done():  # raised by the cell's own code, whose frames it carries
            raise
        task.cancel()
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError as cancelled:
            raise interrupt.with_traceback(cancelled.__traceback__) from None
        raise


def install() -> None:
    """Replace the entry points that refuse to nest or to find a loop."""

    def run(main: Any, **options: Any) -> Any:
        with _set_aside():
            return _run(main, **options)

    def run_until_complete(self: asyncio.BaseEventLoop, future: Any) -> Any:
        if _get_running_loop() is None:
            return _run_until_complete(self, future)
        if asyncio.iscoroutine(future):
            future.close()  # it was never started, and needs no warning about that
        raise RuntimeError(
            "This event loop is already running: write `await …` instead of `run_until_complete(…)`"
        )

    asyncio.run = asyncio.runners.run = run
    asyncio.BaseEventLoop.run_until_complete = run_until_complete  # type: ignore[method-assign]
    asyncio.get_event_loop = asyncio.events.get_event_loop = get_event_loop


def get_event_loop() -> asyncio.AbstractEventLoop:
    """As in earlier versions: the top level always has a loop."""
    if _get_running_loop() is None and threading.current_thread() is threading.main_thread():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                loop = asyncio.get_event_loop_policy()._local._loop  # type: ignore[attr-defined]
            except AttributeError:
                loop = None
        if loop is None or loop.is_closed():
            asyncio.set_event_loop(session_loop())
    return _get_event_loop()


@contextmanager
def _set_aside() -> Iterator[None]:
    outer = _get_running_loop()
    if outer is None:
        yield
        return
    # From 3.12 on, the current task is stored separately from its loop, and must be set aside as
    # well.
    swap = getattr(asyncio.tasks, "_swap_current_task", None)
    task = swap(outer, None) if swap else None
    _set_running_loop(None)
    try:
        yield
    finally:
        _set_running_loop(outer)
        if swap:
            swap(outer, task)
