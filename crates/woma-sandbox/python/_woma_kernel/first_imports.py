"""The first import of a preloaded module by user code does what it does in plain Python.

Libraries are imported before the fork: user code finds them in `sys.modules`, and its import would
do nothing. In plain Python a file of that name beside the program comes first, a `matplotlibrc` is
read, and variables for the number of threads are obeyed. So a module that a cell imports for the
first time is set aside if there is anything to do, and returns when the import statement runs.
"""

from __future__ import annotations

import _imp
import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import machinery, util
from os import R_OK
from types import ModuleType
from typing import Any

from . import figures, paths, threads
from .publish import note

# Modules that plain Python loads before a program starts, or that this kernel itself needs.
_KEPT = frozenset(["__main__", "encodings", "IPython", "traitlets", __name__.partition(".")[0]])
_DRAWING = frozenset(["matplotlib", "pylab", "mpl_toolkits", "seaborn", "pandas"])
_COMPUTING = frozenset(["numpy", "scipy", "pandas", "sklearn", "statsmodels", "seaborn"])
_exists = os.access  # raises nothing
_environ: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined] # raises nothing
SOURCE_BYTES_MAX = 1 << 20
_IMPORTS = re.compile(
    r"\bfrom\s+(\w+)[\w.]*\s+import\b|\bimport\s+([\w., \t]+)|\bimport_module\(\s*['\"](\w+)"
)
_FILE = re.compile(r"\.py\b")  # the cell itself may write the file

# Packages of the session: empty until it has any.
PACKAGES = "/packages"
PACKAGES_PRESENT = "/packages/.woma"

_preloaded: frozenset[str] = frozenset()
_installed: frozenset[str] = frozenset()  # folders of `sys.path` that are not the user's
_imported: set[str] = set()  # preloaded modules that user code has imported
aside: dict[str, dict[str, ModuleType]] = {}


def end_preload() -> None:
    """Called when everything is loaded that sessions share."""
    global _preloaded, _installed
    tops = {name.partition(".")[0] for name, module in sys.modules.items() if module}
    fixed = {name for name in tops if _imp.is_builtin(name) or _imp.is_frozen(name)}
    _preloaded = frozenset(tops - fixed - _KEPT)
    _installed = frozenset(sys.path)
    threads.end_preload()
    sys.meta_path.insert(0, _Finder())
    places = (n for n, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages")))
    sys.path.insert(next(places, len(sys.path)), PACKAGES)
    sys.path.insert(0, "")  # the working directory of a session


def example() -> str:
    """What most sessions import first, for the warm-up."""
    names = ["json", *sorted({"numpy", "pandas"} & _preloaded)]
    if "matplotlib" in _preloaded:
        names.append("matplotlib.pyplot as plt")
    return f"import {', '.join(names)}"


def begin_cell(text: str) -> None:
    """Set aside what this source imports, where that import has something to do.

    Every session gets here, and each object that is touched is memory that it does not share.
    """
    names = [name for name in _names(text) if name in _preloaded and name not in _imported]
    if not names:
        return
    _imported.update(names)
    own: list[str] = []
    for entry in sys.path:
        if entry in _installed:
            break
        own.append(entry)
    may_write = _FILE.search(text) is not None
    draws = "matplotlibrc" in text or b"MATPLOTLIBRC" in _environ or _exists("matplotlibrc", R_OK)
    computes = "_NUM_THREADS" in text or any([name in _environ for name in threads.VARIABLES])
    for name in names:
        if _exists(PACKAGES_PRESENT, R_OK) and _has(PACKAGES, name):
            _take_from_packages(name)
        elif may_write or any([_has(entry, name) for entry in own]):
            below = name + "."
            loaded = sys.modules.items()
            _set_aside(name, {n: m for n, m in loaded if n == name or n.startswith(below)})
        elif (draws and name in _DRAWING) or (computes and name in _COMPUTING):
            _set_aside(name, {name: sys.modules[name]})


def _take_from_packages(name: str) -> None:
    """The session has replaced a package that is preloaded. One with compiled modules cannot be
    loaded twice by one process.
    """
    below = name + "."
    modules = {n: m for n, m in sys.modules.items() if n == name or n.startswith(below)}
    suffixes = tuple(machinery.EXTENSION_SUFFIXES)
    compiled = [n for n, m in modules.items() if str(getattr(m, "__file__", "")).endswith(suffixes)]
    if not compiled:
        return _set_aside(name, modules)
    note(
        "package_preloaded",
        f"this session's Python has {name} loaded from the environment, and it has compiled modules: "
        f"the version that was installed is used by processes that you start, such as "
        f"`!python script.py`",
        subject=name,
    )


def begin_file(path: str) -> None:
    """The same for a file of the user that is about to run."""
    try:
        with open(path, "rb") as file:
            begin_cell(file.read(SOURCE_BYTES_MAX).decode("utf-8", "replace"))
    except (OSError, ValueError):  # whoever runs the file will say so
        pass


def forget() -> None:
    """Forget what was imported, as if no code had run."""
    _imported.clear()


def end_run() -> None:
    """Put back what was not imported after all."""
    for name, modules in aside.items():
        if name not in sys.modules:
            _imported.discard(name)
            sys.modules.update(modules)
    aside.clear()


def _names(text: str) -> Iterator[str]:
    """Top-level names of what a source imports."""
    for of_from, of_import, of_call in _IMPORTS.findall(text):
        if of_import:
            for part in of_import.split(","):
                yield part.partition(" as ")[0].partition(".")[0].strip()
        else:
            yield of_from or of_call


def _set_aside(name: str, modules: dict[str, ModuleType]) -> None:
    if name in modules:
        aside[name] = modules
        for each in modules:
            del sys.modules[each]


def _has(folder: Any, name: str) -> bool:
    start = f"{folder}/{name}" if folder else name
    return _exists(start + ".py", R_OK) or _exists(start + "/__init__.py", R_OK)


def _own_spec(name: str) -> machinery.ModuleSpec | None:
    """The user's own module of that name, if it comes before the installed ones."""
    own = list(itertools.takewhile(lambda entry: entry not in _installed, sys.path))
    if _exists(PACKAGES_PRESENT, R_OK):
        own.append(PACKAGES)
    spec = machinery.PathFinder.find_spec(name, own)
    return None if spec is None or spec.origin is None else spec  # a bare folder does not count


class _Finder:
    """Finds what was set aside, and sees each file of the user before it is loaded."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        if name in aside:
            own = _own_spec(name)
            if own is None:
                return util.spec_from_loader(name, _Return())
            if own.origin and own.origin.endswith(".py"):
                begin_file(own.origin)
            return own
        folder = next(iter(path), "") if path is not None else ""
        if not folder or folder.startswith(paths.home or "."):
            file = os.path.join(folder, name.rpartition(".")[2])
            for candidate in (file + ".py", os.path.join(file, "__init__.py")):
                if os.path.isfile(candidate):
                    begin_file(candidate)
        return None


class _Return:
    """A loader that returns the module which was set aside, as it was."""

    def __init__(self) -> None:
        self._spec: Any = None

    def create_module(self, spec: machinery.ModuleSpec) -> ModuleType:
        modules = aside.pop(spec.name)
        module = modules[spec.name]
        self._spec = module.__spec__
        sys.modules.update(modules)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        if module.__name__ in _DRAWING:
            figures.read_settings()
        if module.__name__ in _COMPUTING:
            threads.limit()
