"""Variables such as `OMP_NUM_THREADS`, which numerical libraries read when they are loaded.

They are loaded before the code of a session runs, so the number is set afterwards.
"""

from __future__ import annotations

import os

from .publish import note

_OPENMP = ("OMP_NUM_THREADS",)
_BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")
VARIABLES = tuple(name.encode() for name in _BLAS)

_before: dict[str, str | None] = {}
_set: dict[str, str] = {}  # as last applied


def end_preload() -> None:
    _before.update({name: os.environ.get(name) for name in _BLAS})


def wanted() -> dict[str, str]:
    """The variables that the session has set."""
    now = {name: os.environ.get(name) for name in _BLAS}
    return {name: text for name, text in now.items() if text and text != _before.get(name)}


def limit() -> None:
    """Apply the variables to the libraries that are loaded already."""
    global _set
    found = wanted()
    if not found or found == _set:
        return
    _set = found
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        note(
            "threads",
            f"{', '.join(found)} has no effect here: numpy was loaded before the code ran, and "
            "the environment has no threadpoolctl that could change it",
        )
        return
    controller = ThreadpoolController()
    for api, names in (("openmp", _OPENMP), ("blas", _BLAS)):
        numbers = [found[name].partition(",")[0].strip() for name in names if name in found]
        number = next((int(text) for text in numbers if text.isdecimal() and int(text)), None)
        if number is not None:
            controller.limit(limits=number, user_api=api)
