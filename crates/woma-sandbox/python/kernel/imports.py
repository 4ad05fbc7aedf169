"""What libraries need to be told here, said at the moment user code first imports them.

Nothing is imported that the user does not import: an environment may lack any of these.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from . import figures, pages, paths
from .publish import publish

COLUMNS_DEFAULT = 200


class _Watcher(importlib.abc.MetaPathFinder):
    """Lets the ordinary finders find a watched module, and calls back once it has run."""

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
            spec = importlib.util.find_spec(name)  # comes back here, and then passes
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
        "matplotlib.font_manager": figures.on_font_manager,
        "matplotlib._text_helpers": figures.on_text_helpers,
        "pandas": _on_pandas,
        "pandas.io.common": paths.on_pandas_files,
        "sqlite3": paths.on_sqlite,
        "plotly.io": pages.on_plotly,
        "altair": _on_altair,
        "PIL.Image": _on_image,
        "PIL.ImageShow": _on_image_show,
        "cv2": _on_opencv,
        "getpass": _on_getpass,
    }
    for name in [name for name in watched if name in sys.modules]:
        watched.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _Watcher(watched))


def no_input(*_args: object, **_options: object) -> str:
    raise EOFError(
        "input() is not available: there is nobody to answer. Put the value in the code instead."
    )


def _on_getpass(module: Any) -> None:
    module.getpass = no_input


def _on_pandas(module: Any) -> None:
    columns = os.environ.get("COLUMNS", "")
    module.set_option("display.width", int(columns) if columns.isdigit() else COLUMNS_DEFAULT)


def _on_altair(module: Any) -> None:
    module.renderers.enable("mimetype")


def _on_image(module: Any) -> None:
    module.Image._repr_jpeg_ = None  # the same picture is offered as PNG; once is enough


def _on_image_show(module: Any) -> None:
    class Viewer(module.Viewer):  # type: ignore[misc]
        def show(self, image: Any, **_options: Any) -> int:
            publish({"text/plain": repr(image), "image/png": image._repr_png_()})
            return 1

    module.register(Viewer(), 0)


def _on_opencv(module: Any) -> None:
    """There is no screen for its windows, and nobody who presses a key."""

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
