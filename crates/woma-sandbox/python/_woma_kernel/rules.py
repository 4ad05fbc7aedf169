"""The rules of the current run, and the notes about refusals.

Not a security boundary: user code shares memory with these rules and can bypass them. The Linux
kernel enforces what an attacker must not do.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from . import publish, refusals
from .channels import channels

NOTES_MAX = 100  # most notes about refusals in one run
SUBJECT_CHARS_MAX = 200
ANSWERS_MAX = 10_000
_BY_POLICY = "not allowed by this server's policy"


class Rules:
    """The guard of a run, prepared for lookups."""

    def __init__(self, guard: dict[str, Any]) -> None:
        self.guard = guard
        self.lists = [frozenset(names) for names in guard["imports"]]
        self.builtins = frozenset(guard["builtins"])
        self.attributes = frozenset(guard["attributes"])
        self.commands: bool = guard["commands"]
        self.annotate: bool = guard["annotate"]
        self.names: dict[str, str] = guard["names"]
        self._answers: dict[str, bool] = {}

    def allows(self, module: str) -> bool:
        """Whether every list has the module or one of its parents."""
        answer = self._answers.get(module)
        if answer is None:
            if len(self._answers) == ANSWERS_MAX:
                self._answers.clear()
            parts = module.split(".")
            above = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
            # The compiler has handled a future statement; its import has no effect.
            answer = module == "__future__" or not any(map(above.isdisjoint, self.lists))
            self._answers[module] = answer
        return answer

    def allows_below(self, module: str) -> bool:
        """Whether a submodule of the module is allowed."""
        start = module + "."
        return any(
            name.startswith(start) and self.allows(name) for names in self.lists for name in names
        )


class State:
    """State shared by all parts of the guard; one per process. `rules` is None without a guard."""

    def __init__(self) -> None:
        self.rules: Rules | None = None
        self.attributes: frozenset[str] = frozenset()
        self._cell = ""
        self._told: set[tuple[str, str, int | None]] = set()

    def begin(self, rules: Rules | None, cell: str) -> None:
        self.rules = rules
        self.attributes = rules.attributes if rules else frozenset()
        self._cell = cell
        self._told.clear()

    def tell(self, code: str, text: str, subject: str) -> bool:
        """Note a refusal, once per run."""
        subject = subject[:SUBJECT_CHARS_MAX]
        line = self._line()
        known = (code, subject, line)
        if known in self._told or len(self._told) >= NOTES_MAX:
            return False
        self._told.add(known)
        if channels.own():
            publish.note(code, text, subject, line)
        return True

    def _line(self) -> int | None:
        """Current line of the cell; a function of an earlier cell was called from there."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self._cell:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return None


state = State()


def blocked_builtin(name: str) -> PermissionError:
    return _refused("blocked_builtin", f"{name}() ({_BY_POLICY})", name)


def blocked_attribute(name: str) -> PermissionError:
    return _refused("blocked_attribute", f"attribute {name} ({_BY_POLICY})", name)


def blocked_command(command: str) -> PermissionError:
    command = command.strip()[:SUBJECT_CHARS_MAX]
    return _refused("blocked_command", f"{command} (commands are {_BY_POLICY})", command)


def hidden_attribute(module: str, attribute: str) -> AttributeError:
    """An attribute of a package of which only other parts are allowed."""
    name = f"{module}.{attribute}"
    text = f"[sandbox] BLOCKED: attribute {name} (module {module} not in allowed list)"
    state.tell("blocked_attribute", text, name)
    return refusals.mark(AttributeError(text, name=attribute))


def blocked_import(what: str, module: str, annotate: bool) -> ImportError:
    text = f"[sandbox] BLOCKED: {what}"
    if state.tell("blocked_import", text, module) and annotate:
        with suppress(Exception):  # the stream may be the user's
            sys.stderr.write(f"# {text}\n")
    return refusals.mark(ImportError(text, name=module))


def plain(text: str) -> str:
    """The text itself, whatever a subclass of `str` returns."""
    return text if type(text) is str else str.__str__(text)


def _refused(code: str, what: str, subject: str) -> PermissionError:
    text = f"[sandbox] BLOCKED: {what}"
    state.tell(code, text, subject)
    return refusals.mark(PermissionError(text))
