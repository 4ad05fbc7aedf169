"""What programs expect of other places: modules of other services, and displays that read as text.

A module of another service is offered only to the user's own code: libraries look for it to find
out where they run.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any

from . import paths
from .channels import channels
from .errors import CELL_PREFIX
from .publish import note

LISTED_MAX = 10
_is_told = False  # that functions for the end of the session do not run
_LINKED = "The reply links the files of the session."


def install(plain: Any, rich: Any) -> None:
    """Register the modules, and text for objects that have only HTML or Markdown."""
    sys.meta_path.append(_Finder())
    displays = "IPython.core.display"
    plain.for_type_by_name(displays, "HTML", _printer(_text_of_html))
    for name in ("Markdown", "Latex", "Math"):
        plain.for_type_by_name(displays, name, _printer(lambda shown: shown.data))
    plain.for_type_by_name(displays, "JSON", _printer(_json))
    for name in ("FileLink", "FileLinks"):
        plain.for_type_by_name("IPython.lib.display", name, _printer(_link))
        rich.for_type_by_name("IPython.lib.display", name, lambda _shown: None)
    style = "pandas.io.formats.style"
    plain.for_type_by_name(style, "Styler", _printer(lambda shown: shown.to_string()))


def on_sympy_printing(module: Any) -> None:
    """`init_printing()` gives the source of formulas, not pictures, which would say the same."""
    begin = module._init_ipython_printing

    def _init_ipython_printing(shell: Any, text: Any, use: Any, *args: Any, **more: Any) -> None:
        begin(shell, text, "mathjax" if use else use, *args, **more)

    module._init_ipython_printing = _init_ipython_printing


def on_tqdm_notebook(module: Any) -> None:
    """Its bars are widgets, which do not exist here; without them, it has the bars of text."""
    if getattr(module, "IProgress", None) is None:
        std = sys.modules["tqdm.std"]
        module.tqdm = module.tqdm_notebook = std.tqdm
        module.trange = module.tnrange = std.trange


def on_atexit(module: Any) -> None:
    """A session outlives the program, and ends by force: functions left for its end never run."""
    real = module.register

    @functools.wraps(real)
    def register(func: Any, /, *args: Any, **options: Any) -> Any:
        global _is_told
        if not _is_told and channels.own() and _is_left_by_user(func, sys._getframe(1)):
            _is_told = True
            note(
                "atexit",
                "functions registered with atexit do not run here: the session goes on after the "
                "program; call them at the end of your code instead",
            )
        return real(func, *args, **options)

    module.register = register


def begin_script() -> None:
    """A program ends as a process does, and its functions are called: there is nothing to tell."""
    global _is_told
    _is_told = True


def _text_of_html(shown: Any) -> str:
    from .readable import text_of_html  # its parser has large tables, which few sessions need

    frames = shown.data.count("\n  frames[") if "new Animation(" in shown.data else 0
    if frames:  # matplotlib's `to_jshtml`, whose words are those of its buttons
        return f"<animation of {frames} frames; `save('animation.gif')` makes a file of it>"
    text = text_of_html(shown.data)
    return text or f"<HTML without text, {len(str(shown.data or '')):,} characters>"


def _printer(text: Callable[[Any], Any]) -> Callable[[Any, Any, bool], None]:
    """A printer of IPython's; an object whose text cannot be made is printed as before."""

    def show(shown: Any, printer: Any, _cycle: bool) -> None:
        try:
            said = text(shown)
        except Exception:
            said = None
        printer.text(said if isinstance(said, str) and said else repr(shown))

    return show


def _json(shown: Any) -> str:
    return json.dumps(shown.data, ensure_ascii=False, default=str)


def _link(shown: Any) -> str:
    path = os.path.relpath(shown.path)
    return f"{path}: {_LINKED}" if os.path.exists(path) else f"{path}: there is no such file."


def _files() -> str:
    names = sorted(entry.name for entry in os.scandir() if entry.is_file())
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return (", ".join(map(repr, names[:LISTED_MAX])) + more) if names else "none"


def _download(filename: Any, *_args: Any, **_options: Any) -> None:
    """`google.colab.files.download`."""
    path = paths.for_reading(filename) or os.fspath(filename)
    if not os.path.exists(path):
        raise FileNotFoundError(2, os.strerror(2), path)
    print(f"{os.path.relpath(path)}: {_LINKED}")


def _upload(*_args: Any, **_options: Any) -> None:
    """`google.colab.files.upload`."""
    raise RuntimeError(
        "files.upload() is not available: nobody can choose a file here. Files that were uploaded to "
        f"the session are in the working directory, and are opened by name: {_files()}"
    )


def _mount(*_args: Any, **_options: Any) -> None:
    """`google.colab.drive.mount`."""
    print(f"There is no Google Drive here; files are in the working directory, {os.getcwd()}.")


def _display_dataframe(name: str = "", dataframe: Any = None, **_options: Any) -> None:
    """`ace_tools.display_dataframe_to_user`."""
    from IPython.display import display

    if name:
        print(name)
    display(dataframe)


def _nothing(*_args: Any, **_options: Any) -> None:
    """Does nothing."""


_MODULES: dict[str, dict[str, Any]] = {
    "google": {"__path__": []},
    "google.colab": {"__path__": []},
    "google.colab.files": {"download": _download, "upload": _upload, "view": _download},
    "google.colab.drive": {"mount": _mount, "flush_and_unmount": _nothing},
    "google.colab.output": {"clear": _nothing},
    "ace_tools": {"display_dataframe_to_user": _display_dataframe},
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: an installed module of that name comes first."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _MODULES or not _is_users(sys._getframe(1)):
            return None
        return importlib.machinery.ModuleSpec(
            name, self, origin="woma", is_package="__path__" in _MODULES[name]
        )

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> None:
        """The import system makes an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_MODULES[module.__name__])


def _is_left_by_user(func: Any, frame: FrameType) -> bool:
    """Whether the user's code registers the function. Of libraries in C, the caller is the user's
    code as well: it must name `register`, or the function must be its own.
    """
    if not _is_users(frame):
        return False
    file = getattr(getattr(func, "__code__", None), "co_filename", "")
    return _is_own(file) or "register" in frame.f_code.co_names


def _is_own(file: str) -> bool:
    """Whether code of this file is the user's. Generated code has names such as `<internal>`."""
    if file[:1] in ("", "<"):
        return file.startswith(CELL_PREFIX)
    return paths.is_inside(file)


def _is_users(frame: FrameType | None) -> bool:
    """Whether the import statement that led here is the user's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen importlib"):
            # `importlib.import_module` and the guard's import are on the way.
            if "importlib" not in file and not file.startswith(os.path.dirname(__file__)):
                return _is_own(file)
        frame = frame.f_back
    return False
