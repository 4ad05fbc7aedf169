"""Previews: pictures of plotly and bokeh figures that matplotlib draws from their data.

What cannot be drawn is named, in the picture and to the caller.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .paper import Paper, own_settings

SCALE = 1.5
PREVIEW_SIDE_MAX = 2100  # pixels of a preview
PIXELS_MAX = 40_000_000  # of a picture that is written to a file
FORMATS = ("png", "jpg", "jpeg", "webp", "svg", "pdf")
_SIZES = ("width", "height", "scale")


def preview(module: str, figure: Any) -> tuple[bytes | None, str]:
    """A preview of a figure, and what it lacks. Without a picture if nothing can be drawn."""
    try:
        with _quietly():
            paper = _draw(module, figure, None, None)
            if not paper.drawn and paper.missing:
                return None, _lacks(paper)
            paper.sign()
            scale = min(SCALE, PREVIEW_SIDE_MAX / max(paper.width, paper.height))
            return paper.save("png", scale), _lacks(paper)
    except Exception:  # the figure itself is shown all the same
        return None, ""


def picture(drawn: tuple[str, Any], kind: Any, sizes: tuple[Any, Any, Any]) -> tuple[bytes, str]:
    """A figure as a file of this format, and what the picture lacks.

    `sizes` are a width, a height and a scale, or nothing in their place.
    """
    kind = str(kind).lower().lstrip(".")
    if kind not in FORMATS:
        raise ValueError(
            f"a picture cannot be written as {kind!r} here: use one of {', '.join(FORMATS)}; "
            "write_html() and write_json() write the figure itself"
        )
    width, height, scale = (_size(name, size) for name, size in zip(_SIZES, sizes, strict=True))
    scale = scale or 1.0
    with _quietly():
        try:
            paper = _draw(*drawn, width, height)
        except Exception as error:
            raise RuntimeError(
                "this figure cannot be drawn as a picture here, where no browser can run "
                f"({type(error).__name__}: {error}): write it as an HTML page instead"
            ) from error
        if not paper.drawn and paper.missing:
            raise RuntimeError(
                f"nothing of this figure can be drawn as a picture here ({_lacks(paper)}), where "
                "no browser can run: write it as an HTML page instead"
            )
        across, up = paper.width * scale, paper.height * scale
        if across * up > PIXELS_MAX:
            raise ValueError(
                f"a picture of {across:.0f} × {up:.0f} pixels is too large: at most {PIXELS_MAX:,} "
                "pixels can be drawn; lower the width, height or scale"
            )
        return paper.save(kind, scale), _lacks(paper)


@contextmanager
def _quietly() -> Iterator[None]:
    """Warnings about our drawing are of no use to the user."""
    with own_settings(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _draw(module: str, figure: Any, width: float | None, height: float | None) -> Paper:
    draw = importlib.import_module(f"{__package__}.{module}").draw
    paper: Paper = draw(figure, width, height)
    return paper


def _size(name: str, size: Any) -> float | None:
    if size is None:
        return None
    number = float(size)
    if not 0 < number < float("inf"):
        raise ValueError(f"the {name} of a picture must be a positive number, not {size!r}")
    return number


def _lacks(paper: Paper) -> str:
    missing = [f"not drawn: {', '.join(paper.missing)}"] if paper.missing else []
    return "; ".join([*missing, *dict.fromkeys(paper.remarks)])
