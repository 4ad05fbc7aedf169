"""What an error about a file leaves unsaid: which files there are, and where one may write.

Nothing here raises, and nothing here looks at more than a few thousand names.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
from contextlib import suppress

from . import paths

ENTRIES_MAX = 2000
SIMILAR_MAX = 5
LISTED_MAX = 10
NAME_CHARS_MAX = 120
CHAIN_MAX = 10
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def advise(error: BaseException) -> str | None:
    """Notes on the error, or on the one behind it, what helps; and returns that."""
    with suppress(Exception):
        walk: BaseException | None = error
        for _ in range(CHAIN_MAX):
            if walk is None:
                break
            if isinstance(walk, OSError):
                return None if _is_of_a_process(walk) else _advise(walk)
            walk = walk.__cause__ or (None if walk.__suppress_context__ else walk.__context__)
    return None


def _advise(error: OSError) -> str | None:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, str) and note.startswith(paths.WRITE_BELOW):
            return note  # `open` knew that the file was to be written
    if error.errno in _REFUSED:
        return paths.say_where_to_write(error)
    if isinstance(error, FileNotFoundError):
        return paths.add_note(error, _files(error.filename))
    return None


def _is_of_a_process(error: BaseException) -> bool:
    """A program that is not there is no file that is missing."""
    walk = error.__traceback__
    while walk is not None and walk.tb_next is not None:
        walk = walk.tb_next
    return walk is not None and walk.tb_frame.f_globals.get("__name__") in (
        "subprocess",
        "asyncio.base_subprocess",
        "multiprocessing.util",
    )


def _files(wanted: object) -> str:
    """What else the user may have meant."""
    found = _walk(paths.home or os.getcwd())
    name = re.split(r"[\\/]", wanted.rstrip("/\\"))[-1] if isinstance(wanted, str) else ""
    similar = _similar(name, found) if name else []
    if similar:
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


def _walk(top: str) -> list[str]:
    """Files below a folder, those near it first."""
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
    """Files of that name in other places, then files whose names are much like it."""
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
