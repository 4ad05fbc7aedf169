"""Marks on errors that the rules of a run raised; DONE tells the host which error is one."""

from __future__ import annotations

from typing import TypeVar

_MARK = "_woma_refusal"
_E = TypeVar("_E", bound=BaseException)


def mark(error: _E) -> _E:
    error.__dict__[_MARK] = True
    return error


def is_refusal(error: BaseException) -> bool:
    """Whether the rules raised this error."""
    return error.__dict__.get(_MARK) is True
