"""The object that `get_ipython()` returns to guarded user code: only what cells need.

Libraries call `IPython.get_ipython()` and get the shell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import IPython
from IPython.core.alias import Alias
from IPython.core.magic import MagicAlias

from . import rules
from .magics import SCRIPTS
from .rules import state
from .unseen import unseen

# Magics that start a process, or load code without review.
_LINE_COMMANDS = frozenset(
    """
    system sx sc ! !! run load_ext reload_ext autoreload alias alias_magic rehashx edit ed micromamba
    """.split()
)
_CELL_COMMANDS = frozenset(["system", "sx", "!", "!!", "pypy", "python2", *SCRIPTS])
_WRITERS = frozenset(["writefile", "file", "save", "notebook", "logstart"])
_ANSWERED = ("install", "list", "freeze")  # answered by the kernel itself, without a process
_INSTALLERS = frozenset(["pip", "conda", "mamba", "uv"])
_SHOWN = frozenset(["execution_count", "user_ns", "config", "colors", "ast_node_interactivity"])

_shell: Any = None


class Facade:
    """Looks like the shell to cells."""

    __slots__ = ()

    @unseen
    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        if _refuses_line(magic_name, line):
            raise rules.blocked_command(f"%{magic_name} {line}")
        return _shell.run_line_magic(magic_name, line, _stack_depth + 2)

    @unseen
    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        if _refuses_cell(magic_name):
            raise rules.blocked_command(f"%%{magic_name} {line}")
        return _shell.run_cell_magic(magic_name, line, cell)

    @unseen
    def magic(self, arguments: str) -> Any:
        name, _, line = arguments.strip().removeprefix("%").partition(" ")
        return self.run_line_magic(name, line.strip(), 3)

    @unseen
    def system(self, cmd: str) -> None:
        _need_commands(cmd)
        _shell.system(cmd, depth=3)

    system_piped = system_raw = system

    @unseen
    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        _need_commands(cmd)
        return _shell.getoutput(cmd, split=split, depth=depth + 2)

    @unseen
    def run_cell(self, raw_cell: str, *args: Any, **options: Any) -> Any:
        return _shell.run_cell(raw_cell, *args, **options)

    @unseen
    def __getattr__(self, name: str) -> Any:
        if name in _SHOWN or state.rules is None:
            return getattr(_shell, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


# Programs detect their environment by the name of the class.
Facade.__name__ = Facade.__qualname__ = "Shell"


def install(shell: Any, own: dict[str, Any]) -> Callable[[], Any]:
    """Provide the facade to code with these builtins or the user's globals, by every way of
    asking.
    """
    global _shell
    _shell = shell
    facade = Facade()

    def get_ipython() -> Any:
        """The shell, as far as the caller may use it."""
        caller = sys._getframe(1)
        is_users = caller.f_builtins is own or caller.f_globals is shell.user_ns
        return facade if is_users and state.rules is not None else shell

    IPython.get_ipython = IPython.core.getipython.get_ipython = get_ipython
    return get_ipython


def _refuses_line(name: str, line: str) -> bool:
    now = state.rules
    if now is None:
        return False
    if name in _WRITERS and "open" in now.builtins:
        return True
    if now.commands:
        return False
    if name in _INSTALLERS:
        return line.removeprefix("pip ").partition(" ")[0] not in _ANSWERED
    magic = _shell.find_line_magic(name)
    if isinstance(magic, MagicAlias):
        return _refuses_line(magic.magic_name, line)
    return name in _LINE_COMMANDS or isinstance(magic, Alias)


def _refuses_cell(name: str) -> bool:
    now = state.rules
    if now is None:
        return False
    if name in _WRITERS and "open" in now.builtins:
        return True
    magic = _shell.find_cell_magic(name)
    if isinstance(magic, MagicAlias):
        return _refuses_cell(magic.magic_name)
    return not now.commands and name in _CELL_COMMANDS


def _need_commands(command: str) -> None:
    if state.rules is not None and not state.rules.commands:
        raise rules.blocked_command(f"!{command}")
