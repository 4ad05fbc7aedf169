"""Magics and shell commands: code of a notebook must not fail just because this is not one."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.error import UsageError

from . import first_imports, packages

_TIMED = re.compile(r"\s*%%time[ \t]*\r?\n")
# IPython copies the output of these through a thread, which belongs to the run that started it.
SCRIPTS = {
    "script": [],
    "bash": ["bash", "-s"],
    "sh": ["sh", "-s"],
    "perl": ["perl", "-"],
    "ruby": ["ruby", "-"],
    "python": [sys.executable, "-"],
    "python3": [sys.executable, "-"],
}
# Extensions that would bring `%sql`, which is there without them.
SQL_EXTENSIONS = frozenset(("sql", "duckdb_magic", "magic_duckdb"))


class ShellCommands:
    """Part of the shell that runs magics and commands; mixed in before IPython's own."""

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        if magic_name in ("pip", "conda", "mamba", "uv"):
            packages.pip(line.removeprefix("pip ") if magic_name == "uv" else line)
            return None
        if magic_name in ("matplotlib", "pylab"):
            return None
        if magic_name == "config" and line.lstrip().startswith(("InlineBackend", "SqlMagic")):
            return None
        if magic_name == "sql" and self._is_ours("line", "sql"):
            from .datasets import magic

            return magic.line(self.user_ns, line)  # type: ignore[attr-defined]
        if magic_name in ("load_ext", "reload_ext") and line.strip() in SQL_EXTENSIONS:
            return None
        if magic_name == "run":
            self._expect_imports(line)
        try:
            return super().run_line_magic(magic_name, line, _stack_depth + 1)  # type: ignore[misc]
        except UsageError as error:
            _warn(error)
        except ImportError as error:
            if not magic_name.endswith("load_ext"):
                raise
            _warn(error)
        return None

    def _is_ours(self, kind: str, name: str) -> bool:
        """Whether no extension has a magic of this name."""
        return name not in self.magics_manager.magics[kind]  # type: ignore[attr-defined]

    @staticmethod
    def _expect_imports(line: str) -> None:
        for word in line.split():
            if not word.startswith("-"):
                return first_imports.begin_file(word if word.endswith(".py") else word + ".py")

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        if magic_name in SCRIPTS and not line.startswith("-"):
            command = [*SCRIPTS[magic_name], *shlex.split(line)]
            process = subprocess.run(command, input=cell.encode(), check=False)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, f"%%{magic_name}")
            return None
        if magic_name == "sql" and self._is_ours("cell", "sql"):
            from .datasets import magic

            return magic.cell(self.user_ns, line, cell)  # type: ignore[attr-defined]
        try:
            return super().run_cell_magic(magic_name, line, cell)  # type: ignore[misc]
        except UsageError as error:
            _warn(error)
        return None

    def system(self, cmd: str, depth: int = 1) -> None:
        """`!cmd`: the child writes to our descriptors itself, so that output is neither copied nor
        reordered.
        """
        command = self.var_expand(cmd, depth=depth)  # type: ignore[attr-defined]
        pip = packages.COMMAND.match(command)
        if pip and not packages.SHELL.search(command):
            # As the program of that name would, without its start.
            status = packages.pip(pip.group(1))
        else:
            bash = "/bin/bash" if os.path.exists("/bin/bash") else None
            status = subprocess.call(command, shell=True, executable=bash)
        self.user_ns["_exit_code"] = status  # type: ignore[attr-defined]

    system_piped = system_raw = system


@contextmanager
def timed() -> Iterator[None]:
    """The output of `%%time`."""
    wall, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    try:
        yield
    finally:
        wall, now = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
        user, system = now.ru_utime - cpu.ru_utime, now.ru_stime - cpu.ru_stime
        print(
            f"CPU times: user {_span(user)}, sys: {_span(system)}, total: {_span(user + system)}\n"
            f"Wall time: {_span(wall)}"
        )


def without_time_magic(source: str) -> tuple[str, bool]:
    """A cell under `%%time` runs like any other, including line numbers; it is only timed."""
    match = _TIMED.match(source) if "%%time" in source else None
    if match is None:
        return source, False
    return "\n" * match.group().count("\n") + source[match.end() :], True


def _span(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _warn(error: Exception) -> None:
    print(f"ignored: {error}", file=sys.stderr)
