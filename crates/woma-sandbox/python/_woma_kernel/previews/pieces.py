"""Glyphs of bokeh with outlines of their own: round pieces, patches, pictures, texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

from .columns import Glyph, places
from .paper import POINT, clean, color_map, span_of
from .points import POINTS_MAX, TEXTS_MAX
from .values import name_of, numbers


def circles(glyph: Glyph, x: Any, y: Any) -> None:
    radius = np.resize(glyph.sizes("radius", glyph.x), len(x))[:POINTS_MAX]
    turns = np.linspace(0, 2 * np.pi, 33)
    _round(
        glyph,
        (x[: len(radius)], y[: len(radius)]),
        radius,
        lambda _: [(1.0, turn) for turn in turns],
    )


def _round(
    glyph: Glyph, middles: tuple[Any, Any], radius: Any, outline: Callable[[int], Any]
) -> None:
    """Shapes that are round on the picture: their radius is a length along the x axis."""
    x, y = middles

    def later() -> None:
        box = glyph.ax.get_window_extent()
        across, up = (
            abs(float(np.subtract(*ends))) for ends in (glyph.ax.get_xlim(), glyph.ax.get_ylim())
        )
        ratio = (box.width / across) / (box.height / up)
        shapes = []
        for number in range(len(radius)):
            edge = np.array(outline(number))
            size = edge[:, 0] * radius[number]
            shapes.append(
                np.stack(
                    [
                        x[number] + size * np.cos(edge[:, 1]),
                        y[number] + ratio * size * np.sin(edge[:, 1]),
                    ],
                    1,
                )
            )
        polygons(glyph, shapes)

    glyph.view.later.append(later)
    glyph.x.cover(np.concatenate([x - radius, x + radius]))
    glyph.y.cover(np.concatenate([y - radius, y + radius]))


def polygons(glyph: Glyph, shapes: Any) -> None:
    look = {
        "facecolors": glyph.tints("fill"),
        "edgecolors": glyph.tints("line"),
        **{key + "s": value for key, value in glyph.line().items()},
    }
    glyph.ax.add_collection(
        PolyCollection(shapes[:POINTS_MAX], zorder=glyph.order, **look), autolim=False
    )
    for shape in shapes[:POINTS_MAX]:
        glyph.x.cover(np.asarray(shape)[:, 0])
        glyph.y.cover(np.asarray(shape)[:, 1])


def many_lines(glyph: Glyph) -> None:
    lines = [
        np.stack([places(x, glyph.x), places(y, glyph.y)], 1)
        for x, y in zip(glyph.get("xs"), glyph.get("ys"), strict=False)
    ]
    if glyph.kind == "Patches":
        polygons(glyph, lines)
        return
    look = {key + "s": value for key, value in glyph.line().items()}
    glyph.ax.add_collection(
        LineCollection(lines, colors=glyph.tints("line"), zorder=glyph.order, **look), autolim=False
    )
    for line in lines:
        glyph.x.cover(line[:, 0])
        glyph.y.cover(line[:, 1])


def patch(glyph: Glyph) -> None:
    polygons(glyph, [np.stack([glyph.places("x", glyph.x), glyph.places("y", glyph.y)], 1)])


def wedge(glyph: Glyph) -> None:
    x, y = glyph.places("x", glyph.x), glyph.places("y", glyph.y)
    start, end = (
        np.resize(numbers(glyph.get(key)), len(x)) for key in ("start_angle", "end_angle")
    )
    is_ring = glyph.kind == "AnnularWedge"
    outer = np.resize(glyph.sizes("outer_radius" if is_ring else "radius", glyph.x), len(x))[
        :POINTS_MAX
    ]
    inner = np.resize(glyph.sizes("inner_radius", glyph.x), len(x)) if is_ring else None

    def outline(number: int) -> Any:
        last = end[number] if end[number] >= start[number] else end[number] + 2 * np.pi
        turns = np.linspace(start[number], last, max(2, int((last - start[number]) * 30)))
        hole = 0.0 if inner is None else inner[number] / outer[number]
        back = [(hole, turn) for turn in turns[::-1]] if hole else [(0.0, 0.0)]
        return [(1.0, turn) for turn in turns] + back

    _round(glyph, (x, y), outer, outline)


def image(glyph: Glyph) -> None:
    pictures = glyph.get("image")
    x, y = glyph.places("x", glyph.x), glyph.places("y", glyph.y)
    wide, high = glyph.sizes("dw", glyph.x), glyph.sizes("dh", glyph.y)
    for number, picture in enumerate(pictures):
        place = [float(each[number % len(each)]) for each in (x, y, wide, high)]
        extent = (place[0], place[0] + place[2], place[1], place[1] + place[3])
        pixels, look = np.asarray(picture), {}
        if glyph.kind == "Image":
            mapper = glyph.glyph.color_mapper
            pixels = pixels.astype(float)
            if "Log" in type(mapper).__name__:
                pixels = np.log10(np.maximum(pixels, 1e-300))
            look = {
                "cmap": color_map(list(mapper.palette)),
                "norm": span_of(pixels, mapper.low, mapper.high),
            }
        else:
            pixels = (
                pixels.view(np.uint8).reshape((*pixels.shape[:2], 4))
                if pixels.dtype == np.uint32
                else pixels
            )
        glyph.ax.imshow(
            pixels,
            origin="lower",
            extent=extent,
            aspect="auto",
            interpolation="nearest",
            zorder=glyph.order,
            **look,
        )
        glyph.ax.set_autoscale_on(False)
        glyph.x.cover(extent[:2], is_loose=False)
        glyph.y.cover(extent[2:], is_loose=False)


def text(glyph: Glyph) -> None:
    x, y, said = glyph.places("x", glyph.x), glyph.places("y", glyph.y), glyph.get("text")
    shift = [
        float(each) if isinstance(each, (int, float)) else 0.0
        for each in (glyph.get("x_offset"), glyph.get("y_offset"))
    ]
    ink = glyph.tints("text")
    up = {"middle": "center", "top": "top", "bottom": "bottom", "alphabetic": "baseline"}.get(
        glyph.get("text_baseline"), "center"
    )
    for number in range(min(len(x), TEXTS_MAX)):
        text = said if isinstance(said, str) else said[number]
        tint = ink[number] if np.ndim(ink) > 1 else ink
        glyph.ax.annotate(
            clean(name_of(text)),
            (x[number], y[number]),
            xytext=(shift[0] * 0.72, -shift[1] * 0.72),
            textcoords="offset points",
            color=tint,
            fontsize=12 * POINT,
            ha=glyph.get("text_align") or "left",
            va=up,
            zorder=glyph.order + 1,
        )
    glyph.x.cover(x)
    glyph.y.cover(y)
