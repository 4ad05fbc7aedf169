"""`__main__` as a module that other processes and `inspect` can find.

A process started by spawn or forkserver runs the main file again. A session has none, so one is
written when needed: the imports, functions, classes and plain constants of all cells so far, each
statement separately, so that one that fails does not affect the others. Calls are left out: a cell
without a main guard must not start its work again in every worker.
"""

from __future__ import annotations

import ast
import atexit
import inspect
import multiprocessing.spawn
import os
import re
import sys
import tempfile
import threading
import types
from typing import Any

from .errors import CELL_PREFIX

_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Calls that define something rather than do work.
_MAKERS = {"namedtuple", "NamedTuple", "TypeVar", "NewType", "Enum", "getLogger", "compile", "Path"}

_cells: dict[str, str] = {}
_folder = ""


def remember(cell: str, source: str) -> None:
    """Keep the source of a cell under its file name."""
    _cells[cell] = source


def forget() -> None:
    """Forgets every cell."""
    _cells.clear()


def source(cell: str) -> str:
    """Source of a cell, or an empty text."""
    return _cells.get(cell, "")


def cells(chars_max: int) -> dict[str, str]:
    """The latest cells by name, as many as fit."""
    found: dict[str, str] = {}
    for cell, text in reversed(_cells.items()):
        chars_max -= len(text)
        if chars_max < 0:
            break
        found[cell] = text
    return dict(reversed(found.items()))


def imported() -> list[str]:
    """Modules that cells have imported without binding a name, as `xml.dom` is through `xml`."""
    found: dict[str, None] = {}
    for text in _cells.values():
        for node in _definitions(text):
            if isinstance(node, ast.Import):
                found.update(
                    {name.name: None for name in node.names if "." in name.name and not name.asname}
                )
    return list(found)


def install(module: types.ModuleType) -> None:
    """Make `module` known as `__main__` to multiprocessing and to `inspect.getsource`."""
    prepare, getfile = multiprocessing.spawn.get_preparation_data, inspect.getfile

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = prepare(name)
        if sys.modules.get("__main__") is module:
            data.pop("init_main_from_name", None)
            data["init_main_from_path"] = _write()
        return data

    def get_file(thing: Any) -> str:
        if isinstance(thing, type) and thing.__module__ == "__main__":
            return _cell_of_class(thing) or getfile(thing)
        return getfile(thing)

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    inspect.getfile = get_file  # type: ignore[assignment]


def begin_session(module: types.ModuleType) -> None:
    """Place `__main__` in the working directory, where scripts look for their data."""
    path = os.path.join(os.getcwd(), "main.py")
    module.__file__ = path
    sys.argv[:] = [path]
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]


def begin_script(module: types.ModuleType, script: dict[str, Any]) -> None:
    """Set `sys.argv`, `__file__` and the first folder of `sys.path` as `python` does."""
    sys.argv[:] = script["argv"]
    file = script.get("file")
    if file is None:
        return
    module.__file__ = os.path.join(os.getcwd(), file)
    if sys.path[:1] == [""]:
        sys.path[0] = os.path.dirname(module.__file__)


def end_script() -> None:
    """End as a process does: wait for its threads, then call its `atexit` functions."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()


def end_run() -> None:
    """A fork server started in a run holds its pipes; the next run needs a new one."""
    server = sys.modules.get("multiprocessing.forkserver")
    if server is not None and server._forkserver._forkserver_pid is not None:
        server._forkserver._stop()


def _write() -> str:
    """Write the main file for the cells so far; a new name for every cell, because children compare
    names.
    """
    global _folder
    if not _folder:
        _folder = tempfile.mkdtemp(prefix="cells-")
    path = os.path.join(_folder, f"main_{len(_cells)}.py")
    if not os.path.exists(path):
        handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
        statements: list[ast.stmt] = []
        for source in _cells.values():
            for node in _definitions(source):
                future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
                if future:
                    statements.insert(0, node)
                else:
                    statements.append(ast.Try([node], [handler], [], []))
        text = ast.unparse(ast.fix_missing_locations(ast.Module(statements, [])))
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    return path


def _definitions(source: str) -> list[ast.stmt]:
    try:
        body = ast.parse(source).body
    except SyntaxError:  # the cell awaits at its top level, or failed for this very reason
        return []
    return [node for node in body if isinstance(node, _DEFINITIONS) or _is_constant(node)]


def _is_constant(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    if value is None:
        return False
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else None
        return (value.func.id if isinstance(value.func, ast.Name) else name) in _MAKERS
    return not any(isinstance(n, (ast.Call, ast.Await)) for n in ast.walk(value))


def _cell_of_class(thing: type) -> str | None:
    for member in vars(thing).values():
        code = getattr(member, "__code__", None)
        if isinstance(code, types.CodeType) and code.co_filename.startswith(CELL_PREFIX):
            return code.co_filename
    pattern = re.compile(rf"^\s*class\s+{re.escape(thing.__name__)}\b", re.MULTILINE)
    return next((cell for cell in reversed(_cells) if pattern.search(_cells[cell])), None)
