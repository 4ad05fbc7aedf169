"""The frame of a plotly preview: margins, titles, legend, colour bars, annotations, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import axes
from .notes import annotate, shape_of
from .paper import POINT, clean, color
from .spec import title_of
from .texts import short
from .values import name_of

MARKS_MAX = 300  # annotations, and shapes
BAR_PIXELS = 85  # room of a colour bar
LETTER_PIXELS = 6.3
_GRIDS = {"heatmap", "contour", "histogram2d", "histogram2dcontour", "surface"}


def lay_out(plot: Any, flat: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Divide the paper into the plot and what is around it."""
    layout = plot.layout
    margin = layout.get("margin") or {}
    left, right = float(margin.get("l", 80)), float(margin.get("r", 80))
    top, bottom = float(margin.get("t", 100)), float(margin.get("b", 80))
    plot.bar_count = len(_bars(plot))
    needed = plot.bar_count * BAR_PIXELS
    legend = layout.get("legend") or {}
    names = legend_names(plot)
    plot.legend_shift = needed
    if names and legend.get("orientation", "v") == "v" and float(legend.get("x", 1.02)) >= 1:
        longest = max(len(line) for name in names for line in clean(name).split("\n"))
        needed += min(longest * LETTER_PIXELS + 40, plot.width * 0.4)
    right = max(right, needed + 10)
    if names and legend.get("orientation") == "h" and float(legend.get("y", -0.1)) <= 0:
        bottom = max(bottom, 95.0)
    if flat:
        sides = axes.needed(plot, plot.width - left - right)
        left, bottom = max(left, sides[0]), max(bottom, sides[1])
        right = max(right, needed + sides[2])
        plot.legend_shift += max(0.0, sides[2] - 15)
    if title_of(layout) and "t" in margin:
        top = max(top, 30.0)
    width, height = max(plot.width - left - right, 50.0), max(plot.height - top - bottom, 50.0)
    plot.area = (left, bottom, width, height)
    plot.top = top


def legend_names(plot: Any) -> list[str]:
    names = []
    for trace in plot.traces:
        if (
            (trace["type"] in _GRIDS and not _is_bare(trace))
            or not plot.lists(trace)
            or trace.get("showlegend") is False
        ):
            continue
        if trace["type"] in ("pie", "funnelarea"):
            names.extend(
                name_of(each) for each in trace.get("labels") or [] if isinstance(each, str)
            )
        elif trace["type"] not in ("table", "indicator", "image"):
            names.append(str(trace.get("name") or f"trace {trace['_number']}"))
    title = title_of(plot.layout.get("legend") or {})
    return [*names, title] if names and title else names


def _bars(plot: Any) -> set[Any]:
    """Colour bars that the traces will ask for."""
    found: set[Any] = set()
    for trace in plot.traces:
        spots = trace.get("marker") or {}
        for holder, default in ((trace, trace["type"] in _GRIDS), (spots, False)):
            shared = holder.get("coloraxis")
            if shared:
                if (plot.layout.get(shared) or {}).get("showscale", True):
                    found.add(shared)
            elif holder.get("showscale", default) and not _is_bare(trace):
                found.add(trace["_number"])
    return found


def _is_bare(trace: dict[str, Any]) -> bool:
    """Whether the lines of a contour have one colour."""
    return (trace.get("contours") or {}).get("coloring") == "none"


def finish(plot: Any) -> None:
    axes.finish(plot)
    for kind in ("shapes", "annotations"):
        count = len(plot.layout.get(kind) or [])
        if count > MARKS_MAX:
            plot.paper.remarks.append(f"{MARKS_MAX} of {count} {kind} are drawn")
    for shape in (plot.layout.get("shapes") or [])[:MARKS_MAX]:
        shape_of(plot, shape)
    for note in (plot.layout.get("annotations") or [])[:MARKS_MAX]:
        annotate(plot, note)
    if plot.layout.get("images"):
        plot.paper.miss("pictures of the layout")
    _color_bars(plot)
    _title(plot)
    _legend(plot)


def _title(plot: Any) -> None:
    title = plot.layout.get("title")
    look = title if isinstance(title, dict) else {"text": title}
    if not look.get("text"):
        return
    x = float(look.get("x", 0.05))
    side = look.get("xanchor", "auto")
    if side == "auto":
        side = "left" if x < 1 / 3 else "right" if x > 2 / 3 else "center"
    font = look.get("font") or {}
    size = float(font.get("size", 17))
    text = str(look["text"])
    second = (look.get("subtitle") or {}).get("text")
    y = plot.height - min(plot.top, 100) / 2
    if isinstance(look.get("y"), (int, float)) and look["y"] >= 0.5:
        y = plot.height * look["y"]
    up = {"top": "top", "bottom": "bottom", "middle": "center"}.get(
        look.get("yanchor", ""), "center"
    )
    ink = color(font.get("color"), plot.paper.ink)
    place = x * plot.width
    plot.paper.text(place, y + (8 if second else 0), text, size, ha=side, va=up, color=ink)
    if second:
        plot.paper.text(place, y - 10, second, size * 0.7, ha=side, va=up, color=ink)


def _legend(plot: Any) -> None:
    legend = plot.layout.get("legend") or {}
    left, bottom, width, height = plot.area
    lying = legend.get("orientation") == "h"
    x, y = (
        float(legend.get("x", 0.0 if lying else 1.02)),
        float(legend.get("y", -0.1 if lying else 1.0)),
    )
    sides = {"x": legend.get("xanchor", "left"), "y": legend.get("yanchor", "auto")}
    if sides["x"] == "auto":
        sides["x"] = "left" if x <= 1 / 3 or x > 1 else "right" if x >= 2 / 3 else "center"
    if sides["y"] == "auto":
        sides["y"] = "top" if y <= 0 or y >= 2 / 3 else "bottom" if y <= 1 / 3 else "middle"
        if lying and y > 1:
            sides["y"] = "bottom"
    place = {"top": "upper", "bottom": "lower", "middle": "center"}.get(sides["y"], "upper")
    place = "center" if place == sides["x"] == "center" else f"{place} {sides['x']}"
    shift = plot.legend_shift if x >= 1 and sides["x"] == "left" else 0
    down = -25 if lying and y <= 0 and sides["y"] == "top" else 0
    columns = 1
    if lying and plot.paper.entries:
        each = max(len(label) for label, _ in plot.paper.entries) * LETTER_PIXELS + 50
        columns = max(1, min(len(plot.paper.entries), int(width / each)))
    corner = left + x * width + shift, max(bottom + y * height + down, 4)
    plot.paper.legend(corner, place, title_of(legend), columns)


def _color_bars(plot: Any) -> None:
    left, bottom, width, height = plot.area
    for number, (tints, span, title) in enumerate(plot.bars.values()):
        start = left + width + 14 + number * BAR_PIXELS
        ax = plot.paper.axes((start, bottom, 18, height - (18 if title else 0)))
        shades = np.linspace(span.vmin, span.vmax, 256)[:, None]
        extent = (0, 1, span.vmin, span.vmax)
        ax.imshow(shades, cmap=tints, norm=span, aspect="auto", origin="lower", extent=extent)
        ax.set_xticks([])
        ax.yaxis.tick_right()
        ax.yaxis.set_major_formatter(lambda value, _: short(value))
        ax.tick_params(length=0, labelsize=11 * POINT, labelcolor=plot.paper.ink)
        ax.set_frame_on(False)
        plot.paper.text(start, bottom + height - 2, title, 12, va="top", ha="left")
