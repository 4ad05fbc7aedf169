"""Exceptions of user code as text: a plain CPython traceback without frames of ours or IPython's.

Formatting never raises: the exception, its message and its source are the user's.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

import IPython

from . import advice

MESSAGE_CHARS_MAX = 64 * 1024
LINES_MAX = 200
LINE_CHARS_MAX = 4096
FRAMES_MAX = 5000
CELL_PREFIX = "<cell "

# As code objects spell them: a frame is known by the path its module was found under.
_HIDDEN = tuple(os.path.dirname(path) + os.sep for path in (__file__, IPython.__file__))


def describe(error: BaseException, cell: str) -> dict[str, Any]:
    """The `error` member of DONE for an exception that left the cell called `cell`."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        message = str(error)
    except BaseException:
        message = "<exception str() failed>"
    note = advice.advise(error)
    if note is not None:
        message = f"{message}\n{note}"
    try:
        lines = format_lines(error)
        if note is not None and sys.version_info < (3, 11):  # later versions show notes themselves
            lines.append(note)
        line = _line(error, cell)
    except BaseException as failure:  # RecursionError and MemoryError happen here, too
        lines, line = [f"{name}: (the traceback cannot be shown: {type(failure).__name__})"], None
    return {
        "name": name,
        "message": cut(message, MESSAGE_CHARS_MAX),
        "traceback": lines,
        "line": line,
    }


def format_lines(error: BaseException) -> list[str]:
    """The traceback, a line a string, head and tail kept when it is long."""
    depth, walk = 0, error.__traceback__
    while walk is not None:
        depth, walk = depth + 1, walk.tb_next
    limit = -FRAMES_MAX if depth > FRAMES_MAX else None
    shown = traceback.TracebackException(
        type(error), error, error.__traceback__, limit=limit, compact=True
    )
    _strip(shown, outermost=True)
    lines = [line for chunk in shown.format() for line in chunk.rstrip("\n").split("\n")]
    if len(lines) > LINES_MAX:
        half = LINES_MAX // 2
        left_out = f"  ... {len(lines) - LINES_MAX + 1} lines left out ..."
        lines = [*lines[: half - 1], left_out, *lines[-half:]]
    lines = [cut(line, LINE_CHARS_MAX) for line in lines]
    return lines if sum(map(len, lines)) <= MESSAGE_CHARS_MAX else _within(lines)


def _strip(shown: Any, outermost: bool = False) -> None:
    """Drops frames that are not the user's business, in the whole chain."""
    frames = list(shown.stack)
    if outermost:  # the event loop stands before the first frame of a cell that awaits
        starts = [i for i, f in enumerate(frames) if f.filename.startswith(CELL_PREFIX)]
        frames = frames[starts[0] :] if starts else frames
    frames = [f for f in frames if not f.filename.startswith(_HIDDEN)]
    shown.stack[:] = frames
    if not frames:
        shown.stack = None  # without frames there is no "Traceback" line either
    for other in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        if other is not None:
            _strip(other)


def _line(error: BaseException, cell: str) -> int | None:
    """The line of the innermost frame of this cell, or of its syntax error."""
    if isinstance(error, SyntaxError) and error.filename == cell:
        return error.lineno
    line = None
    walk: TracebackType | None = error.__traceback__
    while walk is not None:
        if walk.tb_frame.f_code.co_filename == cell:
            line = walk.tb_lineno
        walk = walk.tb_next
    return line


def _within(lines: list[str]) -> list[str]:
    """As many first and last lines as the size allows; the last one says what happened."""
    kept: list[str] = []
    room = MESSAGE_CHARS_MAX
    for line in reversed(lines):
        room -= len(line)
        if room < 0:
            return ["  ... lines left out ...", *reversed(kept)]
        kept.append(line)
    return lines


def cut(text: str, chars_max: int) -> str:
    """Head and tail of a text that is too long, and how much is missing."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"


def report(error: BaseException, title: str = "") -> None:
    """Writes the traceback where Python would: the end of a child or a thread has no reply."""
    sys.stderr.write("\n".join([*filter(None, [title]), *format_lines(error)]) + "\n")


def report_thread(ended: threading.ExceptHookArgs) -> None:
    """Python's own report does not find the source of a cell."""
    if ended.exc_value is not None and ended.exc_type is not SystemExit:
        name = ended.thread.name if ended.thread else "unknown"
        report(ended.exc_value, f"Exception in thread {name}:")
