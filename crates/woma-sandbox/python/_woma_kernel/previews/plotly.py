"""Previews of plotly figures: traces are sorted into panels, drawn, and framed by their layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import (
    axes,
    bars,
    boxes,
    cards,
    circular,
    grids,
    lines,
    marks,
    space,
    trees,
)
from .figure import Plot
from .paper import Paper
from .spec import orientation
from .values import items

TRACES_MAX = 200
PANELS_MAX = 100
_ORIENTED = {"bar", "histogram", "box", "violin", "funnel", "waterfall", "candlestick", "ohlc"}

# Kinds in the order in which plotly draws them, lowest first.
_FLAT: dict[tuple[str, ...], Callable[..., None]] = {
    ("image",): grids.images,
    ("heatmap",): grids.heatmaps,
    ("histogram2d",): grids.histograms,
    ("contour", "histogram2dcontour"): grids.contours,
    ("bar", "histogram", "waterfall"): bars.bars,
    ("funnel",): bars.funnels,
    ("box", "candlestick", "ohlc"): boxes.boxes,
    ("violin",): boxes.violins,
    ("scatter",): lines.scatters,
}
_OTHERS: dict[str, Callable[..., None]] = {
    "pie": circular.pie,
    "funnelarea": circular.funnel_area,
    "table": cards.table,
    "indicator": cards.indicator,
    "treemap": trees.tree,
    "icicle": trees.tree,
    "sunburst": trees.tree,
    "scatterpolar": circular.polar,
    "barpolar": circular.polar,
    "scatter3d": space.deep,
    "surface": space.deep,
    "mesh3d": space.deep,
}
_SCENES = {"scatter3d", "surface", "mesh3d"}
_FLAT_KINDS = {kind for kinds in _FLAT for kind in kinds}


def draw(spec: dict[str, Any], width: float | None = None, height: float | None = None) -> Paper:
    """The figure on paper, which counts what is drawn and names what is not."""
    plot = Plot(spec, width, height)
    paper = plot.paper
    if len(plot.traces) > TRACES_MAX:
        paper.remarks.append(f"{TRACES_MAX} of {len(plot.traces)} traces are drawn")
        del plot.traces[TRACES_MAX:]
    for trace in plot.traces:
        if trace["type"] not in _FLAT_KINDS and trace["type"] not in _OTHERS:
            paper.miss(trace["type"])
    flat = [trace for trace in plot.traces if trace["type"] in _FLAT_KINDS]
    others = [trace for trace in plot.traces if trace["type"] in _OTHERS]
    if plot.traces and not flat and not others:
        return paper
    _prepare(plot, flat)
    marks.lay_out(plot, flat, others)
    if not plot.traces:
        plot.panel({})
    _draw_flat(plot, flat)
    _draw_others(plot, others)
    marks.finish(plot)
    paper.name_missing()
    if spec.get("frames"):
        paper.remarks.append(f"the first of {len(spec['frames'])} frames is drawn")
    return paper


def _draw_others(plot: Plot, others: list[dict[str, Any]]) -> None:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for trace in others:
        if trace["type"] in _SCENES:
            place = trace.get("scene") or "scene"
        elif trace["type"] in ("scatterpolar", "barpolar"):
            place = trace.get("subplot") or "polar"
        else:
            place = trace["_number"]
        groups.setdefault(place, []).append(trace)
    for group in groups.values():
        _OTHERS[group[0]["type"]](plot, group)
        plot.paper.drawn += len(group)


def _draw_flat(plot: Plot, flat: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for trace in flat:
        groups.setdefault((trace.get("xaxis") or "x", trace.get("yaxis") or "y"), []).append(trace)
    if len(groups) > PANELS_MAX:
        plot.paper.remarks.append(f"{PANELS_MAX} of {len(groups)} panels are drawn")
    for group in list(groups.values())[:PANELS_MAX]:
        panel = plot.panel(group[0])
        for kinds, draw_all in _FLAT.items():
            chosen = [trace for trace in group if trace["type"] in kinds]
            if chosen:
                draw_all(plot, panel, chosen)
                plot.paper.drawn += len(chosen)


def _prepare(plot: Plot, flat: list[dict[str, Any]]) -> None:
    """Find the types of the axes and the order of their categories."""
    seen: dict[str, list[Any]] = {}
    for trace in flat:
        kind = trace["type"]
        x, y = plot.axis(trace.get("xaxis") or "x"), plot.axis(trace.get("yaxis") or "y")
        if kind in _ORIENTED:
            lying = orientation(trace) == "h"
            trace["orientation"] = "h" if lying else "v"
            (y if lying else x).is_position = True
            position = "y" if lying else "x"
            if kind in ("box", "violin") and trace.get(position) is None:
                trace[position] = [
                    trace.get(f"{position}0") or trace.get("name") or f"trace {trace['_number']}"
                ]
        for axis, key in ((x, "x"), (y, "y")):
            values = items(trace.get(key))
            if len(values) == 2 and all(isinstance(each, (list, np.ndarray)) for each in values):
                values = list(zip(*values, strict=False))  # categories on two levels
                trace[key] = values
            seen.setdefault(axis.name, []).append(values)
    convert = plot.layout.get("autotypenumbers") != "strict"
    for name, values in seen.items():
        axis = plot.axes[name]
        numeric_text = (
            axis.layout.get("autotypenumbers", "convert" if convert else "strict") != "strict"
        )
        axis.find_kind(values, numeric_text)
    for axis in plot.axes.values():
        if axis.scale.kind == "category":
            axes.order(plot, axis, flat)
