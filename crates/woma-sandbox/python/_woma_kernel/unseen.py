"""Functions of ours that user code calls, and that no traceback shows.

The user's own `traceback.print_exc()` prints all frames that an exception passed through, and a
Python function cannot raise without being one of them. So it does not raise: the interpreter raises
its exception after its frame has ended.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_FOLDER = os.path.dirname(__file__)
# Warnings are attributed to the caller, skipping frames that look like the import system's.
_FILE = os.path.join(_FOLDER, "importlib_bootstrap")
_ended: Any = (nothing for nothing in ())
next(_ended, None)
_throw = _ended.throw  # an exhausted generator raises what is thrown into it, and adds no frame


class _Function(type):
    """Calling is constructing: the result of `__new__` is returned unless it is a `_Call`."""

    def __repr__(cls) -> str:
        return f"<built-in function {cls.__name__}>"


class _Method(_Function):
    """Binds to the object that it is looked up on, like functions written in Python."""

    def __get__(cls, instance: Any, _owner: Any = None) -> Any:
        return cls if instance is None else types.MethodType(cls, instance)


class _Call(metaclass=_Function):
    """A call that has raised; the interpreter calls its `__init__`, which raises."""

    __slots__ = ("raise_again",)
    function: Callable[..., Any]

    def __new__(cls, /, *args: Any, **options: Any) -> Any:
        try:
            return cls.function(*args, **options)
        except BaseException as error:
            raised = error
        at = raised.__traceback__
        while at is not None and at.tb_frame.f_code.co_filename.startswith(_FOLDER):
            at = at.tb_next
        self = object.__new__(cls)
        self.raise_again = functools.partial(_throw, raised.with_traceback(at))
        return self

    __init__ = property(operator.methodcaller("raise_again"))  # type: ignore[assignment]


def unseen(function: Callable[..., Any]) -> Any:
    """Hide a function, whose caller is two frames above it, from tracebacks."""
    return _made(_Method, function, function)


def in_place_of(real: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """As `unseen`, for a function that looks like a builtin and does not bind."""
    return lambda function: _made(_Function, function, real)


def _made(kind: type, function: Callable[..., Any], like: Callable[..., Any]) -> Any:
    body: dict[str, Any] = {"__slots__": (), "function": staticmethod(disguised(function))}
    body.update(__doc__=like.__doc__, __qualname__=function.__name__, __module__="builtins")
    if like is not function:
        body["__module__"] = like.__module__
        with suppress(TypeError, ValueError):  # not all of them have one
            body["__signature__"] = inspect.signature(like)
    return kind(function.__name__, (_Call,), body)


def disguised(function: Callable[..., Any]) -> Any:
    """Make warnings skip the function."""
    function.__code__ = function.__code__.replace(co_filename=_FILE)  # type: ignore[attr-defined]
    return function


disguised(_Call.__new__)
