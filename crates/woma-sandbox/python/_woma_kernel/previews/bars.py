"""Bars of plotly: bar charts, histograms, waterfalls, funnels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from .bins import bins_of, counts
from .labels import label
from .paper import color
from .points import POINTS_MAX, colors, errors, is_listed, name_of_trace
from .spec import orientation
from .texts import short
from .values import DAY_MILLISECONDS, items, numbers

MANY = 200  # bars that have no borders


@dataclass
class Series:
    """Bars of one trace, along one axis and up another."""

    trace: dict[str, Any]
    lying: bool
    along: Any
    up: Any
    places: Any
    values: Any
    widths: Any = None  # of histograms

    @property
    def group(self) -> str:
        return str(self.trace.get("offsetgroup") or self.trace["_number"])


def bars(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    """Place all bars of a panel beside or upon each other."""
    every = _series(panel, traces)
    layout = plot.layout
    mode = layout.get("barmode") or "group"
    if any(trace["type"] == "waterfall" for trace in traces):
        mode = layout.get("waterfallmode") or "group"
    step = _step([one.places for one in every])
    is_histogram = any(one.widths is not None for one in every)
    gap = layout.get("bargap")
    if gap is None:
        gap = 0.0 if is_histogram and every[0].along.scale.kind != "category" else 0.2
    has_groups = any(trace.get("offsetgroup") for trace in traces)
    groups = list(dict.fromkeys(one.group if has_groups else id(one) for one in every))
    _norm(every, layout.get("barnorm"))
    tops: dict[Any, float] = {}
    for one in every:
        room = (one.widths if one.widths is not None else np.full(len(one.places), step)) * (
            1 - gap
        )
        whole, shift = room, np.zeros(len(one.places))
        if mode == "group" and len(groups) > 1:
            share = room / len(groups)
            shift = (
                groups.index(one.group if has_groups else id(one)) - (len(groups) - 1) / 2
            ) * share
            room = share * (1 - float(layout.get("bargroupgap") or 0))
        own = one.trace.get("width")
        if own is not None and one.widths is None:
            room = np.resize(numbers(own), len(one.places))
            room = room / DAY_MILLISECONDS if one.along.scale.kind == "date" else room
        base = _base(one, mode, tops)
        _draw(plot, panel, one, (one.places + shift, base, room))
        if len(one.places):
            reach = np.maximum(np.maximum(room, whole) / 2, step / 2 if gap > 0 else 0)
            one.along.cover(
                np.concatenate([one.places - reach, one.places + reach]), is_loose=False
            )


def _series(panel: Any, traces: list[dict[str, Any]]) -> list[Series]:
    every = []
    edges: dict[bool, Any] = {}
    for trace in traces:
        lying = orientation(trace) == "h"
        if trace["type"] == "histogram":
            if lying not in edges:
                same = [
                    t
                    for t in traces
                    if t["type"] == "histogram" and (orientation(t) == "h") == lying
                ]
                edges[lying] = bins_of(panel, same, lying)
            places, values, widths = counts(panel, trace, lying, edges[lying])
            along, up = (panel.y, panel.x) if lying else (panel.x, panel.y)
            every.append(Series(trace, lying, along, up, places, values, widths))
        else:
            every.append(_given(panel, trace, lying))
    return every


def _given(panel: Any, trace: dict[str, Any], lying: bool) -> Series:
    along, up = (panel.y, panel.x) if lying else (panel.x, panel.y)
    given, sizes = items(trace.get(along.name[0])), trace.get(up.name[0])
    values = up.scale.places(sizes) if up.scale.kind != "category" else numbers(sizes)
    places = along.scale.places(given) if len(given) else np.arange(len(values), dtype=float)
    length = min(len(places), len(values), POINTS_MAX)
    return Series(trace, lying, along, up, places[:length], values[:length])


def _step(every: list[Any]) -> float:
    """The least distance between bars, which is their room."""
    places = np.unique(np.concatenate([each[np.isfinite(each)] for each in every] or [np.zeros(0)]))
    return float(np.diff(places).min()) if len(places) > 1 else 1.0


def _norm(every: list[Series], norm: Any) -> None:
    """Make the bars of each place a share of their sum."""
    if norm not in ("percent", "fraction"):
        return
    total: dict[Any, float] = {}
    for one in every:
        for place, value in zip(one.places, np.nan_to_num(one.values), strict=True):
            key = one.lying, float(place)
            total[key] = total.get(key, 0.0) + abs(float(value))
    whole = 100 if norm == "percent" else 1
    for one in every:
        sums = np.array([total[one.lying, float(place)] or 1.0 for place in one.places])
        one.values = np.nan_to_num(one.values) * whole / sums


def _base(one: Series, mode: str, tops: dict[Any, float]) -> Any:
    """Where each bar begins."""
    trace, values = one.trace, one.values
    if trace["type"] == "waterfall":
        return _fall(trace, values)
    if trace.get("base") is not None:
        base = np.resize(one.up.scale.places(trace["base"]), len(values)).astype(float)
        if one.up.scale.kind == "date":  # lengths are milliseconds, as of a timeline
            values[:] = numbers(trace.get(one.up.name[0]))[: len(values)] / DAY_MILLISECONDS
        return base
    base = np.zeros(len(values))
    if mode in ("stack", "relative"):
        for number, (place, value) in enumerate(
            zip(one.places, np.nan_to_num(values), strict=True)
        ):
            key = one.lying, float(place), bool(value < 0)
            base[number] = tops.get(key, 0.0)
            tops[key] = base[number] + value
    return base


def _fall(trace: dict[str, Any], values: Any) -> Any:
    """Bases of a waterfall; its totals become bars from zero."""
    measures = [str(each) for each in items(trace.get("measure"))]
    base, level = np.zeros(len(values)), float(trace.get("base") or 0)
    kinds = []
    for number in range(len(values)):
        kind = measures[number][:1] if number < len(measures) else "r"
        value = values[number] if np.isfinite(values[number]) else 0.0
        if kind == "t":
            base[number], values[number] = 0.0, level
        elif kind == "a":
            base[number], level = 0.0, value
        else:
            base[number], level = level, level + value
        kinds.append(
            "totals" if kind in ("t", "a") else "increasing" if value >= 0 else "decreasing"
        )
    trace["_kinds"] = kinds
    return base


_FALLS = {"increasing": "#3D9970", "decreasing": "#FF4136", "totals": "#4499FF"}


def _tints(plot: Any, trace: dict[str, Any], length: int) -> Any:
    spots = trace.get("marker") or {}
    opacity = float(trace.get("opacity", 1) or 1)
    if isinstance(spots.get("opacity"), (int, float)):
        opacity *= spots["opacity"]
    if trace["type"] == "waterfall":
        looks = {
            kind: ((trace.get(kind) or {}).get("marker") or {}).get("color") for kind in _FALLS
        }
        return np.array([color(looks[kind], _FALLS[kind], opacity) for kind in trace["_kinds"]])
    return colors(plot, spots, np.arange(length), trace["_color"], opacity)


def _draw(plot: Any, panel: Any, one: Series, bodies: tuple[Any, Any, Any]) -> None:
    trace, lying = one.trace, one.lying
    places, base, room = bodies
    values = np.nan_to_num(one.values)
    tints = _tints(plot, trace, len(values))
    end = base + values
    shapes = _corners(lying, (places - room / 2, places + room / 2), (base, end))
    if one.up.scale.kind == "log":
        axis = 0 if lying else 1
        shapes[:, :, axis] = np.maximum(shapes[:, :, axis], 1e-12)
    edge = (trace.get("marker") or {}).get("line") or {}
    wide = edge.get("width") if isinstance(edge.get("width"), (int, float)) else 0.35
    if len(values) >= MANY and "width" not in edge:
        wide = 0
    around = edge.get("color") if isinstance(edge.get("color"), str) else None
    around = color(around, plot.layout.get("plot_bgcolor") or "white")
    made = PolyCollection(shapes, facecolors=tints, edgecolors=around, linewidths=wide, zorder=2.2)
    panel.ax.add_collection(made, autolim=False)
    one.up.cover(end[values != 0])
    if one.up.scale.kind in ("log", "date"):
        one.up.cover(base[base != 0])
    else:
        one.up.cover(
            base if trace.get("base") is not None else np.append(base, 0.0), is_loose=False
        )
    ends = (end, places) if lying else (places, end)
    errors(panel, trace, *ends, np.arange(len(values)), panel.ink)
    label(panel, trace, lying, (places, base, end, tints))
    if is_listed(plot, trace) and trace["type"] != "waterfall":
        first = tints[0] if np.ndim(tints) > 1 and len(tints) else tints
        plot.paper.entries.append((name_of_trace(trace), Patch(facecolor=first)))


def _corners(lying: bool, sides: tuple[Any, Any], ends: tuple[Any, Any]) -> Any:
    across, up = (ends, sides) if lying else (sides, ends)
    corners = [(across[0], up[0]), (across[1], up[0]), (across[1], up[1]), (across[0], up[1])]
    if not len(sides[0]):
        return np.zeros((0, 4, 2))
    return np.stack([np.stack(corner, 1) for corner in corners], 1)


def funnels(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    """Bars around the middle."""
    every = [_given(panel, trace, orientation(trace) == "h") for trace in traces]
    tops: dict[float, float] = {}
    for one in every:
        for place, value in zip(one.places, np.nan_to_num(one.values), strict=True):
            tops[float(place)] = tops.get(float(place), 0.0) - float(value) / 2
    for one in every:
        base = np.zeros(len(one.values))
        for number, place in enumerate(map(float, one.places)):
            base[number] = tops[place]
            tops[place] += float(np.nan_to_num(one.values[number]))
        if one.trace.get("textinfo") != "none" and one.trace.get("text") is None:
            one.trace["text"] = [short(float(value)) for value in one.values]
        one.trace["base"] = 0  # the axis need not begin at zero
        _draw(plot, panel, one, (one.places, base, np.full(len(one.values), 0.9)))
        one.along.cover([-0.5, len(one.along.scale.names) - 0.5], is_loose=False)
        if one.lying and one.along.layout.get("autorange") is None:
            one.along.layout["autorange"] = "reversed"
        one.up.layout.setdefault("showticklabels", False)
