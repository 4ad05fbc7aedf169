"""Bars of plotly: bar charts, histograms, waterfalls, funnels."""

from __future__ import annotations

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
from .values import items, numbers


def bars(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    """Place all bars of a panel beside or upon each other."""
    layout = plot.layout
    series = []
    edges: dict[str, Any] = {}
    for trace in traces:
        lying = orientation(trace) == "h"
        if trace["type"] == "histogram":
            key = "h" if lying else "v"
            if key not in edges:
                same = [
                    t
                    for t in traces
                    if t["type"] == "histogram" and orientation(t) == orientation(trace)
                ]
                edges[key] = bins_of(panel, same, lying)
            places, values, widths = counts(panel, trace, lying, edges[key])
        else:
            places, values, widths = _given(panel, trace, lying)
        series.append((trace, lying, places, values, widths))
    has_histogram = bool(edges)
    mode = layout.get("barmode") or "group"
    if any(trace["type"] == "waterfall" for trace in traces):
        mode = layout.get("waterfallmode") or "group"
    step = _step([places for _, _, places, _, _ in series])
    groups = list(dict.fromkeys(_group(trace) for trace in traces)) if mode == "group" else [""]
    if mode == "group" and not any(trace.get("offsetgroup") for trace in traces):
        groups = [str(trace["_number"]) for trace in traces]
    gap = layout.get("bargap")
    default_gap = 0.0 if has_histogram and panel_kind(panel, series) != "category" else 0.2
    gap = default_gap if gap is None else float(gap)
    tops: dict[Any, float] = {}
    for trace, lying, places, values, widths in series:
        room = (widths if widths is not None else np.full(len(places), step)) * (1 - gap)
        shift = np.zeros(len(places))
        if mode == "group" and len(groups) > 1:
            group = _group(trace) if trace.get("offsetgroup") else str(trace["_number"])
            share = room / len(groups)
            shift = (groups.index(group) - (len(groups) - 1) / 2) * share
            room = share * (1 - float(layout.get("bargroupgap") or 0))
        own = trace.get("width")
        if own is not None and trace["type"] != "histogram":
            room = np.resize(numbers(own), len(places))
            if panel_axis(panel, lying).scale.kind == "date":
                room = room / 86_400_000
        base = _base(panel, trace, mode, places, values, tops, lying)
        _draw(plot, panel, trace, lying, (places + shift, base, values, room))
        if len(places):
            reach = np.maximum(room, step * (1 - gap) if mode == "group" else room) / 2
            panel_axis(panel, lying).cover(
                np.concatenate(
                    [
                        places - np.maximum(reach, step / 2 * (gap > 0)),
                        places + np.maximum(reach, step / 2 * (gap > 0)),
                    ]
                ),
                is_loose=False,
            )


def panel_axis(panel: Any, lying: bool) -> Any:
    return panel.y if lying else panel.x


def panel_kind(panel: Any, series: list[Any]) -> str:
    return str(panel_axis(panel, series[0][1]).scale.kind)


def _group(trace: dict[str, Any]) -> str:
    return str(trace.get("offsetgroup") or trace["_number"])


def _given(panel: Any, trace: dict[str, Any], lying: bool) -> tuple[Any, Any, Any]:
    along, value = ("y", "x") if lying else ("x", "y")
    sizes = (panel.x if lying else panel.y).scale
    values = (
        sizes.places(trace.get(value)) if sizes.kind != "category" else numbers(trace.get(value))
    )
    given = items(trace.get(along))
    places = (
        panel_axis(panel, lying).scale.places(given)
        if len(given)
        else np.arange(len(values), dtype=float)
    )
    length = min(len(places), len(values), POINTS_MAX)
    return places[:length], values[:length], None


def _step(every: list[Any]) -> float:
    """The least distance between bars, which is their room."""
    places = np.unique(np.concatenate([each[np.isfinite(each)] for each in every] or [np.zeros(0)]))
    return float(np.diff(places).min()) if len(places) > 1 else 1.0


def _base(
    panel: Any, trace: dict[str, Any], mode: str, places: Any, values: Any, tops: Any, lying: bool
) -> Any:
    """Where each bar begins."""
    if trace["type"] == "waterfall":
        return _fall(trace, values)
    if trace.get("base") is not None:
        scale = (panel.x if lying else panel.y).scale
        base = np.resize(scale.places(trace["base"]), len(values)).astype(float)
        if scale.kind == "date":  # lengths are milliseconds, as of a timeline
            values[:] = numbers(trace.get("x" if lying else "y"))[: len(values)] / 86_400_000
        return base
    base = np.zeros(len(values))
    if mode in ("stack", "relative"):
        for number, (place, value) in enumerate(zip(places, np.nan_to_num(values), strict=True)):
            key = lying, float(place), bool(value < 0)
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


def _draw(
    plot: Any, panel: Any, trace: dict[str, Any], lying: bool, bodies: tuple[Any, Any, Any, Any]
) -> None:
    places, base, values, room = bodies
    values = np.nan_to_num(values)
    tints = _tints(plot, trace, len(values))
    low, high = places - room / 2, places + room / 2
    end = base + values
    across, up = ((base, end), (low, high)) if lying else ((low, high), (base, end))
    corners = [(across[0], up[0]), (across[1], up[0]), (across[1], up[1]), (across[0], up[1])]
    shapes = (
        np.stack([np.stack(corner, 1) for corner in corners], 1)
        if len(values)
        else np.zeros((0, 4, 2))
    )
    sizes = panel.x if lying else panel.y
    if sizes.scale.kind == "log":
        axis = 0 if lying else 1
        shapes[:, :, axis] = np.maximum(shapes[:, :, axis], 1e-12)
    edge = (trace.get("marker") or {}).get("line") or {}
    wide = edge.get("width") if isinstance(edge.get("width"), (int, float)) else 0.35
    around = color(
        edge.get("color") if isinstance(edge.get("color"), str) else None,
        plot.layout.get("plot_bgcolor") or "white",
    )
    if len(values) >= 200 and "width" not in edge:
        wide = 0
    made = PolyCollection(shapes, facecolors=tints, edgecolors=around, linewidths=wide, zorder=2.2)
    panel.ax.add_collection(made, autolim=False)
    bottom = np.append(base, 0.0) if not trace.get("base") else base
    sizes.cover(end)
    sizes.cover(bottom, is_loose=False) if sizes.scale.kind not in ("log", "date") else sizes.cover(
        base
    )
    spread = np.arange(len(values))
    if not lying:
        errors(panel, trace, places, end, spread, panel.ink)
    else:
        errors(panel, trace, end, places, spread, panel.ink)
    label(panel, trace, lying, (places, base, end, tints))
    if is_listed(plot, trace) and trace["type"] != "waterfall":
        first = tints[0] if np.ndim(tints) > 1 and len(tints) else tints
        plot.paper.entries.append((name_of_trace(trace), Patch(facecolor=first)))


def funnels(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    """Bars around the middle."""
    tops: dict[float, float] = {}
    for trace in traces:
        lying = orientation(trace) == "h"
        places, values, _ = _given(panel, trace, lying)
        totals = {
            float(p): sum(
                np.nan_to_num(_given(panel, t, lying)[1][_given(panel, t, lying)[0] == p]).sum()
                for t in traces
            )
            for p in places
        }
        base = np.zeros(len(values))
        for number, place in enumerate(map(float, places)):
            base[number] = tops.setdefault(place, -totals[place] / 2)
            tops[place] += float(np.nan_to_num(values[number]))
        trace.setdefault("text", None)
        if trace.get("textinfo") != "none" and trace["text"] is None:
            trace["text"] = [short(float(value)) for value in values]
        trace["base"] = True  # do not begin the axis at zero
        _draw(plot, panel, trace, lying, (places, base, values, np.full(len(values), 0.9)))
        axis = panel_axis(panel, lying)
        axis.cover([-0.5, len(axis.scale.names) - 0.5], is_loose=False)
        if lying and axis.layout.get("autorange") is None:
            axis.layout["autorange"] = "reversed"
        (panel.x if lying else panel.y).layout.setdefault("showticklabels", False)
