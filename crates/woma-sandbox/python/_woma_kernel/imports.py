"""Adjustments of libraries, made when user code first imports them.

No library is imported that the user does not import: an environment may lack any of them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import socket
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from . import ceiling, figures, fonts, habits, pages, paths, pictures, stdin, vega
from .publish import publish

COLUMNS_DEFAULT = 200
_Address = namedtuple("snicaddr", "family address netmask broadcast ptp")  # noqa: PYI024


class _Watcher(importlib.abc.MetaPathFinder):
    """Lets the ordinary finders find a watched module, and calls back once it is loaded."""

    def __init__(self, watched: dict[str, Callable[[Any], None]]) -> None:
        self._watched = watched
        self._asking: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._watched or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = importlib.util.find_spec(name)  # re-entered, and then passes
        finally:
            self._asking.discard(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            told = self._watched.pop(name, None)
            if told is not None:
                told(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    watched: dict[str, Callable[[Any], None]] = {
        "matplotlib": figures.on_matplotlib,
        "matplotlib.pyplot": figures.on_pyplot,
        "matplotlib.figure": figures.on_figure,
        "matplotlib.font_manager": fonts.on_font_manager,
        "matplotlib.text": fonts.on_text,
        "matplotlib._text_helpers": figures.on_text_helpers,
        "pandas": _on_pandas,
        "pandas.io.common": paths.on_pandas_files,
        "sqlite3": paths.on_sqlite,
        "plotly.io": pages.on_plotly,
        "bokeh.io.showing": pages.on_bokeh,
        "bokeh.io.export": pictures.on_bokeh_export,
        "bokeh.io.output": pages.on_bokeh_output,
        "altair": vega.on_altair,
        "vl_convert": vega.on_vl_convert,
        "PIL.Image": _on_image,
        "PIL.ImageShow": _on_image_show,
        "cv2": _on_opencv,
        "atexit": habits.on_atexit,
        "getpass": _on_getpass,
        "psutil": _on_psutil,
        "sympy.interactive.printing": habits.on_sympy_printing,
        "tqdm.notebook": habits.on_tqdm_notebook,
        "joblib.externals.loky.backend.context": _on_loky,
    }
    for name in [name for name in watched if name in sys.modules]:
        watched.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _Watcher(watched))


def _on_getpass(module: Any) -> None:
    module.getpass = lambda prompt="Password: ", stream=None: stdin.input(prompt)


def _on_psutil(module: Any) -> None:
    """Report the session: the host's memory is not available to it, and it has one interface."""
    virtual_memory, swap_memory = module.virtual_memory, module.swap_memory

    def session_memory() -> Any:
        """Statistics about the memory of this session."""
        told, limit = virtual_memory(), ceiling.limit_bytes()
        if limit is None or limit >= told.total:
            return told
        used = min(ceiling.used_bytes(), limit)
        left = min(limit - used, told.available)
        known = {"total": limit, "available": left, "used": used, "free": left, "active": used}
        others = dict.fromkeys(set(told._fields) - known.keys(), 0)
        return told._replace(**{**others, **known, "percent": round(100 * used / limit, 1)})

    def session_swap() -> Any:
        """Statistics about swap, of which a session has none."""
        told = swap_memory()
        return told._replace(**{name: type(getattr(told, name))(0) for name in told._fields})

    def net_if_addrs() -> dict[str, list[Any]]:
        """The loopback interface, the only one of a session."""
        return {"lo": [_Address(socket.AF_INET, "127.0.0.1", "255.0.0.0", None, None)]}

    module.virtual_memory, module.swap_memory = session_memory, session_swap
    module.net_if_addrs = net_if_addrs


def _on_loky(module: Any) -> None:
    """It would look for processor cores in `/sys`, which a session does not have, and warn."""
    module.physical_cores_cache = os.cpu_count() or 1


def _on_pandas(module: Any) -> None:
    columns = os.environ.get("COLUMNS", "")
    module.set_option("display.width", int(columns) if columns.isdigit() else COLUMNS_DEFAULT)


def _on_image(module: Any) -> None:
    module.Image._repr_jpeg_ = None  # the same picture is offered as PNG


def _on_image_show(module: Any) -> None:
    class Viewer(module.Viewer):  # type: ignore[misc]
        def show(self, image: Any, **_options: Any) -> int:
            publish({"text/plain": repr(image), "image/png": image._repr_png_()})
            return 1

    module.register(Viewer(), 0)


def _on_opencv(module: Any) -> None:
    """No screen for windows, and no keyboard."""

    def imshow(winname: str, mat: Any) -> None:
        is_done, encoded = module.imencode(".png", mat)
        if is_done:
            publish({"text/plain": f"<picture {winname!r}>", "image/png": bytes(encoded)})

    def nothing(*_args: object, **_options: object) -> None:
        pass

    module.imshow = imshow
    module.waitKey = module.waitKeyEx = lambda delay=0: -1
    for name in ("namedWindow", "moveWindow", "resizeWindow", "setWindowTitle", "destroyWindow"):
        setattr(module, name, nothing)
    module.destroyAllWindows = module.startWindowThread = nothing
