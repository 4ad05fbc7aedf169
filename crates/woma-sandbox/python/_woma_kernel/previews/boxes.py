"""Boxes, violins, candles of plotly."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Patch

from .paper import color, marker
from .points import POINTS_MAX, is_listed, name_of_trace
from .spec import orientation
from .values import items, numbers

CURVE_POINTS = 100
_UP, _DOWN = "#3D9970", "#FF4136"


def boxes(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    candles = [trace for trace in traces if trace["type"] != "box"]
    for trace in candles:
        _candles(plot, panel, trace)
    groups = [trace for trace in traces if trace["type"] == "box"]
    for trace, lying, place, width, values in _bodies(plot, panel, groups, "boxmode", "boxgap"):
        tint, face = _look(trace)
        stats = quartiles(values)
        _box(panel, lying, place, width, stats, (tint, face))
        shown = trace.get("boxpoints", "all" if len(values) == 0 else "outliers")
        if shown in ("all", "outliers", "suspectedoutliers"):
            points = values if shown == "all" else values[(values < stats[0]) | (values > stats[4])]
            _points(panel, trace, lying, points, (place, width))
        if trace.get("boxmean"):
            _mark(panel, lying, place, width, float(values.mean()), tint)
        (panel.x if lying else panel.y).cover(values)
    for trace in groups:
        if trace.get("q1") is not None:
            _given_boxes(plot, panel, trace)
        _list(plot, trace, *_look(trace))


def violins(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    for trace, lying, place, width, values in _bodies(
        plot, panel, traces, "violinmode", "violingap"
    ):
        tint, face = _look(trace)
        along, dense = density(values)
        reach = width / 2 * dense / max(float(dense.max()), 1e-300)
        side = trace.get("side", "both")
        low = place - (reach if side != "positive" else 0)
        high = place + (reach if side != "negative" else 0)
        fill = panel.ax.fill_betweenx if not lying else panel.ax.fill_between
        fill(along, low, high, facecolor=face, edgecolor=tint, linewidth=1.3, zorder=2.4)
        if (trace.get("box") or {}).get("visible"):
            _box(panel, lying, place, width * 0.25, quartiles(values), (tint, "white"))
        if (trace.get("meanline") or {}).get("visible"):
            _mark(panel, lying, place, width, float(values.mean()), tint)
        shown = trace.get("points", "outliers")
        stats = quartiles(values)
        if shown in ("all", "outliers"):
            points = values if shown == "all" else values[(values < stats[0]) | (values > stats[4])]
            _points(panel, trace, lying, points, (place, width))
        (panel.x if lying else panel.y).cover(along)
    for trace in traces:
        _list(plot, trace, *_look(trace))


def _bodies(
    plot: Any, panel: Any, traces: list[dict[str, Any]], mode_key: str, gap_key: str
) -> Any:
    """Each group of values with its place and width."""
    mode = plot.layout.get(mode_key) or "overlay"
    groups = list(dict.fromkeys(_group(trace) for trace in traces)) if mode == "group" else [""]
    share = (1 - float(plot.layout.get(gap_key, 0.3))) / max(len(groups), 1)
    for trace in traces:
        lying = orientation(trace) == "h"
        value_key, key = ("x", "y") if lying else ("y", "x")
        sizes, axis = (panel.x, panel.y) if lying else (panel.y, panel.x)
        values = sizes.scale.places(trace.get(value_key))[: POINTS_MAX * 20]
        if not len(values):
            continue
        places = axis.scale.places(trace.get(key))
        places = np.full(len(values), places[0]) if len(places) == 1 else places[: len(values)]
        values = values[: len(places)]
        known = np.unique(places[np.isfinite(places)])
        step = (
            float(np.diff(known).min()) if len(known) > 1 and axis.scale.kind != "category" else 1.0
        )
        shift = 0.0
        if mode == "group" and len(groups) > 1:
            shift = (groups.index(_group(trace)) - (len(groups) - 1) / 2) * share * step
        for place in known:
            chosen = values[(places == place) & np.isfinite(values)]
            axis.cover([place - step / 2, place + step / 2], is_loose=False)
            if not len(chosen):
                continue
            width = share * step * (0.9 if len(groups) > 1 else 1)
            if trace.get("boxpoints", trace.get("points")) == "all" and trace.get("pointpos") != 0:
                # The points stand on the left of a body that is narrower.
                yield trace, lying, place + shift + width * 0.2, width * 0.55, chosen
            else:
                yield trace, lying, place + shift, width, chosen


def _group(trace: dict[str, Any]) -> str:
    return str(trace.get("offsetgroup") or trace["_number"])


def _look(trace: dict[str, Any]) -> tuple[Any, Any]:
    spots, line = trace.get("marker") or {}, trace.get("line") or {}
    own = spots.get("color") if isinstance(spots.get("color"), str) else None
    tint = color(line.get("color") or own, trace["_color"])
    face = (
        color(trace["fillcolor"])
        if trace.get("fillcolor")
        else color(own or line.get("color"), trace["_color"], 0.5)
    )
    return tint, face


def _list(plot: Any, trace: dict[str, Any], tint: Any, face: Any) -> None:
    if is_listed(plot, trace):
        plot.paper.entries.append((name_of_trace(trace), Patch(facecolor=face, edgecolor=tint)))


def quartiles(values: Any) -> tuple[float, ...]:
    """Lower fence, quartiles, upper fence."""
    first, middle, third = (
        float(each) for each in np.percentile(values, (25, 50, 75), method="hazen")
    )
    reach = 1.5 * (third - first)
    low, high = values[values >= first - reach], values[values <= third + reach]
    return min(float(low.min()), first), first, middle, third, max(float(high.max()), third)


def density(values: Any) -> tuple[Any, Any]:
    """Places along a violin and their densities."""
    first, third = (float(each) for each in np.percentile(values, (25, 75)))
    spread = [each for each in (float(values.std()), (third - first) / 1.349) if each > 0]
    width = 1.059 * min(spread, default=1.0) * len(values) ** -0.2
    low, high = float(values.min()) - 2 * width, float(values.max()) + 2 * width
    along = np.linspace(low, high, CURVE_POINTS)
    heights, bins = np.histogram(values, bins=1000, range=(low, high))
    middles, full = (bins[:-1] + bins[1:]) / 2, heights > 0
    distance = (along[:, None] - middles[full][None, :]) / width
    return along, (np.exp(-0.5 * distance**2) * heights[full]).sum(1)


def _lines(panel: Any, lying: bool, segments: list[Any], tint: Any, wide: float = 1.4) -> None:
    if lying:
        segments = [[(y, x) for x, y in segment] for segment in segments]
    made = LineCollection(segments, colors=tint, linewidths=wide, zorder=2.6)
    panel.ax.add_collection(made, autolim=False)


def _box(
    panel: Any, lying: bool, place: float, width: float, stats: Any, look: tuple[Any, Any]
) -> None:
    low, first, middle, third, high = stats
    left, right = place - width / 2, place + width / 2
    body = [(left, first), (right, first), (right, third), (left, third)]
    corners = [(y, x) for x, y in body] if lying else body
    made = PolyCollection(
        [corners], facecolors=[look[1]], edgecolors=[look[0]], linewidths=1.4, zorder=2.5
    )
    panel.ax.add_collection(made, autolim=False)
    cap = width / 4
    segments = [
        [(left, middle), (right, middle)],
        [(place, low), (place, first)],
        [(place, third), (place, high)],
        [(place - cap, low), (place + cap, low)],
        [(place - cap, high), (place + cap, high)],
    ]
    _lines(panel, lying, segments, look[0])


def _mark(panel: Any, lying: bool, place: float, width: float, value: float, tint: Any) -> None:
    ends = [(place - width / 2, value), (place + width / 2, value)]
    if lying:
        ends = [(y, x) for x, y in ends]
    made = LineCollection([ends], colors=tint, linewidths=1.2, linestyles="dashed", zorder=2.7)
    panel.ax.add_collection(made, autolim=False)


def _points(
    panel: Any, trace: dict[str, Any], lying: bool, points: Any, body: tuple[float, float]
) -> None:
    if not len(points):
        return
    points = points[:: len(points) // POINTS_MAX + 1]
    place, width = body
    shown = trace.get("boxpoints") or trace.get("points")
    jitter = float(trace.get("jitter", 0.3 if shown == "all" else 0) or 0)
    shift = float(trace.get("pointpos", -1.8 if shown == "all" else 0) or 0) * width / 2
    tint = color((trace.get("marker") or {}).get("color"), trace["_color"])
    # A spread that looks random and is the same each time.
    spread = (np.arange(len(points)) * 0.618034 % 1 - 0.5) * width * jitter
    where = place + shift + spread
    x, y = (points, where) if lying else (where, points)
    symbol, is_open = marker((trace.get("marker") or {}).get("symbol"))
    size, edge = (8, 1) if symbol in ("|", "_") else (4, 1 if is_open else 0)
    face = "none" if is_open else tint
    look = {"markersize": size, "markeredgewidth": edge, "markerfacecolor": face}
    panel.ax.plot(x, y, color=tint, marker=symbol, linestyle="none", zorder=2.8, **look)


def _given_boxes(plot: Any, panel: Any, trace: dict[str, Any]) -> None:
    """Boxes whose quartiles are given."""
    lying = trace.get("orientation") == "h"
    axis, sizes = (panel.y, panel.x) if lying else (panel.x, panel.y)
    first, middle, third = (numbers(trace.get(key)) for key in ("q1", "median", "q3"))
    low = numbers(trace["lowerfence"]) if trace.get("lowerfence") is not None else first
    high = numbers(trace["upperfence"]) if trace.get("upperfence") is not None else third
    places = axis.scale.places(items(trace.get("y" if lying else "x")))
    places = places if len(places) == len(first) else np.arange(len(first), dtype=float)
    for number, place in enumerate(places):
        stats = [float(each[number]) for each in (low, first, middle, third, high)]
        _box(panel, lying, place, 0.6, stats, _look(trace))
        sizes.cover(stats)
        axis.cover([place - 0.5, place + 0.5], is_loose=False)


def _candles(plot: Any, panel: Any, trace: dict[str, Any]) -> None:
    opened, high, low, closed = (
        numbers(trace.get(key)) for key in ("open", "high", "low", "close")
    )
    length = min(len(opened), len(high), len(low), len(closed), POINTS_MAX)
    given = items(trace.get("x"))
    places = panel.x.scale.places(given)[:length] if len(given) else np.arange(length, dtype=float)
    length = len(places)
    gaps = np.diff(np.unique(places[np.isfinite(places)]))
    width = float(gaps.min()) * 0.7 if len(gaps) else 0.7
    for rises, key, otherwise in ((True, "increasing", _UP), (False, "decreasing", _DOWN)):
        look = trace.get(key) or {}
        tint = color((look.get("line") or {}).get("color"), otherwise)
        face = color(look["fillcolor"]) if look.get("fillcolor") else (*tint[:3], 0.5)
        chosen = [
            i for i in range(length) if (closed[i] >= opened[i]) == rises and np.isfinite(opened[i])
        ]
        wicks = [[(places[i], low[i]), (places[i], high[i])] for i in chosen]
        if trace["type"] == "ohlc":
            wicks += [[(places[i] - width / 2, opened[i]), (places[i], opened[i])] for i in chosen]
            wicks += [[(places[i], closed[i]), (places[i] + width / 2, closed[i])] for i in chosen]
        _lines(panel, False, wicks, tint, 1.2 if length < 150 else 0.8)
        if trace["type"] == "candlestick":
            half = width / 2
            bodies = [
                [
                    (places[i] - half, opened[i]),
                    (places[i] + half, opened[i]),
                    (places[i] + half, closed[i]),
                    (places[i] - half, closed[i]),
                ]
                for i in chosen
            ]
            made = PolyCollection(
                bodies,
                facecolors=[face],
                edgecolors=[tint],
                linewidths=1 if length < 150 else 0.5,
                zorder=2.7,
            )
            panel.ax.add_collection(made, autolim=False)
    panel.x.cover(np.concatenate([places - width, places + width]), is_loose=False)
    panel.y.cover(np.concatenate([low[:length], high[:length]]))
    if is_listed(plot, trace):
        plot.paper.entries.append((name_of_trace(trace), Patch(facecolor=_UP, edgecolor=_DOWN)))
