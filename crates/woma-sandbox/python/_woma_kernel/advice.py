"""Advice added to errors: which files exist, where files can be written, how much memory there is.

These functions never raise, and look at no more than a few thousand names.
"""

from __future__ import annotations

import difflib
import errno
import linecache
import os
import re
from contextlib import suppress
from unicodedata import normalize

from . import ceiling, facts, mending, paths

ENTRIES_MAX = 2000
SIMILAR_MAX = 5
LISTED_MAX = 10
NAME_CHARS_MAX = 120
CHAIN_MAX = 10
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def advise(error: BaseException, cell: str = "") -> str | None:
    """Add advice to the error, or to the one behind it, and return it."""
    with suppress(BaseException):  # the objects that are looked at are the user's
        walk: BaseException | None = error
        for _ in range(CHAIN_MAX):
            if walk is None:
                break
            if isinstance(walk, MemoryError) or getattr(walk, "errno", None) == errno.ENOMEM:
                note = ceiling.explain(walk)
                return note and paths.add_note(walk, note)
            if isinstance(walk, SyntaxError):
                return _advise_on_syntax(walk)
            note = facts.of_error(walk, cell)
            if note is not None:
                return paths.add_note(walk, note)
            note = facts.of_session(walk, cell)
            if note is not None:
                paths.add_note(walk, note)
                return None
            if isinstance(walk, OSError):
                return None if _is_of_a_process(walk) else _advise(walk)
            walk = walk.__cause__ or (None if walk.__suppress_context__ else walk.__context__)
    return None


def _advise_on_syntax(error: SyntaxError) -> str | None:
    source = "".join(linecache.getlines(error.filename or ""))
    note = mending.diagnosis(error, source)
    return note and paths.add_note(error, note)


def _advise(error: OSError) -> str | None:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, str) and note.startswith(paths.WRITE_BELOW):
            return note  # `open` was called to write the file
    if error.errno in _REFUSED:
        return paths.say_where_to_write(error)
    if isinstance(error, FileNotFoundError):
        return paths.add_note(error, _files(error.filename))
    return None


def _is_of_a_process(error: BaseException) -> bool:
    """A missing program is not a missing file."""
    walk = error.__traceback__
    while walk is not None and walk.tb_next is not None:
        walk = walk.tb_next
    return walk is not None and walk.tb_frame.f_globals.get("__name__") in (
        "subprocess",
        "asyncio.base_subprocess",
        "multiprocessing.util",
    )


def _files(wanted: object) -> str:
    """Other files that the user may have meant."""
    found = _walk(paths.home or os.getcwd())
    name = re.split(r"[\\/]", wanted.rstrip("/\\"))[-1] if isinstance(wanted, str) else ""
    similar = _similar(name, found) if name else []
    if similar:
        other = next((path for path in similar if _is_other_spelling(path, name)), None)
        if other is not None:  # the two look the same
            return f"The name of the file has other Unicode characters: {ascii(other)}"
        return f"Did you mean: {_join(similar)}"
    here = os.getcwd()
    with os.scandir(here) as entries:
        listed = sorted(
            entry.name + ("/" if entry.is_dir() else "")
            for entry, _ in zip(entries, range(ENTRIES_MAX), strict=False)
            if not entry.name.startswith(".")
        )
    if not listed:
        return f"The working directory {here} is empty."
    more = f" and {len(listed) - LISTED_MAX} more" if len(listed) > LISTED_MAX else ""
    return f"Files in the working directory {here}: {_join(listed[:LISTED_MAX])}{more}"


def _is_other_spelling(path: str, name: str) -> bool:
    """Whether the names differ only in how their letters are composed, as `ü` and `u` with dots."""
    other = os.path.basename(path)
    return other != name and normalize("NFC", other) == normalize("NFC", name)


def _walk(top: str) -> list[str]:
    """Files below a folder, the nearest first."""
    found: list[str] = []
    folders, left = [""], ENTRIES_MAX
    for folder in folders:
        with suppress(OSError), os.scandir(os.path.join(top, folder)) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return found
                path = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        folders.append(path)
                else:
                    found.append(path)
    return found


def _similar(name: str, found: list[str]) -> list[str]:
    """Files of that name in other folders, then files with similar names."""
    by_name: dict[str, list[str]] = {}
    for path in found:
        by_name.setdefault(os.path.basename(path).casefold(), []).append(path)
    wanted = name.casefold()
    near = difflib.get_close_matches(wanted[:NAME_CHARS_MAX], by_name, SIMILAR_MAX)
    names = dict.fromkeys([wanted, *near])
    similar = [path for one in names for path in sorted(by_name.get(one, ()))]
    top, here = paths.home, os.getcwd()
    return [
        path if top in ("", here) else os.path.join(top, path) for path in similar[:SIMILAR_MAX]
    ]


def _join(names: list[str]) -> str:
    return ", ".join(repr(name[:NAME_CHARS_MAX]) for name in names)
