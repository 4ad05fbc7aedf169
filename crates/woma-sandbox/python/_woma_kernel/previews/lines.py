"""Lines, markers, areas and texts of plotly's scatter traces."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from .paper import POINT, clean, color, dash, marker
from .points import (
    POINTS_MAX,
    TEXTS_MAX,
    colors,
    diameters,
    errors,
    is_listed,
    mode,
    name_of_trace,
    one_of,
)
from .values import items, numbers

BUBBLE_PIXELS = 400  # a usual side of a panel
LOOSE = 0.05
_SHAPES = {"hv": "steps-post", "vh": "steps-pre", "hvh": "steps-mid", "vhv": "steps-mid"}
_SIDES = {"left": "right", "right": "left", "center": "center"}


def scatters(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    stacks = _stacks(plot, panel, traces)
    last: Any = None
    for trace in traces:
        if trace["_number"] in stacks:
            x, base, y = stacks[trace["_number"]]
            panel.ax.fill_between(x, base, y, color=_fill_color(trace), linewidth=0, zorder=2.5)
            panel.y.cover([0.0], is_loose=False)
            chosen = np.arange(len(x))
        else:
            x, y = places(panel, trace)
            x, y, chosen = thinned(plot, trace, x, y)
            _fill(panel, trace, x, y, last)
        if len(x):
            last = x, y
        _points(plot, panel, trace, x, y, chosen)


def _stacks(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> dict[int, Any]:
    """Places, lower and upper edges of the traces that stand upon each other."""
    groups: dict[str, list[Any]] = {}
    for trace in traces:
        if trace.get("stackgroup"):
            x, y = places(panel, trace)
            known = np.isfinite(x)
            order = np.argsort(x[known], kind="stable")
            x, y = x[known][order], np.nan_to_num(y[known])[order]
            groups.setdefault(str(trace["stackgroup"]), []).append((trace, x, y))
    found = {}
    for members in groups.values():
        whole = np.unique(np.concatenate([x for _, x, _ in members]))
        step = len(whole) // POINTS_MAX + 1
        if step > 1:
            plot.paper.remarks.append(f"one in {step} places of a stack is drawn")
            whole = whole[::step]
        heights = [
            np.interp(whole, x, y, left=0, right=0) if len(x) else 0 * whole for _, x, y in members
        ]
        norm = next((trace["groupnorm"] for trace, _, _ in members if trace.get("groupnorm")), "")
        if norm in ("percent", "fraction"):
            total = np.sum(heights, 0)
            share = (100 if norm == "percent" else 1) / np.where(total == 0, 1, total)
            heights = [height * share for height in heights]
        base = np.zeros(len(whole))
        for (trace, _, _), height in zip(members, heights, strict=True):
            found[trace["_number"]] = whole, base, base + height
            base = base + height
    return found


def places(panel: Any, trace: dict[str, Any]) -> tuple[Any, Any]:
    """Coordinates of the points; those that are not given are counted."""
    x, y = items(trace.get("x")), items(trace.get("y"))
    across = panel.x.scale.places(x) if len(x) else _counted(trace, "x", len(y))
    up = panel.y.scale.places(y) if len(y) else _counted(trace, "y", len(x))
    length = min(len(across), len(up))
    return across[:length], up[:length]


def _counted(trace: dict[str, Any], key: str, length: int) -> Any:
    start, step = numbers(trace.get(f"{key}0", 0)), numbers(trace.get(f"d{key}", 1))
    return start[0] + step[0] * np.arange(length)


def thinned(plot: Any, trace: dict[str, Any], x: Any, y: Any) -> tuple[Any, Any, Any]:
    """At most `POINTS_MAX` points: of a line the extremes of each part, else every n-th."""
    chosen: Any = np.arange(len(x))
    if len(x) <= POINTS_MAX:
        return x, y, chosen
    name = trace.get("name") or trace["type"]
    plot.paper.remarks.append(f"{name}: {POINTS_MAX} of {len(x)} points are drawn")
    if "markers" in mode(trace, len(x)):
        chosen = np.linspace(0, len(x) - 1, POINTS_MAX).astype(int)
    else:
        parts = POINTS_MAX // 2
        size = len(x) // parts
        block = np.where(np.isfinite(y), y, 0)[: parts * size].reshape(parts, size)
        start = np.arange(parts) * size
        both = np.stack([start + block.argmin(1), start + block.argmax(1)], 1)
        chosen = np.unique(np.append(both, len(x) - 1))
    return x[chosen], y[chosen], chosen


def _points(plot: Any, panel: Any, trace: dict[str, Any], x: Any, y: Any, chosen: Any) -> None:
    parts = mode(trace, len(x))
    opacity = trace.get("opacity")
    line = trace.get("line") or {}
    spots = trace.get("marker") or {}
    own = spots.get("color") if isinstance(spots.get("color"), str) else None
    tint = color(line.get("color") or own, trace["_color"], opacity)
    sample: dict[str, Any] = {"linestyle": "none", "color": tint}
    if "lines" in parts and line.get("width", 2) > 0:
        known = np.isfinite(x) & np.isfinite(y) if trace.get("connectgaps") else slice(None)
        style = {
            "linestyle": dash(line.get("dash", "solid")),
            "linewidth": line.get("width", 2) * 0.72,
        }
        drawn = _SHAPES.get(line.get("shape", ""), "default")
        panel.ax.plot(
            x[known],
            y[known],
            color=tint,
            drawstyle=drawn,
            zorder=3,
            solid_joinstyle="round",
            **style,
        )
        sample.update(style)
    if "markers" in parts:
        trace["_spot"] = line.get("color") or trace["_color"]  # of markers without a colour
        sample.update(_markers(plot, panel, trace, x, y, chosen))
    if "text" in parts:
        _texts(panel, trace, x, y, chosen)
    panel.x.cover(x, is_loose="markers" in parts or "text" in parts)
    panel.y.cover(y)
    if "markers" in parts and len(x):
        _cover_bubbles(panel, spots, (x, y), chosen)
    errors(panel, trace, x, y, chosen, tint)
    if is_listed(plot, trace):
        plot.paper.entries.append((name_of_trace(trace), Line2D([], [], **sample)))


def _cover_bubbles(panel: Any, spots: dict[str, Any], ends: tuple[Any, Any], chosen: Any) -> None:
    """Make room for large markers at the edges, nearly: the size of the panel is not known."""
    share = diameters(spots, chosen) / 2 / BUBBLE_PIXELS
    if np.ndim(share) == 0 or share.max(initial=0) < LOOSE:
        return
    for axis, along in zip((panel.x, panel.y), ends, strict=True):
        is_log = axis.scale.kind == "log"
        places = np.log10(np.maximum(along, 1e-300)) if is_log else along
        reach = share * (np.nanmax(places) - np.nanmin(places))
        both = np.concatenate([places - reach, places + reach])
        axis.cover(10**both if is_log else both)


def _markers(
    plot: Any, panel: Any, trace: dict[str, Any], x: Any, y: Any, chosen: Any
) -> dict[str, Any]:
    spots = trace.get("marker") or {}
    sizes = diameters(spots, chosen)
    many = np.ndim(sizes) > 0
    opacity = (trace.get("opacity", 1) or 1) * one_of(spots.get("opacity"), 0.7 if many else 1)
    tints = colors(plot, spots, chosen, trace["_spot"], opacity)
    shapes = items(spots.get("symbol"))
    symbols = (
        [marker(shapes[index]) for index in chosen]
        if len(shapes) > 1
        else [marker(next(iter(shapes), None))]
    )
    edge = spots.get("line") or {}
    wide = one_of(edge.get("width"), 1 if many else 0)
    around = color(edge.get("color") if isinstance(edge.get("color"), str) else None, "white")
    sample: dict[str, Any] = {}
    for kind in dict.fromkeys(symbols):
        part: Any = slice(None)
        if len(symbols) > 1:
            part = np.array([symbol == kind for symbol in symbols])
        symbol, is_open = kind
        tint = tints if np.ndim(tints) < 2 else tints[part]
        size = sizes[part] if many else sizes
        if not many and np.ndim(tints) < 2:
            face = "none" if is_open else tint
            look = {
                "marker": symbol,
                "markersize": size * 0.72,
                "markerfacecolor": face,
                "markeredgecolor": tint if is_open else around,
                "markeredgewidth": (wide or 1) * 0.72 if is_open else wide * 0.72,
            }
            panel.ax.plot(x[part], y[part], linestyle="none", zorder=3.5, **look)
        else:
            option: dict[str, Any] = {
                "edgecolors": around,
                "linewidths": wide * 0.72,
                "c": tint if np.ndim(tint) > 1 else [tint],
            }
            if is_open:
                option = {"facecolors": "none", "edgecolors": tint, "linewidths": 1}
            panel.ax.scatter(
                x[part], y[part], s=(size * 0.72) ** 2, marker=symbol, zorder=3.5, **option
            )
            first = tint[len(tint) // 2] if np.ndim(tint) > 1 and len(tint) else tint
            look = {
                "marker": symbol,
                "markersize": 5,
                "markerfacecolor": first,
                "markeredgecolor": "none",
            }
        sample = sample or {**look, "markersize": min(look["markersize"], 9)}
    return sample


def _texts(panel: Any, trace: dict[str, Any], x: Any, y: Any, chosen: Any) -> None:
    said = items(trace.get("text"))
    if len(said) == 0 and trace.get("texttemplate") is None:
        return
    up, _, side = str(trace.get("textposition") or "middle center").partition(" ")
    down = {"top": "bottom", "bottom": "top"}.get(up, "center")
    shift = {"top": 6, "bottom": -6}.get(up, 0), {"left": -6, "right": 6}.get(side, 0)
    font = trace.get("textfont") or {}
    ink = color(font.get("color") if isinstance(font.get("color"), str) else None, panel.ink)
    size = one_of(font.get("size"), 12) * POINT
    for number, index in enumerate(chosen[:TEXTS_MAX]):
        if not len(said) or not (np.isfinite(x[number]) and np.isfinite(y[number])):
            continue
        text = clean(said[index] if len(said) > index else said[0] if len(said) == 1 else "")
        panel.ax.annotate(
            text,
            (x[number], y[number]),
            xytext=(shift[1], shift[0]),
            textcoords="offset points",
            ha=_SIDES.get(side, "center"),
            va=down,
            fontsize=size,
            color=ink,
            zorder=5,
            annotation_clip=True,
        )


def _fill_color(trace: dict[str, Any]) -> Any:
    given = trace.get("fillcolor")
    if given:
        return color(given)
    line, spots = trace.get("line") or {}, trace.get("marker") or {}
    own = spots.get("color") if isinstance(spots.get("color"), str) else None
    return color(line.get("color") or own, trace["_color"], 0.5)


def _fill(panel: Any, trace: dict[str, Any], x: Any, y: Any, last: Any) -> None:
    kind = trace.get("fill") or "none"
    if kind == "none":
        return
    tint = _fill_color(trace)
    step = {"hv": "post", "vh": "pre", "hvh": "mid"}.get((trace.get("line") or {}).get("shape", ""))
    if kind in ("tonexty", "tonextx", "tonext") and last is not None:
        around = np.concatenate([x, last[0][::-1]]), np.concatenate([y, last[1][::-1]])
        panel.ax.fill(*around, color=tint, linewidth=0, zorder=2.5)
    elif kind in ("toself", "tonext"):
        panel.ax.fill(x, y, color=tint, linewidth=0, zorder=2.5)
    elif kind in ("tozerox", "tonextx"):
        panel.ax.fill_betweenx(y, 0, x, color=tint, linewidth=0, zorder=2.5)
        panel.x.cover([0.0], is_loose=False)
    else:
        panel.ax.fill_between(x, 0, y, color=tint, linewidth=0, zorder=2.5, step=step)
        panel.y.cover([0.0], is_loose=False)
