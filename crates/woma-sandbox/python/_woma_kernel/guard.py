"""A guard around user code: its imports, builtins, shell commands and predefined names.

The globals of user code have a `__builtins__` of their own, so that only user code is guarded and
libraries are neither restricted nor slowed down. It is one object per session, changed in place:
functions of earlier guarded runs obey the rules of the current run. Functions and values from an
unguarded run stay unguarded, and a session without guards never gets here.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from IPython.core.autocall import ExitAutocall

from . import facade, gate, rules
from .rules import Rules, plain, state
from .unseen import unseen

_WORD = re.compile(r"[^\W\d]\w*")
_KEPT = frozenset(["__import__", "__build_class__"])  # statements need them
_EXITS = ("exit", "quit")
_REAL = vars(builtins)


class Guard:
    """The guard of a session."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._module = types.ModuleType("builtins")
        self._away: dict[str, Any] = {}
        self._wanted: set[str] = set()
        self._bound: dict[str, tuple[str, Any]] = {}
        self._attributes = {
            name: Accessor(_REAL[name]) for name in ("getattr", "hasattr", "setattr", "delattr")
        }
        self._exits = {name: BlockedExit(name) for name in _EXITS}
        self._get_ipython = facade.install(shell, vars(self._module))
        gate.own_modules["builtins"] = self._module

    def begin(self, wanted: dict[str, Any] | None, cell: str) -> None:
        """Apply the rules of a run, or remove them."""
        now = state.rules
        if wanted is None:
            if now is None:
                return
            now = None
            self._shell.user_ns["__builtins__"] = builtins
        elif now is None or now.guard != wanted:
            now = Rules(wanted)
        state.begin(now, cell)
        replaced = {} if now is None else self._replaced(now)
        # At once: threads of earlier runs must never find a moment without rules.
        vars(self._module).update({**_REAL, **replaced})
        self._unbind(now)
        self._swap(now)
        self.install()

    def install(self) -> None:
        """Install the builtins of user code, even if it has deleted or replaced them."""
        if state.rules is not None:
            self._shell.user_ns["__builtins__"] = self._module

    def bind(self, codes: Iterable[types.CodeType]) -> None:
        """Set the predefined names that the code uses, unless the user has set them."""
        now = state.rules
        if now is None or not now.names:
            return
        self._wanted.update(now.names.keys() & set(_words(codes)))
        names = self._shell.user_ns
        for name in self._wanted & now.names.keys():
            if name in names:
                continue
            target = now.names[name]
            try:
                value = _resolve(target, now)
            except Exception:  # not installed: the program gets a NameError where it uses the name
                continue
            names[name] = self._shell.user_ns_hidden[name] = value
            self._bound[name] = target, value

    def _replaced(self, now: Rules) -> dict[str, Any]:
        found: dict[str, Any] = {"__import__": gate.__import__, "get_ipython": self._get_ipython}
        if now.attributes:
            found.update(self._attributes)
        blocked = (now.builtins & _REAL.keys()) - _KEPT
        found.update({name: Blocked(name) for name in blocked})
        return found

    def _unbind(self, now: Rules | None) -> None:
        """Remove the predefined names that this run does not have."""
        names, hidden = self._shell.user_ns, self._shell.user_ns_hidden
        for name, (target, value) in list(self._bound.items()):
            if now is not None and now.names.get(name) == target and _allows(now, target):
                continue
            del self._bound[name]
            for place in (names, hidden):
                if place.get(name) is value:
                    del place[name]

    def _swap(self, now: Rules | None) -> None:
        """Replace the names that IPython sets in front of the builtins."""
        wanted = {} if now is None else {"get_ipython": self._get_ipython}
        if now is not None:
            wanted.update({name: self._exits[name] for name in _EXITS if name in now.builtins})
        names, hidden = self._shell.user_ns, self._shell.user_ns_hidden
        for name in ("get_ipython", *_EXITS):
            real = self._away.setdefault(name, hidden.get(name))
            value = wanted.get(name, real)
            if hidden.get(name) is not value:
                if names.get(name) is hidden.get(name):  # else it was set by the user
                    names[name] = value
                hidden[name] = value


class Blocked:
    """Replaces a builtin that may not be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    @unseen
    def __call__(self, *_args: Any, **_options: Any) -> Any:
        raise rules.blocked_builtin(self.__name__)

    def __repr__(self) -> str:
        return f"<blocked function {self.__name__}>"


class BlockedExit(Blocked, ExitAutocall):  # type: ignore[misc]
    """`exit` on a line of its own is a call."""


class Accessor:
    """`getattr` and similar functions, without some names."""

    __slots__ = ("__name__", "__qualname__", "_real")

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real
        self.__name__ = self.__qualname__ = real.__name__

    @unseen
    def __call__(self, /, *args: Any, **options: Any) -> Any:
        if len(args) > 1 and isinstance(args[1], str):
            args = (args[0], plain(args[1]), *args[2:])
            if args[1] in state.attributes:
                raise rules.blocked_attribute(args[1])
        return self._real(*args, **options)

    def __repr__(self) -> str:
        return f"<built-in function {self.__name__}>"

    def __reduce__(self) -> Any:
        """A pickled method refers to the `getattr` of the code that pickled it."""
        return functools.partial, (self._real,)


def _words(codes: Iterable[types.CodeType]) -> Iterator[str]:
    """Names that code uses; with a magic, whose code is text, also the words of its strings."""
    todo = list(codes)
    texts: list[str] = []
    has_magic = False
    for code in todo:
        yield from code.co_names
        has_magic = has_magic or "get_ipython" in code.co_names
        todo.extend(value for value in code.co_consts if isinstance(value, types.CodeType))
        texts.extend(value for value in code.co_consts if isinstance(value, str))
    if has_magic:
        for text in texts:
            yield from _WORD.findall(text)


def _allows(now: Rules, target: str) -> bool:
    module, _, attribute = target.partition(":")
    return target == "@cwd" or now.allows(f"{module}.{attribute}" if attribute else module)


def _resolve(target: str, now: Rules) -> Any:
    if not _allows(now, target):
        raise ImportError(target)
    if target == "@cwd":
        return os.getcwd()
    module, _, attribute = target.partition(":")
    value = importlib.import_module(module)
    return getattr(value, attribute) if attribute else value
