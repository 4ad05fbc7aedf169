"""One plot of bokeh on paper: its axes, their ranges, ticks and grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

from .paper import POINT, Paper, clean, color
from .spec import Axis
from .texts import formatted, short
from .values import name_of

LETTER_PIXELS = 6.3
LOOSE = 0.05


class View:
    """One plot: its axes on paper, and how its values become places."""

    def __init__(self, paper: Paper, plot: Any, box: tuple[float, ...]) -> None:
        self.paper, self.plot = paper, plot
        self.x = self._axis("x", plot.x_range, plot.x_scale, plot.xaxis)
        self.ys = {"default": self._axis("y", plot.y_range, plot.y_scale, plot.yaxis)}
        for name, given in plot.extra_y_ranges.items():
            scale = plot.extra_y_scales.get(name, plot.y_scale)
            beside = [axis for axis in plot.yaxis if getattr(axis, "y_range_name", "") == name]
            self.ys[name] = self._axis("y", given, scale, beside)
        self.ax = paper.axes(self._inner(box))
        self.ax.set_facecolor(color(plot.background_fill_color, "white"))
        self.axes = {"default": self.ax}
        for name in list(self.ys)[1:]:
            self.axes[name] = paper.axes(self._inner(box))
            self.axes[name].patch.set_visible(False)
        for name, ax in self.axes.items():
            ax.set_autoscale_on(False)
            ax.set_axisbelow(True)
            if self.x.scale.kind == "log":
                ax.set_xscale("log")
            if self.ys[name].scale.kind == "log":
                ax.set_yscale("log")
        self.later: list[Callable[[], None]] = []  # drawings that need the ranges

    def _axis(self, letter: str, given: Any, scale: Any, beside: Any) -> Axis:
        kind = "linear"
        if type(given).__name__ == "FactorRange":
            kind = "category"
        elif type(scale).__name__ == "LogScale":
            kind = "log"
        elif any(type(axis).__name__ == "DatetimeAxis" for axis in beside):
            kind = "date"
        axis = Axis(f"{letter}axis", {"type": kind, "_range": given}, {})
        if kind == "category":
            for factor in given.factors:
                axis.scale.add(name_of(factor))
        return axis

    def _inner(self, box: tuple[float, ...]) -> tuple[float, ...]:
        left, bottom, width, height = box
        names = self.ys["default"].scale.names
        longest = min(max((len(name) for name in names), default=5), 30)
        labelled = any(axis.axis_label for axis in self.plot.yaxis)
        room = longest * LETTER_PIXELS + (24 if labelled else 0) + 14
        shown = [axis for axis in self.plot.xaxis if axis.visible]
        down = 36 + (20 if any(axis.axis_label for axis in shown) else 0) if shown else 16
        if not any(axis.visible for axis in self.plot.yaxis):
            room = 14
        names = self.x.scale.names
        longest = min(max((len(name) for name in names), default=0), 30)
        self.is_turned = any(
            axis.major_label_orientation != "horizontal" for axis in self.plot.xaxis
        )
        self.is_turned = self.is_turned or longest * LETTER_PIXELS > (width - room) / max(
            len(names), 1
        )
        if self.is_turned:
            down += longest * LETTER_PIXELS * 0.8
        up = 34 if self.plot.title is not None and self.plot.title.text else 12
        right = 20 + 55 * (len(self.ys) - 1)
        outside = [
            each for each in self.plot.right if type(each).__name__ in ("Legend", "ColorBar")
        ]
        right += 90 * len(outside)
        return (
            left + room,
            bottom + down,
            max(width - room - right, 40),
            max(height - down - up, 40),
        )


def _limits(axis: Axis) -> tuple[float, float]:
    given = axis.layout["_range"]
    if axis.scale.kind == "category":
        return -0.5, max(len(axis.scale.names), 1) - 0.5
    every = np.array(axis.tight + axis.loose)
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    if axis.scale.kind == "log":
        low, high = np.log10([low, high])
    room = (high - low) * LOOSE or 1.0
    low, high = low - room, high + room
    if axis.scale.kind == "log":
        low, high = 10**low, 10**high
    ends = []
    for end, found in ((given.start, low), (given.end, high)):
        is_set = end is not None and end == end and not (isinstance(end, float) and np.isnan(end))
        ends.append(float(axis.scale.places([end])[0]) if is_set else float(found))
    if getattr(given, "flipped", False):
        ends.reverse()
    return (ends[0], ends[1]) if ends[0] != ends[1] else (ends[0] - 0.5, ends[1] + 0.5)


def finish(view: View, ax: Any, name: str) -> None:
    """Ranges, ticks, grid and titles of one pair of axes."""
    plot, is_first = view.plot, name == "default"
    ax.set_xlim(*_limits(view.x))
    ax.set_ylim(*_limits(view.ys[name]))
    for spine in ax.spines.values():
        spine.set_color("#e5e5e5")
    grids = {grid.dimension: grid for grid in plot.center if type(grid).__name__ == "Grid"}
    sides = ((view.x, ax.xaxis, plot.xaxis, 0), (view.ys[name], ax.yaxis, plot.yaxis, 1))
    for axis, side, models, dimension in sides:
        mine = [
            each
            for each in models
            if dimension == 0 or getattr(each, "y_range_name", "default") == name
        ]
        shown = [each for each in mine if each.visible]
        if (not is_first and dimension == 0) or not shown:
            side.set_visible(False)
            continue
        _ticks(view, axis, side, shown[0])
        if dimension == 1 and (not is_first or shown[0] in plot.right):
            ax.yaxis.tick_right()
            side.set_label_position("right")
        grid = grids.get(dimension)
        if is_first and grid is not None and grid.grid_line_color is not None and grid.visible:
            look = color(grid.grid_line_color, "#e5e5e5", grid.grid_line_alpha)
            ax.grid(True, axis="xy"[dimension], color=look, linewidth=0.7)
        if shown[0].axis_label:
            put = ax.set_xlabel if dimension == 0 else ax.set_ylabel
            put(clean(shown[0].axis_label), fontsize=13 * POINT, color="#444444", style="italic")
        ax.tick_params(
            axis="xy"[dimension],
            labelsize=11 * POINT,
            labelcolor="#444444",
            color="#444444",
            length=4,
        )
        side.get_offset_text().set(fontsize=10 * POINT)
        ax.spines["bottom" if dimension == 0 else "left"].set_color("#222222")
        if dimension == 0 and view.is_turned:
            for label in side.get_ticklabels():
                label.set(rotation=50, ha="right", rotation_mode="anchor")


def _ticks(view: View, axis: Axis, side: Any, model: Any) -> None:
    side.set_minor_locator(NullLocator())
    if axis.scale.kind == "category":
        names = axis.scale.names
        step = len(names) // 40 + 1
        side.set_major_locator(FixedLocator(np.arange(0, len(names), step)))
        side.set_major_formatter(FixedFormatter([clean(name) for name in names[::step]]))
        return
    if axis.scale.kind == "date":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        side.set_major_locator(locator)
        side.set_major_formatter(ConciseDateFormatter(locator))
        return
    if axis.scale.kind == "log":
        side.set_major_locator(LogLocator(numticks=10))
    else:
        ticks = getattr(model.ticker, "ticks", None)
        side.set_major_locator(
            FixedLocator(ticks) if ticks else MaxNLocator(7, steps=[1, 2, 5, 10])
        )
    given = {
        float(key): str(text)
        for key, text in (model.major_label_overrides or {}).items()
        if _is_number(key)
    }
    form = (
        getattr(model.formatter, "format", "")
        if type(model.formatter).__name__ == "NumeralTickFormatter"
        else ""
    )

    def said(value: float, _place: Any = None) -> str:
        return clean(
            given.get(value) or (_numeral(value, form) if form else short(float(f"{value:.10g}")))
        )

    side.set_major_formatter(FuncFormatter(said))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _numeral(value: float, form: str) -> str:
    """A number in a format such as `$0,0.00` or `0.0%`."""
    digits = len(form.partition(".")[2].rstrip("%a ")) if "." in form else 0
    comma = "," if ",0" in form else ""
    if "%" in form:
        return formatted(value, f"{comma}.{digits}%")
    if "a" in form:
        return short(value)
    money = next((sign for sign in "$€£" if sign in form), "")
    return money + formatted(value, f"{comma}.{digits}f")
