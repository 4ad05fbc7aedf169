"""Pies, funnels of areas, and polar charts of plotly."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import Patch, Polygon, Wedge

from .paper import POINT, clean, color, dash
from .points import POINTS_MAX, colors, diameters, is_listed, mode, name_of_trace
from .spec import title_of
from .texts import short
from .values import items, name_of, numbers

SLICES_MAX = 100
SLICE_SHARE_MIN = 0.015  # a smaller one has no text
INSIDE_SHARE_MIN = 0.06  # text of a smaller one stands outside


def blank(plot: Any, trace: dict[str, Any]) -> Any:
    ax = plot.paper.axes(plot.domain(trace.get("domain")))
    ax.set_axis_off()
    return ax


def _slices(plot: Any, trace: dict[str, Any]) -> list[tuple[str, float, Any]]:
    """Names, sums and colours; those of equal name are one."""
    labels, values = items(trace.get("labels")), items(trace.get("values"))
    labels = (
        [name_of(each) for each in labels] if len(labels) else [str(i) for i in range(len(values))]
    )
    sizes = np.nan_to_num(numbers(values)) if len(values) else np.ones(len(labels))
    given = items((trace.get("marker") or {}).get("colors"))
    total: dict[str, float] = {}
    first: dict[str, int] = {}
    for number, (label, size) in enumerate(zip(labels, sizes, strict=False)):
        total[label] = total.get(label, 0.0) + float(size)
        first.setdefault(label, number)
    way = items(trace.get("_colorway")) or plot.colorway
    order = sorted(total, key=lambda name: -total[name]) if trace.get("sort", True) else list(total)
    tints = {}
    for number, name in enumerate(order):
        own = given[first[name]] if first[name] < len(given) else None
        tints[name] = color(own, way[number % len(way)])
    hidden = set(map(name_of, items(plot.layout.get("hiddenlabels"))))
    shown = [name for name in order if name not in hidden and total[name] > 0]
    if len(shown) > SLICES_MAX:  # the rest is one slice, so that the shares stay
        rest = shown[SLICES_MAX:]
        plot.paper.remarks.append(f"{len(rest)} of {len(shown)} slices are drawn as one")
        other = "… the rest", sum(total[name] for name in rest), color("#cccccc")
        return [*((name, total[name], tints[name]) for name in shown[:SLICES_MAX]), other]
    return [(name, total[name], tints[name]) for name in shown]


def pie(plot: Any, traces: list[dict[str, Any]]) -> None:
    trace = traces[0]
    ax = blank(plot, trace)
    ax.set_aspect("equal")
    ax.set_xlim(-1.12, 1.12)
    ax.set_ylim(-1.12, 1.12)
    slices = _slices(plot, trace)
    whole = sum(size for _, size, _ in slices) or 1.0
    hole = float(trace.get("hole") or 0)
    angle = 90 - float(trace.get("rotation") or 0)
    sign = 1.0
    if trace.get("direction", "counterclockwise") == "clockwise":
        sign = -1.0
    elif slices:  # the first lies right of the top, and the others go round to the left
        angle -= 360 * slices[0][1] / whole
    edge = (trace.get("marker") or {}).get("line") or {}
    around = color(edge.get("color") if isinstance(edge.get("color"), str) else None, "white")
    pulls = items(trace.get("pull"))
    for number, (name, size, tint) in enumerate(slices):
        share = size / whole
        turn = 360 * share * sign
        middle = np.deg2rad(angle + turn / 2)
        pull = (
            float(numbers(pulls[number % len(pulls) : number % len(pulls) + 1])[0])
            if len(pulls)
            else 0.0
        )
        out = np.array([np.cos(middle), np.sin(middle)])
        ends = sorted((angle, angle + turn))
        width = edge.get("width") if isinstance(edge.get("width"), (int, float)) else 0.6
        wedge = Wedge(
            tuple(out * pull),
            1 - pull / 2,
            *ends,
            width=1 - hole if hole else None,
            facecolor=tint,
            edgecolor=around,
            linewidth=width,
        )
        ax.add_patch(wedge)
        _slice_text(
            ax,
            trace,
            (name, size, share, tint),
            out * ((1 + hole) / 2 * (0.92 if hole else 1.3) + pull),
            out,
        )
        angle += turn
        if trace.get("showlegend", True) is not False and plot.lists(trace):
            entry = clean(name)
            if entry not in [label for label, _ in plot.paper.entries]:
                plot.paper.entries.append((entry, Patch(facecolor=tint)))
    if title_of(trace):
        ax.set_title(clean(title_of(trace)), fontsize=13 * POINT, color=plot.paper.ink)


def _slice_text(
    ax: Any, trace: dict[str, Any], body: tuple[Any, ...], place: Any, out: Any
) -> None:
    name, size, share, tint = body
    info = str(trace.get("textinfo") or "percent")
    parts = {"label": name, "value": short(size), "percent": f"{share * 100:.3g}%", "text": ""}
    said = "\n".join(parts[part] for part in ("label", "text", "value", "percent") if part in info)
    if not said.strip() or share < SLICE_SHARE_MIN:
        return
    given = trace.get("textposition")
    outside = given == "outside" or (given != "inside" and share < INSIDE_SHARE_MIN)
    ink = "white" if 0.3 * tint[0] + 0.59 * tint[1] + 0.11 * tint[2] < 0.6 else "#2a3f5f"
    where = out * 1.06 if outside else place
    align = {"ha": "left" if out[0] > 0 else "right"} if outside else {"ha": "center"}
    ax.text(
        *where,
        clean(said),
        va="center",
        fontsize=11 * POINT,
        color="#2a3f5f" if outside else ink,
        **align,
    )


def funnel_area(plot: Any, traces: list[dict[str, Any]]) -> None:
    trace = traces[0]
    ax = blank(plot, trace)
    ax.set_xlim(-1, 1)
    slices = _slices(plot, {**trace, "sort": False})
    whole = sum(size for _, size, _ in slices) or 1.0
    ax.set_ylim(1, 0)
    top = 0.0
    for name, size, tint in slices:
        bottom = top + size / whole
        sides = 1 - 0.67 * top, 1 - 0.67 * bottom
        corners = [(-sides[0], top), (sides[0], top), (sides[1], bottom), (-sides[1], bottom)]
        ax.add_patch(Polygon(corners, facecolor=tint, edgecolor="white"))
        ax.text(
            0,
            (top + bottom) / 2,
            clean(f"{size / whole * 100:.3g}%"),
            ha="center",
            va="center",
            fontsize=11 * POINT,
        )
        plot.paper.entries.append((clean(name), Patch(facecolor=tint)))
        top = bottom


def polar(plot: Any, traces: list[dict[str, Any]]) -> None:
    layout = plot.layout.get(traces[0].get("subplot") or "polar") or {}
    ax = plot.paper.axes(plot.domain(layout.get("domain")), projection="polar")
    ax.set_facecolor(color(layout.get("bgcolor"), "white"))
    ax.grid(color=color((layout.get("radialaxis") or {}).get("gridcolor"), "#dddddd"))
    names: dict[str, int] = {}
    for trace in traces:
        for each in items(trace.get("theta")):
            if isinstance(each, str):
                names.setdefault(each, len(names))
    around = layout.get("angularaxis") or {}
    ax.set_theta_direction(-1 if around.get("direction") == "clockwise" else 1)
    ax.set_theta_offset(
        np.deg2rad(
            float(around.get("rotation", 90 if around.get("direction") == "clockwise" else 0))
        )
    )
    tops: dict[float, float] | None = None if layout.get("barmode") == "overlay" else {}
    for trace in traces:
        radii, given = numbers(trace.get("r")), items(trace.get("theta"))
        if names:
            turns = np.array([names.get(each, 0) for each in given]) * 2 * np.pi / len(names)
        elif len(given):
            turns = (
                numbers(given)
                if trace.get("thetaunit") == "radians"
                else np.deg2rad(numbers(given))
            )
        else:
            turns = np.linspace(0, 2 * np.pi, len(radii), endpoint=False)
        length = min(len(radii), len(turns), POINTS_MAX)
        _polar_trace(plot, (ax, tops), trace, (turns[:length], radii[:length]), len(names))
    if names:
        ax.set_xticks(
            np.arange(len(names)) * 2 * np.pi / len(names), [clean(name) for name in names]
        )
    limits = (layout.get("radialaxis") or {}).get("range")
    if limits:
        ax.set_rlim(*map(float, limits))
    else:
        ax.set_rlim(bottom=min(0, ax.get_rmin()))
    ax.tick_params(labelsize=10 * POINT, labelcolor=plot.paper.ink)
    ax.spines["polar"].set_visible(False)


def _polar_trace(
    plot: Any, place: tuple[Any, Any], trace: dict[str, Any], points: tuple[Any, Any], names: int
) -> None:
    (ax, tops), (turns, radii) = place, points
    chosen = np.arange(len(radii))
    spots, line = trace.get("marker") or {}, trace.get("line") or {}
    tint = colors(plot, spots, chosen, trace["_color"], trace.get("opacity"))
    if trace["type"] == "barpolar":
        gaps = np.diff(np.unique(turns))
        width = 2 * np.pi / names if names else float(gaps.min()) if len(gaps) else 0.3
        base = np.zeros(len(radii))
        for number, turn in enumerate(turns.round(6).tolist() if tops is not None else []):
            base[number] = tops.get(turn, 0.0)
            tops[turn] = base[number] + float(np.nan_to_num(radii[number]))
        ax.bar(turns, radii, width=width, bottom=base, color=tint, edgecolor="white", linewidth=0.5)
        face: Any = tint[0] if np.ndim(tint) > 1 else tint
        made: Any = Patch(facecolor=face)
    else:
        flat = color(line.get("color"), tint if np.ndim(tint) < 2 else trace["_color"])
        parts = mode(trace, len(radii))
        if "lines" in parts:
            ax.plot(
                turns,
                radii,
                color=flat,
                linewidth=line.get("width", 2) * 0.72,
                linestyle=dash(line.get("dash", "solid")),
            )
        if "markers" in parts:
            ax.scatter(
                turns,
                radii,
                s=(np.asarray(diameters(spots, chosen)) * 0.72) ** 2,
                c=tint if np.ndim(tint) > 1 else [tint],
                zorder=3,
            )
        if trace.get("fill") in ("toself", "tonext"):
            ax.fill(
                turns,
                radii,
                color=color(trace["fillcolor"]) if trace.get("fillcolor") else (*flat[:3], 0.5),
                linewidth=0,
            )
        made = Patch(facecolor=flat)
    if is_listed(plot, trace):
        plot.paper.entries.append((name_of_trace(trace), made))
