"""Axes of a plotly preview: order, room, ranges, ticks, grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from .paper import POINT, clean, color
from .spec import title_of
from .ticks import LABEL_CHARS_MAX, LETTER_PIXELS, angle, set_ticks, shown
from .values import items, name_of, numbers

LOOSE = 0.055  # margin beyond points, as a share of their range
_SUMS = {
    "total": np.sum,
    "sum": np.sum,
    "mean": np.mean,
    "median": np.median,
    "min": np.min,
    "max": np.max,
}


def order(plot: Any, axis: Any, flat: list[dict[str, Any]]) -> None:
    """Put the categories of an axis into the order that its layout wants."""
    how = str(axis.layout.get("categoryorder") or "trace")
    listed = items(axis.layout.get("categoryarray"))
    if len(listed) and how in ("array", "trace"):
        axis.scale.order(name_of(each) for each in listed)
    elif how.startswith("category"):
        axis.scale.order(sorted(axis.scale.names, reverse=how.endswith("descending")))
    elif how.partition(" ")[0] in _SUMS:
        found: dict[str, list[float]] = {name: [] for name in axis.scale.names}
        letter, other = ("x", "y") if axis.is_x else ("y", "x")
        for trace in flat:
            if (trace.get(f"{letter}axis") or letter) != axis.key:
                continue
            values = numbers(trace.get(other))
            names = items(trace.get(letter))
            if trace["type"] == "histogram" and not len(values):
                values = np.ones(len(names))
            for name, value in zip(names, values, strict=False):
                if name is not None and np.isfinite(value):
                    found[name_of(name)].append(float(value))
        total = _SUMS[how.partition(" ")[0]]
        sums = {name: float(total(values)) if values else 0.0 for name, values in found.items()}
        backwards = how.endswith("descending")
        axis.scale.order(
            sorted(axis.scale.names, key=lambda name: -sums[name] if backwards else sums[name])
        )


def needed(plot: Any, width: float) -> tuple[float, float, float]:
    """Pixels that labels need on the left, at the bottom and on the right."""
    left = bottom = right = 20.0
    for axis in plot.axes.values():
        if axis.layout.get("visible") is False:
            continue
        titled = 22.0 if title_of(axis.layout) else 0.0
        names = axis.scale.names if axis.scale.kind == "category" else []
        if axis.layout.get("ticktext") is not None:
            names = [str(each) for each in items(axis.layout["ticktext"])]
        longest = min(
            max((len(line) for name in names for line in shown(name).split("\n")), default=5),
            LABEL_CHARS_MAX,
        )
        if axis.layout.get("showticklabels") is False:
            longest = 0
        start, end = axis.layout.get("domain") or (0, 1)
        if not axis.is_x:
            room = longest * LETTER_PIXELS + titled + 12
            if axis.layout.get("side") == "right":
                right = max(right, room)
            elif start >= 0 and _starts(plot, axis):
                left = max(left, room)
        elif start is not None and axis.layout.get("side") != "top":
            turned = angle(axis, longest, width * (end - start), len(names))
            high = (
                18.0
                if not turned
                else abs(np.sin(np.deg2rad(turned))) * longest * LETTER_PIXELS + 16
            )
            bottom = max(bottom, high + titled + 14)
    return left, bottom, right


def _starts(plot: Any, axis: Any) -> bool:
    """Whether the axis is at the left edge of the plot."""
    anchor = axis.layout.get("anchor") or "x"
    if anchor == "free":
        return True
    return float((plot.axis(anchor).layout.get("domain") or [0, 1])[0]) < 0.05


def finish(plot: Any) -> None:
    """Set ranges, and draw ticks and grids of all panels."""
    for panel in plot.panels.values():
        panel.ax.set_xlim(*_range(plot, panel.x))
        panel.ax.set_ylim(*_range(plot, panel.y))
    labelled: set[str] = set()
    for panel in plot.panels.values():
        for axis, other in ((panel.x, panel.y), (panel.y, panel.x)):
            side = panel.ax.xaxis if axis.is_x else panel.ax.yaxis
            wanted = axis.layout.get("anchor")
            others = [p for p in plot.panels.values() if (p.x if axis.is_x else p.y) is axis]
            is_anchored = wanted in (None, "free") or other.key == wanted or len(others) == 1
            if axis.name in labelled or not is_anchored:
                side.set_visible(False)
                continue
            labelled.add(axis.name)
            _dress(plot, panel, axis, side)
        for spine in panel.ax.spines.values():
            spine.set_visible(False)
        for axis, near, far in ((panel.x, "bottom", "top"), (panel.y, "left", "right")):
            if axis.layout.get("showline") and axis.layout.get("visible", True):
                near = axis.layout.get("side") or near
                for name in (near, *((far,) if axis.layout.get("mirror") else ())):
                    panel.ax.spines[name].set_visible(True)
                    panel.ax.spines[name].set_color(color(axis.layout.get("linecolor"), "#444444"))
        if panel.x.layout.get("scaleanchor") or panel.y.layout.get("scaleanchor"):
            panel.ax.set_aspect("equal", adjustable="box", anchor="C")
            panel.ax.apply_aspect()


def _group(plot: Any, axis: Any) -> list[Any]:
    """Axes that have the same range."""

    def root(one: Any) -> str:
        seen = set()
        while one.layout.get("matches") and one.name not in seen:
            seen.add(one.name)
            one = plot.axis(one.layout["matches"])
        return str(one.name)

    mine = root(axis)
    return [one for one in list(plot.axes.values()) if one.is_x == axis.is_x and root(one) == mine]


def _range(plot: Any, axis: Any) -> tuple[float, float]:
    group = _group(plot, axis)
    layout = axis.layout
    tight = [value for one in group for value in one.tight]
    loose = [value for one in group for value in one.loose]
    is_log = axis.scale.kind == "log"
    low, high = _automatic(axis, tight, loose, is_log)
    if layout.get("rangemode") in ("tozero", "nonnegative") and not is_log:
        low, high = (
            (min(low, 0.0), max(high, 0.0))
            if layout["rangemode"] == "tozero"
            else (max(low, 0.0), high)
        )
    given = next(
        (one.layout["range"] for one in group if one.layout.get("range") is not None), None
    )
    if given is not None and layout.get("autorange") in (None, False):
        first, last = (
            None if each is None else axis.scale.place(each, is_power=True)
            for each in items(given)[:2]
        )
        low, high = low if first is None else first, high if last is None else last
    elif str(layout.get("autorange", "")).endswith("reversed"):
        low, high = high, low
    if not np.isfinite([low, high]).all():
        return 0.0, 1.0
    return (low, high) if low != high else (low - 0.5, high + 0.5)


def _automatic(
    axis: Any, tight: list[float], loose: list[float], is_log: bool
) -> tuple[float, float]:
    every = np.array(tight + loose)
    if not len(every):
        return (
            (1.0, 10.0)
            if is_log
            else (-1.0, 6.0)
            if axis.is_x and axis.scale.kind == "linear"
            else (0.0, 1.0)
        )
    if is_log:
        low, high = _automatic_flat(np.log10(every), np.log10(np.array(loose)))
        return float(10**low), float(10**high)
    if axis.scale.kind == "category" and not tight:
        return float(every.min()) - 0.5 * LOOSE * len(axis.scale.names) - 0.1, float(
            every.max()
        ) + 0.5 * LOOSE * len(axis.scale.names) + 0.1
    return _automatic_flat(every, np.array(loose))


def _automatic_flat(every: Any, loose: Any) -> tuple[float, float]:
    low, high = float(every.min()), float(every.max())
    if low == high:
        return low - 1.0, high + 1.0
    room = (high - low) * LOOSE
    if len(loose) and loose.min() == low:
        low -= room
    if len(loose) and loose.max() == high:
        high += room
    return low, high


def _dress(plot: Any, panel: Any, axis: Any, side: Any) -> None:
    """Ticks, labels, grid and title of one axis."""
    layout, ax = axis.layout, panel.ax
    box = ax.get_position()
    pixels = box.width * plot.width if axis.is_x else box.height * plot.height
    one = "x" if axis.is_x else "y"
    if layout.get("side") in ("right", "top"):
        (ax.yaxis.tick_right if layout["side"] == "right" else ax.xaxis.tick_top)()
        side.set_label_position(layout["side"])
    if layout.get("visible") is False:
        side.set_visible(False)
        return
    longest, count = set_ticks(axis, side, pixels)
    font = layout.get("tickfont") or {}
    size = float(font.get("size", 12)) * POINT
    ink = color(font.get("color"), plot.paper.ink)
    side.get_offset_text().set(fontsize=size, color=ink)
    length = 4 if layout.get("ticks") in ("outside", "inside") else 0
    way = {"direction": "in" if layout.get("ticks") == "inside" else "out"}
    ax.tick_params(
        axis=one, which="both", length=length, labelsize=size, labelcolor=ink, color=ink, **way
    )
    if layout.get("showticklabels") is False:
        ax.tick_params(
            axis=one,
            which="both",
            labelbottom=False,
            labelleft=False,
            labelright=False,
            labeltop=False,
        )
    turned = (
        angle(axis, longest, pixels, count) if axis.is_x else float(layout.get("tickangle") or 0)
    )
    if turned:
        for label in side.get_ticklabels():
            label.set(rotation=-turned, rotation_mode="anchor")
            if axis.is_x:
                label.set(
                    ha="left" if turned > 0 else "right", va="top" if abs(turned) < 60 else "center"
                )
    if layout.get("showgrid", not axis.is_position) and not layout.get("overlaying"):
        wide = float(layout.get("gridwidth", 1)) * 0.72
        ax.grid(
            True,
            axis=one,
            which="major",
            color=color(layout.get("gridcolor"), "#eeeeee"),
            linewidth=wide,
        )
    low, high = sorted(getattr(ax, f"get_{one}lim")())
    if (
        layout.get("zeroline", True)
        and axis.scale.kind == "linear"
        and low < 0 < high
        and not axis.is_position
    ):
        line = ax.axvline if axis.is_x else ax.axhline
        wide = float(layout.get("zerolinewidth", 1)) * 0.72
        line(0, color=color(layout.get("zerolinecolor"), "#444444"), linewidth=wide, zorder=1.2)
    look = layout["title"].get("font") or {} if isinstance(layout.get("title"), dict) else {}
    said = clean(title_of(layout))
    if said:
        put = ax.set_xlabel if axis.is_x else ax.set_ylabel
        put(
            said,
            fontsize=float(look.get("size", 14)) * POINT,
            color=color(look.get("color"), plot.paper.ink),
            labelpad=6,
        )
