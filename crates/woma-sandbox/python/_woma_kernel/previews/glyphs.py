"""Glyphs and annotations of bokeh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection

from .columns import Glyph
from .pieces import circles, image, many_lines, patch, polygons, text, wedge
from .points import POINTS_MAX
from .values import numbers

_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle": "^",
    "inverted_triangle": "v",
    "cross": "+",
    "x": "x",
    "asterisk": (6, 2, 0),
    "star": "*",
    "hex": "h",
    "plus": "P",
    "dot": ".",
    "dash": "_",
    "y": "1",
}


def draw(view: Any, renderer: Any, order: float) -> bool:
    """Draw a glyph; one that cannot be drawn is named."""
    kind = type(getattr(renderer, "glyph", renderer)).__name__
    act = _GLYPHS.get(kind)
    if act is None:
        view.paper.miss(kind)
        return False
    glyph = Glyph(view, renderer, order)
    try:
        act(glyph)
    except NotImplementedError as error:
        view.paper.miss(f"{kind} with {error}")
        return False
    return True


def _thinned(glyph: Glyph, *columns: Any) -> Any:
    step = len(columns[0]) // POINTS_MAX + 1
    if step > 1:
        glyph.view.paper.remarks.append(f"one in {step} points of a {glyph.kind} is drawn")
    return [column[::step] if np.ndim(column) else column for column in columns]


def _line(glyph: Glyph) -> None:
    x, y = _thinned(glyph, glyph.places("x", glyph.x), glyph.places("y", glyph.y))
    style = {"before": "steps-pre", "after": "steps-post", "center": "steps-mid"}
    drawn = (
        style.get(getattr(glyph.glyph, "mode", ""), "default")
        if glyph.kind == "Step"
        else "default"
    )
    glyph.ax.plot(
        x, y, color=glyph.tints("line"), drawstyle=drawn, zorder=glyph.order, **glyph.line()
    )
    glyph.x.cover(x)
    glyph.y.cover(y)


def _scatter(glyph: Glyph) -> None:
    x, y = glyph.places("x", glyph.x), glyph.places("y", glyph.y)
    faces, edges, size = glyph.tints("fill"), glyph.tints("line"), glyph.get("size")
    if getattr(glyph.glyph, "radius", None) is not None:
        circles(glyph, x, y)
        return
    given = glyph.get("marker") if glyph.kind == "Scatter" else "circle"
    wide = numbers(size) if hasattr(size, "__len__") else float(size or 4)
    x, y, faces, edges, wide = _thinned(
        glyph,
        x,
        y,
        *(np.asarray(each) if np.ndim(each) > 1 else each for each in (faces, edges)),
        wide,
    )
    names = [str(each) for each in given] if isinstance(given, (list, np.ndarray)) else [str(given)]
    for name in dict.fromkeys(names):
        base = name.partition("_")[0] if name != "inverted_triangle" else name
        symbol = _MARKERS.get(name) or _MARKERS.get(base, "o")
        part: Any = (
            slice(None) if len(names) == 1 else np.array([each == name for each in names])[: len(x)]
        )
        face, edge = (each[part] if np.ndim(each) > 1 else each for each in (faces, edges))
        area = ((wide[part] if np.ndim(wide) else wide) * 0.72) ** 2
        is_thin = symbol in ("+", "x", "_", "1")
        look = (
            {"c": edge if np.ndim(edge) > 1 else [edge]}
            if is_thin
            else {"facecolors": face, "edgecolors": edge}
        )
        glyph.ax.scatter(
            x[part], y[part], s=area, marker=symbol, linewidths=0.8, zorder=glyph.order, **look
        )
    glyph.x.cover(x)
    glyph.y.cover(y)


def _boxes(glyph: Glyph, left: Any, right: Any, bottom: Any, top: Any) -> None:
    floor = 1e-12 if glyph.y.scale.kind == "log" else -np.inf
    low, high = np.maximum(bottom, floor), np.maximum(top, floor)
    corners = [(left, low), (right, low), (right, high), (left, high)]
    polygons(
        glyph,
        np.stack([np.stack(corner, 1) for corner in corners], 1)
        if len(left)
        else np.zeros((0, 4, 2)),
    )


def _vbar(glyph: Glyph) -> None:
    x, half = glyph.places("x", glyph.x), glyph.sizes("width", glyph.x) / 2
    _boxes(glyph, x - half, x + half, glyph.places("bottom", glyph.y), glyph.places("top", glyph.y))


def _hbar(glyph: Glyph) -> None:
    y, half = glyph.places("y", glyph.y), glyph.sizes("height", glyph.y) / 2
    _boxes(glyph, glyph.places("left", glyph.x), glyph.places("right", glyph.x), y - half, y + half)


def _quad(glyph: Glyph) -> None:
    sides = (
        glyph.places(key, glyph.x if key in ("left", "right") else glyph.y)
        for key in ("left", "right", "bottom", "top")
    )
    _boxes(glyph, *sides)


def _rect(glyph: Glyph) -> None:
    x, y = glyph.places("x", glyph.x), glyph.places("y", glyph.y)
    wide, high = glyph.sizes("width", glyph.x) / 2, glyph.sizes("height", glyph.y) / 2
    _boxes(glyph, x - wide, x + wide, y - high, y + high)


def _segment(glyph: Glyph) -> None:
    ends = [
        glyph.places(key, glyph.x if key[0] == "x" else glyph.y) for key in ("x0", "y0", "x1", "y1")
    ]
    segments = np.stack([np.stack(ends[:2], 1), np.stack(ends[2:], 1)], 1)[:POINTS_MAX]
    look = {key + "s": value for key, value in glyph.line().items()}
    glyph.ax.add_collection(
        LineCollection(segments, colors=glyph.tints("line"), zorder=glyph.order, **look),
        autolim=False,
    )
    glyph.x.cover(segments[:, :, 0])
    glyph.y.cover(segments[:, :, 1])


def _area(glyph: Glyph) -> None:
    if glyph.kind == "VArea":
        x, low, high = (
            glyph.places(key, axis)
            for key, axis in (("x", glyph.x), ("y1", glyph.y), ("y2", glyph.y))
        )
        glyph.ax.fill_between(
            x, low, high, color=glyph.tints("fill"), linewidth=0, zorder=glyph.order
        )
        glyph.x.cover(x)
        glyph.y.cover(np.concatenate([low, high]))
    else:
        y, low, high = (
            glyph.places(key, axis)
            for key, axis in (("y", glyph.y), ("x1", glyph.x), ("x2", glyph.x))
        )
        glyph.ax.fill_betweenx(
            y, low, high, color=glyph.tints("fill"), linewidth=0, zorder=glyph.order
        )
        glyph.y.cover(y)
        glyph.x.cover(np.concatenate([low, high]))


_GLYPHS: dict[str, Callable[[Glyph], None]] = {
    "Line": _line,
    "Step": _line,
    "Scatter": _scatter,
    "Circle": _scatter,
    "VBar": _vbar,
    "HBar": _hbar,
    "Quad": _quad,
    "Rect": _rect,
    "Segment": _segment,
    "VArea": _area,
    "HArea": _area,
    "MultiLine": many_lines,
    "Patches": many_lines,
    "Patch": patch,
    "Wedge": wedge,
    "AnnularWedge": wedge,
    "Image": image,
    "ImageRGBA": image,
    "Text": text,
}
