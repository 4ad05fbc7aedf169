"""Exceptions of user code as text: a plain CPython traceback without frames of ours or IPython's.

Formatting never raises: the exception, its message and its source come from the user.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from operator import itemgetter
from types import TracebackType
from typing import Any

import IPython

from . import advice, paths, refusals, suggestions

MESSAGE_CHARS_MAX = 64 * 1024
LINES_MAX = 200
LINE_CHARS_MAX = 4096
FRAMES_MAX = 5000
CELL_PREFIX = "<cell "
OWN_LINES_MAX = 60
OWN_CHARS_MAX = 500
NAME_CHARS_MAX = 200

_COMPILED = (".pyx", ".pxd", ".pxi")
_STANDARD = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
# As spelled in code objects: a frame is identified by the path of its module.
_HIDDEN = tuple(os.path.dirname(path) + os.sep for path in (__file__, IPython.__file__))


def describe(error: BaseException, cell: str) -> dict[str, Any]:
    """The `error` member of DONE, for an exception that left the cell named `cell`."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        message = str(error)
    except BaseException:
        message = "<exception str() failed>"
    is_blocked = refusals.is_refusal(error)
    meant = "" if is_blocked else suggestions.ending(error)
    message += meant
    note = advice.advise(error, cell)
    if note is not None:
        message = f"{message}\n{note}" if message else note
    try:
        lines, own = _formatted(error, meant)
        if note is not None and sys.version_info < (3, 11):  # later versions print notes themselves
            lines.append(note)
        line = _line(error, cell)
    except BaseException as failure:  # RecursionError and MemoryError can occur here, too
        why = f"(the traceback cannot be shown: {type(failure).__name__})"
        lines, own, line = [f"{name}: {cut(message, LINE_CHARS_MAX)}", why], [], None
    described = {
        "name": name,
        "message": cut(message, MESSAGE_CHARS_MAX),
        "traceback": lines,
        "own": own,
        "line": line,
        "blocked": is_blocked,
    }
    try:
        missing = _missing(error)
    except BaseException:  # a subclass of the user's
        missing = None
    return described if missing is None else {**described, "missing": missing}


def _missing(error: BaseException) -> str | None:
    """The name that a NameError did not find in any scope that other runs can fill."""
    name = error.name if isinstance(error, NameError) else None
    if type(name) is not str or not name.isidentifier() or len(name) > NAME_CHARS_MAX:
        return None
    frame = suggestions.last_frame(error)
    code = None if frame is None else frame.f_code
    local = () if code is None else (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return None if name in local else name


def format_lines(error: BaseException) -> list[str]:
    """The traceback, one string per line; if it is long, its head and tail."""
    return _formatted(error, suggestions.ending(error))[0]


def _formatted(error: BaseException, meant: str) -> tuple[list[str], list[str]]:
    """The traceback, and the user's part of it. `meant`: the end of the message."""
    depth, walk = 0, error.__traceback__
    while walk is not None:
        depth, walk = depth + 1, walk.tb_next
    limit = -FRAMES_MAX if depth > FRAMES_MAX else None
    shown = traceback.TracebackException(
        type(error), error, error.__traceback__, limit=limit, compact=True
    )
    if not suggestions.IS_PRINTED_BY_PYTHON:
        shown._str += meant  # type: ignore[attr-defined]
    _strip(shown, outermost=True)
    lines = [line for chunk in shown.format() for line in chunk.rstrip("\n").split("\n")]
    if len(lines) > LINES_MAX:
        half = LINES_MAX // 2
        left_out = f"  ... {len(lines) - LINES_MAX + 1} lines left out ..."
        lines = [*lines[: half - 1], left_out, *lines[-half:]]
    lines = [cut(line, LINE_CHARS_MAX) for line in lines]
    lines = lines if sum(map(len, lines)) <= MESSAGE_CHARS_MAX else _within(lines)
    return lines, _own_lines(shown.stack or [])


def _own_lines(stack: Any) -> list[str]:
    """Frames of the user's code; those of a library are one line, with its name.

    Neither the message nor what a library itself has caught is repeated.
    """
    lines: list[str] = []
    for library, named in itertools.groupby(_with_libraries(stack), itemgetter(0)):
        group = [frame for _, frame in named]
        if library is None:
            text = "".join(traceback.StackSummary.from_list(group).format())
            lines.extend(cut(line, OWN_CHARS_MAX) for line in text.rstrip("\n").split("\n"))
        else:
            lines.append(f"  ... {len(group)} frame{'s' * (len(group) > 1)} in {library} ...")
    if len(lines) > OWN_LINES_MAX:
        half = OWN_LINES_MAX // 2
        lines = [*lines[: half - 1], "  ... lines left out ...", *lines[-half:]]
    return lines


def _with_libraries(stack: Any) -> Iterator[tuple[str | None, traceback.FrameSummary]]:
    before = None
    for frame in stack:
        path = frame.filename
        # Compiled modules have the paths of their source where they were built, or only its name.
        is_bare = path.endswith(_COMPILED) and "/" not in path
        before = (before or path) if is_bare else _library(path)
        yield before, frame


def _library(path: str) -> str | None:
    """The library that a frame of this file belongs to; `None` if it is the user's."""
    if path.endswith(_COMPILED) and not os.path.isabs(path):
        return path.partition("/")[0]
    if path.startswith(CELL_PREFIX) or (paths.home and paths.is_inside(path)):
        return None
    _, is_installed, below = path.rpartition("-packages/")
    if is_installed:
        return below.partition("/")[0].removesuffix(".py")
    if path.startswith(_STANDARD):
        return "the standard library"
    return path.partition("/")[0] if path[:1] not in ("/", "<") else path


def _strip(shown: Any, outermost: bool = False) -> None:
    """Remove frames that are not the user's, in the whole chain."""
    frames = list(shown.stack)
    if outermost:  # frames of the event loop precede the first frame of a cell that awaits
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
    """Line of the innermost frame of this cell, or of its syntax error."""
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
    """As many first and last lines as fit; the last one describes the error."""
    kept: list[str] = []
    room = MESSAGE_CHARS_MAX
    for line in reversed(lines):
        room -= len(line)
        if room < 0:
            return ["  ... lines left out ...", *reversed(kept)]
        kept.append(line)
    return lines


def cut(text: str, chars_max: int) -> str:
    """Head and tail of a long text, with the amount left out."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"


def report(error: BaseException, title: str = "") -> None:
    """Write the traceback to stderr as Python would: the end of a child or thread has no reply."""
    sys.stderr.write("\n".join([*filter(None, [title]), *format_lines(error)]) + "\n")


def report_thread(ended: threading.ExceptHookArgs) -> None:
    """Needed because Python's own report does not find the source of a cell."""
    if ended.exc_value is not None and ended.exc_type is not SystemExit:
        name = ended.thread.name if ended.thread else "unknown"
        report(ended.exc_value, f"Exception in thread {name}:")
