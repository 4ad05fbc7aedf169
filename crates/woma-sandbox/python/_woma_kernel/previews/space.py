"""Scenes of plotly in three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import Patch

from .paper import POINT, clean, color
from .points import POINTS_MAX, colors, diameters, is_listed, name_of_trace
from .spec import title_of
from .values import Scale, grid, items, kind_of, numbers

SURFACE_SIDE_MAX = 100
TRIANGLES_MAX = 20_000


def deep(plot: Any, traces: list[dict[str, Any]]) -> None:
    """A scene in three dimensions."""
    scene = plot.layout.get(traces[0].get("scene") or "scene") or {}
    left, bottom, width, height = plot.domain(scene.get("domain"))
    ax = plot.paper.axes((left, bottom, width, height), projection="3d")
    ax.view_init(elev=30, azim=45)
    _place(ax, traces)
    for trace in traces:
        {"scatter3d": _cloud, "surface": _surface, "mesh3d": _mesh}[trace["type"]](plot, ax, trace)
    for one in "xyz":
        axis = scene.get(f"{one}axis") or {}
        title = title_of(axis) or one
        getattr(ax, f"set_{one}label")(clean(title), fontsize=11 * POINT, color=plot.paper.ink)
        if axis.get("range"):
            getattr(ax, f"set_{one}lim")(*map(float, axis["range"]))
        getattr(ax, f"{one}axis").set_pane_color(color(axis.get("backgroundcolor"), "#E5ECF6"))
    ax.tick_params(labelsize=9 * POINT, labelcolor=plot.paper.ink)


def _cloud(plot: Any, ax: Any, trace: dict[str, Any]) -> None:
    x, y, z = trace["_places"]
    step = len(x) // POINTS_MAX + 1
    chosen = np.arange(0, len(x), step)
    spots, line = trace.get("marker") or {}, trace.get("line") or {}
    parts = str(trace.get("mode") or "lines+markers")
    tint = colors(
        plot,
        spots,
        chosen,
        trace["_color"],
        spots.get("opacity") if isinstance(spots.get("opacity"), (int, float)) else None,
    )
    flat = tint if np.ndim(tint) < 2 else color(trace["_color"])
    if "lines" in parts:
        own = line.get("color") if isinstance(line.get("color"), str) else None
        ax.plot(
            x[chosen],
            y[chosen],
            z[chosen],
            color=color(own, flat),
            linewidth=line.get("width", 2) * 0.72,
        )
    if "markers" in parts:
        size = np.asarray(diameters({"size": 8, **spots}, chosen)) * 0.72
        ax.scatter(
            x[chosen],
            y[chosen],
            z[chosen],
            s=(size * 0.8) ** 2,
            c=tint if np.ndim(tint) > 1 else [tint],
            depthshade=False,
        )
    if is_listed(plot, trace):
        plot.paper.entries.append((name_of_trace(trace), Patch(facecolor=flat)))


def _surface(plot: Any, ax: Any, trace: dict[str, Any]) -> None:
    z = grid(trace.get("z"))
    x, y = (
        grid(trace[key])
        if len(items(trace.get(key))) and np.ndim(items(trace[key])[0])
        else numbers(trace.get(key))
        for key in "xy"
    )
    x = x if len(x) else np.arange(z.shape[1])
    y = y if len(y) else np.arange(z.shape[0])
    x, y = np.meshgrid(x, y) if np.ndim(x) == 1 and np.ndim(y) == 1 else (x, y)
    x, y = (
        np.broadcast_to(each if axis == 0 or np.ndim(each) == 2 else each[:, None], z.shape)
        for axis, each in enumerate((x, y))
    )
    shade = grid(trace["surfacecolor"]) if trace.get("surfacecolor") is not None else z
    tints, span = (
        plot.paint(trace, shade.ravel(), "color")
        if trace.get("coloraxis")
        else plot.paint({"showscale": True, **trace}, shade.ravel())
    )
    every = [size // SURFACE_SIDE_MAX + 1 for size in z.shape]
    part = slice(None, None, every[0]), slice(None, None, every[1])
    ax.plot_surface(
        x[part],
        y[part],
        z[part],
        facecolors=tints(span(shade[part])),
        rstride=1,
        cstride=1,
        linewidth=0,
        antialiased=False,
        shade=False,
    )


def _mesh(plot: Any, ax: Any, trace: dict[str, Any]) -> None:
    x, y, z = (numbers(trace.get(key)) for key in "xyz")
    corners = [numbers(trace.get(key)).astype(int) for key in "ijk"]
    if not len(corners[0]) or len(corners[0]) > TRIANGLES_MAX:
        plot.paper.miss(
            "mesh3d without triangles"
            if not len(corners[0])
            else f"mesh3d of more than {TRIANGLES_MAX} triangles"
        )
        return
    ax.plot_trisurf(
        x,
        y,
        z,
        triangles=np.stack(corners, 1),
        color=color(trace.get("color"), trace["_color"], trace.get("opacity")),
    )


def _place(ax: Any, traces: list[dict[str, Any]]) -> None:
    """Find the coordinates of all points; names and dates get ticks of their own."""
    clouds = [trace for trace in traces if trace["type"] == "scatter3d"]
    found: dict[int, list[Any]] = {}
    for one in "xyz":
        every = [items(trace.get(one)) for trace in clouds]
        scale = Scale(kind_of(every, True) if every else "linear")
        for trace, values in zip(clouds, every, strict=True):
            found.setdefault(trace["_number"], []).append(scale.places(values))
        if scale.kind == "category":
            getattr(ax, f"set_{one}ticks")(range(len(scale.names)), list(map(clean, scale.names)))
        elif scale.kind == "date":
            days = np.concatenate([places[-1] for places in found.values()])
            ticks = np.linspace(np.nanmin(days), np.nanmax(days), 4).round()
            texts = [str(np.datetime64(int(day), "D")) for day in ticks]
            getattr(ax, f"set_{one}ticks")(ticks, texts)
    for trace in clouds:
        places = found[trace["_number"]]
        length = min(map(len, places))
        trace["_places"] = [each[:length] for each in places]
