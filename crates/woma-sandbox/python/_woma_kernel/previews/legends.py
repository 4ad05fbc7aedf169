"""Annotations and legends of bokeh."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .columns import Glyph, line_style
from .paper import POINT, clean, color, color_map
from .texts import short
from .values import name_of

_SILENT = {
    "Grid",
    "Legend",
    "LinearAxis",
    "LogAxis",
    "DatetimeAxis",
    "CategoricalAxis",
    "Title",
    "ToolbarPanel",
}
_POINTS = {"Scatter", "Circle"}
_LINES = {"Line", "Step", "MultiLine", "Segment"}


def mark(view: Any, model: Any) -> None:
    """Draw an annotation; one that cannot be drawn is named."""
    kind = type(model).__name__
    if kind in _SILENT or not getattr(model, "visible", True):
        return
    act = _MARKS.get(kind)
    if act is None:
        view.paper.miss(kind)
        return
    try:
        act(view, model)
    except NotImplementedError as error:
        view.paper.miss(f"{kind} with {error}")


def _span(view: Any, model: Any) -> None:
    across = model.dimension == "width"
    axis = view.ys["default"] if across else view.x
    place = float(axis.scale.places([model.location])[0])
    put = view.ax.axhline if across else view.ax.axvline
    look = color(model.line_color, "black", model.line_alpha)
    wide = float(model.line_width) * 0.72
    put(place, color=look, linewidth=wide, linestyle=line_style(model.line_dash), zorder=4)


def _box(view: Any, model: Any) -> None:
    ends = {}
    for key, axis in (
        ("left", view.x),
        ("right", view.x),
        ("bottom", view.ys["default"]),
        ("top", view.ys["default"]),
    ):
        given = getattr(model, key)
        is_place = given is not None and type(given).__name__ != "Node"
        ends[key] = float(axis.scale.places([given])[0]) if is_place else None
    face = color(model.fill_color, "#fff9ba", model.fill_alpha)
    if ends["left"] is None and ends["right"] is None:
        low, high = _ends(view.ys["default"], ends["bottom"], ends["top"])
        view.ax.axhspan(low, high, color=face, linewidth=0, zorder=1)
    elif ends["bottom"] is None and ends["top"] is None:
        low, high = _ends(view.x, ends["left"], ends["right"])
        view.ax.axvspan(low, high, color=face, linewidth=0, zorder=1)
    else:
        left, right = _ends(view.x, ends["left"], ends["right"])
        bottom, top = _ends(view.ys["default"], ends["bottom"], ends["top"])
        view.ax.fill_between([left, right], bottom, top, color=face, linewidth=0, zorder=1)


def _ends(axis: Any, low: float | None, high: float | None) -> tuple[float, float]:
    """Both ends; one that is not given is the end of the axis, or beyond."""
    every = axis.tight + axis.loose or [0.0, 1.0]
    room = max(every) - min(every) or 1.0
    return min(every) - room if low is None else low, max(every) + room if high is None else high


def _label(view: Any, model: Any) -> None:
    if model.x_units != "data" or model.y_units != "data":
        raise NotImplementedError("a place on the screen")
    place = view.x.scale.places([model.x])[0], view.ys["default"].scale.places([model.y])[0]
    look = color(model.text_color, "#444444")
    shift = (float(model.x_offset) * 0.72, float(model.y_offset) * 0.72)
    view.ax.annotate(
        clean(model.text),
        place,
        xytext=shift,
        textcoords="offset points",
        fontsize=12 * POINT,
        color=look,
        zorder=6,
    )


class _Columns(Glyph):
    """An annotation with a source of its own."""

    def __init__(self, view: Any, model: Any) -> None:
        self.view, self.glyph, self.order = view, model, 4.0
        self.data = dict(model.source.data)
        self.kind = type(model).__name__
        self.ax, self.x, self.y = view.ax, view.x, view.ys["default"]
        self.length = max((len(column) for column in self.data.values()), default=1)


def _whisker(view: Any, model: Any) -> None:
    columns = _Columns(view, model)
    upright = model.dimension == "height"
    along, across = (columns.y, columns.x) if upright else (columns.x, columns.y)
    base = columns.places("base", across)
    low, high = columns.places("lower", along), columns.places("upper", along)
    look = {"colors": [color(model.line_color, "black")], "linewidths": 0.8, "zorder": 4}
    (view.ax.vlines if upright else view.ax.hlines)(base, low, high, **look)
    tips = ("_", 7) if upright else ("|", 7)
    for ends in (low, high):
        x, y = (base, ends) if upright else (ends, base)
        view.ax.plot(
            x, y, linestyle="none", marker=tips[0], markersize=tips[1], color="black", zorder=4
        )
    along.cover(np.concatenate([low, high]))


def _band(view: Any, model: Any) -> None:
    columns = _Columns(view, model)
    base = columns.places("base", columns.x)
    low, high = columns.places("lower", columns.y), columns.places("upper", columns.y)
    view.ax.fill_between(
        base,
        low,
        high,
        color=color(model.fill_color, "#fff9ba", model.fill_alpha),
        linewidth=0,
        zorder=1.5,
    )
    columns.y.cover(np.concatenate([low, high]))


def _slope(view: Any, model: Any) -> None:
    if model.gradient is None or model.y_intercept is None:
        return
    start = float(model.y_intercept)
    look = color(model.line_color, "black")
    view.ax.axline(
        (0, start),
        slope=float(model.gradient),
        color=look,
        linewidth=float(model.line_width) * 0.72,
    )


def _color_bar(view: Any, model: Any) -> None:
    mapper = model.color_mapper
    if mapper is None or getattr(mapper, "low", None) is None or mapper.high is None:
        raise NotImplementedError("a range that is not given")
    paper, inner = view.paper, view.ax.get_position()
    box = (inner.x1 * paper.width + 14, inner.y0 * paper.height, 18, inner.height * paper.height)
    ax = paper.axes(box)
    low, high = float(mapper.low), float(mapper.high)
    shades = np.linspace(low, high, 256)[:, None]
    ax.imshow(
        shades,
        cmap=color_map(list(mapper.palette)),
        aspect="auto",
        origin="lower",
        extent=(0, 1, low, high),
    )
    ax.set_xticks([])
    ax.yaxis.tick_right()
    ax.yaxis.set_major_formatter(lambda value, _: short(value))
    ax.tick_params(length=2, labelsize=10 * POINT, labelcolor="#444444")
    if model.title:
        ax.set_title(clean(model.title), fontsize=11 * POINT, loc="left", color="#444444")


_MARKS = {
    "Span": _span,
    "BoxAnnotation": _box,
    "Label": _label,
    "Whisker": _whisker,
    "Band": _band,
    "Slope": _slope,
    "ColorBar": _color_bar,
}


def entries(view: Any, legend: Any) -> list[tuple[str, Any]]:
    """Names and samples of a legend."""
    found: list[tuple[str, Any]] = []
    for item in legend.items:
        if not item.renderers or not item.visible:
            continue
        glyph = Glyph(view, item.renderers[0], 0)
        label = item.label
        if type(label).__name__ == "Field":
            seen: dict[str, int] = {}
            for number, value in enumerate(glyph.data.get(label.field, [])):
                seen.setdefault(name_of(value), number)
            found.extend(
                (name, _sample(item.renderers, view, number)) for name, number in seen.items()
            )
        else:
            text = label.value if type(label).__name__ == "Value" else label
            found.append((str(text), _sample(item.renderers, view, item.index or 0)))
    return found


def _sample(renderers: list[Any], view: Any, number: int) -> Any:
    """A sample of the glyphs that share an entry."""
    look: dict[str, Any] = {"linestyle": "none"}
    for renderer in renderers:
        glyph = Glyph(view, renderer, 0)

        def one(part: str, glyph: Glyph = glyph) -> Any:
            tints = glyph.tints(part)
            return tints[number % len(tints)] if np.ndim(tints) > 1 and len(tints) else tints

        if glyph.kind in _LINES:
            look.update(color=one("line"), **glyph.line())
        elif glyph.kind in _POINTS:
            face = one("fill")
            look.update(marker="o", markerfacecolor=face, markeredgecolor=one("line"), markersize=6)
        else:
            return Patch(
                facecolor=one("fill"),
                edgecolor="none" if glyph.kind.endswith("Area") else one("line"),
            )
    return Line2D([], [], **look)
