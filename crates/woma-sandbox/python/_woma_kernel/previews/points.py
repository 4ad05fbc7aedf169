"""Looks that kinds of plotly traces share: colours, sizes, error bars, names."""

from __future__ import annotations

from typing import Any

import numpy as np

from .paper import clean, color
from .values import items, numbers

POINTS_MAX = 50_000  # of a trace
TEXTS_MAX = 200  # of a trace
FEW = 20  # points below which plotly shows markers on lines


def mode(trace: dict[str, Any], length: int) -> str:
    if trace.get("mode"):
        return str(trace["mode"])
    if trace.get("stackgroup"):
        return "lines"
    return "lines+markers" if length < FEW else "lines"


def diameters(spots: dict[str, Any], chosen: Any) -> Any:
    """Sizes of markers in pixels: one, or one for each."""
    given = spots.get("size", 6)
    if given is None or isinstance(given, (int, float)):
        return 6 if given is None else given
    sizes = np.nan_to_num(numbers(given))
    sizes = np.resize(sizes, int(chosen.max()) + 1)[chosen] if len(sizes) and len(chosen) else sizes
    reference = spots.get("sizeref", 1) or 1
    if spots.get("sizemode") == "area":
        found = 2 * np.sqrt(np.maximum(sizes, 0) / 2 / reference)
    else:
        found = sizes / reference
    return np.where(found > 0, np.maximum(found, spots.get("sizemin", 0) or 0), 0)


def colors(
    plot: Any, spots: dict[str, Any], chosen: Any, otherwise: Any, opacity: Any = None
) -> Any:
    """One colour, or one for each of the chosen points."""
    given = spots.get("color")
    if given is None or isinstance(given, str):
        return color(given, otherwise, opacity)
    given = items(given)
    if not len(given) or not len(chosen):
        return color(None, otherwise, opacity)
    if any(isinstance(each, str) for each in given):
        found = [color(given[index % len(given)], otherwise, opacity) for index in chosen]
        return np.array(found)
    values = numbers(given)
    tints, span = plot.paint(spots, values)
    found = tints(span(np.resize(values, int(chosen.max()) + 1)[chosen]))
    if opacity is not None:
        found[:, 3] *= opacity
    return found


def one_of(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) else otherwise


def errors(panel: Any, trace: dict[str, Any], x: Any, y: Any, chosen: Any, tint: Any) -> None:
    """Error bars in both directions."""
    for key, along in (("error_x", x), ("error_y", y)):
        given = trace.get(key) or {}
        has_values = given.get("array") is not None or given.get("value") is not None
        if not has_values or given.get("visible") is False:
            continue
        up = _reach(given, "array", "value", along, chosen)
        down = _reach(given, "arrayminus", "valueminus", along, chosen)
        has_own = given.get("arrayminus") is not None or given.get("valueminus") is not None
        down = down if has_own and given.get("symmetric") is not True else up
        ink = color(given.get("color"), tint)
        cap = one_of(given.get("width"), 4) * 0.72
        option = {"xerr" if key == "error_x" else "yerr": np.abs([down, up])}
        thick = one_of(given.get("thickness"), 2) * 0.6
        panel.ax.errorbar(
            x, y, fmt="none", ecolor=ink, elinewidth=thick, capsize=cap, zorder=3.2, **option
        )
        (panel.x if key == "error_x" else panel.y).cover(np.concatenate([along - down, along + up]))


def _reach(given: dict[str, Any], array: str, value: str, along: Any, chosen: Any) -> Any:
    if given.get(array) is not None:
        found = np.nan_to_num(numbers(given[array]))
        return (
            np.pad(found, (0, max(0, len(along) - len(found))))[chosen] if len(found) else 0 * along
        )
    number = float(given.get(value) or 0)
    return (
        np.abs(along) * number / 100
        if given.get("type", "percent") == "percent"
        else 0 * along + number
    )


def is_listed(plot: Any, trace: dict[str, Any]) -> bool:
    return bool(plot.lists(trace))


def name_of_trace(trace: dict[str, Any]) -> str:
    return clean(
        trace.get("name") if trace.get("name") is not None else f"trace {trace['_number']}"
    )
