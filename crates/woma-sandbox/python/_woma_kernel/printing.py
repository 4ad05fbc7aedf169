"""`print` that writes its text in one piece.

The interpreter's own writes every word, every space and the line ending separately, and each write
wakes the host. The text and its order are the same.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

from .channels import Stream
from .unseen import in_place_of

ALONE_CHARS_MIN = 64 * 1024

_print = builtins.print
# Converting these to text runs no user code.
_PLAIN = frozenset([str, int, float, complex, bool, bytes, type(None)])
_TEXT_OR_NONE = frozenset([str, type(None)])
_text = str


def install() -> None:
    builtins.print = print


@in_place_of(_print)
def print(
    *args: Any,
    sep: Any = None,
    end: Any = None,
    file: Any = None,
    flush: Any = False,
    **unknown: Any,
) -> None:
    stream: Any = sys.__dict__.get("stdout") if file is None else file
    is_ours = type(stream) is Stream and "write" not in stream.__dict__ and not unknown
    if not is_ours or type(sep) not in _TEXT_OR_NONE or type(end) not in _TEXT_OR_NONE:
        _print(*args, sep=sep, end=end, file=file, flush=flush, **unknown)
        return
    is_flushed = bool(flush)
    pieces: list[str] = []
    try:
        for argument in args:
            if type(argument) not in _PLAIN and pieces:
                # Its own code may print, and must do so after the text before it.
                _write(stream, pieces)
            text = _text(argument)
            if len(text) > ALONE_CHARS_MIN:  # not worth a copy
                _write(stream, pieces)
                stream.write(text)
            else:
                pieces.append(text)
            pieces.append(" " if sep is None else sep)
        if args:
            pieces.pop()
        pieces.append("\n" if end is None else end)
    finally:
        _write(stream, pieces)
    if is_flushed:
        stream.flush()


def _write(stream: Stream, pieces: list[str]) -> None:
    if pieces:
        stream.write("".join(pieces))
        pieces.clear()
