"""The DONE frame: how a run ended, its result, and the user's names."""

from __future__ import annotations

import math
import sys
from typing import Any

from IPython.lib.pretty import pretty

from . import errors, frames, variables
from .shell import PRETTY_COLUMNS, Shell

RESULT_CHARS_MAX = 10_000
RESULT_JSON_BYTES_MAX = 64 * 1024
EXACT_BITS_MAX = 53  # largest integer that every JSON reader keeps exact
RESULT_NAMES = ("result", "output", "RESULT")

# The plain name, whatever a metaclass does to the attribute.
_type_name = type.__dict__["__name__"].__get__
_MISSING = object()


def done(shell: Shell, run: int, cell: str, error: BaseException | None) -> dict[str, Any]:
    """The reply to a run that ended with `error`, or without one."""
    code = None
    status = "completed"
    if isinstance(error, SystemExit):
        code = exit_code(error)
        status = "raised" if code else "completed"
        if code and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
    elif isinstance(error, KeyboardInterrupt):
        status = "interrupted"
    elif error is not None:
        status = "raised"
    listed, left_out, imported = variables.listed(
        shell.user_ns, shell.user_ns_hidden, shell.source
    )
    return {
        "run": run,
        "status": status,
        "exit_code": code,
        "error": None if error is None or status == "completed" else errors.describe(error, cell),
        "result": _result(shell),
        "execution_count": shell.execution_count,
        "variables": listed,
        "variables_left_out": left_out,
        "imported": imported,
    }


def exit_code(error: SystemExit) -> int:
    """The exit status as the shell would see it: text means failure."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code) if -(2**31) <= error.code < 2**31 else 255
    return 1


def _result(shell: Shell) -> dict[str, Any] | None:
    """The last expression, otherwise a variable that the cell named as its result."""
    value: Any = shell.displayhook.value
    text: str | None = shell.displayhook.text
    is_named = text is None
    if text is None:
        value = _named_result(shell)
        if value is _MISSING or value is None:
            return None
        try:
            text = pretty(value, max_width=PRETTY_COLUMNS)
        except Exception:
            text = f"<{_type_name(type(value))}>"
    result: dict[str, Any] = {"text": _cut(str(text))}
    if is_named:
        result["named"] = True
    if value is not None:
        try:
            result["json"] = _as_json(value, [RESULT_JSON_BYTES_MAX], frames.DEPTH_MAX)
        except _NotPlain:
            pass
    return result


def _cut(text: str) -> str:
    if len(text) <= RESULT_CHARS_MAX:
        return text
    marker = f"… [cut: {len(text):,} characters in all; print parts of it to see more]"
    return text[: RESULT_CHARS_MAX - len(marker)] + marker


def _named_result(shell: Shell) -> object:
    for name in RESULT_NAMES:
        if name in shell.user_ns and shell.assigns(name):
            return shell.user_ns[name]
    return _MISSING


class _NotPlain(Exception):
    """JSON cannot represent the value, or not within the size limit."""


def _as_json(value: Any, budget: list[int], depth: int) -> Any:
    """The value as plain data; stops early, so that a huge value costs nothing."""
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
        kind = type(value)
    budget[0] -= 2
    if depth == 0:
        raise _NotPlain
    if kind is str:
        budget[0] -= len(value) if len(value) > budget[0] else len(frames.to_json(value))
    elif kind is int:
        budget[0] -= value.bit_length() // 3
        # Most JSON readers round larger integers; as text they stay exact.
        if value.bit_length() > EXACT_BITS_MAX:
            if value.bit_length() > frames.INT_BITS_MAX:
                raise _NotPlain
            value = str(value)
    elif kind is float:
        budget[0] -= 16
        if not math.isfinite(value):
            raise _NotPlain
    elif kind is dict:
        if len(value) > budget[0] or any(type(key) is not str for key in value):
            raise _NotPlain
        value = {
            _as_json(key, budget, depth): _as_json(item, budget, depth - 1)
            for key, item in value.items()
        }
    elif kind is list or kind is tuple:
        if len(value) > budget[0]:
            raise _NotPlain
        value = [_as_json(item, budget, depth - 1) for item in value]
    elif value is not None and kind is not bool:
        raise _NotPlain
    if budget[0] < 0:
        raise _NotPlain
    return value
