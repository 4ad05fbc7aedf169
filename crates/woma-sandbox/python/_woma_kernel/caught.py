"""Whether a program itself catches the error of an import, by its source.

`try: import a` with `except ImportError:` has its own fallback, and needs the error for it.
"""

from __future__ import annotations

import ast
import linecache
import types
import warnings
from collections.abc import Iterator

_CATCHING = frozenset(["ImportError", "Exception", "BaseException"])
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_TRIES = (ast.Try, ast.TryStar) if hasattr(ast, "TryStar") else (ast.Try,)

_last: tuple[list[str], frozenset[int]] = [], frozenset()  # a program may have many imports


def is_caught(frame: types.FrameType) -> bool:
    """Whether the current line of a frame is in such a `try`, or in a `with suppress(…)`."""
    global _last
    lines = linecache.getlines(frame.f_code.co_filename)
    if lines is not _last[0]:
        _last = lines, _caught_lines("".join(lines))
    return frame.f_lineno in _last[1]


def _caught_lines(text: str) -> frozenset[int]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reported when the program was compiled
            tree = ast.parse(text)
        bodies = [body for node in ast.walk(tree) for body in _guarded(node)]
        return frozenset(line for body in bodies for line in _own_lines(body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _guarded(node: ast.AST) -> Iterator[list[ast.stmt]]:
    if isinstance(node, _TRIES) and any(_catches(handler.type) for handler in node.handlers):
        yield node.body
    if isinstance(node, ast.With) and any(map(_suppresses, node.items)):
        yield node.body


def _own_lines(body: list[ast.stmt]) -> set[int]:
    """Lines without those of functions, which run when they are called."""
    lines = set(range(body[0].lineno, (body[-1].end_lineno or 0) + 1))
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, _FUNCTIONS):
                lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def _catches(error: ast.expr | None) -> bool:
    if isinstance(error, ast.Tuple):
        return any(map(_catches, error.elts))
    name = error.attr if isinstance(error, ast.Attribute) else getattr(error, "id", None)
    return error is None or name in _CATCHING


def _suppresses(item: ast.withitem) -> bool:
    call = item.context_expr
    if not isinstance(call, ast.Call):
        return False
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    return name == "suppress" and any(map(_catches, call.args))
