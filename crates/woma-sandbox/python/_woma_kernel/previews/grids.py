"""Grids of plotly: heat maps, contours, two-dimensional histograms, pictures."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from .bins import edges, round_up
from .paper import POINT, clean, color
from .points import is_listed, name_of_trace
from .texts import filled, short
from .values import grid, items, numbers

SIDE_CELLS_MAX = 2000  # of a grid; larger ones are thinned
LABELLED_CELLS_MAX = 900
PICTURE_CHARS_MAX = 20_000_000
CONTOURS = 15


def heatmaps(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        z = _transposed(trace, grid(trace.get("z")))
        if not z.size:
            continue
        x = _borders(panel.x, trace, "x", z.shape[1])
        y = _borders(panel.y, trace, "y", z.shape[0])
        _cells(plot, panel, trace, (x, y, z))


def histograms(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        trace["_z"] = trace.get("_z") or counted(plot, trace)
        _cells(plot, panel, trace, trace["_z"])


def counted(plot: Any, trace: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Borders and counts of a two-dimensional histogram."""
    sides = []
    for key in "xy":
        axis = plot.axis(trace.get(f"{key}axis") or key)
        places = axis.scale.places(trace.get(key))
        if axis.scale.kind == "category":
            bins = np.arange(len(axis.scale.names) + 1) - 0.5
        else:
            known = places[np.isfinite(places)]
            wanted, given = trace.get(f"nbins{key}"), trace.get(f"{key}bins")
            bins = edges(known, axis.scale.kind, wanted, given, is_grid=True)
        sides.append((places, bins))
    (x, across), (y, up) = sides
    length = min(len(x), len(y))
    weights = numbers(trace["z"])[:length] if trace.get("z") is not None else None
    total, _, _ = np.histogram2d(y[:length], x[:length], bins=(up, across), weights=weights)
    if trace.get("histfunc") == "avg" and weights is not None:
        count, _, _ = np.histogram2d(y[:length], x[:length], bins=(up, across))
        total = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return across, up, total


def contours(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        x, y, z = _field(plot, panel, trace)
        if min(z.shape) < 2:
            plot.paper.miss(trace["type"])
            continue
        how, line = trace.get("contours") or {}, trace.get("line") or {}
        coloring = how.get("coloring", "fill")
        if coloring == "none":
            trace["showscale"] = False
        tints, span = plot.paint(trace, z.ravel(), "z")
        levels = _levels(trace, how, span)
        wide = line.get("width", 1.5) * 0.72
        if coloring in ("fill", "heatmap"):
            panel.ax.contourf(x, y, z, levels, cmap=tints, norm=span, zorder=2, extend="both")
            if how.get("showlines", True):
                ink = color(line.get("color"), "#444444")
                panel.ax.contour(x, y, z, levels, colors=[ink], linewidths=0.35, zorder=2.1)
        elif coloring == "none":
            ink = color(line.get("color"), trace["_color"])
            panel.ax.contour(x, y, z, levels, colors=[ink], linewidths=wide, zorder=2.1)
            if is_listed(plot, trace):
                entry = Line2D([], [], color=ink, linewidth=wide)
                plot.paper.entries.append((name_of_trace(trace), entry))
        else:
            look = {"cmap": tints, "norm": span, "linewidths": wide}
            panel.ax.contour(x, y, z, levels, zorder=2.1, **look)
        panel.x.cover(x, is_loose=False)
        panel.y.cover(y, is_loose=False)


def _field(plot: Any, panel: Any, trace: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Places and heights of a contour."""
    if trace["type"] == "contour":
        z = _transposed(trace, grid(trace.get("z")))
        x, y = (
            _middles(axis, trace, key, side)
            for axis, key, side in zip((panel.x, panel.y), "xy", z.shape[::-1], strict=True)
        )
        return x[: z.shape[1]], y[: z.shape[0]], z
    trace["_z"] = trace.get("_z") or counted(plot, trace)
    across, up, z = trace["_z"]
    sides = []
    for edge in (across, up):  # with an empty bin at each end, where the lines close
        middles = (edge[:-1] + edge[1:]) / 2
        sides.append(
            np.concatenate([[2 * edge[0] - middles[0]], middles, [2 * edge[-1] - middles[-1]]])
        )
    return sides[0], sides[1], np.pad(z, 1)


def _levels(trace: dict[str, Any], how: dict[str, Any], span: Any) -> Any:
    if how.get("start") is not None and how.get("end") is not None and how.get("size"):
        return np.arange(how["start"], how["end"] + how["size"] / 2, how["size"])
    size = round_up((span.vmax - span.vmin) / int(trace.get("ncontours") or CONTOURS))
    first = np.floor(span.vmin / size) * size + size
    levels = np.arange(first, span.vmax - size * 1e-9, size)
    return levels if len(levels) else np.array([(span.vmin + span.vmax) / 2])


def images(plot: Any, panel: Any, traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        if trace.get("source"):
            pixels = _opened(str(trace["source"]))
        else:
            found = np.asarray(
                grid(trace.get("z")) if not isinstance(trace.get("z"), list) else trace["z"],
                dtype=float,
            )
            whole = 255.0
            pixels = np.clip(found / whole, 0, 1)
        if pixels is None or pixels.ndim != 3:
            plot.paper.miss("image")
            continue
        height, width = pixels.shape[:2]
        left, top = float(trace.get("x0", 0)) - 0.5, float(trace.get("y0", 0)) - 0.5
        step = float(trace.get("dx", 1)), float(trace.get("dy", 1))
        right, bottom = left + width * step[0], top + height * step[1]
        panel.ax.imshow(
            pixels,
            extent=(left, right, bottom, top),
            aspect="auto",
            zorder=2,
            interpolation="antialiased",
        )
        panel.ax.set_autoscale_on(False)
        panel.x.cover([left, right], is_loose=False)
        panel.y.cover([top, bottom], is_loose=False)
        for axis in (panel.x, panel.y):
            axis.is_position = True
        panel.y.layout.setdefault("autorange", "reversed")
        panel.x.layout.setdefault("scaleanchor", panel.y.key)


def _opened(source: str) -> Any:
    """Pixels of a picture that is in the figure itself."""
    head, _, data = source.partition(",")
    if not head.startswith("data:image") or ";base64" not in head or len(data) > PICTURE_CHARS_MAX:
        return None
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def _transposed(trace: dict[str, Any], z: Any) -> Any:
    return z.T if trace.get("transpose") else z


def _middles(axis: Any, trace: dict[str, Any], key: str, length: int) -> Any:
    given = items(trace.get(key))
    if len(given):
        return axis.scale.places(given)[: length + 1]
    start, step = numbers(trace.get(f"{key}0", 0))[0], numbers(trace.get(f"d{key}", 1))[0]
    return start + step * np.arange(length)


def _borders(axis: Any, trace: dict[str, Any], key: str, length: int) -> Any:
    """Borders of cells whose middles, or borders, are given."""
    places = _middles(axis, trace, key, length)
    if len(places) == length + 1:
        return places
    if len(places) < 2:
        middle = places[0] if len(places) else 0.0
        return np.array([middle - 0.5, middle + 0.5])
    between = (places[:-1] + places[1:]) / 2
    first, last = places[0] - (between[0] - places[0]), places[-1] + (places[-1] - between[-1])
    return np.concatenate([[first], between, [last]])


def _cells(plot: Any, panel: Any, trace: dict[str, Any], cells: tuple[Any, Any, Any]) -> None:
    x, y, z = cells
    z = z[: len(y) - 1, : len(x) - 1]
    tints, span = plot.paint(trace, z.ravel(), "z")
    every = [size // SIDE_CELLS_MAX + 1 for size in z.shape]
    if max(every) > 1:
        plot.paper.remarks.append(
            f"one in {max(every)} cells a side of a {z.shape[0]} × {z.shape[1]} grid is drawn"
        )
    shown = z[:: every[0], :: every[1]]
    is_even = all(np.allclose(np.diff(side), side[1] - side[0]) for side in (x, y))
    is_flat = "log" not in (panel.x.scale.kind, panel.y.scale.kind)
    if is_even and is_flat:
        extent = (x[0], x[-1], y[0], y[-1])
        panel.ax.imshow(
            shown,
            cmap=tints,
            norm=span,
            origin="lower",
            extent=extent,
            aspect="auto",
            interpolation="nearest",
            zorder=2,
        )
        panel.ax.set_autoscale_on(False)
    else:
        x, y = (side[::step] for side, step in ((x, every[1]), (y, every[0])))
        whole = shown[: len(y) - 1, : len(x) - 1]
        panel.ax.pcolormesh(
            x[: whole.shape[1] + 1], y[: whole.shape[0] + 1], whole, cmap=tints, norm=span, zorder=2
        )
    for axis, side in ((panel.x, x), (panel.y, y)):
        axis.cover(side, is_loose=False)
        axis.is_position = True
    _label(panel, trace, cells, (tints, span))


def _label(
    panel: Any, trace: dict[str, Any], cells: tuple[Any, Any, Any], look: tuple[Any, Any]
) -> None:
    x, y, z = cells
    template, texts = trace.get("texttemplate"), trace.get("text")
    if not template or z.size > LABELLED_CELLS_MAX:
        return
    tints, span = look
    rows = items(texts) if texts is not None else []
    size = min(12.0, 300 / max(z.shape)) * POINT + 1
    for row in range(z.shape[0]):
        for column in range(z.shape[1]):
            value = z[row, column]
            if not np.isfinite(value):
                continue
            text = (
                items(rows[row])[column]
                if len(rows) > row and len(items(rows[row])) > column
                else ""
            )
            said = filled(
                template,
                {"z": float(value), "text": text if isinstance(text, str) else short(float(text))},
            )
            red, green, blue, _ = tints(span(value))
            ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else "#2a3f5f"
            place = (x[column] + x[column + 1]) / 2, (y[row] + y[row + 1]) / 2
            panel.ax.text(
                *place,
                clean(said),
                ha="center",
                va="center",
                fontsize=size,
                color=ink,
                zorder=4,
                clip_on=True,
            )
