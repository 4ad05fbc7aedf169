"""The name that was probably meant, after a NameError or AttributeError.

CPython 3.10 and 3.11 find it while they print a traceback themselves, by code that Python cannot
call; `traceback` does so from 3.12 on. The costs and limits are CPython's.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from types import FrameType

CANDIDATES_MAX = 750
NAME_CHARS_MAX = 40
_MOVE_COST, _CASE_COST = 2, 1
IS_PRINTED_BY_PYTHON = sys.version_info >= (3, 12)


def ending(error: BaseException) -> str:
    """`. Did you mean: 'x'?`, to follow the message; empty if there is nothing to suggest."""
    try:
        found = _suggestion(error)
    except BaseException:  # the object and its names are the user's
        return ""
    return "" if found is None else f". Did you mean: {found!r}?"


def last_frame(error: BaseException) -> FrameType | None:
    """The frame that raised the error."""
    walk = error.__traceback__
    while walk is not None and walk.tb_next is not None:
        walk = walk.tb_next
    return None if walk is None else walk.tb_frame


def _suggestion(error: BaseException) -> str | None:
    if not isinstance(error, (NameError, AttributeError)):
        return None
    wanted = error.name
    if type(wanted) is not str:
        return None
    if isinstance(error, AttributeError):
        return None if error.obj is None else _nearest(wanted, dir(error.obj))
    frame = last_frame(error)
    if frame is None:
        return None
    for names in (frame.f_locals, frame.f_globals, vars(builtins)):
        found = _nearest(wanted, list(names))
        if found is not None:
            return found
    return None


def _nearest(wanted: str, names: list[str]) -> str | None:
    if len(names) > CANDIDATES_MAX or len(wanted) > NAME_CHARS_MAX:
        return None
    best, best_distance = None, sys.maxsize
    for name in _plain(names, wanted.startswith("_")):
        distance_max = min((len(name) + len(wanted) + 3) * _MOVE_COST // 6, best_distance - 1)
        if name != wanted and len(name) <= NAME_CHARS_MAX:
            distance = _distance(wanted, name, distance_max)
            if distance <= distance_max:
                best, best_distance = name, distance
    return best


def _plain(names: Iterable[str], is_private: bool) -> Iterable[str]:
    """Without `_`, `__` and others that the shell and objects have for themselves."""
    return (n for n in names if type(n) is str and (is_private or not n.startswith("_")))


def _distance(one: str, other: str, most: int) -> int:
    """Edits between two names, weighted; above `most`, any larger number."""
    if abs(len(one) - len(other)) * _MOVE_COST > most:
        return most + 1
    row = [column * _MOVE_COST for column in range(len(one) + 1)]
    for line, letter in enumerate(other, 1):
        before, row = row, [line * _MOVE_COST]
        for column, own in enumerate(one):
            replaced = before[column] + _exchange(own, letter)
            row.append(min(replaced, before[column + 1] + _MOVE_COST, row[column] + _MOVE_COST))
        if min(row) > most:
            return most + 1
    return row[-1]


def _exchange(one: str, other: str) -> int:
    if one == other:
        return 0
    return _CASE_COST if one.lower() == other.lower() else _MOVE_COST
