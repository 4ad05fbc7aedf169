"""Packages of the session, for every Python that starts in it.

They come after the standard library and before the packages of the environment, as in the session's
own Python.
"""

from __future__ import annotations

import os
import sys

_PACKAGES = "/packages"


def _add() -> None:
    ends = ("site-packages", "dist-packages")
    places = [index for index, path in enumerate(sys.path) if path.endswith(ends)]
    sys.path.insert(places[0] if places else len(sys.path), _PACKAGES)


def _run_hidden() -> None:
    """Run the environment's own module of this name, which ours hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if path not in (here, _PACKAGES)]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if _PACKAGES not in sys.path:
    _add()
_run_hidden()
