"""The DONE frame: how a run ended, its result, and the user's names."""

from __future__ import annotations

import ast
import math
import sys
import types
from typing import Any

from IPython.lib.pretty import pretty

from . import errors, frames
from .shell import PRETTY_COLUMNS, Shell

RESULT_CHARS_MAX = 10_000
RESULT_JSON_BYTES_MAX = 64 * 1024
VARIABLES_MAX = 200
RESULT_NAMES = ("result", "output", "RESULT")

# The plain name, whatever a metaclass has made of the attribute.
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
    return {
        "run": run,
        "status": status,
        "exit_code": code,
        "error": None if error is None or status == "completed" else errors.describe(error, cell),
        "result": _result(shell),
        "execution_count": shell.execution_count,
        "variables": _variables(shell),
    }


def exit_code(error: SystemExit) -> int:
    """The exit status as the shell would see it: text means failure."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code) if -(2**31) <= error.code < 2**31 else 255
    return 1


def _result(shell: Shell) -> dict[str, Any] | None:
    """The last expression, else what the cell has called its result."""
    value: Any = shell.displayhook.value
    text: str | None = shell.displayhook.text
    if text is None:
        value = _named_result(shell)
        if value is _MISSING or value is None:
            return None
        try:
            text = pretty(value, max_width=PRETTY_COLUMNS)
        except Exception:
            text = f"<{_type_name(type(value))}>"
    result: dict[str, Any] = {"text": str(text)[:RESULT_CHARS_MAX]}
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    budget = [RESULT_JSON_BYTES_MAX]
    if value is not None and _is_plain(value, budget, frames.DEPTH_MAX):
        result["json"] = value
    return result


def _named_result(shell: Shell) -> object:
    for name in RESULT_NAMES:
        if name in shell.user_ns and shell.tree is not None and _assigns(shell.tree, name):
            return shell.user_ns[name]
    return _MISSING


def _assigns(tree: ast.Module, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(tree)
    )


def _is_plain(value: Any, budget: list[int], depth: int) -> bool:
    """Whether JSON says the same within the size; stops early, so a huge value costs nothing."""
    kind = type(value)
    budget[0] -= 2
    if budget[0] < 0 or depth == 0:
        return False
    if kind is str:
        budget[0] -= 6 * len(value) if len(value) > budget[0] // 6 else len(frames.to_json(value))
        return budget[0] >= 0
    if kind is int:
        budget[0] -= value.bit_length() // 3
        return budget[0] >= 0
    if kind is float:
        budget[0] -= 16
        return math.isfinite(value)
    if kind is dict:
        return all(
            type(key) is str
            and _is_plain(key, budget, depth)
            and _is_plain(item, budget, depth - 1)
            for key, item in value.items()
        )
    if kind is list or kind is tuple:
        return all(_is_plain(item, budget, depth - 1) for item in value)
    return value is None or kind is bool


def _variables(shell: Shell) -> list[dict[str, str]]:
    hidden = shell.user_ns_hidden
    found: list[dict[str, str]] = []
    for name, value in list(shell.user_ns.items()):
        # By type(): isinstance would ask the value, which may be hostile.
        if not isinstance(name, str) or name.startswith("_"):
            continue
        if issubclass(type(value), types.ModuleType):
            continue
        if hidden.get(name, _MISSING) is not value:
            found.append({"name": name, "type": _type_name(type(value))})
            if len(found) == VARIABLES_MAX:
                break
    return found
