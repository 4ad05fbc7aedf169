"""Standard input of a run: the text or the pipe that came with it, or nothing.

A text is a file at descriptor 0, so that `input()`, `sys.stdin`, `open(0)` and child processes
read it as they would read a redirected file.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import tempfile
from contextlib import suppress
from typing import Any, TextIO

from .unseen import in_place_of

_NONE_GIVEN = (
    "input() has nothing to read: there is nobody to answer. Call again with the answers in the "
    "`stdin` argument, one line each, or put the values in the code."
)
_ALL_READ = (
    "input() has read all {count} of `stdin`. Call again with more lines in the `stdin` argument."
)
_input: Any = builtins.input
_none: TextIO | None = sys.stdin
_given: TextIO | None = None
_lines: int | None = 0  # of the text; `None` for a pipe


def begin_run(text: str | None) -> None:
    global _given, _lines
    if text is None:
        return
    data = text.encode()
    fd = _file()
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        os.dup2(fd, 0)
    finally:
        os.close(fd)
    _lines = text.count("\n") + (text[-1:] not in ("", "\n"))
    sys.stdin = _given = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")


def begin_piped_run(fd: int) -> None:
    """Read standard input from a pipe, as a program that `python` runs does."""
    global _given, _lines
    os.dup2(fd, 0)
    os.close(fd)
    _lines = None
    sys.stdin = _given = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")


def end_run() -> None:
    """Leave nothing for the next run."""
    global _given
    if _given is None:
        return
    if _current() is _given:
        sys.stdin = _none  # type: ignore[assignment]
    _given = None
    with suppress(OSError):  # code holds all descriptors
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)


@in_place_of(_input)
def input(prompt: object = "", /) -> str:
    """`input()`, with an error that says what to do."""
    if _current() is _none:
        raise EOFError(_NONE_GIVEN)
    try:
        return str(_input(prompt))
    except EOFError:
        if _current() is not _given or _lines is None:  # a stream of the program's own, or a pipe
            raise
    count = "1 line" if _lines == 1 else f"{_lines} lines"
    raise EOFError(_ALL_READ.format(count=count))


def _current() -> Any:
    """The stream, unless the program has deleted it."""
    return vars(sys).get("stdin")


def _file() -> int:
    """A file without a name. Where memory files are refused, it is in the temporary folder."""
    try:
        return os.memfd_create("stdin", os.MFD_CLOEXEC)
    except OSError:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
