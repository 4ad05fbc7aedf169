"""Annotations and shapes of a plotly preview."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import Ellipse, Rectangle
from matplotlib.transforms import blended_transform_factory

from .paper import POINT, clean, color, dash


def _axis_of(plot: Any, reference: Any, letter: str) -> tuple[Any, str]:
    """The axis that a place refers to, and how: `data`, `domain` or `paper`."""
    text = str(reference or letter)
    if text == "paper":
        return None, "paper"
    key, _, rest = text.partition(" ")
    return plot.axis(key), "domain" if rest else "data"


def _panel_of(plot: Any, x: Any, y: Any) -> Any:
    """A panel with these axes; any if there is none."""
    for panel in plot.panels.values():
        if (x is None or panel.x is x) and (y is None or panel.y is y):
            return panel
    return None


def shape_of(plot: Any, shape: dict[str, Any]) -> None:
    look = {**(plot.layout.get("shapedefaults") or {}), **shape}
    (x, across), (y, up) = (_axis_of(plot, look.get(f"{one}ref"), one) for one in "xy")
    panel = _panel_of(plot, x, y)
    if panel is None or look.get("visible", True) is not True or look.get("type") == "path":
        if look.get("type") == "path":
            plot.paper.miss("shapes with a path")
        return
    ways = {"data": panel.ax.transData, "domain": panel.ax.transAxes}
    left, bottom, width, height = plot.area

    def ends(letter: str, axis: Any, how: str) -> tuple[float, float]:
        given = [look.get(f"{letter}{end}", end) for end in (0, 1)]
        if how == "data":
            low, high = (axis.scale.place(each, is_power=False) for each in given)
        else:
            low, high = map(float, given)
        if how == "paper":
            start, size, whole = (
                (left, width, plot.width) if letter == "x" else (bottom, height, plot.height)
            )
            low, high = (start + low * size) / whole, (start + high * size) / whole
        return low, high

    xs, ys = ends("x", x, across), ends("y", y, up)
    ways["paper"] = plot.paper.figure.transFigure
    way = blended_transform_factory(ways[across], ways[up])
    line = {
        **((plot.layout.get("shapedefaults") or {}).get("line") or {}),
        **(shape.get("line") or {}),
    }
    opacity = float(look.get("opacity", 1))
    ink = color(line.get("color"), "#444444", opacity)
    wide = float(line.get("width", 2)) * 0.72
    style = dash(line.get("dash", "solid"))
    options: dict[str, Any] = {
        "transform": way,
        "zorder": 1.5 if look.get("layer") == "below" else 4,
    }
    if "data" not in (across, up):
        options["clip_on"] = False
    if look.get("type") == "line":
        panel.ax.plot(xs, ys, color=ink, linewidth=wide, linestyle=style, **options)
        _label(plot, panel, look, way, (xs, ys))
        return
    face = color(look.get("fillcolor"), "none", opacity) if look.get("fillcolor") else "none"
    options.update(
        facecolor=face, edgecolor=ink if wide else "none", linewidth=wide, linestyle=style
    )
    size = xs[1] - xs[0], ys[1] - ys[0]
    if look.get("type") == "circle":
        middle = (xs[0] + xs[1]) / 2, (ys[0] + ys[1]) / 2
        panel.ax.add_patch(Ellipse(middle, *map(abs, size), **options))
    else:
        panel.ax.add_patch(Rectangle((xs[0], ys[0]), *size, **options))
    _label(plot, panel, look, way, (xs, ys))


def _label(plot: Any, panel: Any, look: dict[str, Any], way: Any, ends: Any) -> None:
    said = (look.get("label") or {}).get("text")
    if said:
        (x0, x1), (y0, y1) = ends
        place = (x0 + x1) / 2, (y0 + y1) / 2
        panel.ax.text(
            *place,
            clean(said),
            transform=way,
            ha="center",
            va="bottom",
            fontsize=11 * POINT,
            color=plot.paper.ink,
            zorder=5,
        )


def _spot(plot: Any, note: dict[str, Any]) -> tuple[float, float] | None:
    """The place of an annotation in pixels."""
    (x, across), (y, up) = (_axis_of(plot, note.get(f"{one}ref"), one) for one in "xy")
    panel = _panel_of(plot, x, y)
    left, bottom, width, height = plot.area
    found = []
    for letter, axis, how in (("x", x, across), ("y", y, up)):
        start, size = (left, width) if letter == "x" else (bottom, height)
        given = note.get(letter)
        if how == "paper":
            found.append(start + float(0.5 if given is None else given) * size)
            continue
        if panel is None or given is None:
            return None
        number = 0 if letter == "x" else 1
        if how == "domain":
            point = (float(given),) * 2
            found.append(float(panel.ax.transAxes.transform(point)[number]))
        else:
            place = axis.scale.place(given, is_power=True)
            point = (
                (place, panel.ax.get_ylim()[0])
                if letter == "x"
                else (panel.ax.get_xlim()[0], place)
            )
            found.append(float(panel.ax.transData.transform(point)[number]))
    return (found[0], found[1]) if np.isfinite(found).all() else None


def annotate(plot: Any, given: dict[str, Any]) -> None:
    note = {**(plot.layout.get("annotationdefaults") or {}), **given}
    spot = _spot(plot, note)
    if (
        spot is None
        or not note.get("text")
        and not note.get("showarrow")
        or note.get("visible") is False
    ):
        return
    x, y = spot[0] + float(note.get("xshift", 0)), spot[1] + float(note.get("yshift", 0))
    has_arrow = note.get("showarrow", True)
    font = note.get("font") or {}
    sides = {one: note.get(f"{one}anchor") or "auto" for one in "xy"}
    for one, names in (("x", ("left", "center", "right")), ("y", ("bottom", "middle", "top"))):
        if sides[one] == "auto":
            share = (
                float(note.get(one) or 0)
                if "paper" in str(note.get(f"{one}ref")) and not has_arrow
                else 0.5
            )
            sides[one] = names[0] if share < 1 / 3 else names[2] if share > 2 / 3 else names[1]
    look: dict[str, Any] = {
        "ha": sides["x"],
        "va": "center" if sides["y"] == "middle" else sides["y"],
        "color": color(font.get("color"), plot.paper.ink),
        "rotation": -float(note.get("textangle") or 0),
    }
    if note.get("bgcolor") or note.get("bordercolor"):
        frame = color(note["bordercolor"]) if note.get("bordercolor") else "none"
        face = color(note["bgcolor"]) if note.get("bgcolor") else "none"
        look["bbox"] = {"facecolor": face, "edgecolor": frame, "boxstyle": "square,pad=0.2"}
    size = float(font.get("size", 12))
    if has_arrow:
        ax, ay = (note.get(key, default) for key, default in (("ax", -10), ("ay", -30)))
        end = (
            x + float(ax if isinstance(ax, (int, float)) else 0),
            y - float(ay if isinstance(ay, (int, float)) else 0),
        )
        share = [(x / plot.width, y / plot.height), (end[0] / plot.width, end[1] / plot.height)]
        ink = color(note.get("arrowcolor"), plot.paper.ink)
        panel = plot.paper.figure.axes[0] if plot.paper.figure.axes else None
        if panel is not None:
            arrow = {
                "arrowstyle": "-|>",
                "color": ink,
                "linewidth": 0.9,
                "shrinkA": 0,
                "shrinkB": 1,
            }
            drawn = panel.annotate(
                clean(note.get("text")),
                share[0],
                xytext=share[1],
                xycoords="figure fraction",
                textcoords="figure fraction",
                arrowprops=arrow,
                fontsize=size * POINT,
                zorder=6,
                annotation_clip=False,
                **look,
            )
            drawn.set_clip_on(False)
            return
    plot.paper.text(x, y, note.get("text"), size, zorder=6, **look)
