"""A plotly figure that is being drawn: its layout, traces, axes, panels and colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import (
    grids,
)
from .paper import Paper, color, color_map, span_of
from .spec import Axis, Panel, merged, title_of
from .trees import DIMENSIONS_MAX, expanded
from .values import decode, items, numbers

WIDTH, HEIGHT = 700, 500  # of a figure that says nothing else, as plotly's own pictures
_COLORWAY = [
    "#636efa",
    "#EF553B",
    "#00cc96",
    "#ab63fa",
    "#FFA15A",
    "#19d3f3",
    "#FF6692",
    "#B6E880",
    "#FF97FF",
    "#FECB52",
]
_PLASMA = [
    "#0d0887",
    "#46039f",
    "#7201a8",
    "#9c179e",
    "#bd3786",
    "#d8576b",
    "#ed7953",
    "#fb9f3a",
    "#fdca26",
    "#f0f921",
]
_ALIASES = {"scattergl": "scatter", "heatmapgl": "heatmap", "scatterpolargl": "scatterpolar"}


class Plot:
    """A figure that is being drawn."""

    def __init__(self, spec: dict[str, Any], width: float | None, height: float | None) -> None:
        given = spec.get("layout") or {}
        template = given.get("template") or {}
        self.layout = merged(template.get("layout") or {}, given)
        defaults = template.get("data") or {}
        self.colorway = list(self.layout.get("colorway") or _COLORWAY)
        self.traces = []
        remarks: list[str] = []
        for number, trace in enumerate(spec.get("data") or []):
            kind = trace.get("type", "scatter")
            like = (defaults.get(kind) or [{}])[0]
            trace = merged(like, trace)
            trace["type"] = _ALIASES.get(kind, kind)
            trace["_number"], trace["_color"] = number, self.colorway[number % len(self.colorway)]
            if trace.get("visible", True) is not True:
                continue
            is_matrix = trace["type"] == "splom"
            if is_matrix and len(trace.get("dimensions") or []) > DIMENSIONS_MAX:
                given = len(trace["dimensions"])
                remarks.append(f"{DIMENSIONS_MAX} of {given} dimensions are drawn")
            self.traces.extend(expanded(trace, self.layout) if is_matrix else [trace])
        self.width = width or self.layout.get("width") or WIDTH
        self.height = height or self.layout.get("height") or HEIGHT
        font = self.layout.get("font") or {}
        ink = color(font.get("color"), "#444444")
        self.paper = Paper(self.width, self.height, self.layout.get("paper_bgcolor", "white"), ink)
        self.paper.remarks.extend(remarks)
        self.axes: dict[str, Axis] = {}
        self.panels: dict[tuple[str, str], Panel] = {}
        self.bars: dict[Any, tuple[Any, Any, str]] = {}  # colour bars: map, span, title
        self.area = (0.0, 0.0, 1.0, 1.0)  # of the plot, in pixels: left, bottom, width, height
        self.top = 100.0
        self.legend_shift = 0.0
        self.has_legend = self._has_legend()

    def _has_legend(self) -> bool:
        given = self.layout.get("showlegend")
        if given is not None:
            return bool(given)
        listed = [trace for trace in self.traces if trace.get("showlegend", True)]
        is_wanted = any(trace.get("showlegend") or trace["type"] == "pie" for trace in listed)
        return is_wanted or len(listed) > 1

    def lists(self, trace: dict[str, Any]) -> bool:
        """Whether the legend has the trace."""
        return self.has_legend and trace.get("showlegend", True) is not False

    def axis(self, key: str) -> Axis:
        letter, number = key[0], key[1:]
        name = f"{letter}axis{number}"
        if name not in self.axes:
            self.axes[name] = Axis(name, self.layout.get(name) or {}, self._shared(letter))
        return self.axes[name]

    def _shared(self, letter: str) -> dict[str, Any]:
        template = (self.layout.get("template") or {}).get("layout") or {}
        return template.get(f"{letter}axis") or {}

    def domain(self, box: dict[str, Any] | None) -> tuple[float, float, float, float]:
        """A domain in pixels."""
        left, bottom, width, height = self.area
        x, y = ((box or {}).get(side) or [0, 1] for side in "xy")
        return (
            left + x[0] * width,
            bottom + y[0] * height,
            (x[1] - x[0]) * width,
            (y[1] - y[0]) * height,
        )

    def panel(self, trace: dict[str, Any]) -> Panel:
        key = trace.get("xaxis") or "x", trace.get("yaxis") or "y"
        if key not in self.panels:
            x, y = self.axis(key[0]), self.axis(key[1])
            domain = {each.name[0]: self._domain_of(each) for each in (x, y)}
            is_over = any(each.layout.get("overlaying") for each in (x, y))
            ax = self.paper.axes(self.domain(domain), zorder=2 if is_over else 1)
            if is_over:
                ax.patch.set_visible(False)
            else:
                ax.set_facecolor(color(self.layout.get("plot_bgcolor"), "white"))
            ax.set_autoscale_on(False)
            ax.set_axisbelow(True)
            for each, one in ((x, "x"), (y, "y")):
                if each.scale.kind == "log":
                    getattr(ax, f"set_{one}scale")(
                        "log", nonpositive="clip" if one == "y" else "mask"
                    )
            self.panels[key] = Panel(ax, x, y, self.paper.ink)
        return self.panels[key]

    def _domain_of(self, axis: Axis) -> list[float]:
        below = axis.layout.get("overlaying")
        if below and below != "free" and not axis.layout.get("domain"):
            return self.axis(below).layout.get("domain") or [0, 1]
        return axis.layout.get("domain") or [0, 1]

    def paint(self, holder: dict[str, Any], values: Any = None, key: str = "color") -> Any:
        """Map and span of the colours that stand for numbers, and remember their bar."""
        shared = holder.get("coloraxis")
        name = shared or f"own{id(holder)}"
        source = (self.layout.get(shared) or {}) if shared else holder
        low, high = ("zmin", "zmax") if key == "z" and not shared else ("cmin", "cmax")
        stops = (
            source.get("colorscale")
            or (self.layout.get("colorscale") or {}).get("sequential")
            or _PLASMA
        )
        stops = decode(stops)
        if isinstance(stops, str):
            stops = _PLASMA
        tints = color_map(stops, bool(source.get("reversescale")))
        everything = self._all_of(shared) if shared else values
        middle = source.get("zmid" if key == "z" and not shared else "cmid")
        span = span_of(everything, source.get(low), source.get(high))
        if middle is not None and source.get(low) is None:
            reach = max(span.vmax - middle, middle - span.vmin)
            span.vmin, span.vmax = middle - reach, middle + reach
        default = key == "z" or bool(shared)
        if source.get("showscale", default):
            bar = source.get("colorbar") or {}
            self.bars[name] = tints, span, title_of(bar)
        return tints, span

    def _all_of(self, shared: str) -> Any:
        """Every number that a colour axis stands for."""
        found = [np.zeros(0)]
        for trace in self.traces:
            marker = trace.get("marker") or {}
            if marker.get("coloraxis") == shared:
                found.append(numbers(marker.get("color")))
                found.append(numbers(marker.get("colors")))  # of trees
            if trace.get("coloraxis") == shared:
                if trace["type"] in ("histogram2d", "histogram2dcontour"):
                    trace["_z"] = trace.get("_z") or grids.counted(self, trace)
                    found.append(trace["_z"][2].ravel())
                elif trace.get("z") is not None or trace.get("surfacecolor") is not None:
                    rows = items(
                        trace.get("surfacecolor")
                        if trace.get("surfacecolor") is not None
                        else trace["z"]
                    )
                    found.extend(numbers(row) for row in rows)
        return np.concatenate(found)
