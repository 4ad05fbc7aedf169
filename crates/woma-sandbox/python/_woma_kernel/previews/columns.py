"""Properties of bokeh glyphs: columns of a source, single values, and what is computed of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .paper import color, color_map, dash, span_of
from .values import DAY_MILLISECONDS, name_of, numbers

_DASHES = {"dashed": "dash", "dotted": "dot", "dotdash": "dashdot", "dashdot": "dashdot"}


class Glyph:
    """A renderer whose properties are read as columns or single values."""

    def __init__(self, view: Any, renderer: Any, order: float) -> None:
        self.view, self.glyph, self.order = view, renderer.glyph, order
        self.data = dict(getattr(renderer.data_source, "data", {}))
        self.kind = type(self.glyph).__name__
        name = getattr(renderer, "y_range_name", "default")
        self.ax = view.axes.get(name, view.ax)
        self.x, self.y = view.x, view.ys.get(name, view.ys["default"])
        self.length = max((len(column) for column in self.data.values()), default=1)

    def get(self, key: str) -> Any:
        """Values of a property: a list, or one for all."""
        return self._read(getattr(self.glyph, key, None), key)

    def _read(self, given: Any, key: str) -> Any:
        kind = type(given).__name__
        if isinstance(given, str):
            is_column = given in self.data and not ("color" in key and _is_color(given))
            return self.data[given] if is_column else given
        if kind == "Value":
            return given.value
        if kind == "Field":
            return _transformed(self.data.get(given.field, []), given.transform, self)
        if kind == "Expr":
            return self._computed(given.expr)
        return given

    def _computed(self, expression: Any) -> Any:
        kind = type(expression).__name__
        if kind == "CumSum":
            total = np.cumsum(numbers(self.data[expression.field]))
            return np.concatenate([[0.0], total[:-1]]) if expression.include_zero else total
        if kind == "Stack":
            columns = [numbers(self.data[field]) for field in expression.fields]
            return np.sum(columns, 0) if columns else np.zeros(self.length)
        raise NotImplementedError(kind)

    def places(self, key: str, axis: Any) -> Any:
        """A property as places on an axis."""
        found = self.get(key)
        is_one = isinstance(found, (str, int, float)) or not hasattr(found, "__len__")
        values = [found] * self.length if is_one else found
        return places(values, axis)

    def sizes(self, key: str, axis: Any) -> Any:
        """A property as lengths along an axis."""
        found = self.get(key)
        values = (
            found
            if hasattr(found, "__len__") and not isinstance(found, str)
            else [found] * self.length
        )
        if axis.scale.kind != "date":
            return numbers(values)
        spans = [
            each.total_seconds() * 1000 if hasattr(each, "total_seconds") else each
            for each in values
        ]
        return numbers(spans) / DAY_MILLISECONDS

    def tints(self, part: str) -> Any:
        """Colours of lines or fills: one, or one for each."""
        given, alpha = self.get(f"{part}_color"), self.get(f"{part}_alpha")
        opaque = float(alpha) if isinstance(alpha, (int, float)) else 1.0
        if given is None:
            return "none"
        if isinstance(given, str) or (
            isinstance(given, tuple) and not isinstance(given[0], (str, tuple))
        ):
            return color(given, "#1f77b4", opaque)
        return np.array([color(each, "#1f77b4", opaque) for each in given])

    def line(self) -> dict[str, Any]:
        wide, style = self.get("line_width"), self.get("line_dash")
        wide = float(wide) if isinstance(wide, (int, float)) else 1.0
        return {"linewidth": wide * 0.72, "linestyle": line_style(style)}


def line_style(given: Any) -> Any:
    return dash(_DASHES.get(given, given) if isinstance(given, str) else given)


def _is_color(text: str) -> bool:
    return color(text, "#010203")[:3] != color("#010203")[:3]


def places(values: Any, axis: Any) -> Any:
    if axis.scale.kind != "category":
        return axis.scale.places(values if hasattr(values, "__len__") else list(values))
    found = []
    for value in values:
        if isinstance(value, (int, float, np.number)):
            found.append(float(value) - 0.5)  # the first factor is at a half
        elif isinstance(value, (tuple, list)) and value and isinstance(value[-1], (int, float)):
            rest = value[:-1]
            found.append(
                axis.scale.add(name_of(rest[0] if len(rest) == 1 else rest)) + float(value[-1])
            )
        else:
            found.append(float(axis.scale.add(name_of(value))))
    return np.array(found)


def _transformed(values: Any, transform: Any, glyph: Glyph) -> Any:
    kind = type(transform).__name__
    if kind == "CategoricalColorMapper":
        table = dict(zip(map(name_of, transform.factors), transform.palette, strict=False))
        return [table.get(name_of(value), "gray") for value in values]
    if kind in ("LinearColorMapper", "LogColorMapper", "EqHistColorMapper"):
        found = numbers(values)
        if kind == "LogColorMapper":
            found = np.log10(np.maximum(found, 1e-300))
        ends = [
            None if end is None else np.log10(end) if kind == "LogColorMapper" else end
            for end in (transform.low, transform.high)
        ]
        span = span_of(found, *ends)
        return [tuple(each) for each in color_map(list(transform.palette))(span(found))]
    if kind == "Dodge":
        axis = glyph.x if transform.range is glyph.view.plot.x_range else glyph.y
        spots = places(values, axis)
        shifted = spots + float(transform.value)
        return [float(each) + 0.5 for each in shifted] if axis.scale.kind == "category" else shifted
    if kind == "Jitter":
        axis = glyph.x if transform.range is glyph.view.plot.x_range else glyph.y
        spread = (np.arange(len(values)) * 0.618034 % 1 - 0.5) * float(transform.width)
        spots = places(values, axis) + spread
        return [float(each) + 0.5 for each in spots] if axis.scale.kind == "category" else spots
    if (
        kind in ("UndefinedType", "NoneType", "_UnsetType")
        or transform is None
        or "Unspecified" in repr(transform)
    ):
        return values
    raise NotImplementedError(kind)
